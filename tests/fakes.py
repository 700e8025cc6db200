"""A Weft server whose answers are known beforehand: the real wire, no model."""
# ruff: noqa: D102, N802 - gRPC names the methods, and the protos document them

import contextlib
import re
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from weft_proto.v1 import answer_pb2 as answering
from weft_proto.v1 import answer_pb2_grpc as answering_grpc
from weft_proto.v1 import caption_pb2 as caption
from weft_proto.v1 import caption_pb2_grpc as caption_grpc
from weft_proto.v1 import classification_pb2 as classification
from weft_proto.v1 import classification_pb2_grpc as classification_grpc
from weft_proto.v1 import common_pb2 as common
from weft_proto.v1 import embedding_pb2 as embedding
from weft_proto.v1 import embedding_pb2_grpc as embedding_grpc
from weft_proto.v1 import generation_pb2 as generation
from weft_proto.v1 import generation_pb2_grpc as generation_grpc
from weft_proto.v1 import model_pb2 as model
from weft_proto.v1 import model_pb2_grpc as model_grpc
from weft_proto.v1 import score_pb2 as score
from weft_proto.v1 import score_pb2_grpc as score_grpc
from weft_proto.v1 import tokenization_pb2 as tokenization
from weft_proto.v1 import tokenization_pb2_grpc as tokenization_grpc
from weft_proto.v1 import transcription_pb2 as transcription
from weft_proto.v1 import transcription_pb2_grpc as transcription_grpc
from weft_proto.v1 import translation_pb2 as translation
from weft_proto.v1 import translation_pb2_grpc as translation_grpc


