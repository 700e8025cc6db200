"""Reads the constraints of one model's requests, by `llguidance`, which is an extra: imported only if it is there."""

from __future__ import annotations

import importlib.util
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft_server.errors import CannotConstrain, InvalidRequest
from weft_server.logits_processors.constraint import END, Constraint, Matcher, in_short
from weft_server.preprocessing.wanted import Wanted
from weft_server.process.threads import deep_pool, deeply
from weft_server.structured_output.grammar_sandbox import LIMITS, GrammarSandbox
from weft_server.structured_output.schema_text import Unheld
from weft_server.structured_output.schemas import matcher_schema, overlapping
from weft_server.structured_output.token_bytes import is_told, lexicon_of, token_bytes

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import Executor

    from weft_proto.v1 import common_pb2
    from weft_server.logits_processors.constraint import Lexicon
    from weft_server.preprocessing.tokenizer import Tokenizer
    from weft_server.preprocessing.vocabulary import Vocabulary

MAX_BYTES = 65_536
MAX_TEXTS = 1024
MAX_TEXT_BYTES = 1024
# What a choice holds for each byte of its texts. It has no signs of expressions, so it needs no trial.
_CHOICE_BYTES = 160
# Definitions and groups of a Lark grammar.
MAX_PARTS = 1000
# Threads that look for the next step's tokens.
_NUM_WORKERS = 2
# Otherwise a matcher allows one way only to spell what must come next, and that of its own tokenizer.
_FREE = '\n%llguidance {"no_forcing": true}\n'
# What a JSON Schema stands behind, and how a parser says that it cannot tell the options of a `oneOf` apart.
_SCHEMA = "start: %json "
_ONE_OF = "oneOf constraints are not supported"
# Literals and comments of a Lark grammar. What has no end on its line is found too, without the last group: otherwise
# each quote in it would begin a search of the rest.
_LITERALS = re.compile(r"""(?:"(?:\\.|[^"\\\n])*+|/(?!/)(?:\\.|[^/\\\n])++)(?P<end>["/]?)|//[^\n]*|\#[^\n]*""")
_DEFINITION = re.compile(r"(?m)^[ \t]*+[?!]*+[A-Za-z_][\w.:{}-]*\s*+(?:\[[^\[\]]*+\]\s*+)?:|[(\[]")
_COMPLEMENT = re.compile(r"~(?!\s*\d)")
# An escaped character of a regular expression, or a group that begins by setting the flag x.
_SETS_X = re.compile(r"\\.|(\(\?[a-wyzA-Z]*x)", re.DOTALL)
# Where a parser says that an error is, and what it shows of the grammar. What a caller did not write as Lark is not
# theirs to find a place in.
_PLACE = re.compile(r"\A(?:at )?\d+\(\d+\): |^ *\d+ \| .*\n(?: *\^\n?)?", re.MULTILINE)
# What a parser of regular expressions says behind the expression.
_REGEX_ERROR = re.compile(r"^error: (.+)$", re.MULTILINE)


