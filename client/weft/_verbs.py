"""The verbs that ask a model something: one table, for `Client`, `AsyncClient` and `weft bench`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from google.protobuf.message import Message

from weft import _answers, _requests, _tokenization
from weft._types import Task
from weft_proto.v1.answer_pb2 import AnswerResponse, StreamAnswerRequest, StreamAnswerResponse
from weft_proto.v1.answer_pb2_grpc import AnswerServiceStub
from weft_proto.v1.caption_pb2 import CaptionResponse, StreamCaptionRequest, StreamCaptionResponse
from weft_proto.v1.caption_pb2_grpc import CaptionServiceStub
from weft_proto.v1.classification_pb2 import ClassifyResponse, ExtractResponse, FillMaskResponse, TagResponse
from weft_proto.v1.classification_pb2_grpc import ClassificationServiceStub
from weft_proto.v1.embedding_pb2 import EmbedResponse
from weft_proto.v1.embedding_pb2_grpc import EmbeddingServiceStub
from weft_proto.v1.generation_pb2 import GenerateResponse, StreamGenerateRequest, StreamGenerateResponse
from weft_proto.v1.generation_pb2_grpc import GenerationServiceStub
from weft_proto.v1.score_pb2 import ScoreResponse
from weft_proto.v1.score_pb2_grpc import ScoreServiceStub
from weft_proto.v1.tokenization_pb2 import DetokenizeResponse, TokenizeResponse
from weft_proto.v1.tokenization_pb2_grpc import TokenizationServiceStub
from weft_proto.v1.transcription_pb2 import StreamTranscribeRequest, StreamTranscribeResponse, TranscribeResponse
from weft_proto.v1.transcription_pb2_grpc import TranscriptionServiceStub
from weft_proto.v1.translation_pb2 import StreamTranslateRequest, StreamTranslateResponse, TranslateResponse
from weft_proto.v1.translation_pb2_grpc import TranslationServiceStub

Asked = ParamSpec("Asked")
Other = ParamSpec("Other")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Verb(Generic[Asked, Answer]):
    """One method of the server, and the tasks of the models that answer it.

    `stub` makes the methods of a service on a channel. `request` makes the message from the verb's arguments. `read`
    makes the answer from a message of type `response`.
    """

    stub: Callable[[Any], Any]
    service: str
    method: str
    tasks: frozenset[Task]
    request: Callable[Asked, Message]
    response: type[Message]
    read: Callable[[Any], Answer]

    @property
    def path(self) -> str:
        """The method's name on the wire."""
        return f"/weft.v1.{self.service}/{self.method}"

    def asked_by(self, request: Callable[Other, Message]) -> "Verb[Other, Answer]":
        """Return the same method, whose request is made from other arguments."""
        return Verb(self.stub, self.service, self.method, self.tasks, request, self.response, self.read)


@dataclass(frozen=True, slots=True)
class WritingVerb(Verb[Asked, Answer]):
    """A verb whose answer is text, and can be streamed.

    `stream_request` wraps the request of the unary call. Each message of the stream is a `stream_response`.
    """

    stream_request: Callable[..., Message]
    stream_response: type[Message]

    @property
    def stream_method(self) -> str:
        """The streaming method."""
        return f"Stream{self.method}"

    @property
    def stream_path(self) -> str:
        """The streaming method's name on the wire."""
        return f"/weft.v1.{self.service}/{self.stream_method}"


