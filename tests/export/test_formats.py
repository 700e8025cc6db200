"""What a path holds that is no checkpoint."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from weft_export.checkpoints.formats import check_format
from weft_export.errors import CheckpointError
from weft_export.up.kept import key_of

BASE = '{"model_type": "gpt2"}'
FOLDERS = {
    "config.json: {}, model.bin, shared_vocabulary.json": "is of CTranslate2",
    "model-q4_k.gguf": "has files of GGUF, each a model or a part of one: give the file",
    "rwkv7-g1a.pth, rwkv_vocab_v20230424.txt": (
        "has files that torch.save wrote. If one is an RWKV 7, give the file, {}/NAME.pth"
    ),
    f"config.json: {BASE}, model.onnx": "is of ONNX: `weft wrap",
    f"config.json: {BASE}, onnx/model.onnx": "is of ONNX: `weft wrap",
    f"config.json: {BASE}, tf_model.h5": "is of TensorFlow or Flax",
    f"config.json: {BASE}, flax_model.msgpack": "is of TensorFlow or Flax",
    "saved_model.pb, variables/variables.index": "is of TensorFlow or Flax",
    "bundle.json, decoder.onnx": "is a bundle of Weft already: `weft serve /",
    "1/bundle.json": "is a model of a repository: its bundles are exported already. `weft serve /",
    "en-es/1/bundle.json": "is a model repository: its bundles are exported already. `weft serve",
    "model_index.json, unet/config.json": "is of diffusers",
    f"modules.json, 0_Transformer/config.json: {BASE}, 1_Pooling/config.json": "is of an old sentence-transformers",
    "README.md": "has no config.json; a checkpoint is a directory with it and model.safetensors",
    "": "has no config.json",
    f"checkpoint-500/config.json: {BASE}": "has no config.json; {}/checkpoint-500 has one: give that folder",
    f"snapshots/ab/config.json: {BASE}, refs/main": "has no config.json; {}/snapshots/ab has one: give that folder",
    f"checkpoint-500/config.json: {BASE}, checkpoint-1500/config.json: {BASE}": (
        "has no config.json; {}/checkpoint-1500 has one: give it, or another one beside it"
    ),
    "checkpoint-7/adapter_config.json": "has no config.json; {}/checkpoint-7 has one: give that folder",
    "config.json: <html>, model.safetensors": "/config.json is not JSON",
    "config.json: [], model.safetensors": "/config.json is not a JSON object",
    'config.json: {"architectures": ["BertModel"]}, model.safetensors': "/config.json has no model_type",
}
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
CHECKPOINTS = (
    'config.json: {"family": "gpt"}, model.safetensors',
    f"config.json: {BASE}, model.safetensors, onnx/model.onnx, tf_model.h5, adapter_config.json",
    f"config.json: {BASE}, pytorch_model-00001-of-00002.bin, pytorch_model.bin.index.json, model.onnx",
    f"config.json: {BASE}, consolidated.00.pth",
    f"config.json: {BASE}",  # what it lacks, the reading of it says
)


def lay(home, files):
    """Make the files of a line: names, some with a content."""
    for each in filter(None, files.split(", ")):
        name, _, content = each.partition(": ")
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)
    return home


@pytest.mark.parametrize(("files", "said"), FOLDERS.items())
def test_a_folder_of_another_format_is_named_with_what_to_do(files, said, tmp_path):
    """Its own tools know it by these files. Nothing of it is read."""
    with pytest.raises(CheckpointError) as refused:
        check_format(lay(tmp_path, files))

    expected = f"{tmp_path}{'' if said[:1] == '/' else ' '}{said.format(tmp_path)}"
    assert expected == str(refused.value)[: len(expected)]


@pytest.mark.parametrize("name", ["config.json", "model.gguf"])
def test_a_pointer_of_git_lfs_is_no_file(name, tmp_path):
    """A clone without Git LFS has such pointers in place of files. Each reader of files says so."""
    (tmp_path / name).write_text(LFS)
    with pytest.raises(CheckpointError, match=rf"{name} is a pointer of Git LFS.*`git lfs pull`"):
        check_format(tmp_path / name if name == "model.gguf" else tmp_path)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    """Whoever opens it would wait for ever: it is refused by its name, also where only a digest is made."""
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="is not a regular file"):
        check_format(tmp_path)
    with pytest.raises(CheckpointError, match="is not a regular file"):
        key_of(tmp_path, "name", {})


@pytest.mark.parametrize("files", CHECKPOINTS)
def test_a_checkpoint_may_have_other_formats_beside_it(files, tmp_path):
    """Weights that are read and a config.json that is known make a checkpoint, whatever else lies there."""
    check_format(lay(tmp_path, files))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.onnx", "is of ONNX: `weft wrap"),
        ("model.h5", "is of TensorFlow"),
        ("model.safetensors", "is a file; give its directory"),
        ("notes.txt", "is a file; a checkpoint is a directory"),
        ("none", "does not exist; a checkpoint is a directory"),
    ],
)
def test_a_file_is_named_likewise(name, said, tmp_path):
    """A path to the file itself is a common mistake."""
    if name != "none":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(CheckpointError) as refused:
        check_format(tmp_path / name)

    assert f"{tmp_path / name} {said}" == str(refused.value)[: len(f"{tmp_path / name} {said}")]


def test_a_name_of_the_hub_gets_the_command_that_fetches_it(tmp_path, monkeypatch):
    """Where no such path is here. `weft up` says how it fetches what has no safetensors by the same words."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError) as refused:
        check_format(Path("BAAI/bge-m3"))

    assert "`hf download BAAI/bge-m3 --local-dir bge-m3` fetches it" in str(refused.value)
    assert "`weft up BAAI/bge-m3` fetches and serves it" in str(refused.value)


