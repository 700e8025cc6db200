"""Adapters of Hugging Face models: what PEFT writes of them is added to the weights that it is for."""

import pytest
import torch
from decoder_kinds import DECODERS
from foreign import LOGITS, converted, furthest, made, token_rows
from tiny_adapters import write_adapter

from weft_export.adapters.merging import pairs_of, write_merged
from weft_export.adapters.peft import read_adapter
from weft_export.graphs.adapting import adapter_spec

KINDS = {kind.name: kind for kind in DECODERS}
TARGETS = {"llama": ("q_proj", "v_proj", "down_proj"), "gpt2": ("c_attn", "c_fc")}
RANK, ALPHA = 2, 6


def targets(model, names):
    """The products of a model with one of some names, by path."""
    return {path: module for path, module in model.named_modules() if path.rpartition(".")[2] in names}


@pytest.mark.parametrize("name", TARGETS)
def test_an_adapter_of_theirs_is_added_to_their_weights(name, tmp_path):
    """Logits are those of transformers with alpha / r * B A added, also where a weight is stored turned."""
    theirs = made(KINDS[name], 0, tmp_path / "model")
    is_turned = name == "gpt2"
    products = targets(theirs, TARGETS[name])
    shapes = {path: tuple(product.weight.shape)[:: -1 if is_turned else 1] for path, product in products.items()}
    adapter = write_adapter(tmp_path / "adapter", shapes, rank=RANK, lora_alpha=ALPHA, fan_in_fan_out=is_turned)
    changes = read_adapter(adapter)
    assert products.keys() == changes.keys()
    with torch.no_grad():
        for path, change in changes.items():
            added = ALPHA / RANK * change.b @ change.a
            products[path].weight += added.T if is_turned else added
    (tmp_path / "merged").mkdir()
    write_merged(tmp_path / "model", changes, tmp_path / "merged")
    base, merged = (converted(tmp_path / each, max_tokens=96) for each in ("model", "merged"))
    (row,) = token_rows(theirs.config.vocab_size, (48,))
    with torch.inference_mode():
        expected = theirs(torch.tensor([row])).logits[0]
        assert LOGITS >= furthest(merged.model.decode(torch.tensor([row]))[0], expected)
        assert 100 * LOGITS < furthest(base.model.decode(torch.tensor([row]))[0], expected)
    pairs = pairs_of(base.model, merged.model, adapter_spec(base.model, RANK))
    # Of three products that ours has in one, each has a rank of its own.
    fused = RANK * (1 if is_turned else 2)
    assert {fused, RANK} == {a.shape[1] for a, _ in pairs.values()}
