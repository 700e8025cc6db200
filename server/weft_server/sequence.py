"""The nouns that all rooms of the server share: a sequence, its decoding, its reply and why it ended."""

from __future__ import annotations

import asyncio
import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np

    from weft_proto.v1 import common_pb2
    from weft_server.logits_processors.base import Rule
    from weft_server.sampling.candidates import TopLogprobs
    from weft_server.sampling.sampler import Sampling
    from weft_server.source import Source


class Priority(enum.IntEnum):
    """Which of those who wait go on first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class Standing(NamedTuple):
    """Where a request stands among others that wait: its class, and the tenant on whose account it goes, if any."""

    priority: Priority = Priority.NORMAL
    tenant: str = ""


ANYBODY = Standing()


class FinishReason(enum.Enum):
    """Why an answer ended. It is the proto's FinishReason."""

    STOP = "stop"
    STOP_STRING = "stop_string"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Adapter:
    """A low-rank adapter in memory. `pairs` has by layer A [inputs, rank] and B [rank, outputs], float32."""

    name: str
    # Of its adapter.json, which says the digest of its weights and of which layers they are.
    digest: str
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]


class EarlyStopping(enum.Enum):
    """When a beam search is done that has found enough. It is the proto's EarlyStopping."""

    HEURISTIC = "heuristic"
    FULL = "full"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Beams:
    """How to search for the most probable answers, every default filled in."""

    num_beams: int
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to produce text, every default filled in. Greedy, or one of `sampling`, `beams` and `alternatives`."""

    max_new_tokens: int
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    sampling: Sampling | None = None
    # What changes scores, in transformers' order. min_new_tokens is one of them if there are any.
    rules: tuple[Rule, ...] = ()
    beams: Beams | None = None
    # The most probable first tokens, each continued by the most probable ones.
    alternatives: bool = False
    num_outputs: int = 1
    # What ends an answer beside the model's own end tokens.
    stop_ids: frozenset[int] = frozenset()
    # What the answer begins with, and the last token that max_new_tokens allows, whatever the model says.
    forced_ids: tuple[int, ...] = ()
    # How many of these a beam search does not score: all where they end with a prefix, which a caller has given.
    num_unscored: int = 0
    forced_last_id: int | None = None
    # What of it the request or the model asks for, to be told: the message's fields from `penalties` to `prefix`.
    changes: common_pb2.Decoding | None = field(default=None, compare=False)
    # Whether its rows take a multiple of the time that others do. A lane has few of them at a time.
    is_costly: bool = False

    @property
    def width(self) -> int:
        """How many rows it takes."""
        return self.beams.num_beams if self.beams else self.num_outputs

    @property
    def is_plain(self) -> bool:
        """Whether one row makes one answer, so that its tokens can be given as they come."""
        return self.num_outputs == 1 and self.beams is None and not self.alternatives

    @property
    def is_special(self) -> bool:
        """Whether anything but the sampler chooses its tokens, or other tokens than the model's own end its answers."""
        ruled = self.rules or self.stop_ids or self.forced_ids or self.forced_last_id is not None
        return bool(ruled or self.beams or self.alternatives)


@dataclass(slots=True)
class Times:
    """Monotonic seconds at which a sequence passed each gate. 0 until it did, or if it has none such."""

    accepted: float = 0.0
    admitted: float = 0.0
    # Its source was read by an encoder.
    encoded: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    # Its answer was explained.
    explained: float = 0.0


class Cancelled(Exception):
    """The outcome of a sequence whose caller no longer waits."""


Outcome = FinishReason | Exception


@dataclass(frozen=True, slots=True)
class Output:
    """One answer of a sequence. `score` is that of a beam search, else None."""

    token_ids: list[int]
    log_probs: list[float]
    reason: FinishReason
    score: float | None = None
    # The most probable tokens of each step, if the caller asked for them.
    tops: list[TopLogprobs] = field(default_factory=list)


class Scores(NamedTuple):
    """How probable the tokens of a given answer are.

    log_probs: float32 [tokens].
    top_ids, top_log_probs: the most probable tokens at each place in descending order, [tokens, k].
    """

    log_probs: np.ndarray
    top_ids: np.ndarray
    top_log_probs: np.ndarray


