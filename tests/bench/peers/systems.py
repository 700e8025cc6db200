"""The systems that are compared, and what each is run with."""

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
OUT = ROOT / "build" / "bench" / "peers"
WEIGHTS = OUT / "weights"
PEERS, OPENVINO, LLAMACPP, VLLM, ZENTORCH = (
    OUT / f".venv{name}" / "bin" / "python" for name in ("", "-openvino", "-llamacpp", "-vllm", "-zentorch")
)
_WITH_INT4 = ("fp32", "int8", "int4")


@dataclass(frozen=True)
class Listed:
    """A system: its adapter, the Python that runs it, and what it is measured on."""

    name: str
    script: str
    python: Path
    workloads: str
    precisions: tuple[str, ...] = ("fp32", "int8")


WEFT = Listed("weft", "run_weft.py", Path(sys.executable), "abcdef", _WITH_INT4)
_ALL = (
    WEFT,
    Listed("ctranslate2", "run_ctranslate2.py", PEERS, "abcf"),
    Listed("vllm", "run_vllm.py", VLLM, "c"),
    Listed("vllm-zentorch", "run_vllm.py", ZENTORCH, "c"),
    Listed("openvino-genai", "run_openvino_genai.py", OPENVINO, "c", _WITH_INT4),
    Listed("llamacpp", "run_llamacpp.py", LLAMACPP, "c", _WITH_INT4),
    Listed("onnxruntime-genai", "run_genai.py", PEERS, "c"),
    Listed("transformers", "run_transformers.py", PEERS, "cde"),
    Listed("onnxruntime", "run_onnxruntime.py", PEERS, "de"),
    Listed("openvino", "run_openvino.py", OPENVINO, "de"),
)
SYSTEMS = {system.name: system for system in _ALL}