@dataclass(frozen=True)
class Failure:
    """An error to answer with, in a stream after `after` deltas; OK ends the stream there without its final message."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = "no"
    field: str = ""
    error_id: str = ""
    retry_after: float | None = None
    after: int = 0
    details: bytes = b""  # sent instead of what the other fields make

    def abort(self, context):
        """End the call as the real server does: status, ErrorInfo, BadRequest, RetryInfo."""
        details = []
        if self.reason:
            metadata = {"error_id": self.error_id} if self.error_id else {}
            details.append(error_details_pb2.ErrorInfo(reason=self.reason, domain="weft", metadata=metadata))
        if self.field:
            violation = error_details_pb2.BadRequest.FieldViolation(field=self.field, description=self.message)
            details.append(error_details_pb2.BadRequest(field_violations=[violation]))
        if self.retry_after is not None:
            delay = Duration()
            delay.FromMilliseconds(round(self.retry_after * 1000))
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        if details or self.details:
            context.set_trailing_metadata((("grpc-status-details-bin", self.details or status.SerializeToString()),))
        context.abort(self.code, self.message)


@dataclass
class Seen:
    """One call as the server saw it."""

    method: str
    request: object
    metadata: dict[str, str]
    seconds_left: float | None  # until its deadline, when it came
    cancelled: threading.Event = field(default_factory=threading.Event)


NUM_WAITING = 8


class FakeServicer(
    translation_grpc.TranslationServiceServicer,
    answering_grpc.AnswerServiceServicer,
    caption_grpc.CaptionServiceServicer,
    classification_grpc.ClassificationServiceServicer,
    embedding_grpc.EmbeddingServiceServicer,
    generation_grpc.GenerationServiceServicer,
    score_grpc.ScoreServiceServicer,
    tokenization_grpc.TokenizationServiceServicer,
    transcription_grpc.TranscriptionServiceServicer,
    model_grpc.ModelServiceServicer,
):
    """Answers with the request's own words in reverse order.

    `script` holds what the next calls do instead, first come first served: a Failure fails, a float waits this number
    of seconds before the answer, NUM_WAITING calls at a time. `by_text` holds the same for a text, however often it
    comes. `step_s` is the pause before each delta. `seen` lists the
    calls. With `only_final` a stream has no deltas, as of a search; `glue` stands between the words of an answer.
    """

    def __init__(self):
        self.script = deque()
        self.by_text = {}
        self.only_final = False
        self.glue = " "
        self._waiting = threading.BoundedSemaphore(NUM_WAITING)
        self._num_waiting = 0
        self.most_waiting = 0
        self.step_s = 0.0
        self.seen = []

    def pause(self):
        """What happens before each delta."""
        time.sleep(self.step_s)

    def _enter(self, method, request, context):
        seen = Seen(method, request, dict(context.invocation_metadata()), context.time_remaining())
        if not context.add_callback(lambda: None if context.code() else seen.cancelled.set()):
            seen.cancelled.set()
        self.seen.append(seen)
        next_up = self.by_text.get(getattr(request, "text", None))
        if next_up is None and self.script:
            next_up = self.script.popleft()
        if isinstance(next_up, float):
            with self._waiting:
                self._num_waiting += 1
                self.most_waiting = max(self.most_waiting, self._num_waiting)
                seen.cancelled.wait(next_up)
                self._num_waiting -= 1
        if isinstance(next_up, Failure) and next_up.after == 0:
            next_up.abort(context)
        return next_up

    def _stream(self, method, request, context, answer, response):
        next_up = self._enter(method, request, context)
        final = answer(request.request)
        words = [] if self.only_final else final.completion.text.split(" ")
        for index, word in enumerate(words):
            if isinstance(next_up, Failure) and index == next_up.after:
                if next_up.code is grpc.StatusCode.OK:
                    return
                next_up.abort(context)
            self.pause()
            yield response(delta=common.TextDelta(text=word if index == 0 else " " + word))
        yield response(final=final)
        context.set_code(grpc.StatusCode.OK)

    def _finish(self, context, answer):
        context.set_code(grpc.StatusCode.OK)
        return answer

    def Translate(self, request, context):
        self._enter("Translate", request, context)
        return self._finish(context, translate(request))

    def StreamTranslate(self, request, context):
        yield from self._stream("StreamTranslate", request, context, translate, translation.StreamTranslateResponse)

    def Caption(self, request, context):
        self._enter("Caption", request, context)
        return self._finish(context, describe(request))

    def StreamCaption(self, request, context):
        yield from self._stream("StreamCaption", request, context, describe, caption.StreamCaptionResponse)

    def Answer(self, request, context):
        self._enter("Answer", request, context)
        return answer_question(request)

    def StreamAnswer(self, request, context):
        yield from self._stream("StreamAnswer", request, context, answer_question, answering.StreamAnswerResponse)

    def Transcribe(self, request, context):
        self._enter("Transcribe", request, context)
        return self._finish(context, write_down(request))

    def StreamTranscribe(self, request, context):
        response = transcription.StreamTranscribeResponse
        yield from self._stream("StreamTranscribe", request, context, write_down, response)

    def Classify(self, request, context):
        self._enter("Classify", request, context)
        return self._finish(context, classify(request))

    def Embed(self, request, context):
        self._enter("Embed", request, context)
        return self._finish(context, embed(request))

    def Score(self, request, context):
        self._enter("Score", request, context)
        return self._finish(context, score_of(request))

    def Tokenize(self, request, context):
        self._enter("Tokenize", request, context)
        return self._finish(context, tokenize(request))

    def Detokenize(self, request, context):
        self._enter("Detokenize", request, context)
        return self._finish(context, detokenize(request))

    def Tag(self, request, context):
        self._enter("Tag", request, context)
        return self._finish(context, tag(request))

    def Extract(self, request, context):
        self._enter("Extract", request, context)
        return self._finish(context, extract(request))

    def FillMask(self, request, context):
        self._enter("FillMask", request, context)
        return self._finish(context, fill_mask(request))

    def Generate(self, request, context):
        self._enter("Generate", request, context)
        answer = generate(request)
        for output in (answer.completion, *answer.completion.others):
            output.text = output.text.replace(" ", self.glue)
        return self._finish(context, answer)

    def StreamGenerate(self, request, context):
        yield from self._stream("StreamGenerate", request, context, generate, generation.StreamGenerateResponse)

    def ListModels(self, request, context):
        self._enter("ListModels", request, context)
        return self._finish(context, model.ListModelsResponse(models=MODELS))

    def GetModel(self, request, context):
        self._enter("GetModel", request, context)
        for each in MODELS:
            if each.name == request.model.name and request.model.version in (0, each.version):
                return self._finish(context, model.GetModelResponse(model=each))
        return Failure(grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND", f"no model {request.model.name!r}").abort(context)


MODELS = [
    model.Model(
        name="en-es",
        version=1,
        task=common.TASK_TRANSLATE,
        state=model.MODEL_STATE_READY,
        family="transformer-encoder-decoder",
        description="English to Spanish.",
        limits=model.Limits(max_source_tokens=64, max_new_tokens=48),
        source_languages=["en"],
        target_languages=["es", "pt"],
        decoding=common.Decoding(max_new_tokens=48, min_new_tokens=0, greedy=common.Greedy()),
        vocab_size=1000,
        can_explain=True,
        attention_heads=[4, 4],
        default_attention_layer=1,
        prefixes=["translate: "],
        takes_messages=True,
    ),
    model.Model(
        name="topics",
        version=2,
        task=common.TASK_CLASSIFY_TEXT,
        state=model.MODEL_STATE_FAILED,
        error="model.onnx: digest differs",
        limits=model.Limits(max_source_tokens=128),
        labels=["a", "b"],
    ),
]


def _words(message):
    if "messages" in message.DESCRIPTOR.fields_by_name and message.HasField("messages"):
        return [word for turn in message.messages.turns for word in (f"{turn.role}:", *turn.content.split())]
    if message.HasField("token_ids"):
        return [str(token) for token in message.token_ids.ids]
    return message.text.split()


def _completion(request, words, name):
    words = words[::-1]
    decoding = common.Decoding(max_new_tokens=8, min_new_tokens=0, greedy=common.Greedy())
    decoding.MergeFrom(request.decoding)
    beams = decoding.HasField("beams")
    outputs = [
        _output(request, words if number % 2 == 0 else words[::-1], -0.25 * (number + 1) if beams else None)
        for number in range(decoding.num_outputs or 1)
    ]
    best = outputs[0]
    return common.Completion(
        **{field.name: value for field, value in best.ListFields()},
        others=outputs[1:],
        prompt_log_probs=[-1.0] * (len(words) - 1) if getattr(request, "return_prompt_scores", False) else (),
        decoding=decoding,
        usage=common.Usage(
            input_tokens=len(words),
            output_tokens=len(words),
            cached_tokens=max(0, len(words) - 1) if getattr(request, "cache_salt", "") else 0,
        ),
        timings=common.Timings(
            queue=Duration(nanos=1_500_000), prefill=Duration(nanos=2_000_000), decode=Duration(seconds=1)
        ),
        model=common.ResolvedModel(name=request.model.name or name, version=request.model.version or 1),
        request_id=request.request_id or "made-by-server",
    )


def _output(request, words, score):
    """One of several answers; behind its token the most probable ones of a step are 1, 2 and so on."""
    top = [
        common.TopTokens(
            token_ids=[index, *range(1, request.num_top_tokens)],
            log_probs=[-0.5 - place for place in range(request.num_top_tokens)],
            tokens=[word, *map(str, range(1, request.num_top_tokens))],
        )
        for index, word in enumerate(words)
        if request.num_top_tokens
    ]
    return common.Output(
        text=" ".join(words),
        token_ids=range(len(words)),
        token_log_probs=[-0.5] * len(words) if request.return_scores else (),
        tokens=words if request.return_scores else (),
        finish_reason=common.FINISH_REASON_STOP,
        score=score,
        top_tokens=top,
    )


def _explain(request, answer, target, **source):
    """Say that of the source row i looked at column -1 - i alone, with half of its attention."""
    if not request.HasField("explain"):
        return answer
    rows, columns = len(target), _num_columns(**source)
    alignment = common.Alignment(target_tokens=target, source_mass=[0.5] * rows, **source)
    alignment.weights.extend(float(column == -(row + 1) % columns) for row in range(rows) for column in range(columns))
    for name in ("layer", "head"):
        if request.explain.HasField(name):
            setattr(alignment, name, getattr(request.explain, name))
    answer.alignment.CopyFrom(alignment)
    return answer


def _num_columns(source_tokens=(), grid_rows=0, grid_columns=0, num_columns=0, **_):
    return len(source_tokens) or grid_rows * grid_columns or num_columns


def translate(request):
    """The words in reverse; the alignment says so."""
    words = _words(request)
    answer = translation.TranslateResponse(completion=_completion(request, words, "en-es"))
    return _explain(request, answer, words[::-1], source_tokens=words)


def describe(request):
    """The size of the file in words, attended on a grid of 2 x 3 patches."""
    words = ["bytes", str(len(request.image.data)), "a", "of", "picture", "a"]
    answer = caption.CaptionResponse(completion=_completion(request, words, "scenes"))
    return _explain(request, answer, words[::-1], grid_rows=2, grid_columns=3)


def answer_question(request):
    """The size of the file and the words of the question, attended on a grid of 2 x 3 patches."""
    words = [*_words(request), str(len(request.image.data))]
    answer = answering.AnswerResponse(completion=_completion(request, words, "answers"))
    explained = _explain(request, answer, words[::-1], grid_rows=2, grid_columns=3)
    if explained.HasField("alignment"):
        # The first word looked at the first word of the question alone, the next one at the next.
        asked = _words(request)
        explained.alignment.question_tokens.extend(asked)
        places = [(row, column) for row in range(len(words)) for column in range(len(asked))]
        explained.alignment.question_weights.extend(float(row % len(asked) == column) for row, column in places)
        explained.alignment.question_mass.extend([0.25] * len(words))
    return explained


def write_down(request):
    """The size of the file in words, a second each, attended in three moments. Of no bytes nothing is said."""
    words = ["bytes", str(len(request.audio.data)), "of", "sound"] if request.audio.data else []
    answer = transcription.TranscribeResponse(completion=_completion(request, words, "voices"), duration_s=2.0)
    half = len(words) // 2
    for second, part in enumerate((words[half:], words[:half])):
        answer.segments.add(start_s=second, end_s=second + 1, text=" ".join(part[::-1]))
    if request.HasField("explain"):
        for place, word in enumerate(words[::-1]):
            answer.words.add(text=word, start_s=place / 2, end_s=place / 2 + 0.5)
    return _explain(request, answer, words[::-1], num_columns=3, column_s=0.5)


def generate(request):
    """The words in reverse; the alignment says so. Each picture of a chat has 2 x 2 places before the words."""
    words = _words(request)
    answer = generation.GenerateResponse(completion=_completion(request, words, "pydocs"))
    count = sum(part.HasField("image") for turn in request.messages.turns for part in turn.parts)
    middle = common.Region(left=0.25, right=0.75, bottom=1)
    grid = {"grid_rows": 2, "grid_columns": 2, "row_columns": 2, "region": middle}
    pictures = [common.PictureColumns(picture=each, first_column=4 * each, **grid) for each in range(count)]
    return _explain(request, answer, words[::-1], source_tokens=["<image>"] * 4 * count + words, pictures=pictures)


def classify(request):
    """Named after the kind of the input; a picture is attended on a grid of 2 x 3 patches.

    The models `flags` and `stars` have labels that hold each by itself, and values.
    """
    kind = request.WhichOneof("input")
    labels = [
        classification.LabelScore(label=kind, index=3, score=0.75),
        classification.LabelScore(label="other", score=0.25),
    ]
    labels = [each for each in labels if each.score >= request.threshold]
    answer = classification.ClassifyResponse(labels=labels[: request.top_k or 5], **_facts(request, "topics"))
    answer.scoring = {"flags": 1, "stars": 2}.get(request.model.name, 0)
    source = {"grid_rows": 2, "grid_columns": 3} if kind == "image" else {"source_tokens": _words(request)}
    return _explain(request, answer, [kind], **source)


def fill_mask(request):
    """Fill each mask with the targets, or with a word and a part of one."""
    words = list(request.targets) or [" cat", "##s"]
    fillings = [
        classification.Filling(text=word, token_id=index, score=0.5 / (1 + index))
        for index, word in enumerate(words[: request.top_k or 5])
    ]
    masks = [
        classification.FilledMask(start=each.start(), end=each.end(), fillings=fillings)
        for each in re.finditer(r"\[MASK\]", request.text)
    ]
    answer = classification.FillMaskResponse(masks=masks, **_facts(request, "words"))
    return _explain(request, answer, ["[MASK]"] * len(masks), source_tokens=request.text.split())


def extract(request):
    """The first words of the context, and that there is no answer."""
    words = list(re.finditer(r"\S+", request.context))[: request.top_k or 1]
    answers = [
        classification.ExtractedAnswer(text=each.group(), start=each.start(), end=each.end(), score=0.75)
        for each in words
    ]
    answers += [classification.ExtractedAnswer(score=0.25)] if request.allow_no_answer else []
    answer = classification.ExtractResponse(answers=answers, **_facts(request, "squad"))
    tokens = [*request.question.split(), *request.context.split()]
    return _explain(request, answer, tokens, source_tokens=tokens)


def tag(request):
    """Each word with a capital is a B-NAME; token ids have no places in the text."""
    words, tokens, spans = _words(request), [], []
    places = [match.span() for match in re.finditer(r"\S+", request.text)] or [(0, 0)] * len(words)
    for word, (start, end) in zip(words, places, strict=True):
        label, index = ("B-NAME", 1) if word[0].isupper() else ("O", 0)
        tokens.append(classification.TokenLabel(token=word, start=start, end=end, label=label, index=index, score=0.75))
        if index and end:
            spans.append(classification.Span(label="NAME", start=start, end=end, text=word, score=0.75))
    answer = classification.TagResponse(tokens=tokens, spans=spans, **_facts(request, "tags"))
    return _explain(request, answer, words, source_tokens=words)


def embed(request):
    """How often each of the first letters stands in an input: those of a text, or of a picture's bytes."""
    answer = embedding.EmbedResponse(**_facts(request, "minilm"))
    for each in request.inputs:
        text = each.text or str(each.token_ids.ids or len(each.image.data))
        values = [float(text.count(letter)) for letter in "abcd"][: request.dimensions or 4]
        answer.embeddings.add(values=values, input_tokens=len(text.split()))
    return _explain(request, answer, ["embedding"], source_tokens=["[CLS]", "a"])


