"""What a path holds that is no checkpoint."""

import pytest

from weft_export.checkpoints.formats import check_format
from weft_export.errors import CheckpointError

BASE = '{"model_type": "gpt2"}'
FOLDERS = {
    "config.json: {}, model.bin, shared_vocabulary.json": "is of CTranslate2",
    "model-q4_k.gguf": "has files of GGUF, each a model or a part of one: give the file",
    f"config.json: {BASE}, model.onnx": "is of ONNX: `weft wrap",
    f"config.json: {BASE}, onnx/model.onnx": "is of ONNX: `weft wrap",
    f"config.json: {BASE}, tf_model.h5": "is of TensorFlow or Flax",
    f"config.json: {BASE}, flax_model.msgpack": "is of TensorFlow or Flax",
    "saved_model.pb, variables/variables.index": "is of TensorFlow or Flax",
    "adapter_config.json, adapter_model.safetensors": "is an adapter of PEFT: its base is exported with --adapters",
    "bundle.json, decoder.onnx": "is a bundle of Weft already: `weft serve REPOSITORY`",
    "en-es/1/bundle.json": "is a model repository: its bundles are exported already. `weft serve",
    "model_index.json, unet/config.json": "is of diffusers",
    "README.md": "has no config.json; a checkpoint is a directory with it and model.safetensors",
    "": "has no config.json",
}
CHECKPOINTS = (
    'config.json: {"family": "gpt"}, model.safetensors',
    f"config.json: {BASE}, model.safetensors, onnx/model.onnx, tf_model.h5, adapter_config.json",
    f"config.json: {BASE}, pytorch_model-00001-of-00002.bin, pytorch_model.bin.index.json, model.onnx",
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

    assert f"{tmp_path} {said}" == str(refused.value)[: len(f"{tmp_path} {said}")]


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
