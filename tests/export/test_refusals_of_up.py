"""What `weft up` refuses it refuses in under a second: nothing that takes long to import is imported before."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

pytestmark = pytest.mark.slow

SAYS = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "t5": {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"},
    "vision": {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "decoder": {"model_type": "gpt2", "n_positions": 96},
    },
    "trocr": {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "decoder": {"model_type": "trocr", "max_position_embeddings": 96},
    },
}
# A command line behind `weft up`, and how the line begins that says what is wrong. {} is a port that is taken.
REFUSED = {
    "": "weft: Missing argument 'checkpoint'",
    "nowhere": "weft up: nowhere does not exist",
    "--port 7100 llama": "weft up: the checkpoint comes first",
    "llama --precision int3": "weft: Invalid value for '--precision': 'int3' is not one of",
    "llama --pairs": "weft up: --pairs is not for LlamaForCausalLM",
    "llama --max-source-tokens 9": "weft up: --max-source-tokens is not for LlamaForCausalLM",
    "llama --max-tokens 131073": "weft: Invalid value for '--max-tokens': it must be less than or equal to 131072",
    "t5 --max-tokens 131073": "weft: Invalid value for '--max-tokens': it must be less than or equal to 131072",
    "t5 --max-source-tokens 131073": "weft: Invalid value for '--max-source-tokens': it must be less than or equal",
    "vision --max-tokens 97": "weft up: --max-tokens 97: the model takes 96 tokens",
    "trocr --max-tokens 97": "weft up: --max-tokens 97: the model takes 96 tokens",
    "llama --prot 1": "weft up: No such option: --prot",
    "llama --port 70000": "weft up: --port (WEFT_PORT): input should be less than or equal to 65535, not '70000'",
    "llama --slots none": "weft up: --slots (WEFT_SLOTS): input should be a valid integer",
    "llama --api-port {}": "weft up: --api-port (WEFT_API_PORT): cannot listen on 127.0.0.1:{}",
    "llama --tls-cert none.pem": "weft up: --tls-cert (WEFT_TLS_CERT): needs --tls-key",
    "llama --lanes 2 --device cuda": "weft up: --lanes (WEFT_LANES): a CUDA device has one lane",
    "llama --device cuda": "weft up: --device (WEFT_DEVICE): cuda needs another ONNX Runtime",
    "huge": "weft up: the model's weights take 4e+06 GB",
}
# A module of this name in front of all others ends the process that imports it.
SLOW = ("torch", "transformers", "onnxruntime", "onnx", "numpy", "huggingface_hub", "PIL")
PORTS = {"WEFT_PORT": "0", "WEFT_HTTP_PORT": "0", "WEFT_API_PORT": "0"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of directories of Hugging Face's kind, for processes that cannot import what takes long."""
    for name, config in SAYS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        save_file({"a": np.zeros(8, np.float32)}, tmp_path / name / "model.safetensors")
    header = json.dumps({"a": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 4 * 10**15]}}).encode()
    (tmp_path / "huge").mkdir()
    (tmp_path / "huge" / "config.json").write_text(json.dumps(SAYS["llama"]))
    (tmp_path / "huge" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (tmp_path / "slow").mkdir()
    for name in SLOW:
        (tmp_path / "slow" / f"{name}.py").write_text(
            f"import os\nos.write(2, b'{name} was imported\\n')\nos._exit(77)\n"
        )
    for name, value in {**PORTS, "XDG_CACHE_HOME": str(tmp_path / "kept")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "slow"), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


def test_no_refusal_waits_for_a_library(home):
    """Each is one line, and neither `weft up` nor the server that it asks has imported what takes long."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        lines = [line.replace("{}", port) for line in REFUSED]
        program = f"from weft_command.running import run\nprint([run(['up', *line.split()]) for line in {lines!r}])"
        done = subprocess.run([sys.executable, "-c", program], cwd=home, capture_output=True, text=True, check=False)
    expected = [said.replace("{}", port) for said in REFUSED.values()]

    assert expected == [told[: len(said)] for said, told in zip(expected, done.stderr.splitlines(), strict=True)]
    assert {1, 2} == set(json.loads(done.stdout))
    assert not (home / "kept").exists()


def test_the_law_would_see_a_library_that_is_imported(home):
    """A module of that name ends a process, so the refusals above were made without it."""
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True, check=False, cwd=home)
    assert (77, "torch was imported\n") == (done.returncode, done.stderr)
