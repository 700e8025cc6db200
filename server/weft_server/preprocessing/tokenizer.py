"""Text to token ids and back, in whole."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import tokenizers
from tokenizers import models

from weft_proto.first_line import first_line
from weft_proto.offsets import Offsets, Place
from weft_proto.prompts import truncation_direction
from weft_proto.tokenizer_rules import is_panic, tokenizer_fault
from weft_proto.v1 import bundle_pb2
from weft_server.errors import BundleError, InvalidRequest
from weft_server.preprocessing.detokenizer import Detokenizer
from weft_server.preprocessing.vocabulary import Vocabulary

# How often these signs may come in a file, those in its texts included. There are at most 4,194,304 tokens, and no more
# merges, each a list of two. Objects are steps and added tokens: 64 MiB of steps would be 5 GB.
MAX_SIGNS = {b"{": 262_144, b"[": 4_194_304, b",": 12_582_912}

Given = TypeVar("Given")
Found = TypeVar("Found")


class TokenizerFailed(ValueError):
    """The tokenizers library panics over a text. It would again, and other texts are none the worse for it.

    For example, one of its expressions gives up after ten million tries, and Llama 3's tries each of ten million
    spaces.
    """


class SourceTruncation(NamedTuple):
    """Where a text is cut, once it is tokenized: to how many tokens, special ones included, and at which side."""

    max_tokens: int
    direction: str


def truncation_of(text: bundle_pb2.TextSpec) -> SourceTruncation | None:
    """Return where a model cuts a source, or None where it refuses one that is too long."""
    direction = truncation_direction(text)
    return None if direction is None else SourceTruncation(text.max_source_tokens, direction)


class TokenSpan(NamedTuple):
    """One token of a text: its id, and the code points [start, end) that it stands for.

    They are whole characters, with all their marks, unless other tokens stand for the rest. White space around the
    token is left out, unless it stands for nothing else. A tokenizer may put a word-boundary mark alone before a word:
    it stands for nothing, so start is end. `added` tokens are the special ones that the post-processor puts around a
    text. They stand for none of it.
    """

    id: int
    start: int
    end: int
    added: bool


class Joined(NamedTuple):
    """Two texts as the post-processor joins them: the ids `before` the second one, its own, and those `behind` it.

    Each place is that of the word which a token of the second text is a part of, if the tokenizer knows words: what its
    pre-tokenizer keeps together. `first_ids` are the ids of the first text, which are among those before.
    """

    before: list[int]
    ids: list[int]
    behind: list[int]
    places: list[Place]
    first_ids: list[int]
    begins_added: bool
    """Whether the post-processor puts a token before both, such as [CLS]."""


class Tokenizer:
    """A Hugging Face tokenizers file. Thread-safe: encoding and decoding change nothing in it."""

    def __init__(self, path: Path, truncation: SourceTruncation | None = None) -> None:
        """Read `path`. Its own truncation and padding are switched off: the manifest says whether a text is cut.

        Raises:
            BundleError: the file is no tokenizer, one that cannot be streamed, or one that no text should meet.
        """
        try:
            self._tokenizer = _read(path)
            self._truncation = truncation
            if truncation is not None:
                self._pair_frame = _pair_frame(self._tokenizer)
                self._tokenizer.enable_truncation(truncation.max_tokens, direction=truncation.direction)
            self.vocabulary = Vocabulary(self._tokenizer)
            self._places = Offsets(self._tokenizer)
        except BaseException as error:  # the binding raises plain Exception, and its own panics are not even that
            _reraise_interrupt(error)
            raise BundleError(f"{path.name} is no tokenizer: {first_line(error)}") from error
        framed = self._framed()
        self._before = [piece.id for piece in takewhile(_is_added, framed)]
        self._after = [piece.id for piece in takewhile(_is_added, reversed(framed))][::-1]

    @property
    def num_ids(self) -> int:
        """One more than the highest id that `encode` can give."""
        return max(self.vocabulary.tokens, default=-1) + 1

    def encode(self, text: str) -> list[int]:
        """Return token ids, with the special tokens that the file's post-processor adds.

        Raises:
            ValueError: the text has a word that is not in the vocabulary, and that has no token for unknown ones.
            TokenizerFailed: the library fails over the text.
        """
        # A list of one text, because this call frees the interpreter and `encode` does not.
        ids: list[int] = _one(self._tokenizer.encode_batch_fast, text).ids
        return ids

    def encode_framed(self, text: str) -> list[int]:
        """Return token ids of a text that has its special tokens already. Raises as `encode` does."""
        ids: list[int] = _one(partial(self._tokenizer.encode_batch_fast, add_special_tokens=False), text).ids
        return ids

    def cut(self, ids: list[int], most: int) -> list[int]:
        """Return ids that `encode` gave, cut as it would have cut them to `most`; all where it cuts none."""
        if self._truncation is None or len(ids) <= most:
            return ids
        if self._truncation.direction == "right":
            return [*ids[: max(0, most - len(self._after))], *self._after]
        kept = max(0, most - len(self._before))
        return [*self._before, *ids[len(ids) - kept :]]

    def encode_pair(self, pair: tuple[str, str]) -> list[int]:
        """Return token ids of two texts as the post-processor joins them, the longer one cut first.

        Raises as `encode` does.
        """
        if self._truncation is not None:
            return self._cut_pair(pair, self._truncation)
        ids: list[int] = _one(self._tokenizer.encode_batch_fast, pair).ids
        return ids

    def _cut_pair(self, pair: tuple[str, str], truncation: SourceTruncation) -> list[int]:
        """Do what the library does, which would join each part that it cuts off with each of the other text."""
        alone = partial(self._tokenizer.encode_batch_fast, add_special_tokens=False)
        first, second = (_one(alone, text) for text in pair)
        room = max(0, truncation.max_tokens - sum(text is None for _, text in self._pair_frame))
        kept = [
            _cut(encoding.ids, most, truncation.direction)
            for encoding, most in zip((first, second), _longest_first(_whole(first), _whole(second), room), strict=True)
        ]
        return [each for id_, text in self._pair_frame for each in ([id_] if text is None else kept[text])]

    def split(self, text: str) -> list[TokenSpan]:
        """Return what `encode` does, with each token's place in the text. Raises as it does."""
        return self._pieces_of(text, _one(self._tokenizer.encode_batch, text))

    def _pieces_of(self, text: str, encoding: tokenizers.Encoding) -> list[TokenSpan]:
        with _failures():
            places = self._places.of(text, encoding)
        return [
            TokenSpan(id_, *self._place(id_, text, *place), bool(added))
            for id_, place, added in zip(encoding.ids, places, encoding.special_tokens_mask, strict=True)
        ]

    def join(self, pair: tuple[str, str]) -> Joined:
        """Return two texts as the post-processor joins them, with the places of the second one. Raises as `encode`."""
        joined = _one(self._tokenizer.encode_batch, pair)
        which = joined.sequence_ids
        start = which.index(1) if 1 in which else len(which)
        stop = start + which.count(1)
        alone = _one(self._tokenizer.encode_batch, pair[1])
        pieces = [
            (piece, word)
            for piece, word in zip(self._pieces_of(pair[1], alone), alone.word_ids, strict=True)
            if not piece.added
        ]
        ids = joined.ids
        if ids[start:stop] != [piece.id for piece, _ in pieces]:
            raise TokenizerFailed("a text has other tokens beside another one")
        first_ids = [id_ for id_, text in zip(ids, which, strict=True) if text == 0]
        return Joined(ids[:start], ids[start:stop], ids[stop:], _of_words(pieces), first_ids, which[:1] == [None])

    def added(self, ids: list[int]) -> list[bool]:
        """Whether each id is one of those that the post-processor puts before and behind every text."""
        before = len(self._before) if ids[: len(self._before)] == self._before else 0
        behind = len(ids) - len(self._after)
        behind = behind if ids[max(0, behind) :] == self._after else len(ids)
        return [index < before or index >= behind for index in range(len(ids))]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids without special tokens: by definition what a stream of them gives."""
        detokenizer = Detokenizer(self.vocabulary)
        return detokenizer.steps(ids) + detokenizer.finish()

    def token_of(self, text: str) -> int | None:
        """Return the token that the vocabulary writes so, or the only one that `encode` makes of a text; else None.

        What no token stands for is no token, even if there is one for unknown words.
        """
        id_: int | None = self._tokenizer.token_to_id(text)
        if id_ is not None:
            return id_
        try:
            ids = self.encode_framed(text)
        except ValueError:
            return None
        return ids[0] if len(ids) == 1 and ids[0] not in self.vocabulary.special else None

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return one string to show for each token: without its word-boundary mark, special tokens by name."""
        return [self.vocabulary.piece(id_) for id_ in ids]

    def _framed(self) -> list[TokenSpan]:
        """A text as the post-processor frames it. Nothing where "a" is no word."""
        try:
            return self.split("a")
        except ValueError:
            return []

    def _place(self, id_: int, text: str, start: int, end: int) -> tuple[int, int]:
        part = text[start:end]
        if not part.strip():
            return start, end
        if not self.vocabulary.piece(id_).strip(" "):
            return start, start
        return end - len(part.lstrip()), start + len(part.rstrip())


