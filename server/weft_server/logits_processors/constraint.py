"""Keeps an answer's text within a grammar: which tokens may come next, looked up while the model runs.

A matcher reads words: different strings of bytes. Tokens are told by words, and one word may stand for several tokens.
The next step's tokens are looked up in a worker thread from the moment when a token has been chosen. A lane waits for
them only if the model's run was faster.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from weft_server.errors import InvalidRequest
from weft_server.logits_processors.base import BARRED
from weft_server.logits_processors.history import NO_IDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from weft_server.logits_processors.arrays import Bools, Floats, Ints
    from weft_server.logits_processors.history import History


# Words that stand for no token's bytes.
NEVER, END = 0, 1
MAX_WORDS_OF_ERROR = 160
# Seconds of processor time that following a constraint may take, over all rows of a request: at first, and more for
# each token. Grammars that people write take 0.03 to 0.3 ms a token, those that are written to cost much take 3 to 30.
START_S = 0.1
TOKEN_S = 0.001
# Seconds that a lane waits for a worker. What a parser may spend on a step takes a tenth of a second, so one that takes
# this long hangs: its request ends, and the lane goes on.
WAIT_S = 10.0


class Matcher(Protocol):
    """Where in its grammar a text is. It belongs to one thread at a time, and errs by `is_error` alone."""

    def compute_bitmask(self) -> bytes:
        """Return a bit for each word: whether it may come next."""

    def consume_token(self, word: int, /) -> bool:
        """Take the next word. Returns whether it could come."""

    def is_accepting(self) -> bool:
        """Whether the text may end here."""

    def is_error(self) -> bool:
        """Whether it goes no further, because of an error."""

    def get_error(self) -> str:
        """Return what is wrong."""

    def deep_copy(self) -> Matcher:
        """Return a copy that goes its own way."""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """How a model's tokens are told by a matcher's words. `first` is a token at the start of the text.

    `raw` is what tokens are before a decoder replaces words in the joined text. `seams` are beginnings of these words,
    and for each the tokens that would complete one. At a `joint` seam, tokens count as their `joined` words instead.
    """

    num_words: int
    first: Ints  # [vocab]
    later: Ints  # [vocab]
    joined: Ints  # [vocab]
    # Tokens that add nothing to the text if they come first.
    blank: Ints
    raw: list[bytes | None]  # [vocab]
    is_spelled: list[bool]  # [vocab], False for a token of raw bytes
    seams: tuple[Seam, ...]

    @property
    def longest_seam(self) -> int:
        """How many of a text's last bytes matter to what may come next."""
        return max((len(seam.beginning) for seam in self.seams), default=0)

    def words_at(self, place: TextEnd) -> Ints:
        """Return the word that each token counts as at a place, [vocab]: NEVER for one that must not come there."""
        if place.is_start:
            return self.first
        words = self.later
        for seam in self.seams:
            if place.tail.endswith(seam.beginning):
                joins = seam.is_joint and place.is_spelled
                words = np.where(seam.completing, self.joined if joins else NEVER, words)
        return words

    def allowed(self, fits: Bools, place: TextEnd) -> Bools:
        """Return for each token whether it may come next, [vocab], no end token among them. `fits` is of words."""
        allowed: Bools = fits[self.words_at(place)]
        if place.is_start and len(self.blank):
            allowed[self.blank] = fits[self.later].any()
        return allowed


class Seam(NamedTuple):
    """The beginning of a word that is replaced, and which tokens would complete it."""

    beginning: bytes
    completing: Bools  # [vocab]
    is_joint: bool


class TextEnd(NamedTuple):
    """Where a text ends: its last raw bytes, whether its last token is none of raw bytes, and whether it has none."""

    tail: bytes = b""
    is_spelled: bool = False
    is_start: bool = True