TRANSLATE = WritingVerb(
    TranslationServiceStub,
    "TranslationService",
    "Translate",
    frozenset({Task.TRANSLATE}),
    _requests.translate_request,
    TranslateResponse,
    _answers.translation,
    StreamTranslateRequest,
    StreamTranslateResponse,
)
CAPTION = WritingVerb(
    CaptionServiceStub,
    "CaptionService",
    "Caption",
    frozenset({Task.CAPTION}),
    _requests.caption_request,
    CaptionResponse,
    _answers.caption,
    StreamCaptionRequest,
    StreamCaptionResponse,
)
ANSWER = WritingVerb(
    AnswerServiceStub,
    "AnswerService",
    "Answer",
    frozenset({Task.ANSWER}),
    _requests.answer_request,
    AnswerResponse,
    _answers.answer,
    StreamAnswerRequest,
    StreamAnswerResponse,
)
TRANSCRIBE = WritingVerb(
    TranscriptionServiceStub,
    "TranscriptionService",
    "Transcribe",
    frozenset({Task.TRANSCRIBE}),
    _requests.transcribe_request,
    TranscribeResponse,
    _answers.transcription,
    StreamTranscribeRequest,
    StreamTranscribeResponse,
)
GENERATE = WritingVerb(
    GenerationServiceStub,
    "GenerationService",
    "Generate",
    frozenset({Task.GENERATE}),
    _requests.generate_request,
    GenerateResponse,
    _answers.generation,
    StreamGenerateRequest,
    StreamGenerateResponse,
)
CLASSIFY = Verb(
    ClassificationServiceStub,
    "ClassificationService",
    "Classify",
    frozenset({Task.CLASSIFY_TEXT, Task.CLASSIFY_IMAGE, Task.MATCH}),
    _requests.classify_request,
    ClassifyResponse,
    _answers.classification,
)
TAG = Verb(
    ClassificationServiceStub,
    "ClassificationService",
    "Tag",
    frozenset({Task.TAG}),
    _requests.tag_request,
    TagResponse,
    _answers.tagging,
)
EXTRACT = Verb(
    ClassificationServiceStub,
    "ClassificationService",
    "Extract",
    frozenset({Task.EXTRACT}),
    _requests.extract_request,
    ExtractResponse,
    _answers.extraction,
)
FILL_MASK = Verb(
    ClassificationServiceStub,
    "ClassificationService",
    "FillMask",
    frozenset({Task.FILL_MASK}),
    _requests.fill_mask_request,
    FillMaskResponse,
    _answers.filled_masks,
)
EMBED = Verb(
    EmbeddingServiceStub,
    "EmbeddingService",
    "Embed",
    frozenset({Task.EMBED_TEXT, Task.EMBED_IMAGE, Task.MATCH}),
    _requests.embed_request,
    EmbedResponse,
    _answers.embeddings,
)
SCORE = Verb(
    ScoreServiceStub,
    "ScoreService",
    "Score",
    frozenset(),  # no task's own verb: any model that produces text may answer
    _requests.score_request,
    ScoreResponse,
    _answers.score,
)

# What stands in several arguments above stands in one here.
CLASSIFY_ONE = CLASSIFY.asked_by(_requests.classify_one_request)
EXTRACT_PAIR = EXTRACT.asked_by(_requests.extract_pair_request)
EMBED_ONE = EMBED.asked_by(_requests.embed_one_request)
ANSWER_PAIR = ANSWER.asked_by(_requests.answer_pair_request)
SCORE_PAIR = SCORE.asked_by(_requests.score_pair_request)

TOKENIZE = Verb(
    TokenizationServiceStub,
    "TokenizationService",
    "Tokenize",
    frozenset(),  # any model that reads or writes text may answer
    _tokenization.tokenize_request,
    TokenizeResponse,
    _tokenization.tokenization,
)
DETOKENIZE = Verb(
    TokenizationServiceStub,
    "TokenizationService",
    "Detokenize",
    frozenset(),
    _tokenization.detokenize_request,
    DetokenizeResponse,
    _tokenization.detokenization,
)

_WRITING = (TRANSLATE, CAPTION, ANSWER, TRANSCRIBE, GENERATE)
VERBS: tuple[Verb[..., Any], ...] = (*_WRITING, CLASSIFY, TAG, EXTRACT, FILL_MASK, EMBED, SCORE, TOKENIZE, DETOKENIZE)
STREAM_PATHS = tuple(verb.stream_path for verb in _WRITING)


def methods_on(channel: Any) -> dict[str, Any]:
    """Return the methods of all verbs, by path, to be called on a channel: a blocking one, or asyncio's."""
    methods = {}
    for verb in VERBS:
        stub = verb.stub(channel)
        methods[verb.path] = getattr(stub, verb.method)
        if isinstance(verb, WritingVerb):
            methods[verb.stream_path] = getattr(stub, verb.stream_method)
    return methods
