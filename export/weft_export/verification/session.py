"""ONNX Runtime, whose one import is here, and sessions over the files of graphs. Without torch, which takes seconds."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft_export.errors import ExportError
from weft_export.verification.widening import runnable
from weft_proto.bundle_rules import ADAPTER_PORTS, adapter_ports
from weft_proto.session_entries import SESSION_ENTRIES

Array = NDArray[Any]
Pairs = Mapping[str, tuple[Array, Array]]
"""By layer A [inputs, rank] and B [rank, outputs], in float32."""
# What a graph has a row of for each request. Beside a picture or a recording, ids may be an answer's.
_SOURCES = ("pixel_values", "input_features", "input_ids")


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


def takes_adapters(session: Any) -> bool:
    """Whether a graph has inputs for them."""
    return any(port.name == ADAPTER_PORTS[0] for port in session.get_inputs())


class AdaptedSession:
    """An InferenceSession over a graph that takes adapters, and fills them in: all rows have one, or none has."""

    def __init__(self, session: Any, adapter: Pairs | None = None) -> None:
        self._session = session
        self._ports = {port.name: port for port in session.get_inputs() if port.name.startswith("adapter")}
        self._matrices: dict[str, Array] = {}
        for name, port in self._ports.items():
            if name not in ADAPTER_PORTS:
                self._matrices[name] = np.zeros((int(adapter is not None), *port.shape[1:]), np.float32)
        for layer, pair in (adapter or {}).items():
            for name, matrix in zip(adapter_ports(layer), pair, strict=True):
                if name in self._matrices:
                    height, width = matrix.shape
                    self._matrices[name][0, :height, :width] = matrix
        self._has_one = adapter is not None

    def get_inputs(self) -> list[Any]:
        """Return the ports that are left to fill."""
        return [port for port in self._session.get_inputs() if port.name not in self._ports]

    def get_outputs(self) -> list[Any]:
        """Return all ports of outputs."""
        outputs: list[Any] = self._session.get_outputs()
        return outputs

    def whole(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return feeds with the inputs that bring adapters."""
        source = next(name for name in _SOURCES if name in feeds)
        num_rows = len(feeds[source]) + (feeds["prompt_ids"].shape[1] if "prompt_ids" in feeds else 0)
        rows = np.arange(num_rows if self._has_one else 0)
        # Two or more: one row alone takes another kernel, and has other bits.
        members = np.zeros((int(self._has_one), max(2, num_rows)), np.int64)
        members[:, : len(rows)] = rows
        return {**feeds, **dict(zip(ADAPTER_PORTS, (members, rows, rows), strict=True)), **self._matrices}

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        """Do as an InferenceSession."""
        outputs: list[Array] = self._session.run(names, self.whole(feeds))
        return outputs

    def io_binding(self) -> Any:
        """Do as an InferenceSession."""
        return self._session.io_binding()

    def run_with_iobinding(self, binding: Any) -> None:
        """Do as an InferenceSession."""
        self._session.run_with_iobinding(binding)
