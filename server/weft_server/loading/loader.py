"""Brings a model from its directory to ready: verify, load, warm, ask the golden request. Nothing half-loaded stays."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from weft_proto.first_line import first_line
from weft_proto.tasks import TASKS
from weft_proto.v1 import model_pb2
from weft_server.bundle.load import load_bundle
from weft_server.config import both_names, flag_name
from weft_server.errors import BundleError, LaneFailed, RequestError
from weft_server.loading.build import build_model, has_lone_threads, widths_of
from weft_server.loading.golden import verify_golden
from weft_server.requests.decoding_config import verify_default
from weft_server.runtime.cpus import give_way
from weft_server.runtime.halt import Halt
from weft_server.runtime.session import is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from weft_server.config import ServerConfig
    from weft_server.models.model import Model
    from weft_server.models.placement import Placement
    from weft_server.models.registry import RegistryEntry
    from weft_server.telemetry.metrics import Metrics

STOP_S = 5.0
# A model that loads for longer gives up its place. It goes on, and others load beside it.
PATIENCE_S = 60.0
_Given = TypeVar("_Given")
_log = structlog.get_logger(__name__)


async def load_entries(
    entries: list[RegistryEntry],
    load: Callable[[RegistryEntry], Coroutine[Any, Any, None]],
    settled: Callable[[], Awaitable[None]],
    *,
    num_places: int,
) -> None:
    """Load entries side by side, `num_places` at a time, begun in their order.

    `settled` is called when nothing is left to load but slow entries. If there are any, it is called once more when
    those have ended.
    """
    places = asyncio.Semaphore(num_places)
    async with asyncio.TaskGroup() as group:
        loads = []
        for entry in entries:
            await places.acquire()
            loads.append(group.create_task(load(entry)))
            group.create_task(hold_place(places, entry, loads[-1]))
        for _ in range(num_places):
            await places.acquire()
        late = [task for task in loads if not task.done()]
        await settled()
    if late:
        await settled()


async def hold_place(places: asyncio.Semaphore, entry: RegistryEntry, load: asyncio.Task[None]) -> None:
    """Give a place back when a load has ended, or when it takes so long that others shall go on beside it."""
    done, _ = await asyncio.wait([load], timeout=PATIENCE_S)
    if not done:
        _log.warning("slow to load, others go on", model=entry.name, version=entry.version, seconds=PATIENCE_S)
    places.release()


async def load_entry(
    entry: RegistryEntry,
    config: ServerConfig,
    metrics: Metrics,
    placement: Placement | None = None,
    *,
    gives_way: bool = False,
) -> None:
    """Load one entry. Afterwards it is READY with its model, or FAILED with the reason.

    One that `gives_way` leaves the CPUs to models that answer already, as far as it can. Without a `placement` it has
    the devices for itself.
    """
    started = time.monotonic()
    try:
        entry.model = await _load(entry, config, metrics, placement, gives_way=gives_way)
    except BundleError as error:
        entry.task = entry.task or error.task  # type: ignore[assignment]
        _refuse(entry, metrics, str(error))
        _let_go(error)
    except Exception as error:  # noqa: BLE001 - a bug with one model is no reason to leave the others unloaded
        _log.exception("load failed", model=entry.name, version=entry.version)
        _refuse(entry, metrics, f"it cannot be loaded: {first_line(error)}")
        _let_go(error)
    else:
        entry.state = model_pb2.MODEL_STATE_READY
        entry.model.metrics.watch(entry.model.stats)
        entry.model.metrics.num_adapters = entry.model.adapters.count
        entry.model.metrics.set_ready()
        entry.model.be_idle()
        metrics.count_load("ready")
        seconds, devices = round(time.monotonic() - started, 2), entry.model.devices
        _log.info("model ready", model=entry.name, version=entry.version, seconds=seconds, devices=devices)


def _refuse(entry: RegistryEntry, metrics: Metrics, why: str) -> None:
    # It may quote the name of a file. No message could hold a name that is not UTF-8.
    why = why.encode("utf-8", "backslashreplace").decode()
    entry.state = model_pb2.MODEL_STATE_FAILED
    entry.error = why
    metrics.count_load("refused")
    _log.error("bundle refused", model=entry.name, version=entry.version, why=why)


def _let_go(error: BaseException | None) -> None:
    """Forget the frames that an error came through: they hold the model, and a lane that failed holds the error."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


