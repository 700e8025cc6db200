"""A session over a graph that takes adapters, for who knows nothing of them: all rows have one, or none has."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft_proto.bundle_rules import ADAPTER_PORTS, adapter_ports

Array = NDArray[Any]
Pairs = Mapping[str, tuple[Array, Array]]
"""By layer A [inputs, rank] and B [rank, outputs], in float32."""
# What a graph has a row of for each request. Beside a picture or a recording, ids may be an answer's.
_SOURCES = ("pixel_values", "input_features", "input_ids")


def takes_adapters(session: Any) -> bool:
    """Whether a graph has inputs for them."""
    return any(port.name == ADAPTER_PORTS[0] for port in session.get_inputs())


class AdaptedSession:
    """An InferenceSession that fills in these inputs itself."""

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
