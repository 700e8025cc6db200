"""What a model has made of the pictures in prompts: bounded in bytes, and the one used longest ago leaves first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from weft_server.telemetry.model_metrics import ModelMetrics

# Of one model: 27 pictures of 576 places of 4,096 numbers.
MAX_BYTES = 256 * 1024 * 1024
# Of a picture beside its features.
_ENTRY_BYTES = 400


class PictureFeatures:
    """Those of one model. For the event loop's thread.

    Tenants share none: who is answered sooner would learn what another one shows.
    """

    def __init__(self, metrics: ModelMetrics, max_bytes: int = MAX_BYTES) -> None:
        self._metrics = metrics
        self._max_bytes = max_bytes
        self._num_bytes = 0
        # By tenant and digest, in the order in which they were last used.
        self._kept: OrderedDict[tuple[str, bytes], np.ndarray] = OrderedDict()

    def find(self, tenant: str, digest: bytes) -> np.ndarray | None:
        """Return the features of a picture's file, [places, width], if they are there."""
        found = self._kept.get((tenant, digest))
        self._metrics.counters["picture_cache_lookups_total", "miss" if found is None else "hit"].inc()
        if found is not None:
            self._kept.move_to_end((tenant, digest))
        return found

    def keep(self, tenant: str, digest: bytes, features: np.ndarray) -> None:
        """Keep the features of a picture, in place of others if need be."""
        if (tenant, digest) in self._kept:
            return  # of another request that brought it at the same time, and the same bits
        self._kept[tenant, digest] = features
        self._num_bytes += _size(features)
        while self._num_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._num_bytes -= _size(dropped)
            self._metrics.picture_cache_evictions.inc()
        self._metrics.picture_cache_bytes = self._num_bytes


def _size(features: np.ndarray) -> int:
    return int(features.nbytes) + _ENTRY_BYTES
