"""The verbs that ask a model something: one table, for `Client`, `AsyncClient`, `--file` and `weft bench`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, ParamSpec, TypeVar

from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from weft import _answers, _requests, _tokenization
from weft._completions import Answer as PictureAnswer
from weft._completions import Caption, Generation, Transcription, Translation
from weft._types import (
    Classification,
    Extraction,
    FilledMasks,
    Score,
    Tagging,
    Task,
)

Asked = ParamSpec("Asked")
Other = ParamSpec("Other")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Verb(Generic[Asked, Answer]):
    """One method of the server, and the tasks of the models that answer it: none where it is no task's own.

    `request` makes the message from the verb's arguments. `read` makes the answer from the method's message.
    """

    service: str
    method: str
    request: Callable[Asked, Message]
    read: Callable[[Any], Answer]
    tasks: frozenset[Task] = frozenset()

    @property
    def path(self) -> str:
        """The method's name on the wire."""
        return f"/weft.v1.{self.service}/{self.method}"

    @property
    def response(self) -> type[Message]:
        """The method's message."""
        return message_types(self.path)[1]

    def asked_by(self, request: Callable[Other, Message]) -> "Verb[Other, Answer]":
        """Return the same method, whose request is made from other arguments."""
        return Verb(self.service, self.method, request, self.read, self.tasks)


@dataclass(frozen=True, slots=True)
class WritingVerb(Verb[Asked, Answer]):
    """A verb whose answer is text, and can be streamed."""

    @property
    def stream_path(self) -> str:
        """The streaming method's name on the wire."""
        return f"/weft.v1.{self.service}/Stream{self.method}"

    @property
    def stream_request(self) -> Callable[..., Message]:
        """What wraps the request of the unary call."""
        return message_types(self.stream_path)[0]

    @property
    def stream_response(self) -> type[Message]:
        """Each message of the stream."""
        return message_types(self.stream_path)[1]


@cache
def message_types(path: str) -> tuple[type[Message], type[Message]]:
    """Return the types of a method's request and response, by its name on the wire."""
    method: Any = Default().FindMethodByName(path[1:].replace("/", "."))
    return GetMessageClass(method.input_type), GetMessageClass(method.output_type)


TRANSLATE = WritingVerb(
    "TranslationService",
    "Translate",
    _requests.translate_request,
    _answers.completion(Translation),
    frozenset({Task.TRANSLATE}),
)
CAPTION = WritingVerb(
    "CaptionService", "Caption", _requests.caption_request, _answers.completion(Caption), frozenset({Task.CAPTION})
)
ANSWER = WritingVerb(
    "AnswerService", "Answer", _requests.answer_request, _answers.completion(PictureAnswer), frozenset({Task.ANSWER})
)
TRANSCRIBE = WritingVerb(
    "TranscriptionService",
    "Transcribe",
    _requests.transcribe_request,
    _answers.completion(Transcription),
    frozenset({Task.TRANSCRIBE}),
)
GENERATE = WritingVerb(
    "GenerationService",
    "Generate",
    _requests.generate_request,
    _answers.completion(Generation),
    frozenset({Task.GENERATE}),
)
CLASSIFY = Verb(
    "ClassificationService",
    "Classify",
    _requests.classify_request,
    _answers.reader(Classification),
    frozenset({Task.CLASSIFY_TEXT, Task.CLASSIFY_IMAGE, Task.MATCH}),
)
TAG = Verb("ClassificationService", "Tag", _requests.tag_request, _answers.reader(Tagging), frozenset({Task.TAG}))
EXTRACT = Verb(
    "ClassificationService",
    "Extract",
    _requests.extract_request,
    _answers.reader(Extraction),
    frozenset({Task.EXTRACT}),
)
FILL_MASK = Verb(
    "ClassificationService",
    "FillMask",
    _requests.fill_mask_request,
    _answers.reader(FilledMasks),
    frozenset({Task.FILL_MASK}),
)
EMBED = Verb(
    "EmbeddingService",
    "Embed",
    _requests.embed_request,
    _answers.embeddings,
    frozenset({Task.EMBED_TEXT, Task.EMBED_IMAGE, Task.MATCH}),
)
# Any model that produces text may answer.
SCORE = Verb("ScoreService", "Score", _requests.score_request, _answers.reader(Score))
# Any model that reads or writes text may answer.
TOKENIZE = Verb("TokenizationService", "Tokenize", _tokenization.tokenize_request, _answers.tokenization)
DETOKENIZE = Verb(
    "TokenizationService",
    "Detokenize",
    _tokenization.detokenize_request,
    _answers.reader(_tokenization.Detokenization),
)

# What stands in several arguments above stands in one here.
CLASSIFY_ONE = CLASSIFY.asked_by(_requests.classify_one_request)
EXTRACT_PAIR = EXTRACT.asked_by(_requests.extract_pair_request)
EMBED_ONE = EMBED.asked_by(_requests.embed_one_request)
ANSWER_PAIR = ANSWER.asked_by(_requests.answer_pair_request)
SCORE_PAIR = SCORE.asked_by(_requests.score_pair_request)

_WRITING = (TRANSLATE, CAPTION, ANSWER, TRANSCRIBE, GENERATE)
VERBS: tuple[Verb[..., Any], ...] = (*_WRITING, CLASSIFY, TAG, EXTRACT, FILL_MASK, EMBED, SCORE, TOKENIZE, DETOKENIZE)
STREAM_PATHS = tuple(verb.stream_path for verb in _WRITING)


def methods_on(channel: Any) -> dict[str, Any]:
    """Return the methods of all verbs, by path, to be called on a channel: a blocking one, or asyncio's."""
    return {
        **{verb.path: _method(channel.unary_unary, verb.path) for verb in VERBS},
        **{path: _method(channel.unary_stream, path) for path in STREAM_PATHS},
    }


def _method(make: Callable[..., Any], path: str) -> Any:
    request, response = message_types(path)
    return make(
        path,
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
        _registered_method=True,  # as the generated stubs say it
    )