def adapter(home, **said):
    """Return what is said of a folder with an adapter of this config."""
    home.mkdir()
    (home / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, **said}))
    with pytest.raises(CheckpointError) as refused:
        check_format(home)
    return str(refused.value)


def test_an_adapter_alone_gets_the_commands_that_serve_it(tmp_path):
    """They have the highest rank of its config, its base if that is here, and a name that it may have."""
    base = lay(tmp_path / "my base", f"config.json: {BASE}, model.safetensors")

    said = adapter(tmp_path / "Formal", base_model_name_or_path=str(base), rank_pattern={"q_proj": 16})

    assert f"`weft export '{base}' models/base/1 --adapters 16`" in said
    assert f"`weft export-adapter {tmp_path}/Formal models/base/1 --checkpoint '{base}' --name adapter`" in said
    assert "`weft serve models`" in said


def test_a_config_beside_an_adapter_makes_no_model_of_it(tmp_path):
    """PEFT's weights are those of the adapter alone."""
    lay(tmp_path / "home", f"config.json: {BASE}, adapter_model.safetensors")
    (tmp_path / "home" / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}')
    with pytest.raises(CheckpointError, match="is an adapter of PEFT, which is served beside its base"):
        check_format(tmp_path / "home")


def test_an_adapter_alone_says_where_its_base_is_to_be_had(tmp_path):
    """A name of the hub is fetched. What is not here, is quantised or is not named, the user has to find."""
    (lay(tmp_path / "base", "model.safetensors") / "config.json").write_text(
        json.dumps({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}})
    )

    assert "`hf download org/Llama --local-dir Llama` fetches that. Three" in adapter(
        tmp_path / "a", base_model_name_or_path="org/Llama"
    )
    assert "--checkpoint Llama`" in adapter(tmp_path / "b", base_model_name_or_path="org/Llama")
    assert "BASE stands for /gone/llama, which is not here." in adapter(
        tmp_path / "c", base_model_name_or_path="/gone/llama"
    )
    assert "whose weights are quantised" in adapter(tmp_path / "d", base_model_name_or_path=str(tmp_path / "base"))
    assert "BASE stands for the directory of the model that it was trained on" in adapter(tmp_path / "e", r="eight")


@pytest.mark.parametrize(
    ("said", "why"),
    [({"r": 257}, "of rank 257, and a bundle takes 256 at most"), ({"peft_type": "IA3"}, "of the type 'IA3'")],
)
def test_an_adapter_that_no_command_takes_gets_none(said, why, tmp_path):
    """What is advised is what works."""
    assert why in adapter(tmp_path / "a", **said)
    assert "weft export" not in adapter(tmp_path / "b", **said)


@pytest.mark.parametrize(
    ("here", "given"),
    [
        ("", "models/en-es/1"),
        ("", "models/en-es"),
        ("models", "en-es/1"),
        ("models", "en-es"),
        ("models/en-es", "1"),
        ("models/en-es", "."),
        ("models/en-es/1", "."),
        ("models/en-es/1", ".."),
        ("models/en-es/1", "../../en-es/1"),
    ],
)
def test_a_bundle_and_a_model_of_bundles_name_the_repository_that_can_be_served(here, given, tmp_path, monkeypatch):
    """However the folder is typed: the command that is named serves the folder of all models."""
    (tmp_path / "models" / "en-es" / "1").mkdir(parents=True)
    (tmp_path / "models" / "en-es" / "1" / "bundle.json").touch()
    monkeypatch.chdir(tmp_path / here)
    with pytest.raises(CheckpointError) as raised:
        check_format(Path(given))
    named = re.search("`weft serve (.+?)`", str(raised.value))[1]

    assert (tmp_path / "models").samefile(named)


@pytest.mark.parametrize("files", ["1/bundle.json", "en-es/1/bundle.json", "model.onnx", "bundle.json"])
def test_a_command_takes_a_path_with_spaces_as_one_word(files, tmp_path):
    """A shell takes the command as it is told."""
    folder = tmp_path / "my models" / "en-es" / "1"
    folder.mkdir(parents=True)
    with pytest.raises(CheckpointError) as refused:
        check_format(lay(folder, files))
    named = shlex.split(re.search("`(weft .+?)`", str(refused.value))[1])[2]

    assert {folder, folder.parent, folder.parent.parent} & {Path(named)}
