"""Checkpoints: what is written is read, and what is broken is named."""

import json
import os
from dataclasses import fields, replace

import pytest
import safetensors.torch
import torch
from tiny import CHECKPOINTS, save_tiny

from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_round_trip(name, tmp_path):
    """A saved checkpoint loads with equal weights and sizes, and is equal in every other field; it is in eval mode."""
    expected = CHECKPOINTS[name]()
    actual = load_checkpoint(save_tiny(name, tmp_path))

    assert not actual.model.training
    assert expected.model.config == actual.model.config
    for field in (field.name for field in fields(expected) if field.name != "model"):
        assert getattr(expected, field) == getattr(actual, field), field
    for key, tensor in expected.model.state_dict().items():
        assert torch.equal(actual.model.state_dict()[key], tensor)


def test_the_metric_is_kept(tmp_path):
    """How a checkpoint's answers are scored is saved with it; unless it says so, its task has a metric of its own."""
    checkpoint = CHECKPOINTS["tiny-translate"]()
    save_checkpoint(tmp_path, replace(checkpoint, metric="token_accuracy"))

    assert "exact_match" == checkpoint.scored_by
    assert "token_accuracy" == load_checkpoint(tmp_path).scored_by


def test_half_weights_load_as_float32(tmp_path):
    """float16 halves the file; the weights come back as the nearest float32 numbers."""
    checkpoint = CHECKPOINTS["tiny-text"]()
    save_checkpoint(tmp_path / "half", checkpoint, torch.float16)
    save_checkpoint(tmp_path / "full", checkpoint)

    model = load_checkpoint(tmp_path / "half").model
    assert torch.float32 == model.head.weight.dtype
    assert torch.equal(model.head.weight, checkpoint.model.head.weight.half().float())
    half, full = ((tmp_path / kind / "model.safetensors").stat().st_size for kind in ("half", "full"))
    assert half < 0.6 * full


def edit_config(directory, change):
    """Rewrite config.json through a function."""
    config = json.loads((directory / "config.json").read_text())
    change(config)
    (directory / "config.json").write_text(json.dumps(config))


def edit_weights(directory, change):
    """Rewrite model.safetensors through a function."""
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    change(tensors)
    safetensors.torch.save_file(tensors, directory / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda c: c.update(family="mlp"), "unknown family 'mlp'; known are"),
        (lambda c: c.update(family=["gpt"]), r"unknown family \['gpt'\]; known are"),
        (lambda c: c.pop("family"), "'family' is missing; known are"),
        (lambda c: c.update(model=[1]), r"model must be an object with the sizes of encoder_decoder, not \[1\]"),
        (lambda c: c.update(text=3), "text must be of type dict, not int"),
        (lambda c: c.update(text=None), "text must be of type dict, not NoneType"),
        (lambda c: c.pop("model"), "'model' is missing"),
        (lambda c: c.pop("golden"), "'golden' is missing"),
        (lambda c: c["model"].update(d_model=33), "multiple of"),
        (lambda c: c["model"].update(width=3), "width"),
        (lambda c: c.update(extra=1), "unknown key 'extra'"),
        (lambda c: c["text"].update(no_such_field=1), "no_such_field"),
        (lambda c: c["text"].update(target_vocab_size=5), "text.target_vocab_size .5. differs"),
        (lambda c: c["text"].update(max_total_tokens=99), "text.max_total_tokens .99. differs"),
        (lambda c: c["text"].update(end_ids=[1000]), "token id 1000"),
        (lambda c: c["text"].pop("start_id"), "start_id"),
        (lambda c: c["text"].update(pad_id=1000), "text.pad_id is outside text.source_vocab_size"),
        (lambda c: c["text"].update(source_tokenizer="../up.json"), "not the name of a file"),
        (lambda c: c["text"].update(source_tokenizer="none.json"), "cannot read"),
        (lambda c: c["text"].update(source_languages=["en", "en"]), "text.source_languages has 'en' twice"),
        (lambda c: c["text"].update(target_languages=[""]), "text.target_languages has '', which is no BCP-47 tag"),
        (lambda c: c["decoding"].update(max_new_tokens=0), "between 1 and text.max_new_tokens, which is 24, not 0"),
        (lambda c: c["decoding"].update(max_new_tokens="many"), "decoding.max_new_tokens must be of type int"),
        (lambda c: c["decoding"].update(max_new_tokens=True), "decoding.max_new_tokens must be of type int, not bool"),
        (lambda c: c["decoding"].update(seed=1), "decoding has no field 'seed'"),
        (lambda c: c.update(description=None), "description must be of type str"),
        (lambda c: c.update(labels=[1]), "a label must be of type str"),
        (lambda c: c.update(attention_layer="last"), "attention_layer must be of type int"),
        (lambda c: c.update(attention_layer=2), "attention_layer"),
        (lambda c: c.update(attention_layer=True), "attention_layer must be of type int, not bool"),
        (lambda c: c.update(description="half \ud83d"), "config.json, description has half of a surrogate pair"),
        (lambda c: c.update(labels=["a", "\ud83d"]), "config.json, labels, 1 has half of a surrogate pair"),
        (lambda c: c["golden"].update(text="\udc00"), "config.json, golden, text has half of a surrogate pair"),
        (lambda c: c.update({"\ud83d": 1}), "config.json has half of a surrogate pair"),
        (lambda c: c["text"].update(source_tokenizer="a\0b"), "is not the name of a file"),
        (lambda c: c["text"].update(source_tokenizer="tokenizer no 1"), "cannot be in a bundle"),
        (lambda c: c["text"].update(nope=1), 'no field named "nope"'),
        (lambda c: c.update(metric="bleu"), "the metric 'bleu' is not one of exact_match, token_accuracy"),
        (lambda c: c.update(metric=1), "metric must be of type str"),
        (lambda c: c.update(labels=["a"]), "only a classifier"),
        (lambda c: c.update(golden={"image": "x.png"}), "cannot read"),
        (lambda c: c["golden"].update(token_ids=[3]), "text, image or audio, and nothing else but languages"),
        (lambda c: c.update(golden={}), "text, image or audio, and nothing else but languages"),
        (lambda c: c.update(golden="the dog"), "golden must be of type dict"),
    ],
)
def test_broken_config_is_named(change, complaint, tmp_path):
    """A config.json that contradicts itself raises CheckpointError saying where."""
    edit_config(save_tiny("tiny-translate", tmp_path), change)

    with pytest.raises(CheckpointError, match=complaint) as refused:
        load_checkpoint(tmp_path)
    assert 1 == len(str(refused.value).splitlines())