class Grammars:
    """Makes constraints of requests. `build` is for worker threads, several at a time."""

    def __init__(
        self, tokenizer: Tokenizer | None, vocab_size: int, end_ids: Collection[int], model: str, thread_name: str
    ) -> None:
        vocabulary = tokenizer.vocabulary if tokenizer is not None else None
        # The text of an end token would be part of the answer.
        fits = vocabulary is not None and is_told(vocabulary) and not any(map(vocabulary.is_text, end_ids))
        self._vocabulary = vocabulary if fits else None
        self._vocab_size = vocab_size
        self._end_ids = frozenset(end_ids)
        self._model = model
        self._thread_name = thread_name
        self._opened: _Opened | None = None
        self.trials = GrammarSandbox()

    @property
    def takes_constraints(self) -> bool:
        """Whether constraints can be followed."""
        return self._usable()[0] is not None

    def open(self) -> None:
        """Make what all constraints share, if any can be followed. For 32,000 tokens it takes 0.3 s.

        For half of that time no other thread runs. So it is part of loading, and of no request.
        """
        vocabulary, _ = self._usable()
        if vocabulary is not None:
            self._opened = _Opened(vocabulary, self._vocab_size, self._thread_name)

    def build(
        self,
        asked: common_pb2.Constraint,
        *,
        tenant: str = "",
        wanted: Wanted | None = None,
        stop_ids: tuple[int, ...] = (),
        last_id: int | None = None,
        begins: tuple[int, ...] = (),
        begins_field: str = "decoding.prefix",
    ) -> Constraint:
        """Return a constraint that requests may follow. It takes from a millisecond to a second.

        What the caller wrote is tried first, for its `tenant`, and given up when it is not `wanted` any more.

        Of the request's other fields, `stop_ids` end an answer too, `last_id` is forced where it is cut, and `begins`
        is what it begins with, whatever the constraint says, because of `begins_field`.

        Raises:
            CannotConstrain: this server cannot, or not with this model.
            InvalidRequest: the constraint is not valid, or takes too much, or contradicts another field.
            Overloaded: the machine is too busy to try it.
            DeadlineExpired: nobody waits for it any more.
        """
        vocabulary, obstacle = self._usable()
        if vocabulary is None:
            raise CannotConstrain(obstacle)
        specials = [("decoding.stop_token_ids", id_) for id_ in stop_ids]
        for other, id_ in (*specials, *(("decoding.forced_last_id", id_) for id_ in (last_id,) if id_ is not None)):
            if vocabulary.is_text(id_):
                why = f"must be special with decoding.constraint, and token {id_} is text: they contradict each other"
                raise InvalidRequest(other, why)
        kind = asked.WhichOneof("kind")
        if kind is None:
            raise InvalidRequest("decoding.constraint", "is required to have a kind: json_schema, regex, lark, choice")
        field = f"decoding.constraint.{kind}"
        source = _READERS[kind](getattr(asked, kind), field)
        end_ids = self._end_ids | frozenset(stop_ids)

        if kind == "choice":
            held: int | None = _CHOICE_BYTES * sum(len(text.encode()) for text in asked.choice.texts)
        else:
            held = self.trials.held_bytes(source + _FREE, tenant, wanted or Wanted())
        if held is None:
            raise _refused(field, "it takes more to build than the server allows")

        def build() -> Constraint:
            constraint = self._build(source, field, end_ids)
            constraint.num_bytes = held
            constraint.check(begins, begins_field)
            return constraint

        return deeply(build, f"{self._thread_name}-build")

    def stop(self) -> None:
        """Let the workers end, and the process of trials. Nothing follows a constraint any more."""
        self.trials.stop()
        if self._opened is not None:
            self._opened.stop()

    def _build(self, source: str, field: str, end_ids: frozenset[int]) -> Constraint:
        import llguidance  # noqa: PLC0415 - an extra

        opened = self._opened
        assert opened is not None, "a constraint came before the words of its model. This is a bug."
        limits = llguidance.LLParserLimits(verbose_errors=False, **LIMITS)
        grammar = llguidance.LLMatcher.grammar_from_lark(source + _FREE)
        matcher: Matcher = llguidance.LLMatcher(opened.tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise _refused(field, in_short(_own_words(matcher.get_error(), field, source)) or "no text fits it")
        workers = opened.workers
        return Constraint(matcher, opened.lexicon, end_ids, workers, field, lambda: opened.give_up(workers))

    def _usable(self) -> tuple[Vocabulary | None, str]:
        """Return the vocabulary, or None and why no constraint can be followed."""
        if importlib.util.find_spec("llguidance") is None:
            return None, "the server has no extra `constraints`: pip install 'weft-serving[constraints]'"
        why = f"model {self._model!r} cannot: its tokenizer does not tell what each token adds to a text"
        return self._vocabulary, why


class _Opened:
    """What all constraints of a model share."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int, thread_name: str) -> None:
        import llguidance  # noqa: PLC0415 - an extra

        tokens = token_bytes(vocabulary, vocab_size)
        assert tokens is not None
        words, lexicon = lexicon_of(tokens)
        self.lexicon: Lexicon = lexicon
        wrapper = llguidance.TokenizerWrapper(_Words(words))
        self.tokenizer: Any = llguidance.LLTokenizer(wrapper, eos_token=[END])
        self._thread_name = f"{thread_name}-follow"
        self._given_up: list[Executor] = []

    @cached_property
    def workers(self) -> Executor:
        """What follows constraints. Its threads start with the first one: started by a load, they could give way."""
        return deep_pool(_NUM_WORKERS, self._thread_name)

    def give_up(self, workers: Executor) -> None:
        """Have other threads follow later constraints: one of these hangs. Earlier constraints keep the others."""
        if vars(self).get("workers") is workers:
            self._given_up.append(workers)
            del self.workers

    def stop(self) -> None:
        """Let all threads end that do not hang."""
        for workers in (*self._given_up, *([self.workers] if "workers" in vars(self) else [])):
            workers.shutdown(wait=False, cancel_futures=True)


class _Words:
    """A tokenizer that has words and splits no text: nothing asks it to."""

    eos_token_id = END
    bos_token_id = None
    special_token_ids = (END,)

    def __init__(self, words: list[bytes]) -> None:
        self.tokens = words

    def __call__(self, text: bytes) -> list[int]:
        raise NotImplementedError


def _json_schema(text: str, field: str) -> str:
    _check_size(text, field)
    try:
        # On one line, so that the parser's words tell columns of it.
        return _SCHEMA + matcher_schema(text)
    except Unheld as error:
        raise _refused(field, in_short(str(error))) from error


def _regex(text: str, field: str) -> str:
    import llguidance  # noqa: PLC0415 - an extra

    _check_size(text, field)
    # Both would mean another expression, because of how a raw line feed and the closing mark are written.
    if (len(text) - len(text.rstrip("\\"))) % 2:
        raise _refused(field, "it ends with a backslash that escapes nothing")
    if any(found[1] for found in _SETS_X.finditer(text)):
        raise _refused(field, "the flag x is not taken; the characters themselves are written \\(?x")
    return f"start: /{llguidance.regex_to_lark(text)}/" if text else 'start: ""'


def _lark(text: str, field: str) -> str:
    _check_size(text, field)
    plain = _LITERALS.sub(lambda found: found[0] if found["end"] == "" else " ", text)
    if "%llguidance" in text:
        raise _refused(field, "%llguidance is not taken")
    if _COMPLEMENT.search(plain):
        raise _refused(field, "the complement of a terminal, ~, is not taken")
    if (parts := len(_DEFINITION.findall(plain))) > MAX_PARTS:
        raise _refused(field, f"it has {parts} definitions and groups, more than {MAX_PARTS}")
    return text


def _choice(choice: common_pb2.Choice, field: str) -> str:
    texts = list(choice.texts)
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise InvalidRequest(f"{field}.texts", f"must be 1..{MAX_TEXTS} texts, not {len(texts)}")
    for index, text in enumerate(texts):
        if not 1 <= len(text.encode()) <= MAX_TEXT_BYTES:
            why = f"must be 1..{MAX_TEXT_BYTES} bytes of UTF-8, not {len(text.encode())}"
            raise InvalidRequest(f"{field}.texts[{index}]", why)
    if len(set(texts)) < len(texts):
        raise InvalidRequest(f"{field}.texts", "must be different texts")
    _check_size("".join(texts), f"{field}.texts")
    return f"start: /{'|'.join(map(_escaped, texts))}/"


_READERS: dict[str, Any] = {"json_schema": _json_schema, "regex": _regex, "lark": _lark, "choice": _choice}


def _check_size(text: str, field: str) -> None:
    if (size := len(text.encode())) > MAX_BYTES:
        raise InvalidRequest(field, f"must be at most {MAX_BYTES} bytes of UTF-8, not {size}", "CONSTRAINT_REFUSED")


def _escaped(text: str) -> str:
    """A text as a regular expression, in characters that mean nothing to it."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\x{{{ord(each):x}}}" for each in text)


def _own_words(error: str, field: str, source: str) -> str:
    """What a parser says, without the grammar that we made of a caller's text."""
    if field == "decoding.constraint.lark":
        return error
    if _ONE_OF in error:
        return overlapping(source.removeprefix(_SCHEMA))
    found = _REGEX_ERROR.search(error)
    return found[1] if found else _PLACE.sub("", error).removeprefix("failed to compile JSON schema: ")


def _refused(field: str, why: str) -> InvalidRequest:
    return InvalidRequest(field, f"is refused: {why}", "CONSTRAINT_REFUSED")