class Allowance:
    """What following a constraint may still take, over all rows of a request. Workers draw on it, several at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.left_s = START_S

    @property
    def is_spent(self) -> bool:
        """Whether no row may go on."""
        return self.left_s < 0

    def pay(self, seconds: float) -> None:
        """Note what one token took. It adds its own part."""
        with self._lock:
            self.left_s += TOKEN_S - seconds


class Constraint:
    """What a request's answers must be. It is a rule: each of its rows follows it by itself."""

    def __init__(
        self,
        matcher: Matcher,
        lexicon: Lexicon,
        end_ids: frozenset[int],
        workers: Executor,
        field: str,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Take a matcher that has read nothing. Whatever errs is the fault of the request's `field`.

        `give_up` is called where a worker hangs.

        Raises:
            InvalidRequest: no token of the model begins what the matcher wants, or the matcher gives up.
        """
        self.matcher, self.lexicon, self.end_ids, self.workers, self.field = matcher, lexicon, end_ids, workers, field
        self.give_up = give_up
        self.allowance = Allowance()
        # About what the matcher holds of memory.
        self.num_bytes = 0
        self.first = look(matcher, lexicon, end_ids, TextEnd())
        if self.first.error is not None:
            raise self.refusal(self.first.error)
        if not self.first.allowed.any():
            raise self.refusal("")

    def begin(self, history: History) -> Following:  # noqa: ARG002 - it looks at the answer alone, which is empty
        """Return what follows it in one row."""
        return Following(self, self.matcher.deep_copy(), self.first)

    def check(self, ids: tuple[int, ...], field: str) -> None:
        """Raise InvalidRequest unless an answer may begin with the tokens that the request's `field` wants."""
        following = Following(self, self.matcher.deep_copy(), self.first)
        for id_ in ids:
            if following.reads(id_) and not following.next.allowed[id_]:
                why = f"is no beginning of what {self.field} allows: they contradict each other"
                raise InvalidRequest(field, why, "CONSTRAINT_REFUSED")
            following.take(id_)

    def refusal(self, error: str) -> InvalidRequest:
        """Return what a caller is told: the matcher's words, or that no token fits."""
        why = f"cannot be followed: {error}" if error else "cannot be followed: no token of the model fits"
        return InvalidRequest(self.field, why, "CONSTRAINT_REFUSED")


@dataclass(frozen=True, slots=True)
class Next:
    """What may come next: for each token whether it may, and whether the text is whole. Or the error of a matcher."""

    allowed: Bools  # [vocab]
    is_whole: bool
    error: str | None = None


def look(matcher: Matcher, lexicon: Lexicon, end_ids: frozenset[int], place: TextEnd) -> Next:
    """Ask a matcher what may come next."""
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    error = in_short(matcher.get_error()) if matcher.is_error() else None
    # A matcher that has erred says that the end may come.
    is_whole = error is None and matcher.is_accepting()
    fits: Bools = bits[: lexicon.num_words].astype(np.bool_)
    fits[[NEVER, END]] = False
    if error is not None:
        fits[:] = False
    allowed = lexicon.allowed(fits, place)
    allowed[list(end_ids)] = is_whole
    return Next(allowed, is_whole, error)


class Following:
    """A constraint in one row: a processor. No token comes that leads out of it, and the end where it is whole."""

    def __init__(self, constraint: Constraint, matcher: Matcher, then: Next, place: TextEnd | None = None) -> None:
        self._constraint = constraint
        self._matcher = matcher
        self._next: Next | Future[Next] = then
        self._place = place or TextEnd()
        # Whether a token came that does not fit.
        self._is_broken = False

    @property
    def next(self) -> Next:
        """What may come next. Waits for a worker."""
        if not isinstance(self._next, Next):
            try:
                self._next = self._next.result(WAIT_S)
            except TimeoutError:
                # The hanging thread has the matcher, and nobody else may touch it any more.
                self._matcher, self._next = self._constraint.matcher, self._too_much()
                self._constraint.give_up()
        return self._next

    def reads(self, token: int) -> bool:
        """Whether a token is part of the text."""
        return self._constraint.lexicon.raw[token] is not None

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Give -inf to all tokens that must not come."""
        if self._is_broken:
            # Only a beam that counts for nothing goes on.
            scores[:] = BARRED
            return
        allowed = self.next.allowed
        scores[~(allowed if ids is None else allowed[ids])] = BARRED

    def raised(self, history: History) -> Ints:  # noqa: ARG002 - the protocol's
        """Raise none."""
        return NO_IDS

    def touched(self, history: History) -> None:
        """Change any."""

    def advance(self, token: int, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Take the row's next token, and have a worker look for what may come behind it."""
        if self._is_broken or not self.reads(token):
            return
        if not self.next.allowed[token]:
            self._is_broken = True
            return
        word = self._note(token)
        if word is not None:
            self._next = self._constraint.workers.submit(self._step, word)
        else:
            self._next = self._look()

    def take(self, token: int) -> None:
        """Do as `advance`, at once."""
        if self.reads(token):
            word = self._note(token)
            self._next = self._look() if word is None else self._step(word)

    def fork(self) -> Following:
        """Return a copy for a row that goes its own way from here."""
        then = self.next
        copy = Following(self._constraint, self._matcher.deep_copy(), then, self._place)
        copy._is_broken = self._is_broken
        return copy

    def refusal(self, *, ends: bool) -> InvalidRequest | None:
        """Return why a row cannot go on behind its last token, or None. `ends`: whether the model ends with it."""
        if not self._is_broken and not ends:
            return None
        then = self.next
        if not self._is_broken and then.is_whole:
            return None
        if not self._is_broken and then.allowed.any():
            return self._constraint.refusal("other fields of decoding bar all tokens that fit")
        return self._constraint.refusal(then.error or "")

    def close(self) -> None:
        """Stop looking: nobody asks any more."""
        if not isinstance(self._next, Next):
            self._next.cancel()

    def _note(self, token: int) -> int | None:
        """Add a token to the text's end. Returns the matcher's word for it, or None if it adds nothing."""
        lexicon = self._constraint.lexicon
        data = lexicon.raw[token]
        assert data is not None, f"token {token} is no text. This is a bug."
        word = int(lexicon.words_at(self._place)[token])
        tail = (self._place.tail + data)[-lexicon.longest_seam :] if lexicon.seams else b""
        self._place = TextEnd(tail, lexicon.is_spelled[token], is_start=False)
        return word if word != NEVER else None

    def _step(self, word: int) -> Next:
        """Take a word, and look, unless the request has spent what it may."""
        allowance = self._constraint.allowance
        if allowance.is_spent:
            return self._too_much()
        # Not the time on the wall: what else the machine does is no fault of the request.
        started = time.thread_time()
        self._matcher.consume_token(word)
        then = self._look()
        allowance.pay(time.thread_time() - started)
        return then

    def _too_much(self) -> Next:
        nothing = np.zeros(len(self._constraint.lexicon.first), np.bool_)
        return Next(nothing, is_whole=False, error="it takes more to follow than the server allows")

    def _look(self) -> Next:
        constraint = self._constraint
        return look(self._matcher, constraint.lexicon, constraint.end_ids, self._place)


def in_short(error: str) -> str:
    """Return a parser's words on one line, without control characters, and not too many of them."""
    # A matcher without verbose errors says so behind each. Its own word for "nothing fits" says nothing to a caller.
    text = error.replace("<non-verbose/>", "").replace("NoExtensionBias", "").partition("<backtrace>")[0]
    text = "".join(each if each.isprintable() else " " for each in text)
    words = " ".join(text.split())
    return words if len(words) <= MAX_WORDS_OF_ERROR else words[: MAX_WORDS_OF_ERROR - 1] + "…"