class _Thread:
    """A thread of one load, which nobody else waits for."""

    def __init__(self, entry: RegistryEntry) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"{entry.name}/{entry.version}-load")
        self._jobs: list[Future[Any]] = []

    async def work(self, job: Callable[..., _Given], *given: Any) -> _Given:
        """Return what a job gives that is done in the thread."""
        self._jobs.append(self._pool.submit(job, *given))
        return await asyncio.wrap_future(self._jobs[-1])

    def end(self) -> bool:
        """Let the thread end after its job. Returns whether there is none."""
        self._pool.shutdown(wait=False)
        return all(job.done() for job in self._jobs)


async def _load(
    entry: RegistryEntry, config: ServerConfig, metrics: Metrics, placement: Placement | None, *, gives_way: bool
) -> Model:
    """Load within the time that a load may take. What runs when it is over is ended, or left if it does not end."""
    halt, thread = Halt(), _Thread(entry)
    steps = asyncio.create_task(_take_steps(entry, config, metrics, placement, thread, halt, gives_way=gives_way))
    try:
        done, _ = await asyncio.wait([steps], timeout=config.load_timeout_s)
        if not done:
            halt.call()
            # A run ends between two operators, and with it the step that it is of.
            await asyncio.wait([steps], timeout=STOP_S)
    finally:
        if not steps.done():
            halt.call()
            steps.cancel()
            await asyncio.wait([steps])
        entry.is_stuck |= not thread.end()
    if done:
        return steps.result()
    if not steps.cancelled() and steps.exception() is None:  # it was about to be ready
        entry.is_stuck |= not await asyncio.to_thread(steps.result().stop, STOP_S)
    why = f"it is not ready after {config.load_timeout_s:g} s"
    raise BundleError(f"{why}; {both_names('load_timeout_s')} gives it longer")


async def _take_steps(
    entry: RegistryEntry,
    config: ServerConfig,
    metrics: Metrics,
    placement: Placement | None,
    thread: _Thread,
    halt: Halt,
    *,
    gives_way: bool,
) -> Model:
    loop = asyncio.get_running_loop()
    bundle = await thread.work(load_bundle, entry.directory)
    entry.task = bundle.manifest.task
    task = TASKS[bundle.manifest.task]
    if task.writes_text:
        verify_default(bundle.manifest, widths_of(bundle.manifest, config))
    # Threads that a session starts now would give way for ever, also when they answer requests.
    if gives_way and has_lone_threads(bundle.manifest, config):
        await thread.work(give_way)
    model_metrics = metrics.for_model(entry.name, entry.version, task.name)

    def build() -> Model:
        model = build_model(bundle, config, model_metrics, loop, placement, halt)
        if halt.is_called:  # nobody waits for it any more
            model.stop(STOP_S)
            raise BundleError("its time is over")
        return model

    model = await _within_memory(thread.work(build))
    try:
        await _within_memory(model.start())
        await _ask_golden(model)
    except BaseException:
        entry.is_stuck = not await thread.work(model.stop, STOP_S)
        raise
    return model


async def _within_memory(step: Awaitable[_Given]) -> _Given:
    """Return what a step of loading gives. One that finds too little memory refuses the bundle.

    On a device, lanes run every shape before a model is ready. So the largest one may be too much for it.
    """
    try:
        return await step
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        flags = " or ".join(map(flag_name, ("slots", "max_batch", "cache_gb")))
        raise BundleError(f"it takes more memory than there is: a smaller {flags} takes less") from error


async def _ask_golden(model: Model) -> None:
    try:
        await verify_golden(model)
    except RequestError as error:
        why = error.why if isinstance(error, LaneFailed) else error.message
        raise BundleError(f"the golden request is refused: {why}") from error