def score_of(request):
    """Each word of the target is less probable than the one before; beside it 0, 1 and so on are probable."""
    words = [str(token) for token in request.target_ids.ids] or request.target_text.split()
    tops = [
        common.TopTokens(
            token_ids=range(request.num_top_tokens),
            log_probs=[-0.5 - place for place in range(request.num_top_tokens)],
            tokens=map(str, range(request.num_top_tokens)),
        )
        for _ in words
        if request.num_top_tokens
    ]
    log_probs = [-0.5 * (place + 1) for place in range(len(words))]
    return score.ScoreResponse(
        total=sum(log_probs),
        token_ids=range(len(words)),
        token_log_probs=log_probs,
        tokens=words,
        top_tokens=tops,
        **_facts(request, "en-es"),
    )


def tokenize(request):
    """Each word is a token, numbered from 1; a token 0 is added behind them."""
    prompt = " ".join(_words(request)) if request.HasField("messages") else ""
    places = [match.span() for match in re.finditer(r"\S+", prompt or request.text)]
    words = [(prompt or request.text)[start:end] for start, end in places]
    lists = {
        "token_ids": [*range(1, len(words) + 1), 0],
        "tokens": [*words, "</s>"],
        "starts": [*(start for start, _ in places), 0],
        "ends": [*(end for _, end in places), 0],
        "added": [False] * len(words) + [True],
    }
    return tokenization.TokenizeResponse(
        num_tokens=len(words) + 1, prompt=prompt, **({} if request.count_only else lists), **_which(request)
    )


