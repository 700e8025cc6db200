"""The verbs that ask a model something: one table, for `Client`, `AsyncClient` and `weft bench`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from google.protobuf.message import Message

from weft import _answers, _requests, _tokenization
from weft._completions import Answer as PictureAnswer
from weft._completions import Caption, Generation, Transcription, Translation
from weft._types import Classification, Extraction, FilledMasks, Score, Tagging, Task
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS, Method, streaming

Asked = ParamSpec("Asked")
Other = ParamSpec("Other")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Verb(Generic[Asked, Answer]):
    """One unary method of the server, by its name in the contracts.

    `request` makes the message from the verb's arguments. `read` makes the answer from a message of type `response`.
    """

    name: str
    request: Callable[Asked, Message]
    read: Callable[[Any], Answer]

    @property
    def path(self) -> str:
        """The method's name on the wire."""
        return METHODS[self.name].path

    @property
    def response(self) -> type[Message]:
        """What the method answers with."""
        return METHODS[self.name].response

    @property
    def tasks(self) -> frozenset[Task]:
        """The tasks of the models that answer it; none where it is no task's own verb."""
        names = map(common_pb2.Task.Name, METHODS[self.name].tasks)
        return frozenset(Task(name.removeprefix("TASK_").lower()) for name in names)

    def asked_by(self, request: Callable[Other, Message]) -> "Verb[Other, Answer]":
        """Return the same method, whose request is made from other arguments."""
        return Verb(self.name, request, self.read)


@dataclass(frozen=True, slots=True)
class WritingVerb(Verb[Asked, Answer]):
    """A verb whose answer is text, and can be streamed."""

    @property
    def stream_path(self) -> str:
        """The streaming method's name on the wire."""
        return streaming(self.name).path

    @property
    def stream_request(self) -> Callable[..., Message]:
        """What wraps the request of the unary call."""
        return streaming(self.name).request

    @property
    def stream_response(self) -> type[Message]:
        """Each message of the stream."""
        return streaming(self.name).response


TRANSLATE = WritingVerb("Translate", _requests.translate_request, _answers.completion(Translation))
CAPTION = WritingVerb("Caption", _requests.caption_request, _answers.completion(Caption))
ANSWER = WritingVerb("Answer", _requests.answer_request, _answers.completion(PictureAnswer))
TRANSCRIBE = WritingVerb("Transcribe", _requests.transcribe_request, _answers.completion(Transcription))
GENERATE = WritingVerb("Generate", _requests.generate_request, _answers.completion(Generation))
CLASSIFY = Verb("Classify", _requests.classify_request, _answers.reader(Classification))
TAG = Verb("Tag", _requests.tag_request, _answers.reader(Tagging))
EXTRACT = Verb("Extract", _requests.extract_request, _answers.reader(Extraction))
FILL_MASK = Verb("FillMask", _requests.fill_mask_request, _answers.reader(FilledMasks))
EMBED = Verb("Embed", _requests.embed_request, _answers.embeddings)
SCORE = Verb("Score", _requests.score_request, _answers.reader(Score))
TOKENIZE = Verb("Tokenize", _tokenization.tokenize_request, _answers.tokenization)
DETOKENIZE = Verb("Detokenize", _tokenization.detokenize_request, _answers.reader(_tokenization.Detokenization))

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
    methods = [METHODS[verb.name] for verb in VERBS] + [streaming(verb.name) for verb in _WRITING]
    return {method.path: _on(channel, method) for method in methods}


def _on(channel: Any, method: Method) -> Any:
    """Return what calls a method, as a generated stub has it."""
    make = channel.unary_stream if method.streams else channel.unary_unary
    return make(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
        _registered_method=True,
    )
