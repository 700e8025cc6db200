"""The adapters of one model: loaded when they are first asked for, and the ones that nobody uses leave for others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft_proto.bundle_rules import ADAPTER_NAME
from weft_server.bundle.adapter import adapters_home, adapters_of, versions_with
from weft_server.engine.queue_limits import QueueLimits
from weft_server.errors import AdapterNotFound, CannotAdapt, Overloaded
from weft_server.models.allowed_models import ALL_MODELS, AllowedModels
from weft_server.process.threads import in_thread
from weft_server.sequence import ANYBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from weft_server.bundle.load import Bundle
    from weft_server.sequence import Adapter, Standing
    from weft_server.telemetry.model_metrics import ModelMetrics

# When a request that found no room may try again.
_BUSY_RETRY_S = 1.0
# A refusal names no more than this.
_MAX_NAMES = 10


@dataclass(slots=True, eq=False)
class _Resident:
    """An adapter that is there or on its way, and how many calls use it or wait for it."""

    loading: asyncio.Task[Adapter]
    num_users: int = 0


class Adapters:
    """Those of one model. For the event loop's thread."""

    def __init__(
        self,
        bundle: Bundle,
        max_adapters: int,
        metrics: ModelMetrics,
        *,
        max_requests: int,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """At most `max_requests` wait for adapters. Classes and tenants share these places as those of a queue."""
        self._bundle, self._home = bundle, adapters_home(bundle)
        self._max_adapters = max_adapters
        self._metrics = metrics
        self._bounds = QueueLimits(max_requests, 0, weights)
        # In the order in which they were last asked for.
        self.residents: OrderedDict[str, _Resident] = OrderedDict()
        # Begins to load one from its directory. Set when there is a model to try it with.
        self.begin_loading: Callable[[Path], asyncio.Task[Adapter]] | None = None

    def count(self) -> int:
        """How many are in memory, or on their way there."""
        return len(self.residents)

    async def names(self) -> list[str]:
        """Return the names of those that lie beside the bundle, sorted."""
        return await in_thread(adapters_of, self._bundle) if self._bundle.manifest.adapters.layers else []

    async def take(self, name: str, standing: Standing = ANYBODY, allowed: AllowedModels = ALL_MODELS) -> Adapter:
        """Return an adapter, loaded and tried. It stays until `let_go`. Of those not `allowed` no error tells.

        Raises:
            RequestError: there is no such adapter, it is refused, or as many as may be there are in use.
            Overloaded: as many requests as may wait for adapters do so already.
        """
        if not self._bundle.manifest.adapters.layers:
            raise CannotAdapt(self._bundle.name)
        resident = self.residents.get(name)
        if resident is not None and resident.loading.done():
            return await self._use(name, resident)
        self._bounds.check_places(1, standing)
        self._bounds.take(1, standing)
        self._metrics.adapting = self._bounds.num_places
        try:
            if resident is None:
                await self._check_there(name, allowed)
                # Another call may have begun it meanwhile.
                resident = self.residents.get(name) or self._begin(name)
            return await self._use(name, resident)
        finally:
            self._bounds.give_back(1, standing)
            self._metrics.adapting = self._bounds.num_places

    async def _use(self, name: str, resident: _Resident) -> Adapter:
        self.residents.move_to_end(name)
        resident.num_users += 1
        try:
            return await asyncio.shield(resident.loading)
        except BaseException:
            _leave(resident)
            raise

    def let_go(self, adapter: Adapter) -> None:
        """Need an adapter no more."""
        _leave(self.residents[adapter.name])

    async def _check_there(self, name: str, allowed: AllowedModels) -> None:
        """Raise AdapterNotFound if there is no such adapter. What a caller sent is no path before it is a name."""
        is_name = ADAPTER_NAME.fullmatch(name) is not None
        if not is_name or not await in_thread((self._home / name).is_dir):
            names = [each for each in await self.names() if allowed.allows(self._bundle.name, each)]
            more = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
            there = ", ".join(names[:_MAX_NAMES] + more) or "none"
            others = await in_thread(versions_with, self._bundle, name) if is_name else []
            raise AdapterNotFound(
                f"version {self._bundle.version} of model {self._bundle.name!r} has no adapter {name[:128]!r}; it has"
                f" {there}" + "".join(f"; version {other} has it" for other in others[-1:])
            )

    def _begin(self, name: str) -> _Resident:
        """Begin to load an adapter, in the place of another one if need be."""
        if len(self.residents) >= self._max_adapters:
            # One on its way that nobody waits for any more goes on to its end, and takes memory until then.
            idle = (old for old, each in self.residents.items() if each.loading.done() and not each.num_users)
            if (unused := next(idle, None)) is None:
                why = f"all {self._max_adapters} adapters that may be in memory are in use, or on their way"
                raise Overloaded("ADAPTERS_IN_USE", why, _BUSY_RETRY_S)
            del self.residents[unused]
            self._metrics.adapter_evictions.inc()
        assert self.begin_loading is not None, "an adapter of no model. This is a bug."
        resident = self.residents[name] = _Resident(self.begin_loading(self._home / name))
        resident.loading.add_done_callback(lambda task: self._loaded(name, resident, task))
        return resident

    def _loaded(self, name: str, resident: _Resident, task: asyncio.Task[Adapter]) -> None:
        # Taken from the task even if nobody waits for it any more. asyncio would complain.
        failed = task.cancelled() or task.exception() is not None
        if failed and self.residents.get(name) is resident:
            del self.residents[name]


def _leave(resident: _Resident) -> None:
    resident.num_users -= 1
    assert resident.num_users >= 0, "an adapter was let go twice. This is a bug."
