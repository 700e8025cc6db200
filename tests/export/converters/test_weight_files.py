"""The forms in which others keep weights: each becomes the same numbers."""

import json
import weakref

import pytest
import safetensors.torch
import torch
from decoder_kinds import DECODERS, llama
from hf_models import Kind, converted, furthest, made, token_rows

from weft_export.checkpoints.weights import Entry
from weft_export.converters.filling import fill
from weft_export.converters.registry import all_converters
from weft_export.converters.sources import computed
from weft_export.converters.tensors import NamedTensors

KINDS = {kind.name: kind for kind in DECODERS}
CONVERTED = {converter.model_type: converter for converter in all_converters()}
TIED = Kind("tied", "LlamaForCausalLM", lambda rng: {**llama(rng), "tie_word_embeddings": True})


def logits(model, directory):
    """Return the logits of theirs and of ours for some text."""
    (row,) = token_rows(300, (40,))
    ids = torch.tensor([row])
    with torch.inference_mode():
        return model(ids).logits[0], converted(directory, max_tokens=64).model.decode(ids)[0]


def as_tensors(directory, change):
    """Rewrite model.safetensors through a function that returns other tensors."""
    path = directory / "model.safetensors"
    safetensors.torch.save_file(change(safetensors.torch.load_file(path)), path)


def as_pickle(directory, tensors):
    """Keep tensors as torch.save does, and nothing else."""
    (directory / "model.safetensors").unlink()
    torch.save(tensors, directory / "pytorch_model.bin")


def as_old_pickle(directory, tensors):
    """Keep them as torch.save did before 2020."""
    (directory / "model.safetensors").unlink()
    torch.save(tensors, directory / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def as_pickles(directory, tensors):
    """Keep them in two such files."""
    (directory / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"pytorch_model-00001-of-00002.bin": names[:7], "pytorch_model-00002-of-00002.bin": names[7:]}
    for file, held in files.items():
        torch.save({name: tensors[name] for name in held}, directory / file)
    index = {"metadata": {}, "weight_map": {name: file for file, held in files.items() for name in held}}
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("keep", [as_pickle, as_old_pickle, as_pickles])
def test_pickles_of_tensors_are_read(keep, tmp_path):
    """What torch.save wrote holds the output projection too, even where it is the table of tokens."""
    model = made(TIED, 0, tmp_path)
    keep(tmp_path, model.state_dict())
    expected, actual = logits(model, tmp_path)
    assert furthest(actual, expected) < 1e-4


def test_bfloat16_is_read_as_float32(tmp_path):
    """A directory of bfloat16 gives what transformers gives with dtype=torch.float32."""
    model = made(TIED, 0, tmp_path)
    model.bfloat16().save_pretrained(tmp_path)
    model = type(model).from_pretrained(tmp_path, dtype=torch.float32).eval()
    expected, actual = logits(model, tmp_path)
    assert furthest(actual, expected) < 1e-4


def test_several_files_are_read(tmp_path):
    """Safetensors in parts, with an index."""
    model = made(TIED, 0, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    expected, actual = logits(model, tmp_path)
    assert furthest(actual, expected) < 1e-4


@pytest.mark.parametrize("kept", ["model.embed_tokens.weight", "lm_head.weight", "both"])
def test_a_tied_table_may_have_either_name_or_both(kept, tmp_path):
    """It is one weight, whatever a file calls it."""
    model = made(TIED, 0, tmp_path)
    names = ["model.embed_tokens.weight", "lm_head.weight"] if kept == "both" else [kept]

    def change(tensors):
        table = tensors.pop("model.embed_tokens.weight")
        return tensors | {name: table.clone() for name in names}

    as_tensors(tmp_path, change)
    expected, actual = logits(model, tmp_path)
    assert furthest(actual, expected) < 1e-4


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("gpt2", "transformer."), ("bloom", "transformer."), ("falcon", "transformer."), ("opt", "model.")],
)
def test_names_may_lack_what_they_all_begin_with(name, prefix, tmp_path):
    """Files of the first models of these kinds were saved without their heads."""
    model = made(KINDS[name], 1, tmp_path)
    as_tensors(tmp_path, lambda tensors: {key.removeprefix(prefix): tensor for key, tensor in tensors.items()})
    expected, actual = logits(model, tmp_path)
    assert furthest(actual, expected) < 1e-4


def test_masks_in_a_file_are_passed_over(tmp_path):
    """GPT-2's files hold the causal mask of each layer."""
    model = made(KINDS["gpt2"], 0, tmp_path)
    masks = {"transformer.h.0.attn.bias": torch.ones(1, 1, 9, 9), "transformer.h.0.attn.masked_bias": torch.zeros(1)}
    as_tensors(tmp_path, lambda tensors: tensors | masks)
    expected, actual = logits(model, tmp_path)
    assert furthest(actual, expected) < 1e-4


def test_a_context_beyond_the_first_one_takes_the_long_factors(tmp_path):
    """Phi 3's second list is for bundles with more than original_max_position_embeddings tokens."""
    lists = {"short_factor": [1.0] * 16, "long_factor": [1.0 + 0.5 * pair for pair in range(16)]}
    changed = {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "original_max_position_embeddings": 39,
        "sliding_window": None,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, **lists},
    }
    model = made(Kind("long", "Phi3ForCausalLM", lambda rng: KINDS["phi3"].draw(rng) | changed), 0, tmp_path)
    expected, actual = logits(model, tmp_path)
    assert furthest(actual, expected) < 1e-4


def test_a_tensor_of_theirs_is_read_once_and_let_go():
    """All experts of a layer may lie in one, and all layers together are as large as the model."""
    stored, alive, told = NamedTensors(), weakref.WeakSet(), []

    def read():
        told.append(len(alive))
        alive.add(tensor := torch.zeros(2, 3))
        return tensor

    sources = {}
    for name in ("first", "second"):
        stored.add(None, name, Entry((2, 3), "F32"), read)
        sources |= {f"{name}.{row}": computed(lambda both, row=row: both[row] + 1, name) for row in range(2)}
    assert [1.0] * 3 == fill(sources, stored)["second.1"].tolist()
    assert [0, 0] == told
