"""The systems that are compared, and what each is run with."""

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
OUT = ROOT / "build" / "bench" / "peers"
WEIGHTS = OUT / "weights"
_APART = ("", "-openvino", "-llamacpp", "-vllm", "-zentorch", "-optimum")
PEERS, OPENVINO, LLAMACPP, VLLM, ZENTORCH, OPTIMUM = (OUT / f".venv{name}" / "bin" / "python" for name in _APART)
_WITH_INT4 = ("fp32", "int8", "int4")
# Weights of 8 bits in blocks, beside a peer that has those.
_BLOCKS_OF_8_BITS = "int8-weights"


@dataclass(frozen=True)
class Listed:
    """A system: its adapter, the Python that runs it, and what it is measured on."""

    name: str
    script: str
    python: Path
    workloads: str
    precisions: tuple[str, ...] = ("fp32", "int8")


WEFT = Listed("weft", "run_weft.py", Path(sys.executable), "abcdefghi", (*_WITH_INT4, _BLOCKS_OF_8_BITS))
_ALL = (
    WEFT,
    Listed("ctranslate2", "run_ctranslate2.py", PEERS, "abcf"),
    Listed("vllm", "run_vllm.py", VLLM, "c"),
    Listed("vllm-zentorch", "run_vllm.py", ZENTORCH, "c"),
    Listed("openvino-genai", "run_openvino_genai.py", OPENVINO, "c", _WITH_INT4),
    Listed("llamacpp", "run_llamacpp.py", LLAMACPP, "c", _WITH_INT4),
    Listed("onnxruntime-genai", "run_genai.py", PEERS, "c", ("fp32", "int8", _BLOCKS_OF_8_BITS)),
    Listed("transformers", "run_transformers.py", PEERS, "cde"),
    Listed("onnxruntime", "run_onnxruntime.py", PEERS, "de"),
    Listed("openvino", "run_openvino.py", OPENVINO, "de"),
    Listed("faster-whisper", "run_faster_whisper.py", OPTIMUM, "g"),
    Listed("whispercpp", "run_whispercpp.py", OPTIMUM, "g"),
    Listed("onnx-asr", "run_onnx_asr.py", OPTIMUM, "g"),
    Listed("fastembed", "run_fastembed.py", OPTIMUM, "hi"),
    Listed("infinity", "run_infinity.py", OPTIMUM, "hi"),
    Listed("sentence-transformers-onnx", "run_sentence_transformers_onnx.py", OPTIMUM, "hi"),
    Listed("sentence-transformers-openvino", "run_sentence_transformers_openvino.py", OPENVINO, "hi"),
)
SYSTEMS = {system.name: system for system in _ALL}
