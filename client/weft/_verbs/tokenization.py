"""`tokenize` and `detokenize`: tokens of texts, and texts of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from google.protobuf.message import Message

from weft._answers import read, reader
from weft._chat import messages_of
from weft._fields import fill, refusal
from weft._requests import selector
from weft._types import Messages, ResolvedModel
from weft._verbs.verb import Verb
from weft.exceptions import InvalidRequest
from weft_proto.v1 import tokenization_pb2

SIDES = {"": None, "input": tokenization_pb2.SIDE_INPUT, "output": tokenization_pb2.SIDE_OUTPUT}


class DetokenizeOptions(TypedDict, total=False):
    """What it takes to make a text of tokens.

    `model` must name the model. `model_version`, `version_label` and `request_id` are as in `Options`. `side` is
    "input", for what the model reads, or "output", for what it writes: by default the output, if it writes text.
    """

    model: str
    model_version: int | None
    version_label: str | None
    side: str
    request_id: str


class TokenizeOptions(DetokenizeOptions, total=False):
    """What it takes to make tokens of a text: the same, but `side` is by default the input, if the model reads text.

    `source_language` and `target_language` are as for a translation, and for the input alone. `count_only` asks for
    `num_tokens`, and for no list of tokens.
    """

    source_language: str
    target_language: str
    count_only: bool


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a text: its id, a piece to show, and its place `text[start:end]`.

    `start` and `end` count code points, as Python's str does. They are equal for a token that stands for no text.
    `added` ones were put around the text: special tokens, and those of languages.
    """

    id: int
    token: str
    start: int
    end: int
    added: bool


@dataclass(frozen=True, slots=True)
class Tokenization:
    """The tokens of a text, or if only their number was asked for, that.

    `prompt` is what messages made, and the places are in it. It is empty for a text.
    """

    num_tokens: int
    tokens: tuple[Token, ...]
    prompt: str
    model: ResolvedModel
    request_id: str

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids, as every verb takes them in place of the text."""
        return tuple(token.id for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Detokenization:
    """The text that tokens stand for, without special ones, and for each token a piece to show."""

    text: str
    tokens: tuple[str, ...]
    model: ResolvedModel
    request_id: str


def tokenize_request(
    text: str | None, messages: Messages | None = None, **options: Unpack[TokenizeOptions]
) -> tokenization_pb2.TokenizeRequest:
    """Ask for the tokens of a text, or of the prompt that messages make."""
    message = tokenization_pb2.TokenizeRequest()
    if (text is None) == (messages is None):
        raise InvalidRequest("give either a text or messages to cut into tokens", reason="WRONG_INPUT_KIND")
    if messages is not None:
        message.messages.CopyFrom(messages_of(messages))
    elif not isinstance(text, str):
        raise refusal("text", f"must be a str, not {type(text).__name__}")
    _fill(message, {**options}, text=text)
    return message


def detokenize_request(
    token_ids: Sequence[int], **options: Unpack[DetokenizeOptions]
) -> tokenization_pb2.DetokenizeRequest:
    """Ask for the text of tokens."""
    message = tokenization_pb2.DetokenizeRequest()
    if isinstance(token_ids, str | bytes | bytearray):
        raise refusal("token_ids", f"must be a sequence of ids, not {type(token_ids).__name__}")
    try:
        ids = tuple(token_ids)
    except TypeError:
        raise refusal("token_ids", f"must be a sequence of ids, not {type(token_ids).__name__}") from None
    _fill(message, {**options}, token_ids=ids)
    return message


def _fill(message: Message, options: dict[str, Any], **given: Any) -> None:
    known = {*message.DESCRIPTOR.fields_by_name, "model_version", "version_label"} - {"text", "messages", "token_ids"}
    if unknown := options.keys() - known:
        raise TypeError(f"unknown option {min(unknown)!r}")
    which = (options.pop("model", ""), options.pop("model_version", None), options.pop("version_label", None))
    side = options.pop("side", "")
    if not isinstance(side, str) or side not in SIDES:
        raise refusal("side", f'must be "input" or "output", not {side!r}')
    fill(message, model=selector(*which), side=SIDES[side], **given, **options)


def _tokenization(message: tokenization_pb2.TokenizeResponse) -> Tokenization:
    """Read the tokens of a text."""
    lists = (message.token_ids, message.tokens, message.starts, message.ends, message.added)
    return read(Tokenization, message, tokens=tuple(map(Token, *lists)))


TOKENIZE = Verb("Tokenize", tokenize_request, _tokenization)
DETOKENIZE = Verb("Detokenize", detokenize_request, reader(Detokenization))