def _pair_frame(tokenizer: tokenizers.Tokenizer) -> list[tuple[int, int | None]]:
    """Return what a post-processor makes of two texts: ids that it adds, and 0 or 1 where the first or second stands.

    It does not look at their words, so they are here of a tokenizer that knows one.
    """
    speaker = tokenizers.Tokenizer(models.WordLevel({"a": 0}))
    if tokenizer.post_processor is not None:
        speaker.post_processor = tokenizer.post_processor
    joined = speaker.encode("a", "a")
    return [*zip(joined.ids, joined.sequence_ids, strict=True)]


def _whole(encoding: tokenizers.Encoding) -> int:
    """How many tokens a text had before it was cut."""
    return len(encoding) + sum(map(len, encoding.overflowing))


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens are left of two texts, whose lengths these are. The odd one goes to the longer one."""
    if first + second <= room:
        return first, second
    if first > second:
        return _longest_first(second, first, room)[::-1]
    first = min(first, room // 2)
    return first, room - first


def _cut(ids: list[int], most: int, direction: str) -> list[int]:
    return ids[:most] if direction == "right" else ids[max(0, len(ids) - most) :]


def _of_words(pieces: list[tuple[TokenSpan, int | None]]) -> list[Place]:
    """Return the place of each piece, or of the word that it is a part of, where it is given one."""
    spans: dict[int, Place] = {}
    for piece, word in pieces:
        if word is not None and piece.start < piece.end:
            start, end = spans.get(word, (piece.start, piece.end))
            spans[word] = min(start, piece.start), max(end, piece.end)
    return [spans.get(word, piece[1:3]) if word is not None else piece[1:3] for piece, word in pieces]


def _read(path: Path) -> tokenizers.Tokenizer:
    content = path.read_bytes()
    for sign, most in MAX_SIGNS.items():
        if content.count(sign) > most:
            raise ValueError(f"it has the sign {sign.decode()} more than {most:,} times")
    tokenizer = tokenizers.Tokenizer.from_buffer(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if fault := tokenizer_fault(tokenizer):
        raise ValueError(fault)
    return tokenizer


def _one(encode_batch: Callable[[Any], list[tokenizers.Encoding]], text: str | tuple[str, str]) -> tokenizers.Encoding:
    with _failures():
        try:
            return encode_batch([text])[0]
        except Exception as error:  # the binding raises plain Exception
            raise ValueError(first_line(error)) from error


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise TokenizerFailed(first_line(error)) from error


def _reraise_interrupt(error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error


def _is_added(piece: TokenSpan) -> bool:
    return piece.added


def known(split: Callable[[Given], Found], text: Given, field: str) -> Found:
    """Return what a method of a tokenizer makes of a text, or of a pair. InvalidRequest where it cannot read it."""
    try:
        return split(text)
    except TokenizerFailed as error:
        raise InvalidRequest(field, "cannot be tokenized: the model's tokenizer fails over it") from error
    except ValueError as error:
        raise InvalidRequest(field, "has a word that the model's tokenizer does not know") from error
