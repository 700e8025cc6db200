"""The only file that speaks to ONNX Runtime: opens sessions with serving's settings, runs them, binds buffers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# Since 1.29 it reports to its maker and leaves a device id in the home folder, unless told not to before it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

    Arrays = Mapping[str, "np.ndarray"]

_WARNINGS_AND_UP = 2


class Session:
    """One ONNX graph, ready to run from any thread; `run` and `Bound.run` release the GIL.

    One session serves prefill and decode of all lanes, because packed weights are held once for each session.
    """

    def __init__(self, path: Path, num_threads: int) -> None:
        options = ort.SessionOptions()
        # ONNX Runtime would size its pool by the machine, not by the container.
        options.intra_op_num_threads = num_threads
        options.inter_op_num_threads = 1
        # A pattern is cached for each shape and never evicted; shapes here come and go.
        options.enable_mem_pattern = False
        options.log_severity_level = _WARNINGS_AND_UP
        # Spinning burns a core between steps.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._session.disable_fallback()
        self.output_names = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Run once on arrays of any shape that the graph admits; outputs by name."""
        return dict(zip(self.output_names, self._session.run(None, dict(inputs)), strict=True))

    def bind(self, inputs: Arrays, outputs: Arrays) -> Bound:
        """Tie ports to memory: each `run` reads the inputs' and writes the outputs' memory as it is then."""
        return Bound(self._session, inputs, outputs)


class Bound:
    """A session tied to memory; binding costs 100 us and more for many ports, running a bound session 10 us."""

    def __init__(self, session: Any, inputs: Arrays, outputs: Arrays) -> None:
        self._session = session
        self._binding = session.io_binding()
        # The binding holds no reference to the memory: these do.
        self._keep: list[object] = []
        for name, array in inputs.items():
            self._binding.bind_ortvalue_input(name, self._value(array))
        for name, array in outputs.items():
            self._binding.bind_ortvalue_output(name, self._value(array))

    def run(self) -> None:
        """Run once, in place."""
        self._session.run_with_iobinding(self._binding)

    def _value(self, array: np.ndarray) -> Any:
        assert array.flags.c_contiguous, "only contiguous memory can be bound. This is a bug."
        value = ort.OrtValue.ortvalue_from_numpy(array)
        assert value.data_ptr() == array.ctypes.data, "binding copied the array. This is a bug."
        self._keep += (array, value)
        return value