@pytest.mark.parametrize("image", ["", None])
def test_a_golden_image_without_a_name_is_refused(image, tmp_path):
    """An empty string or null names no file."""
    edit_config(save_tiny("tiny-image", tmp_path), lambda c: c.update(golden={"image": image}))

    with pytest.raises(CheckpointError, match=r"golden\.image is empty|golden needs image"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "source.json"])
def test_missing_file_is_named(name, tmp_path):
    """A checkpoint without one of its files raises CheckpointError with the file's name."""
    (save_tiny("tiny-translate", tmp_path) / name).unlink()

    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "\u0000", "1" * 9999])
def test_config_that_is_no_json_object(content, tmp_path):
    """A config.json that is not a JSON object raises CheckpointError."""
    (save_tiny("tiny-image", tmp_path) / "config.json").write_text(content)

    with pytest.raises(CheckpointError, match="is not"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t.pop("head.bias"), "head.bias is missing"),
        (lambda t: t.update(more=torch.zeros(1)), "more is unexpected"),
        (lambda t: t.update({"head.bias": torch.zeros(3)}), r"head.bias has shape \[3\], expected \[10\]"),
        (
            lambda t: t.update({"head.bias": torch.zeros(10, dtype=torch.int32)}),
            "head.bias is of the type I32; float32, float16 and bfloat16 are read",
        ),
    ],
)
def test_broken_weights_are_named(change, complaint, tmp_path):
    """A missing, unexpected, mis-shaped or mistyped tensor raises CheckpointError with its name."""
    edit_weights(save_tiny("tiny-image", tmp_path), change)

    with pytest.raises(CheckpointError, match=complaint):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("content", ["[" * 200_000, '{"family": "vit", "model": ' + "[" * 900 + "]" * 900 + "}"])
def test_a_config_nested_deeply_is_refused(content, tmp_path):
    """Brackets upon brackets are the file's fault, not ours: those that end, and those that do not."""
    (save_tiny("tiny-image", tmp_path) / "config.json").write_text(content)

    with pytest.raises(CheckpointError, match=r"config\.json is nested too deeply"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "target.json"])
def test_a_pipe_is_refused(name, tmp_path):
    """A file that nobody writes to would be waited for, for ever."""
    (save_tiny("tiny-translate", tmp_path) / name).unlink()
    os.mkfifo(tmp_path / name)

    with pytest.raises(CheckpointError, match=f"{name} is not a regular file"):
        load_checkpoint(tmp_path)


def test_a_huge_file_is_refused(tmp_path):
    """A file that is no config by its size is not read."""
    with (save_tiny("tiny-translate", tmp_path) / "config.json").open("r+b") as file:
        file.truncate(2**40)

    with pytest.raises(CheckpointError, match=r"config\.json has 1099511627776 bytes; 67108864 are allowed"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(("name", "complaint"), [("config.json", "is a file"), ("nothing", "does not exist")])
def test_what_is_no_directory_is_named(name, complaint, tmp_path):
    """A checkpoint is a directory; a file in one, or nothing at all, is said to be that."""
    save_tiny("tiny-image", tmp_path)
    with pytest.raises(CheckpointError, match=f"{complaint}; a checkpoint is a directory"):
        load_checkpoint(tmp_path / name)


def test_weights_that_are_no_safetensors(tmp_path):
    """A cut weights file raises CheckpointError."""
    path = save_tiny("tiny-image", tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(CheckpointError, match="not a safetensors file"):
        load_checkpoint(tmp_path)


def test_sizes_are_held_to_the_weights_before_anything_is_made(tmp_path):
    """A config.json that asks for terabytes is refused by the weights' shapes at once."""
    directory = save_tiny("tiny-image", tmp_path / "checkpoint")
    config = json.loads((directory / "config.json").read_text())
    config["model"]["d_ff"] = 10**12
    (directory / "config.json").write_text(json.dumps(config))

    with pytest.raises(CheckpointError, match="1000000000000"):
        load_checkpoint(directory)


@pytest.mark.parametrize("file", ["golden picture.png", "bundle.json", "decoder.onnx"])
def test_a_file_that_cannot_be_in_a_bundle_is_named(file):
    """A name that a server refuses, or that a graph or the manifest has."""
    checkpoint = CHECKPOINTS["tiny-image"]()
    golden = bundle_pb2.Golden(image_path=file)
    with pytest.raises(CheckpointError, match="cannot be in a bundle"):
        replace(checkpoint, golden=golden, files={file: b""})
