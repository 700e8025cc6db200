"""A model loaded in this process, and its servicers without the wire."""

import asyncio
import math
from pathlib import Path

from weft_proto.tasks import TASKS
from weft_proto.v1 import (
    answer_pb2,
    caption_pb2,
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    model_pb2,
    score_pb2,
    tokenization_pb2,
    transcription_pb2,
    translation_pb2,
)
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.loading.build import build_model
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.rpc.classification_service import ClassificationServicer
from weft_server.rpc.embedding_service import EmbeddingServicer
from weft_server.rpc.score_service import ScoreServicer
from weft_server.rpc.text_services import (
    AnswerServicer,
    CaptionServicer,
    GenerationServicer,
    TranscriptionServicer,
    TranslationServicer,
)
from weft_server.rpc.tokenization_service import TokenizationServicer
from weft_server.telemetry.metrics import Metrics

_VERBS = {
    common_pb2.TASK_TRANSLATE: (TranslationServicer, "Translate", translation_pb2.TranslateRequest),
    common_pb2.TASK_CAPTION: (CaptionServicer, "Caption", caption_pb2.CaptionRequest),
    common_pb2.TASK_ANSWER: (AnswerServicer, "Answer", answer_pb2.AnswerRequest),
    common_pb2.TASK_TRANSCRIBE: (TranscriptionServicer, "Transcribe", transcription_pb2.TranscribeRequest),
    common_pb2.TASK_GENERATE: (GenerationServicer, "Generate", generation_pb2.GenerateRequest),
    common_pb2.TASK_CLASSIFY_TEXT: (ClassificationServicer, "Classify", classification_pb2.ClassifyRequest),
    common_pb2.TASK_CLASSIFY_IMAGE: (ClassificationServicer, "Classify", classification_pb2.ClassifyRequest),
    common_pb2.TASK_TAG: (ClassificationServicer, "Tag", classification_pb2.TagRequest),
    common_pb2.TASK_EXTRACT: (ClassificationServicer, "Extract", classification_pb2.ExtractRequest),
    common_pb2.TASK_FILL_MASK: (ClassificationServicer, "FillMask", classification_pb2.FillMaskRequest),
    common_pb2.TASK_EMBED_TEXT: (EmbeddingServicer, "Embed", embedding_pb2.EmbedRequest),
    common_pb2.TASK_MATCH: (ClassificationServicer, "Classify", classification_pb2.ClassifyRequest),
    common_pb2.TASK_EMBED_IMAGE: (EmbeddingServicer, "Embed", embedding_pb2.EmbedRequest),
}


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


async def ask(model, /, tenant="", **request):
    """Ask a loaded model through the servicer of its task; the response, or the RequestError it raises.

    A model that matches is also asked for the vectors of `inputs`.
    """
    entry = RegistryEntry(model.name, model.version, model.bundle.directory, model_pb2.MODEL_STATE_READY, model=model)
    servicer, verb, message = _VERBS[common_pb2.TASK_EMBED_TEXT if "inputs" in request else model.manifest.task]
    REQUEST_CONTEXT.set(RequestContext(verb, tenant=tenant))
    return await getattr(servicer(ModelRegistry([entry])), verb)(message(**request), None)


async def score(model, /, deadline=math.inf, **request):
    """Ask a loaded model for scores; the response, or the RequestError it raises."""
    entry = RegistryEntry(model.name, model.version, model.bundle.directory, model_pb2.MODEL_STATE_READY, model=model)
    REQUEST_CONTEXT.set(RequestContext("Score", deadline=deadline))
    selector = common_pb2.ModelSelector(name=model.name)
    request = score_pb2.ScoreRequest(**{"model": selector, **request})
    return await ScoreServicer(ModelRegistry([entry])).Score(request, None)


async def tokenize(model, /, call=None, **request):
    """Ask a loaded model's tokenizer for tokens; the response, or the RequestError it raises."""
    return await _of_tokenizer(model, "Tokenize", tokenization_pb2.TokenizeRequest, call, request)


async def detokenize(model, /, call=None, **request):
    """Ask a loaded model's tokenizer for a text; the response, or the RequestError it raises."""
    return await _of_tokenizer(model, "Detokenize", tokenization_pb2.DetokenizeRequest, call, request)


async def _of_tokenizer(model, method, message, call, request):
    entry = RegistryEntry(model.name, model.version, model.bundle.directory, model_pb2.MODEL_STATE_READY, model=model)
    REQUEST_CONTEXT.set(call or RequestContext(method))
    selector = common_pb2.ModelSelector(name=model.name)
    return await getattr(TokenizationServicer(ModelRegistry([entry])), method)(message(model=selector, **request), None)


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
    if golden.question:
        given["text"] = golden.question
    return {"inputs": [given], **more} if golden.embedding else {**given, **more}
