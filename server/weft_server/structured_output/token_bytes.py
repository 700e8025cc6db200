"""The bytes that each token adds to a text, and a matcher's words, made of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_server.logits_processors.constraint import NEVER, Lexicon, Seam

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.preprocessing.vocabulary import Vocabulary

_CLEANED = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """For each id its bytes. None: the token is never used, because it is no text, or not only its own.

    `first` are those of the first token of a text, `later` those of any other. An empty `first` adds nothing.
    The bytes are joined to a text of UTF-8. The server decodes to it, unless a word of `replaced` comes up at a seam.
    Whether it does, `raw` tells: what the tokens were before anything was replaced. Behind an end of `joints`, that is
    not of raw bytes, a token with `joined` bytes adds these, and nothing is replaced there.
    """

    first: list[bytes | None]  # [vocab]
    later: list[bytes | None]  # [vocab]
    raw: list[bytes | None]  # [vocab]
    joined: list[bytes | None]  # [vocab], None for a token of raw bytes, or without a space at its beginning
    is_spelled: list[bool]  # [vocab], whether a token is text and no raw bytes
    replaced: tuple[bytes, ...]
    joints: tuple[bytes, ...]


def is_told(vocabulary: Vocabulary) -> bool:
    """Whether single tokens tell what a text is."""
    return _speller(vocabulary.decoder) is not None


def has_seams(vocabulary: Vocabulary) -> bool:
    """Whether a token adds other bytes behind a text than where it begins one, or it is not told."""
    spell = _speller(vocabulary.decoder)
    return spell is None or not spell.is_same


def spelling_of(vocabulary: Vocabulary) -> Callable[[int, bool], bytes | None] | None:
    """Return what gives the bytes that one id adds to a text, which it may begin.

    It gives None for an id that is no text. None instead of it: see `token_bytes`.
    """
    spell = _speller(vocabulary.decoder)
    if spell is None:
        return None

    def added(id_: int, begins: bool) -> bytes | None:  # noqa: FBT001 - it is called for each token
        if not vocabulary.is_text(id_):
            return None
        given, token = vocabulary.raw.get(id_), vocabulary.tokens[id_]
        if given is not None:
            return given
        return (spell.strip(spell.tidy(spell.start(token))) if begins else spell.tidy(spell.behind(token))).encode()

    return added


def token_bytes(vocabulary: Vocabulary, vocab_size: int) -> TokenBytes | None:
    """Return what each id of a vocabulary adds. None: its decoder does something that single tokens do not tell."""
    spell = _speller(vocabulary.decoder)
    if spell is None:
        return None
    columns: list[list[bytes | None]] = [[None] * vocab_size for _ in range(4)]
    first, later, raw, joined = columns
    is_spelled = [False] * vocab_size
    for id_, token in vocabulary.tokens.items():
        if id_ >= vocab_size or not vocabulary.is_text(id_):
            continue
        given = vocabulary.raw.get(id_)
        if given is not None:
            # 0xFF is no part of UTF-8.
            if given and b"\xff" not in given:
                first[id_] = later[id_] = raw[id_] = given
            continue
        behind = spell.behind(token)
        if adds := spell.tidy(behind):
            first[id_] = spell.strip(spell.tidy(spell.start(token))).encode()
            later[id_], raw[id_], is_spelled[id_] = adds.encode(), behind.encode(), True
            if behind.startswith(" "):
                joined[id_] = spell.tidy(behind[1:]).encode()
    joints = tuple(word[:-1].encode() for word in spell.joints())
    return TokenBytes(first, later, raw, joined, is_spelled, tuple(word.encode() for word, _ in spell.replaced), joints)


@dataclass(frozen=True, slots=True)
class _Speller:
    """What a decoder makes of a token at the start of a text, and behind others, and what it replaces in the whole.

    Attributes:
        is_same: whether both are the same.
    """

    start: Callable[[str], str]
    behind: Callable[[str], str]
    # Words, and what stands in their place.
    replaced: tuple[tuple[str, str], ...] = ()
    strip: Callable[[str], str] = str
    is_same: bool = False

    def tidy(self, text: str) -> str:
        """Replace what a text has by itself."""
        for word, other in self.replaced:
            text = text.replace(word, other)
        return text

    def joints(self) -> list[str]:
        """Words that lose the space behind one character, which is in no other word."""
        words = [word for word, _ in self.replaced]
        return [
            word
            for word, other in self.replaced
            if len(word) == 2 and word == f"{other} " and sum(other in each for each in words) == 1
        ]


def _speller(decoder: dict[str, Any] | None) -> _Speller | None:
    if decoder is None:
        # Words with a space between two of them.
        return _Speller(str, lambda token: f" {token}")
    steps: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _Speller(str, str, is_same=True)  # all its tokens are raw bytes
    fused = kinds.index("Fuse") if "Fuse" in kinds else len(kinds)
    start: list[Callable[[str], str]] = []
    behind: list[Callable[[str], str]] = []
    for step in steps[:fused]:
        pair = _of_token(step)
        if pair is None:
            return None
        start.append(pair[0])
        behind.append(pair[1])
    replaced: list[tuple[str, str]] = []
    strip: Callable[[str], str] = str
    for at, step in enumerate(steps[fused + 1 :], fused + 1):
        if (word := _literal(step)) and len(word) > 1:
            replaced.append((word, step["content"]))
        elif step["type"] == "Strip" and step["stop"] == 0 and step["start"] <= 1 and at == len(steps) - 1:
            if step["start"]:
                strip = partial(_strip, space=step["content"], start=1, stop=0)
        else:
            return None
    return _Speller(_chain(start), _chain(behind), tuple(replaced), strip)


def _chain(steps: list[Callable[[str], str]]) -> Callable[[str], str]:
    def run(token: str) -> str:
        for step in steps:
            token = step(token)
        return token

    return run


def _of_token(step: dict[str, Any]) -> tuple[Callable[[str], str], Callable[[str], str]] | None:
    """What a step does to one token, at the start and behind others. None: it depends on more."""
    kind = step["type"]
    if kind == "ByteFallback":
        return str, str  # its tokens are raw bytes
    if kind == "Replace":
        word = _literal(step)
        return None if not word else _same(lambda token: token.replace(word, step["content"]))
    if kind == "Strip":
        return _same(lambda token: _strip(token, step["content"], step["start"], step["stop"]))
    if kind == "Metaspace":
        mark = step["replacement"]
        space = "" if step.get("prepend_scheme", "always") != "never" else " "
        return (lambda token: token.replace(mark, space)), (lambda token: token.replace(mark, " "))
    if kind == "WordPiece":
        tidy = _cleaned if step["cleanup"] else str
        mark = step["prefix"]
        return tidy, lambda token: tidy(token.removeprefix(mark) if token.startswith(mark) else f" {token}")
    return None


def _same(change: Callable[[str], str]) -> tuple[Callable[[str], str], Callable[[str], str]]:
    return change, change


def _literal(step: dict[str, Any]) -> str:
    """The word that a step replaces, or nothing if it is no step that does, or has a pattern."""
    return str(step["pattern"].get("String", "")) if step["type"] == "Replace" else ""


def _strip(token: str, space: str, start: int, stop: int) -> str:
    while start and token.startswith(space):
        token, start = token.removeprefix(space), start - 1
    while stop and token.endswith(space):
        token, stop = token.removesuffix(space), stop - 1
    return token


def _cleaned(token: str) -> str:
    for word, tidy in _CLEANED:
        token = token.replace(word, tidy)
    return token


def lexicon_of(tokens: TokenBytes) -> tuple[list[bytes], Lexicon]:
    """Return different words for all that tokens may stand for, and which word each token is told by.

    The first two words are of no token. See NEVER and END.
    """
    numbers: dict[bytes, int] = {b"": 0, b"\xffend": 1}
    first, later, joined = (
        np.array([numbers.setdefault(data or b"", len(numbers)) for data in each], np.int64)
        for each in (tokens.first, tokens.later, tokens.joined)
    )
    seams = []
    for word in tokens.replaced:
        for cut in range(1, len(word)):
            completing = [data is not None and data.startswith(word[cut:]) for data in tokens.raw]
            seams.append(Seam(word[:cut], np.array(completing, np.bool_), word[:cut] in tokens.joints))
    blank = np.flatnonzero((first == NEVER) & (later != NEVER))
    lexicon = Lexicon(len(numbers), first, later, joined, blank, tokens.raw, tokens.is_spelled, tuple(seams))
    return list(numbers), lexicon