class Reply:
    """Where a sequence's answer arrives. Only the event loop touches it. Lanes hand over a Delivery instead."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.log_probs: list[float] = []
        # The most probable tokens of each step. Empty unless they were asked for.
        self.tops: list[TopLogprobs] = []
        # All answers of a sequence that is not plain, best first. The first one's tokens are those above.
        self.outputs: list[Output] = []
        self._values: np.ndarray | None = None
        self.outcome: Outcome | None = None
        self._news = False
        self._reader: asyncio.Future[None] | None = None

    def put(
        self,
        token_ids: list[int],
        log_probs: list[float],
        outcome: Outcome | None,
        values: np.ndarray | None = None,
        outputs: list[Output] | None = None,
        tops: Iterable[TopLogprobs] = (),
    ) -> None:
        """Append what a step brought. After an outcome nothing more is taken."""
        if self.outcome is not None:
            return
        if outputs:
            self.outputs = outputs
        self.token_ids += token_ids
        self.log_probs += log_probs
        self.tops += tops
        self._values = values
        self.outcome = outcome
        self._news = True
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    @property
    def values(self) -> np.ndarray:
        """What a finished answer that is no text has.

        float32 [labels], of a tagger [tokens, labels], of a model that embeds [dimensions].
        """
        assert self._values is not None, "an answer ended without its numbers. This is a bug."
        return self._values

    async def changed(self) -> None:
        """Wait for anything new since the last call. Tokens that came together are seen together."""
        if not self._news:
            # There is one reader, so a bare future is enough. An Event would be made for each request, and its list for
            # each wait.
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        self._news = False

    async def done(self) -> FinishReason:
        """Wait for the end. If the engine reported an error, it is raised."""
        while self.outcome is None:
            await self.changed()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@dataclass(slots=True, eq=False)
class Sequence:
    """One request's live state. The servicer makes it. From `submit` on, only its engine writes to it."""

    request_id: str
    # A source to translate, classify, tag or embed, or a prompt to continue.
    source: Source
    # None where no text is produced.
    decoding: Decoding | None
    # What the decoder is fed behind its start token, before the first token that is chosen. Nothing for a prompt.
    prefix_ids: tuple[int, ...] = ()
    # A stream, or a request with stop strings, wants each step's tokens. Others get theirs at the end.
    wants_tokens: bool = False
    # The caller asked for log-probabilities.
    wants_scores: bool = False
    # How many of the most probable tokens of each step the caller asked for.
    num_top_tokens: int = 0
    # Who shares the prefix cache with it.
    cache_salt: str = ""
    # By which it is answered. None: by the model alone.
    adapter: Adapter | None = None
    standing: Standing = ANYBODY
    # Whether its request is counted with another sequence: that which has answered the prompt that this one scores.
    is_counted: bool = False
    # Monotonic seconds. The slot is free within one step of it.
    deadline: float = math.inf
    reply: Reply = field(default_factory=Reply)
    # Called with it on the event loop when it ends, if its call had ended before.
    on_late_end: Callable[[Sequence], None] | None = None
    times: Times = field(default_factory=Times)
    # Set by the engine.
    lane: int | None = None
    # Which of its lane's sequences it is, in the order in which they were taken.
    turn: int = 0
    # How many slots it holds, and one of them. Of several, it is the first at the beginning, and later any.
    num_slots: int = 0
    slot: int | None = None
    # Tokens that its rows have produced, those of beams that were given up included.
    num_output_tokens: int = 0
    # What its rows have ended with, by their rank. None: there is no such alternative. Empty for a plain decoding and
    # for a beam search.
    outputs: dict[int, Output | None] = field(default_factory=dict)
    # Of its input, those that the prefix cache held.
    num_cached_tokens: int = 0
    # Of an answer that was given to be scored, when it has ended.
    scores: Scores | None = None

    @property
    def text_decoding(self) -> Decoding:
        """How it produces text. Not for one that produces none."""
        assert self.decoding is not None, f"{self.request_id} decodes nothing. This is a bug."
        return self.decoding

    @property
    def num_input_tokens(self) -> int:
        """Tokens or patches of the input."""
        return self.source.num_tokens

    @property
    def cache_key(self) -> str:
        """What its pieces in the prefix cache belong to: its salt, and its adapter, by which they were read."""
        # A salt has no two line breaks in a row.
        return f"{self.cache_salt}\n\n{self.adapter.digest}" if self.adapter else self.cache_salt

    @property
    def width(self) -> int:
        """How many slots it takes, all at once."""
        return self.decoding.width if self.decoding else 1

    @property
    def is_costly(self) -> bool:
        """Whether its rows make those beside them wait."""
        return self.decoding is not None and self.decoding.is_costly

    @property
    def ranks_left(self) -> list[int]:
        """Which of its rows have not ended."""
        return [rank for rank in range(self.width) if rank not in self.outputs]

    @property
    def keeps_its_row(self) -> bool:
        """Whether it has one row, which is all that there is of it."""
        return self.width == 1 and self.decoding is not None and self.decoding.beams is None

    @property
    def most_tokens(self) -> int:
        """Tokens of its input and those that its answers may have together."""
        return self.num_input_tokens + (self.width * self.decoding.max_new_tokens if self.decoding else 0)

    @property
    def stage(self) -> str:
        """Where it is on its way: queued, prefill or decode."""
        if not self.times.admitted:
            return "queued"
        return "decode" if self.times.first_token else "prefill"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one step hands to one reply: new tokens, and the end.

    An answer that does not stream gets all its tokens at once. One of several rows that ends alone brings no tokens.
    """

    sequence: Sequence
    token_ids: list[int]
    log_probs: list[float]
    outcome: Outcome | None
    # The whole answer of a model that produces no text, as in Reply.
    values: np.ndarray | None = None
    # All answers of a sequence that is not plain, best first.
    outputs: list[Output] | None = None
    # The most probable tokens of the steps of these tokens, if they were asked for.
    tops: list[TopLogprobs] = field(default_factory=list)
    # How many places of the lane are free now: slots, or the one in a batch.
    num_freed: int = 0

    def put(self) -> None:
        """Hand it to its reply."""
        reply = self.sequence.reply
        reply.put(self.token_ids, self.log_probs, self.outcome, self.values, self.outputs, self.tops)
        if self.outcome is not None and self.sequence.on_late_end:
            self.sequence.on_late_end(self.sequence)
