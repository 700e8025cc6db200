"""No bundle says that it takes adapters where none could be made for it."""

import json

import pytest

from weft_export.errors import CheckpointError
from weft_export.flags import check_options
from weft_export.options import ExportOptions


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
def test_a_quantised_base_takes_no_adapters(key, tmp_path):
    """Said by the name of the field before torch is loaded. Without adapters it is read."""
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], key: {"quant_method": "gptq"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"adapters are not for weights .* config.json has {key}"):
        check_options(tmp_path, ExportOptions(adapters=4))
    check_options(tmp_path, ExportOptions())


def test_neither_does_a_gguf_file(tmp_path):
    """Its blocks are no matrices that PEFT's weights can be added to."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\x00" * 16)
    with pytest.raises(CheckpointError, match=r"adapters are not for a GGUF file\. Take the checkpoint"):
        check_options(path, ExportOptions(adapters=4))
