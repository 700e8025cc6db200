"""Brings a model from its directory to ready: verify, load, warm, ask the golden request. Nothing half-loaded stays."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

from weft_proto.v1 import model_pb2
from weft_server.bundle import load_bundle
from weft_server.errors import BundleError, RequestError, first_line
from weft_server.golden import verify_golden
from weft_server.model import Model
from weft_server.models import TASK_NAMES

if TYPE_CHECKING:
    from weft_server.config import ServerConfig
    from weft_server.metrics import Metrics
    from weft_server.models import Entry

STOP_S = 5.0
_log = structlog.get_logger(__name__)


async def load_entry(entry: Entry, config: ServerConfig, metrics: Metrics) -> None:
    """Load one entry; afterwards it is READY with its model, or FAILED with the reason."""
    started = time.monotonic()
    try:
        entry.model = await _load(entry, config, metrics)
    except BundleError as error:
        _refuse(entry, metrics, str(error))
    except Exception as error:  # noqa: BLE001 - a bug with one model is no reason to leave the others unloaded
        _log.exception("load failed", model=entry.name, version=entry.version)
        _refuse(entry, metrics, f"it cannot be loaded: {first_line(error)}")
    else:
        entry.state = model_pb2.MODEL_STATE_READY
        entry.model.metrics.watch(entry.model.engine.stats)
        entry.model.metrics.set_ready()
        metrics.count_load("ready")
        _log.info("model ready", model=entry.name, version=entry.version, seconds=round(time.monotonic() - started, 2))


def _refuse(entry: Entry, metrics: Metrics, why: str) -> None:
    # It may quote the name of a file, which no message could hold if it is not UTF-8.
    why = why.encode("utf-8", "backslashreplace").decode()
    entry.state, entry.error = model_pb2.MODEL_STATE_FAILED, why
    metrics.count_load("refused")
    _log.error("bundle refused", model=entry.name, version=entry.version, why=why)


async def _load(entry: Entry, config: ServerConfig, metrics: Metrics) -> Model:
    bundle = await asyncio.to_thread(load_bundle, entry.directory)
    model_metrics = metrics.for_model(entry.name, entry.version, TASK_NAMES[bundle.manifest.task])
    model = await asyncio.to_thread(Model, bundle, config, model_metrics, asyncio.get_running_loop())
    model.engine.start()
    try:
        await verify_golden(model)
    except BaseException as error:
        await asyncio.to_thread(model.stop, STOP_S)
        if isinstance(error, RequestError):
            raise BundleError(f"the golden request is refused: {error.message}") from error
        raise
    return model
