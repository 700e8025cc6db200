"""Brings an adapter from its directory to where requests can use it: verify, load, ask its golden request."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

import structlog

from weft_proto.first_line import first_line
from weft_server.bundle.adapter import load_adapter
from weft_server.bundle.files import fingerprint_of
from weft_server.errors import AdapterRefused, BundleError, LaneFailed, RequestError
from weft_server.loading.golden import verify_adapter
from weft_server.process.threads import in_thread

if TYPE_CHECKING:
    from pathlib import Path

    from weft_proto.v1 import bundle_pb2
    from weft_server.bundle.files import Print
    from weft_server.models.model import Model
    from weft_server.sequence import Adapter

# Seconds in which an adapter has to be ready. It brings no graph: what it asks of the model takes seconds.
LOAD_S = 600.0
_log = structlog.get_logger(__name__)


class AdapterLoader:
    """Loads the adapters of one model. For the event loop's thread."""

    def __init__(self, model: Model) -> None:
        # The model holds its adapters, and they hold this. Held by it too, it would wait for the garbage collector.
        self._model = weakref.ref(model)
        # Of those that were refused, what their files were then, and why. They are not tried again.
        self._refused: dict[str, tuple[Print, str]] = {}

    def begin(self, directory: Path) -> asyncio.Task[Adapter]:
        """Begin to load one. It asks the model, so the model does not leave before, even if nobody waits any more."""
        model = self._model()
        assert model is not None, "an adapter of a model that is gone. This is a bug."
        task = asyncio.create_task(self._load(model, directory))
        model.hold()
        task.add_done_callback(lambda _: model.release())
        return task

    async def _load(self, model: Model, directory: Path) -> Adapter:
        """Read an adapter and ask its golden request. Raises AdapterRefused, or what keeps the model from answering."""
        name = directory.name
        seen = await in_thread(fingerprint_of, directory)
        before, why = self._refused.get(name, ((), ""))
        if seen and seen == before:
            raise AdapterRefused(model.name, name, why)
        try:
            async with asyncio.timeout(LOAD_S):
                adapter, golden = await model.work(lambda _: load_adapter(directory, model.bundle))
                await _try(model, adapter, golden)
        except (BundleError, TimeoutError) as error:
            why = f"it is not ready after {LOAD_S:g} s" if isinstance(error, TimeoutError) else str(error)
            if seen:
                self._refused[name] = (seen, why)
            model.metrics.loaded_adapter("refused")
            _log.error("adapter refused", model=model.name, version=model.version, adapter=name, why=why)
            raise AdapterRefused(model.name, name, why) from error
        self._refused.pop(name, None)
        model.metrics.loaded_adapter("ready")
        _log.info("adapter ready", model=model.name, version=model.version, adapter=name)
        return adapter


async def _try(model: Model, adapter: Adapter, golden: bundle_pb2.Golden) -> None:
    try:
        await verify_adapter(model, adapter, golden)
    except LaneFailed as error:
        raise BundleError(f"its golden request fails: {first_line(error)}") from error
    except RequestError as error:
        if error.retry_after_s is not None:
            raise  # it is the load, and not the adapter
        raise BundleError(f"its golden request is refused: {error.message}") from error
