"""What `weft up` refuses it refuses in under a second: nothing that takes long to import is imported before."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.numpy import save_file

from weft_proto.bundle_rules import MANIFEST_FILE

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
    "bert": {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "problem_type": "regression"},
    "clip": {"architectures": ["CLIPModel"], "model_type": "clip"},
    "vit": {"architectures": ["ViTForImageClassification"], "model_type": "vit"},
    "whisper": {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"},
    "bloom": {"architectures": ["BloomForCausalLM"], "model_type": "bloom"},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral"},
    "wide": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 264},
    "wider": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 1056,
        "num_attention_heads": 4,
    },
    "falcon": {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "alibi": True},
    "gptq": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "quantization_config": {"quant_method": "gptq"},
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
    "llama --max-pixels 9": "weft up: --max-pixels is not for LlamaForCausalLM",
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
    "bert --mixed-runs": "weft up: --mixed-runs is not for BertForSequenceClassification",
    "clip --paged --precision fp16": "weft up: --paged is not for CLIPModel",
    "bloom --paged --precision fp16": "weft up: --paged is not for BloomForCausalLM",
    "falcon --paged --precision fp16": "weft up: --paged is not for FalconForCausalLM with alibi",
    "mixtral --paged --precision fp16": "weft up: --precision fp16 is not for MixtralForCausalLM",
    "wide --paged --precision fp16": "weft up: --paged is not for heads of over 256 numbers",
    "wider --paged --precision fp16": "weft up: --paged is not for heads of over 256 numbers",
    "llama --adapters 2 --adapted key,words": "weft up: 'words' is no product of a layer",
    "someone/model --slots 0": "weft up: --slots (WEFT_SLOTS): input should be greater than or equal to 1",
    "someone/model --adapted key": "weft up: --adapted says which products take adapters: it needs --adapters",
    "clip --adapters 2": "weft up: --adapters is not for CLIPModel",
    "gptq --adapters 2": "weft up: gptq: adapters are not for weights that are quantised already",
    "whisper --precision bf16": "weft up: --precision bf16 is not for WhisperForConditionalGeneration",
    "clip --precision int8 --held-out llama/config.json": "weft up: --held-out is not for CLIPModel as it is here",
    "bert --precision int8 --held-out llama/config.json": "weft up: --held-out is not for BertForSequence",
    "vit --max-tokens 8": "weft up: --max-tokens is not for ViTForImageClassification",
    "clip --golden cat": "weft up: --golden: cat is no file; this model answers to a picture",
    "words.gguf --pairs": "weft up: --pairs is not for GPT2LMHeadModel",
    "words.gguf --max-tokens 65": "weft up: --max-tokens 65: the model takes 64 tokens",
    "words.gguf --adapters 2": "weft up: words.gguf: adapters are not for a GGUF file",
    "small.pth --adapters 2": "weft up: small.pth: adapters are not for a .pth file",
    "small.pth --precision bf16": "weft up: --precision bf16 is not for RWKV7ForCausalLM",
    "other.gguf": "weft up: other.gguf: GGUF files of the architecture 'rwkv7' are not read; these are: gemma2,",
    "models": "weft up: models is a model repository: its bundles are exported already. `weft serve models`",
    "models/en-es": "weft up: models/en-es is a model of a repository: its bundles are exported already. `weft serve"
    " models` serves it",
    "models/en-es/1": "weft up: models/en-es/1 is a bundle of Weft already: `weft serve models` serves it",
    "llama --device cuda": "weft up: --device (WEFT_DEVICE): cuda needs another ONNX Runtime",
    "huge": "weft up: the model's weights take 4e+06 GB",
    "huge.pth": "weft up: the model's weights take 4.4e+03 GB",
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
    (tmp_path / "small.pth").write_bytes(b"not read")
    with (tmp_path / "huge.pth").open("wb") as file:
        file.truncate(2**42)
    for name, architecture in {"words.gguf": "gpt2", "other.gguf": "rwkv7"}.items():
        write_header(tmp_path / name, architecture)
    (tmp_path / "models" / "en-es" / "1").mkdir(parents=True)
    (tmp_path / "models" / "en-es" / "1" / MANIFEST_FILE).touch()
    (tmp_path / "slow").mkdir()
    for name in SLOW:
        (tmp_path / "slow" / f"{name}.py").write_text(
            f"import os\nos.write(2, b'{name} was imported\\n')\nos._exit(77)\n"
        )
    for name, value in {**PORTS, "XDG_CACHE_HOME": str(tmp_path / "kept")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "slow"), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


def write_header(path, architecture):
    """Write what a GGUF file begins with."""
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_token_list(["a"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def test_no_refusal_waits_for_a_library(home):
    """Each is one line, and neither `weft up` nor the server that it asks has imported what takes long."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        lines = [line.replace("{}", port) for line in REFUSED]
        program = f"from weft_command.running import run\nprint([run(['up', *line.split()]) for line in {lines!r}])"
        done = subprocess.run([sys.executable, "-c", program], cwd=home, capture_output=True, text=True, check=False)
    expected = [said.replace("{}", port) for said in REFUSED.values()]

    told = done.stderr.splitlines()
    assert expected == [line[: len(said)] for said, line in zip(expected, told, strict=False)] + told[len(expected) :]
    assert {1, 2} == set(json.loads(done.stdout))
    assert not (home / "kept").exists()


def test_the_law_would_see_a_library_that_is_imported(home):
    """A module of that name ends a process, so the refusals above were made without it."""
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True, check=False, cwd=home)
    assert (77, "torch was imported\n") == (done.returncode, done.stderr)
