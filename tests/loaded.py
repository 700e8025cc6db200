"""A model loaded in this process, and its servicers without the wire."""

import asyncio
import math
from pathlib import Path

from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2, generation_pb2, model_pb2
from weft_proto.v1.methods import METHODS
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.loading.build import build_model
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.rpc.services import behaviours
from weft_server.telemetry.metrics import Metrics

# By task: the first of the table's methods that is for it.
_METHODS = {task: method for method in reversed(METHODS.values()) if not method.streams for task in method.tasks}


class Loaded:
    """A model with its engine started; on the way out nothing is left in it."""

    def __init__(self, directory, **settings):
        self.directory, self.settings = directory, settings

    async def __aenter__(self):
        config = read_config(repository=self.directory, **{"max_queued_requests": 10_000} | self.settings)
        metrics = Metrics().for_model("m", 1, "t")
        self.model = build_model(load_bundle(self.directory), config, metrics, asyncio.get_running_loop())
        try:
            await self.model.start()
        except BaseException:
            assert self.model.stop(30)
            raise
        return self.model

    async def __aexit__(self, *_):
        for _ in range(500):
            stats = self.model.stats()
            if not stats.running:
                break
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(self.model.stop, 30)
        assert (0, 0, 0, 0) == (stats.queued, stats.running, stats.held.slots_used, stats.queued_tokens)


async def refusal_of(directory):
    """Why a bundle cannot be loaded, as the server would say it, or nothing."""
    try:
        async with Loaded(Path(directory), slots=2):
            return ""
    except Exception as error:  # noqa: BLE001 - as loading/loader.py does
        return str(error) or type(error).__name__


def answering(model, config=None):
    """What answers each method, by its name, where there is this model alone."""
    entry = RegistryEntry(model.name, model.version, model.bundle.directory, model_pb2.MODEL_STATE_READY, model=model)
    return behaviours(ModelRegistry([entry]), config)


async def ask(model, /, tenant="", deadline=math.inf, **request):
    """Ask a loaded model by the method of its task; the response, or the RequestError it raises.

    A model that matches is also asked for the vectors of `inputs`.
    """
    method = _METHODS[common_pb2.TASK_EMBED_TEXT if "inputs" in request else model.manifest.task]
    REQUEST_CONTEXT.set(RequestContext(method.name, tenant=tenant, deadline=deadline))
    return await answering(model)[method.name](method.request(**request), None)


async def score(model, /, deadline=math.inf, **request):
    """Ask a loaded model for scores; the response, or the RequestError it raises."""
    return await _named(model, RequestContext("Score", deadline=deadline), request)


async def tokenize(model, /, call=None, **request):
    """Ask a loaded model's tokenizer for tokens; the response, or the RequestError it raises."""
    return await _named(model, call or RequestContext("Tokenize"), request)


async def detokenize(model, /, call=None, **request):
    """Ask a loaded model's tokenizer for a text; the response, or the RequestError it raises."""
    return await _named(model, call or RequestContext("Detokenize"), request)


async def _named(model, call, request):
    """Ask by the method of a call for which a request has to name its model."""
    REQUEST_CONTEXT.set(call)
    message = METHODS[call.method].request(**{"model": common_pb2.ModelSelector(name=model.name), **request})
    return await answering(model)[call.method](message, None)


def golden_request(model, **more):
    """What the bundle's golden request brings."""
    golden = model.manifest.golden
    if TASKS[model.manifest.task].takes_context:
        given = {"question": golden.text.split()[0], "context": golden.text}
    elif golden.WhichOneof("input") == "text":
        given = {"text": golden.text}
    elif golden.WhichOneof("input") == "audio_path":
        audio = common_pb2.Audio(data=model.bundle.path(golden.audio_path).read_bytes())
        given = {"audio": audio, "language": golden.source_language}
    else:
        given = {"image": common_pb2.Image(data=model.bundle.path(golden.image_path).read_bytes())}
    if golden.labels:
        given["labels"] = golden.labels
    if model.sight:
        parts = [generation_pb2.MessagePart(**given), generation_pb2.MessagePart(text=golden.question)]
        given = {"messages": generation_pb2.Messages(turns=[{"role": "user", "parts": parts}])}
    elif golden.question:
        given["text"] = golden.question
    return {"inputs": [given], **more} if golden.embedding else {**given, **more}
