"""Adapters of Hugging Face models: what PEFT writes of them is added to the weights that it is for."""

import pytest
import torch
from decoder_kinds import DECODERS
from encoder_kinds import CLASSIFIERS, EMBEDDERS
from foreign import LOGITS, converted, furthest, made, token_rows
from test_embedders import dense, described
from test_pairs import joining, with_segments
from tiny_adapters import write_adapter

from weft_export.adapters.export_adapter import export_adapter
from weft_export.adapters.merging import pairs_of, write_merged
from weft_export.adapters.peft import read_adapter
from weft_export.converters.converter import Choices
from weft_export.converters.tensors import StoredTensors
from weft_export.export import adaptable, export_checkpoint
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


def exported(directory, tmp_path, choices):
    """Export a checkpoint with places for adapters, and return its bundle and a random adapter of its values."""
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(directory, bundle, adapters=adaptable(RANK, None), choices=choices, explains=False)
    stored = StoredTensors(directory)
    modules = {name.removesuffix(".weight"): entry.shape for name, entry in stored.entries.items() if ".value." in name}
    shapes = {module: shape for module, shape in modules.items() if len(shape) == 2}
    return bundle, write_adapter(tmp_path / "adapter", shapes)


@pytest.mark.parametrize("files", [True, False])
def test_an_embedder_takes_adapters(files, tmp_path):
    """Its pooling is what the files of sentence-transformers say, or what was chosen when its bundle was made."""
    width = made(EMBEDDERS[0], 0, tmp_path / "model").config.hidden_size
    if files:
        described(tmp_path / "model", "Pooling", "Dense", "Normalize", pooling="mean")
        dense(tmp_path / "model" / "2_Dense", width, 5, "torch.nn.modules.activation.Tanh")
    bundle, adapter = exported(tmp_path / "model", tmp_path, None if files else Choices(pooling="max"))
    manifest = export_adapter(adapter, bundle, tmp_path / "model").manifest
    assert LOGITS >= manifest.parity.max_abs_error
    assert (5 if files else width) == len(manifest.golden.embedding)


def test_a_judge_of_several_labels_takes_adapters(tmp_path):
    """The bundle says that it judges two texts."""
    made(with_segments(CLASSIFIERS[0]), 1, tmp_path / "model")
    joining(tmp_path / "model", separator=5)
    bundle, adapter = exported(tmp_path / "model", tmp_path, Choices(pairs=True))
    assert LOGITS >= export_adapter(adapter, bundle, tmp_path / "model").manifest.parity.max_abs_error
