"""A lane that decodes. Its step admits waiting sequences and gives every row its next token."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.engine.lane import Intake
from weft_server.engine.prefill_chunks import PREFILL_BUCKETS
from weft_server.engine.prompt_joiner import PromptJoiner
from weft_server.engine.rows import Rows, slot_of
from weft_server.engine.run_shapes import DEVICE_RUN_COST, RUN_COST, runs_of
from weft_server.telemetry.engine_stats import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft_server.engine.decode_runner import DecodeRunner
    from weft_server.engine.lane import Take
    from weft_server.engine.prefix_reader import PrefixReader
    from weft_server.engine.slots import Slots
    from weft_server.engine.speculation import Speculation
    from weft_server.engine.stretch_runner import StretchRunner
    from weft_server.sampling.candidates import Candidates
    from weft_server.sequence import Delivery, Outcome, Sequence
    from weft_server.source import Beside
    from weft_server.telemetry.model_metrics import ModelMetrics

# Tokens of sources and prompts that a step may read while nobody waits for the next token.
UNWATCHED_BUDGET = 512
# A run of an encoder costs as much as 8 to 25 tokens before it reads any. A row that stays empty for a step costs
# little. So a source may wait until others can be read with it: one more for each ROWS_FOR_COMPANY rows. See
# `_company`.
ROWS_FOR_COMPANY = 6
# A source waits for no larger company than this. Short sources of this number fit into one step.
MAX_COMPANY = 8
# There are two waits of this number of steps:
# 1. A source waits for company, where slots are short.
# 2. Other lanes wait for one that reads a prompt and holds fewer rows than they do. See `is_open`.
PATIENCE = 6


class PromptPiece(NamedTuple):
    """The next tokens of the prompt in prefill, whether it ends with them, and what is read beside them.

    sees_itself: it is a stretch whose places see each other.
    """

    token_ids: np.ndarray
    ends: bool
    beside: Beside
    sees_itself: bool = False


class DecodeLane:
    """Slots, their rows, and a runner. Only its engine thread calls it, except for `gone`."""

    def __init__(
        self,
        slots: Slots,
        runner: DecodeRunner,
        *,
        start_id: int | None,
        end_ids: tuple[int, ...],
        prefill_budget: int,
        metrics: ModelMetrics,
        prefix_reader: PrefixReader | None = None,
        speculation: Speculation | None = None,
        stretches: StretchRunner | None = None,
        joins: bool = False,
    ) -> None:
        """`joins` says that several short prompts may share a run: see `may_join`."""
        self.slots = slots
        # Sequences to drop before the next step, with their outcome. Any thread appends.
        self.gone: deque[tuple[Sequence, Outcome]] = deque()
        self.rows = Rows(slots, runner, end_ids=end_ids, metrics=metrics)
        self.runner = runner
        self._start_id = start_id
        self.budget = prefill_budget
        self._unwatched_budget = max(UNWATCHED_BUDGET, runner.chunks.buckets[-1])
        self._is_far = runner.host_states is None
        self._metrics = metrics
        # None: there is no prefix cache.
        self.prefix_reader = prefix_reader
        # None: no row drafts anything.
        self.speculation = speculation
        # None: prompts are read in one direction.
        self.stretches = stretches
        # None: each prompt is read alone. So it is beside a prefix cache, where runs end at the ends of kept pieces.
        self.joiner = PromptJoiner(slots, self.rows, runner) if joins and not prefix_reader else None
        # Steps since the last admission.
        self._num_held_off = 0

    def first_runs(self) -> Iterator[None]:
        """On a device, run each shape once: what a run leaves there is its thread's."""
        return iter(()) if self.runner.host_states else self.runner.first_runs()

    @property
    def is_busy(self) -> bool:
        """Whether a step has something to do even if nothing waits."""
        return self.rows.num_held > 0 or bool(self.gone)

    def has_room(self) -> bool:
        """Whether a waiting sequence could get a slot now. One that takes several may have to wait for more."""
        return self._num_free > 0

    @property
    def _num_free(self) -> int:
        return self.slots.num_slots - self.rows.num_held

    def is_open(self) -> bool:
        """Whether it takes waiting sequences within some steps.

        There are two cases:

        1. It reads a prompt. It takes nobody before the end of it, so that end has to be at most PATIENCE steps away.
        2. It reads none. Then a slot has to be free.
        """
        prompt = self.rows.prompt
        if prompt is None:
            return self.has_room()
        left = prompt.num_input_tokens - int(self.slots.past_lengths[self.slots.num_running])
        return left <= PATIENCE * max(self._allowance(), PREFILL_BUCKETS[0])

    def usage(self) -> Usage:
        """Slots and cache entries that are held. They may be one step old."""
        num_held = self.rows.num_held
        num_filled = self.slots.num_running + (self.rows.prompt is not None)
        kv_used = int(self.slots.past_lengths[:num_filled].sum())
        return Usage(num_held, self.slots.num_slots, kv_used, self.runner.kv_capacity)

    def step(self, take: Take) -> list[Delivery]:
        """Drop sequences that are gone, admit waiting ones, give every row a token. Returns what to hand over.

        What waits is read in one of three ways:

        1. The model has an encoder. It reads whole sources, maybe several in one run.
        2. Somebody watches, and the bundle has a graph for it. A piece of a prompt is read in the decode run itself.
        3. Otherwise prompts are read piece by piece, in runs of their own before the decode run.
        """
        self._drop_gone()
        piece = None
        if self._start_id is not None:
            self._encode(take, self._start_id)
        elif self.runner.mixes and self.rows.is_watched():
            piece = self._beside(take)
        else:
            self._prefill(take)
        if self.slots.num_running:
            self._decode(piece)
        return self.rows.hand_over()

    def fail(self, outcome: Callable[[], Exception]) -> list[Delivery]:
        """End everything after a failed step, each sequence with an outcome of its own."""
        if self.prefix_reader:
            self.prefix_reader.forget()
        self.rows.fail(outcome)
        return self.rows.hand_over()

    def _drop_gone(self) -> None:
        while self.gone:
            self.rows.drop(*self.gone.popleft())

    def _encode(self, take: Take, start_id: int) -> None:
        """Admit sequences, and have the encoder read their sources. Their first tokens come in this very step.

        Of a prefix, which has few tokens, each step feeds one, so the first token of the answer comes so much later. A
        question is read at once.
        """
        for run in runs_of(self._admit(take, start_id), self.runner.shapes):
            sources = [sequence.source for sequence in run]
            self.runner.encode(sources, [slot_of(sequence) for sequence in run])
            now = time.monotonic()
            for sequence in run:
                sequence.times.encoded = now
                if sequence.source.asked_ids:
                    self._read_prefix(sequence, start_id)
                self.rows.spread(sequence)
                if self.prefix_reader:
                    self.prefix_reader.keep_source(sequence)
            self._count_computed(
                self.runner.shapes.computed_tokens(sources), sum(source.num_places for source in sources)
            )

    def _read_prefix(self, sequence: Sequence, start_id: int) -> None:
        """Read what a row is fed before its answer, but for the last token, which this step's decode run reads.

        It is always cut at the same places, whatever the load.
        """
        slot, given = slot_of(sequence), np.array([start_id, *sequence.prefix_ids], np.int64)
        size = self.runner.question_piece
        for first in range(0, len(given) - 1, size):
            piece = given[first : min(first + size, len(given) - 1)]
            padded, _ = self.runner.prefill(slot, piece)
            self._count_computed(padded, len(piece))
        self.slots.skip_prefix(slot, int(given[-1]))

    def _admit(self, take: Take, start_id: int) -> list[Sequence]:
        """Give slots to sequences that wait. Returns those whose sources are to be read.

        All get their slots before anything runs. So a failed run leaves no sequence without a place. Sources that need
        not be read take nothing of the allowance.
        """
        unread: list[Sequence] = []
        num_before, least, left = self._num_free, self._company(), self._allowance()
        # Sources share a run. Each question is a run of its own.
        most = 1 if self.runner.reads_questions and self._reads_once() else self.slots.num_slots
        while taken := take(Intake(min(most, self._num_free), left, room=self._num_free, least=least)):
            for sequence in sorted(taken, key=lambda sequence: sequence.num_input_tokens):
                self.rows.begin(sequence, start_id)
            num_known = 0
            for sequence in taken:
                self.runner.begin(slot_of(sequence))
                if self.prefix_reader and self.prefix_reader.recall_source(sequence):
                    self.rows.spread(sequence)
                    num_known += 1
                else:
                    unread.append(sequence)
                    left -= sequence.source.bucket
            if not num_known or left <= 0:
                break
            least = 1
        self._num_held_off = self._num_held_off + 1 if num_before == self._num_free else 0
        return unread

    def _company(self) -> int:
        """How many sources this step should admit together, if it admits any.

        There are three cases, and the first that holds counts:

        1. Somebody watches: one. No source waits beside a stream.
        2. The last admission is long enough ago: one. That is PATIENCE steps where three quarters of the slots run,
           because waiting pays where slots are short. Elsewhere it is one step.
        3. Otherwise one, and one more for each ROWS_FOR_COMPANY rows, up to MAX_COMPANY.
        """
        num_running = self.slots.num_running
        patience = PATIENCE if 4 * num_running >= 3 * self.slots.num_slots else 1
        if self.rows.is_watched() or self._num_held_off >= patience:
            return 1
        return min(1 + num_running // ROWS_FOR_COMPANY, MAX_COMPANY)

    def _allowance(self) -> int:
        """Tokens of sources and prompts that this step may read, while its rows wait.

        There are three cases:

        1. Somebody watches, and sees the gap between two tokens: three for each two rows. Then a step with one such run
           takes less than twice as long as one without. The run costs by itself as much as the decode run, because both
           read all weights. But a prompt's token costs less than a row's, which also goes through the vocabulary.
        2. Somebody watches a device: DEVICE_RUN_COST, whatever the number of rows. Fewer would be no cheaper. And few
           rows would have prompts read slowly, so that they stayed few.
        3. All callers wait for the whole answer: UNWATCHED_BUDGET, or one run on a device, which may read more. They
           notice no gap, and gain by full steps.

        It is never less than the lane's own budget.
        """
        if not self.rows.is_watched():
            enough = self._unwatched_budget
        else:
            enough = DEVICE_RUN_COST if self._is_far else self.slots.num_running * 3 // 2
        return max(self.budget, enough)

    def _reads_once(self) -> bool:
        """Whether this step may do one run for prompts, and not several short ones.

        On a device each would make those who watch wait as long as another step does, however short it is.
        """
        return self._is_far and self.rows.is_watched()

    def _beside(self, take: Take) -> PromptPiece | None:
        """Return the piece of a prompt that this step's decode run reads beside its rows, or None.

        Eight tokens beside 8 to 32 rows make the run 1.1 to 1.4 times as long. A graph has room for one prompt.
        """
        left = max(self.budget, self.slots.num_running // 2)
        return self._next_piece(left) if self._has_prompt(take, left) else None

    def _prefill(self, take: Take) -> None:
        """Read prompts piece by piece, until the allowance is spent: one prompt at a time, or short ones together.

        At least one piece is read. Where a prompt is cut depends on the load. Its bits do not, as long as a run reads
        two tokens or more.
        """
        if self.rows.prompt is None and not self.has_room():
            return
        left, reads_once = max(self._allowance(), PREFILL_BUCKETS[0]), self._reads_once()
        while left >= PREFILL_BUCKETS[0] and self._has_prompt(take, left):
            if self.joiner and len(joined := self.joiner.choose(left, partial(self._take_prompt, take, left))) > 1:
                padded, num_tokens = self.joiner.read(joined)
                self._count_computed(padded, num_tokens)
                left -= padded + RUN_COST
                continue
            piece = self._next_piece(left)
            padded, candidates = self._read(self.slots.num_running, piece)
            self._note_read(padded, piece)
            if piece.ends:
                self.rows.end_prompt()
                self.rows.start(candidates)
            if reads_once:
                break
            left -= padded + RUN_COST

    def _read(self, slot: int, piece: PromptPiece) -> tuple[int, Candidates]:
        """Do a run for a piece. Returns the number of tokens computed, and candidates behind its last token."""
        if not piece.sees_itself:
            return self.runner.prefill(slot, piece.token_ids, piece.beside)
        assert self.stretches is not None, "a stretch, and nothing to read it with. This is a bug."
        return len(piece.token_ids), self.stretches.read(slot, piece.token_ids, piece.beside)

    def _has_prompt(self, take: Take, budget: int) -> bool:
        """Whether there is a prompt to read: the one begun, or one that waits."""
        return self.rows.prompt is not None or self._take_prompt(take, budget)

    def _take_prompt(self, take: Take, budget: int) -> bool:
        """Take a prompt that waits, if one does and there is room."""
        taken = take(Intake(1, budget, room=self._num_free)) if self.has_room() else []
        for sequence in taken:
            slot = self.rows.begin_prompt(sequence)
            if self.prefix_reader:
                self.prefix_reader.begin_prompt(sequence, slot)
        return bool(taken)

    def _next_piece(self, left: int) -> PromptPiece:
        """Return the next tokens of the prompt: `left` of them, or a little more; or a whole stretch."""
        prompt = self.rows.prompt
        assert prompt is not None, "a piece of no prompt. This is a bug."
        done, length = int(self.slots.past_lengths[self.slots.num_running]), prompt.num_input_tokens
        stretch = self.stretches.next_of(prompt.source, done) if self.stretches else None
        if stretch and stretch[0] <= done:
            start, stop = stretch
            assert start == done, "a stretch is read in pieces. This is a bug."
            source = prompt.source
            return PromptPiece(source.piece(done, stop), stop == length, source.beside(done, stop), sees_itself=True)
        stop = min(done + self.runner.chunks.size(left, done), stretch[0] if stretch else length)
        if self.prefix_reader and (longest := self.prefix_reader.longest_run(self.slots.num_running)) is not None:
            stop = min(stop, done + longest)
        source = prompt.source
        return PromptPiece(source.piece(done, stop), stop == length, source.beside(done, stop))

    def _decode(self, piece: PromptPiece | None) -> None:
        """Give every row a token. A piece of a prompt, if there is one, is read in the same run.

        The last row may be given several.
        """
        num_rows = self.slots.num_running
        if piece is None and self.speculation and len(drafts := self._drafts(self.speculation)):
            self._verify(self.speculation, drafts)
            return
        started = time.monotonic()
        if piece is None:
            candidates = self.runner.decode(num_rows)
        else:
            padded, candidates = self.runner.mixed(num_rows, piece.token_ids, ends=piece.ends)
            self._note_read(padded, piece)
            if piece.ends:
                self.rows.end_prompt()
        self._metrics.decode_step.observe(time.monotonic() - started)
        self._metrics.decode_batch_size.observe(num_rows)
        self.rows.advance(candidates)

    def _drafts(self, speculation: Speculation) -> np.ndarray:
        """What the last row drafts: alone as much as it may, and beside others as much as would be read of a prompt."""
        num_rows = self.slots.num_running
        if num_rows == 1:
            return speculation.drafts(self.runner.max_drafts)
        may_beside = speculation.beside and not self.rows.prompt
        return speculation.drafts(max(self.budget, num_rows // 2) - 1 if may_beside else 0)

    def _verify(self, speculation: Speculation, drafts: np.ndarray) -> None:
        """Give the last row as many tokens as its drafts are right, and one more. Give each row before it one."""
        started = time.monotonic()
        num_before = self.slots.num_running - 1
        candidates = self.runner.verify(drafts, num_before)
        self._metrics.decode_step.observe(time.monotonic() - started)
        self._metrics.decode_batch_size.observe(num_before + 1)
        speculation.note(num_before, len(drafts), self.rows.verify(drafts, candidates))
        if num_before:
            self.rows.advance_before(num_before, candidates)

    def _note_read(self, padded: int, piece: PromptPiece) -> None:
        """Count a piece that was read, and keep what it completes. It lies in the slot behind the rows."""
        self._count_computed(padded, len(piece.token_ids))
        if self.prefix_reader:
            self.prefix_reader.keep_prompt(self.slots.num_running)

    def _count_computed(self, padded: int, real: int) -> None:
        self._metrics.computed_tokens.inc(padded)
        self._metrics.padding_tokens.inc(padded - real)
