"""The systems that are compared, and what each is run with."""

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
OUT = ROOT / "build" / "bench" / "peers"
WEIGHTS = OUT / "weights"
PEERS, VLLM = OUT / ".venv" / "bin" / "python", OUT / ".venv-vllm" / "bin" / "python"


@dataclass(frozen=True)
class Listed:
    """A system: its adapter, the Python that runs it, and what it is measured on."""

    name: str
    script: str
    python: Path
    workloads: str
    precisions: tuple[str, ...] = ("fp32", "int8")


WEFT = Listed("weft", "run_weft.py", Path(sys.executable), "abcdef")
_ALL = (
    WEFT,
    Listed("ctranslate2", "run_ctranslate2.py", PEERS, "abcf"),
    Listed("vllm", "run_vllm.py", VLLM, "c"),
    Listed("onnxruntime-genai", "run_genai.py", PEERS, "c"),
    Listed("transformers", "run_transformers.py", PEERS, "cde"),
    Listed("onnxruntime", "run_onnxruntime.py", PEERS, "de"),
)
SYSTEMS = {system.name: system for system in _ALL}
