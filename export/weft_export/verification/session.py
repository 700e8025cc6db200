"""ONNX Runtime, whose one import is here, and sessions over the files of graphs. Without torch, which takes seconds."""

import os
from pathlib import Path
from typing import Any

from weft_export.errors import ExportError
from weft_export.verification.adapted_session import AdaptedSession, Pairs, takes_adapters
from weft_export.verification.widening import runnable
from weft_proto.bundle_rules import SESSION_ENTRIES


def runtime_version() -> str:
    """Return the version of the onnxruntime that is installed.

    Raises:
        ExportError: none is.
    """
    return str(onnxruntime().__version__)


def open_session(path: Path, num_threads: int = 1, adapter: Pairs | None = None) -> Any:
    """Load an .onnx file as an InferenceSession on CPU. One that takes adapters gets `adapter` for each row, or none.

    One whose caches lie in blocks is told its runs in slots.

    Raises:
        ExportError: onnxruntime is not installed.
    """
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    for name, value in SESSION_ENTRIES.items():
        options.add_session_config_entry(name, value)
    with runnable(path) as stand_in:
        session = runtime.InferenceSession(stand_in, options, providers=["CPUExecutionProvider"])
    if is_paged_session(session):
        from weft_export.verification.paged_session import PagedSession  # noqa: PLC0415 - late: for such graphs alone

        return PagedSession(session)
    return AdaptedSession(session, adapter) if takes_adapters(session) else session


def is_paged_session(session: Any) -> bool:
    """Whether a graph takes caches in blocks. Its session is a PagedSession then."""
    return any(port.name == "block_table" for port in session.get_inputs())


def onnxruntime() -> Any:
    """Return the module. ExportError when it is not installed."""
    try:
        # Since 1.29 it reports to its maker and leaves a device id in the home folder. It must be told not to, before.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime as module  # noqa: PLC0415 - the one import of it, and only when a bundle is checked
    except ImportError as error:
        raise ExportError(
            "onnxruntime is not installed: pip install 'weft-serving[server,export]' (or [gpu,export]), "
            "or in a clone: pip install '.[server,export]' (or [gpu,export])"
        ) from error
    return module
