"""The adapters of one lane, one behind another, as its runs read them, and which rows of a run have which.

A run reads a stretch of the stack. Its rows are put into groups, one for each place of the stretch: see AdapterSpec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

import numpy as np

from weft_proto.bundle_rules import ADAPTER_PORTS, adapter_ports
from weft_server.runtime.blocks import block_of
from weft_server.runtime.huge_pages import zeros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_proto.v1 import bundle_pb2
    from weft_server.runtime.session import BoundSession
    from weft_server.sequence import Adapter

NONE = -1
# One row alone takes another kernel, and gets other bits than in company.
_LEAST_ROWS = 2


class AdapterStack:
    """Holds as many adapters as there are places. One stays in its place until another one needs that."""

    def __init__(self, spec: bundle_pb2.AdapterSpec, num_places: int) -> None:
        # One that has left the memory is not kept here.
        self._adapters: list[ref[Adapter] | None] = [None] * num_places
        self._num_users = [0] * num_places
        self._pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        for layer in spec.layers:
            a = zeros((num_places, layer.inputs, layer.rank), np.dtype(np.float32))
            b = zeros((num_places, layer.rank, layer.outputs), np.dtype(np.float32))
            self._pairs[layer.name] = a, b
            self._arrays.update(zip(adapter_ports(layer.name), (a, b), strict=True))

    def take(self, adapter: Adapter | None) -> int:
        """Count a row that has an adapter. Returns its place, NONE for none."""
        if adapter is None:
            return NONE
        free = next((place for place, users in enumerate(self._num_users) if not users), None)
        place = next((place for place, held in enumerate(self._adapters) if held and held() is adapter), None)
        # Runs read all between the first and the last place that is used, so low ones are better.
        if place is None or (free is not None and free < place and not self._num_users[place]):
            assert free is not None, "there are more adapters than rows. This is a bug."
            place = free
            self._put(place, adapter)
        self._num_users[place] += 1
        return place

    def let_go(self, place: int) -> None:
        """Count a row less."""
        if place != NONE:
            self._num_users[place] -= 1
            assert self._num_users[place] >= 0, f"place {place} was let go twice. This is a bug."

    def _put(self, place: int, adapter: Adapter) -> None:
        self._adapters[place] = ref(adapter)
        for layer, (a, b) in self._pairs.items():
            a[place], b[place] = 0, 0
            if layer in adapter.pairs:
                own_a, own_b = adapter.pairs[layer]
                rank = own_a.shape[1]
                a[place, :, :rank], b[place, :rank] = own_a, own_b

    def feeds(self, ports: Iterable[str], places: np.ndarray, seq: int) -> dict[str, np.ndarray]:
        """Return what a run reads at those of `ports` that bring adapters.

        places: int64 [rows], the place of each row's adapter. seq: how many positions a row has.
        """
        start, stop, grouping = grouped(places, seq)
        named = dict(zip(ADAPTER_PORTS, grouping, strict=True))
        fed = {}
        for port in ports:
            if port in named:
                fed[port] = named[port]
            elif port in self._arrays:
                fed[port] = self._arrays[port][start:stop]
        return fed

    def give(self, bound: BoundSession, places: np.ndarray, seq: int) -> None:
        """Let a run that is bound read what its rows have. Nothing is done if it had the same the last time."""
        key = (places.tobytes(), seq)
        if bound.adapted != key:
            feeds = self.feeds(bound.adapter_ports, places, seq)
            bound.rebind({name: block_of(array) for name, array in feeds.items()})
            bound.adapted = key


def grouped(places: np.ndarray, seq: int) -> tuple[int, int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Put rows into groups, one for each place between the first and the last that a row has.

    Returns the first place, the one behind the last, and what the ports of ADAPTER_PORTS read.
    """
    rows = np.flatnonzero(places >= 0)
    least = _LEAST_ROWS if seq < _LEAST_ROWS else 1
    if not len(rows):
        return 0, 0, (np.zeros((0, least), np.int64), rows, rows)
    start, stop = int(places[rows].min()), int(places[rows].max()) + 1
    groups = places[rows] - start
    sizes = np.bincount(groups, minlength=stop - start)
    order = groups.argsort(kind="stable")
    ranks = np.empty_like(rows)
    ranks[order] = np.arange(len(rows)) - (sizes.cumsum() - sizes).repeat(sizes)
    members = np.zeros((stop - start, max(int(sizes.max()), least)), np.int64)
    members[groups, ranks] = rows
    return start, stop, (members, rows, groups * members.shape[1] + ranks)
