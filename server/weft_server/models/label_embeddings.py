"""The vectors of labels that requests brought: bounded in bytes, and the one that was used longest ago leaves first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from weft_server.telemetry.model_metrics import ModelMetrics

# Of one model: 13,000 vectors of 512 numbers.
MAX_BYTES = 32 * 1024 * 1024
# Of a vector beside its numbers and its text.
_ENTRY_BYTES = 400
_CHAR_BYTES = 4


class LabelEmbedding(NamedTuple):
    """A text's vector, float32 [dimensions], and how many tokens the text has."""

    values: np.ndarray
    num_tokens: int


class LabelEmbeddings:
    """Those of one model. For the event loop's thread.

    Tenants share none: who is answered sooner would learn what another one asks.
    """

    def __init__(self, metrics: ModelMetrics, max_bytes: int = MAX_BYTES) -> None:
        self._metrics = metrics
        self._max_bytes = max_bytes
        self._num_bytes = 0
        # By tenant and text, in the order in which they were last used.
        self._kept: OrderedDict[tuple[str, str], LabelEmbedding] = OrderedDict()

    def find(self, tenant: str, text: str) -> LabelEmbedding | None:
        """Return the vector of a text, if it is there."""
        found = self._kept.get((tenant, text))
        self._metrics.counters["label_cache_lookups_total", "hit" if found else "miss"].inc()
        if found:
            self._kept.move_to_end((tenant, text))
        return found

    def keep(self, tenant: str, text: str, vector: LabelEmbedding) -> None:
        """Keep the vector of a text, in place of others if need be."""
        if (tenant, text) in self._kept:
            return  # of another request that brought it at the same time, and the same bits
        self._kept[tenant, text] = vector
        self._num_bytes += _size(text, vector)
        while self._num_bytes > self._max_bytes:
            (_, old), dropped = self._kept.popitem(last=False)
            self._num_bytes -= _size(old, dropped)
            self._metrics.label_cache_evictions.inc()
        self._metrics.label_cache_bytes = self._num_bytes


def _size(text: str, vector: LabelEmbedding) -> int:
    return int(vector.values.nbytes) + _CHAR_BYTES * len(text) + _ENTRY_BYTES