def detokenize(request):
    """Each token is a word of its number."""
    words = [f"w{token}" for token in request.token_ids]
    return tokenization.DetokenizeResponse(text=" ".join(words), tokens=words, **_which(request))


def _which(request):
    return {
        "model": common.ResolvedModel(name=request.model.name, version=request.model.version or 1),
        "request_id": request.request_id or "made-by-server",
    }


def _facts(request, name):
    return {
        "usage": common.Usage(input_tokens=4),
        "timings": common.Timings(prefill=Duration(nanos=3_000_000)),
        "model": common.ResolvedModel(name=request.model.name or name, version=request.model.version or 1),
        "request_id": request.request_id or "made-by-server",
    }


@dataclass
class FakeServer:
    """A running server: its address, its servicer, its health."""

    target: str
    servicer: FakeServicer
    health: health.HealthServicer

    def set_health(self, service, *, serving):
        """Say whether a health service serves."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        self.health.set(service, status)


# The system gives a port that was left to the next server, of whatever test. At this address are those alone that a
# client waits for.
EMPTY = "127.0.0.7"


@contextlib.contextmanager
def fake_server(port=0, checks=None, host="127.0.0.1"):
    """Run a server on a free port of this machine until the block ends. `checks` answers for its health, if given."""
    servicer = FakeServicer()
    # By default a watch that ends while its status is sent can wait for itself, and the server for ever for it.
    # A watch that blocks holds a thread instead.
    checks = checks or health.HealthServicer(experimental_non_blocking=False)
    server = grpc.server(ThreadPoolExecutor(max_workers=32), options=[("grpc.so_reuseport", 0)])
    translation_grpc.add_TranslationServiceServicer_to_server(servicer, server)
    answering_grpc.add_AnswerServiceServicer_to_server(servicer, server)
    caption_grpc.add_CaptionServiceServicer_to_server(servicer, server)
    transcription_grpc.add_TranscriptionServiceServicer_to_server(servicer, server)
    classification_grpc.add_ClassificationServiceServicer_to_server(servicer, server)
    embedding_grpc.add_EmbeddingServiceServicer_to_server(servicer, server)
    generation_grpc.add_GenerationServiceServicer_to_server(servicer, server)
    score_grpc.add_ScoreServiceServicer_to_server(servicer, server)
    tokenization_grpc.add_TokenizationServiceServicer_to_server(servicer, server)
    model_grpc.add_ModelServiceServicer_to_server(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    for service in ("", "accepting"):
        checks.set(service, health_pb2.HealthCheckResponse.SERVING)
    port = server.add_insecure_port(f"{host}:{port}")
    server.start()
    try:
        yield FakeServer(f"{host}:{port}", servicer, checks)
    finally:
        server.stop(grace=None).wait()
