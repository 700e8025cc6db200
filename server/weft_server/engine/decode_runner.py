"""Runs a decoder's graphs: encode, prefill, decode, move. It has arrays and no policy.

The first axis of every state tensor is the slot. Nothing here knows a family, or where the states lie: see `states` and
`device_states`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.questions import begins_filled, decoder_asks, picture_places
from weft_proto.v1 import bundle_pb2
from weft_server.engine.full_logits import FullLogits
from weft_server.engine.mixed_runs import MixedRuns
from weft_server.engine.prefill_chunks import PREFILL_CHUNK, PrefillChunks, reads_one_by_one
from weft_server.engine.run_shapes import EXACT, first_run_order
from weft_server.engine.sight_columns import DraftColumns, SightColumns
from weft_server.runtime.blocks import block_of
from weft_server.runtime.buffers import Columns
from weft_server.runtime.cuda.device_states import DeviceStates
from weft_server.runtime.cuda.drawing import TEMPERATURES
from weft_server.runtime.next_tokens import NextTokens, candidates_of
from weft_server.runtime.states import HostStates
from weft_server.source import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence as Many

    from weft_server.engine.run_shapes import RunShapes
    from weft_server.engine.slots import Slots
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.session import BoundSession, Session
    from weft_server.runtime.states import States
    from weft_server.sampling.candidates import Candidates
    from weft_server.source import Beside, Source

# On a device, kernels size their work by the longest row that they are told. It is rounded up to a multiple of this, so
# that there are few shapes.
_TOTAL_STEP = 256


class DecodeRunner:
    """A decoder bound to one lane's slots. Running rows are a prefix of the slots, so a batch is a view and no copy."""

    def __init__(
        self,
        manifest: bundle_pb2.BundleManifest,
        encoder: Session | None,
        decoder: Session,
        slots: Slots,
        mixed: Session | None = None,
        *,
        best: Session | None = None,
        shapes: RunShapes = EXACT,
        is_biased: bool = False,
        max_drafts: int = 0,
    ) -> None:
        """`best` is as in FullLogits. `shapes` are those of the encoder's runs.

        `is_biased` is what `attends_with_bias` says of the decoder. `verify` reads at most `max_drafts` drafts.
        """
        self.encoder = encoder
        self.shapes = shapes
        self._slots = slots
        self._device = device = decoder.device

        self.states: States = (
            HostStates(manifest.states, slots.num_slots)
            if device.in_place
            else DeviceStates(manifest.states, slots.num_slots, device)
        )

        kinds = {spec.kind for spec in manifest.states}
        self._has_memory = bundle_pb2.STATE_KIND_MEMORY in kinds
        self._has_cache = bundle_pb2.STATE_KIND_KV_CACHE in kinds
        self._flips = bundle_pb2.STATE_KIND_RECURRENT in kinds
        # Caches begin with what an encoder writes.
        self._begins = begins_filled(manifest.states)
        # Of a question, which is read at once, and of the picture that it is about.
        takes_question = decoder_asks(manifest.task, manifest.text)
        self._max_question = manifest.text.max_source_tokens if takes_question else 0
        self._num_places = picture_places(manifest.image) if takes_question else 1
        self._max_total = manifest.text.max_total_tokens
        self._pad_id = manifest.text.pad_id
        self.total_length = np.array([self._max_total], np.int32)
        # There are two cases in which a run is told the capacity, however long its rows are:
        # 1. It may be captured. Then it keeps the value of its capture.
        # 2. Its scores get a bias, which has a column for each place of the cache. Kernels take no other total with it.
        self._tells_capacity = device.captures or is_biased

        self._batches = device.batches(slots.num_slots)
        # Where batches are filled up, a row that does not run is computed too. It writes at the end of what it holds.
        self._past_lengths = slots.past_lengths if device.in_place else slots.past_lengths.copy()
        self._sight = SightColumns(manifest, slots)
        arrays: dict[str, np.ndarray] = {"input_ids": slots.input_ids, "past_lengths": self._past_lengths}
        arrays |= self._sight.of_rows()
        if self._has_memory:
            arrays["memory_lengths"] = slots.memory_lengths
        self._asking = asking = FullLogits(manifest, decoder, best, candidates_of(manifest))
        # At which temperature rows are drawn, if runs weigh all tokens by it.
        self._temperatures = np.ones(slots.num_slots, np.float32)
        if asking.weighs:
            arrays[TEMPERATURES] = self._temperatures
        self._columns = Columns(arrays, device)
        self._fixed = self._sight.fixed(device)
        self._next = NextTokens(slots.num_slots + max_drafts, asking, manifest.text.target_vocab_size, device)

        self.chunks = PrefillChunks(
            device,
            max_total=self._max_total,
            pad_id=self._pad_id,
            one_by_one=reads_one_by_one(manifest),
            has_memory=self._has_memory,
            width=self._sight.width,
            offsets=self._sight.offsets,
            weighs=asking.weighs,
        )
        self.decodes: dict[tuple[int, int, bool], BoundSession] = {}
        self._prefills: dict[tuple[int, int, int, bool], BoundSession] = {}
        self._joins: dict[tuple[int, int, int, bool], BoundSession] = {}
        self._verifies: dict[tuple[int, bool], BoundSession] = {}
        self.max_drafts = max_drafts
        self._drafts = DraftColumns(slots, self._sight, max_drafts)
        self._mixed = MixedRuns(mixed, self.states, self._columns, self._next, slots) if mixed else None

    @property
    def mixes(self) -> bool:
        """Whether a piece of a prompt can be read in a decode run."""
        return self._mixed is not None

    @property
    def host_states(self) -> HostStates | None:
        """The states of its slots, if they lie in the host's memory."""
        return self.states if isinstance(self.states, HostStates) else None

    @property
    def kv_capacity(self) -> int:
        """Cache entries (tokens) that all slots together can hold."""
        return self._slots.num_slots * self._max_total if self._has_cache else 0

    def num_begun(self, source: Source) -> int:
        """How many places of its caches an encoder fills."""
        return source.num_places if self._begins else 0

    @property
    def reads_questions(self) -> bool:
        """Whether a source may come with a question, which is read behind it in runs of its own."""
        return self._max_question > 0

    @property
    def question_piece(self) -> int:
        """How many tokens of a question a run reads. What attends to a memory takes no more than that has places."""
        return self.chunks.size(min(PREFILL_CHUNK, self._num_places) if self._has_memory else PREFILL_CHUNK)

    def begin(self, slot: int) -> None:
        """Start a slot for a new sequence: a recurrent state starts at zero, unless an encoder fills it."""
        self.states.begin(slot)

    def encode(self, sources: Many[Source], slots: Many[int]) -> None:
        """Run the encoder on sources that may share a run and write what it fills into each one's slot."""
        assert self.encoder is not None, "this model has no encoder. This is a bug."
        lengths = [int(self._slots.memory_lengths[slot]) for slot in slots]
        width = max(source.width for source in sources)
        feeds = self.shapes.feeds(sources, self._pad_id)
        if self._slots.stack:
            feeds |= self._slots.stack.feeds(self.encoder.input_names, self._slots.adapters[list(slots)], width)
        self.states.fill(self.encoder, feeds, slots, lengths)

    def prefill(self, slot: int, token_ids: np.ndarray, beside: Beside = NOTHING) -> tuple[int, Candidates]:
        """Append prompt tokens to the slot's state, as many as the largest bucket at most. See PrefillChunks.filled.

        Returns the number of tokens computed, padding included, and candidates [1, ...] after the last real one.
        """
        past = int(self._slots.past_lengths[slot])
        chunk = self.chunks.filled(token_ids, past, int(self._slots.memory_lengths[slot]), beside)
        reads_all = self._asking.prompts_read_all or self._reads_all(slot, slot + 1)
        key = (slot, chunk.bucket, self.states.flip, reads_all)
        if key not in self._prefills:
            self._prefills[key] = self._bind(slot, slot + 1, chunk.columns.rows(0, 1), reads_all=reads_all)
        if not self._device.in_place:
            chunk.temperatures[:] = self._slots.sampling.divisors(slice(slot, slot + 1))
            self._tell(past + chunk.bucket, chunk.columns)
        self._adapt(self._prefills[key], self._slots.adapters[slot : slot + 1], chunk.bucket)
        self._prefills[key].run()
        self._slots.past_lengths[slot] = past + len(token_ids)
        self.states.turn(slot, slot + 1, self._num_held)
        return chunk.bucket, self._next.read(1, 1, reads_all=reads_all)

    def join(self, slot: int, prompts: Many[np.ndarray]) -> tuple[int, Candidates]:
        """Read whole prompts into the slots from `slot` on, in one run. See `may_join`.

        Returns the number of tokens computed, padding included, and candidates [prompts, ...] after their last ones.
        """
        chunk, stop = self.chunks.joined(prompts), slot + len(prompts)
        reads_all = self._asking.prompts_read_all or self._reads_all(slot, stop)
        key = (slot, stop, chunk.bucket, reads_all)
        if key not in self._joins:
            columns = chunk.columns.rows(0, len(prompts)) | {"total_length": block_of(chunk.total_length)}
            self._joins[key] = self._bind(slot, stop, columns, reads_all=reads_all)
        self._adapt(self._joins[key], self._slots.adapters[slot:stop], chunk.bucket)
        self._joins[key].run()
        self._slots.past_lengths[slot:stop] = [len(prompt) for prompt in prompts]
        return len(prompts) * chunk.bucket, self._next.read(len(prompts), len(prompts), reads_all=reads_all)

    def mixed(self, num_rows: int, token_ids: np.ndarray, *, ends: bool) -> tuple[int, Candidates]:
        """Do `decode` for the first `num_rows` slots and `prefill` for the slot behind them, in one run.

        Returns the number of prompt tokens computed, and candidates [num_rows, ...], with one row more for the prompt
        if it `ends` with these tokens.
        """
        past = int(self._slots.past_lengths[num_rows])
        chunk = self.chunks.filled(token_ids, past, 0, num_rows=num_rows)  # this graph has no memory
        reads_all = self._reads_all(0, num_rows + ends)
        self._run_beside(num_rows, chunk.columns.rows(0, 1), chunk.bucket, 1, reads_all=reads_all)
        self._slots.past_lengths[num_rows] = past + len(token_ids)
        return chunk.bucket, self._next.read(num_rows + 1, num_rows + ends, reads_all=reads_all)

    def decode(self, num_rows: int, *, captures: bool = False) -> Candidates:
        """Feed each of the first `num_rows` slots its input id; candidates [num_rows, ...].

        A run that `captures` is captured if the session captures: later ones of this size replay it.
        """
        batch = self._batches[num_rows]
        reads_all = self._reads_all(0, num_rows)
        key = (batch, self.states.flip, reads_all)
        if key not in self.decodes:
            columns = self._columns.rows(0, batch) | self._fixed.rows(0, batch)
            self.decodes[key] = self._bind(0, batch, columns, reads_all=reads_all)
        bound = self.decodes[key]
        if not self._device.in_place:
            np.minimum(self._slots.past_lengths, self._max_total - 1, out=self._past_lengths)
            self._temperatures[:batch] = self._slots.sampling.divisors(slice(batch))
            self._tell(int(self._past_lengths[:batch].max()) + 1, self._columns)
        elif batch > num_rows:  # the row beside a lone one may have ended where its cache does
            np.minimum(idle := self._slots.past_lengths[num_rows:batch], self._max_total - 1, out=idle)
        self._adapt(bound, self._slots.adapters[:batch], 1)
        (bound.capture if captures else bound.run)()
        self._slots.past_lengths[:num_rows] += 1
        self.states.turn(0, num_rows, self._num_held)
        return self._next.read(batch, num_rows, reads_all=reads_all)

    def verify(self, drafts: np.ndarray, num_before: int = 0) -> Candidates:
        """Feed the slot behind `num_before` others its input id and drafts int64 [n] of what follows.

        The others are fed their input ids, as in `decode`. Returns candidates [num_before + n + 1, ...]: of each of the
        others, then behind each of the last one's tokens. Its past is as long as before: whoever accepts drafts counts
        them. What lies behind is never read.
        """
        size, reads_all = 1 + len(drafts), self._reads_all(0, num_before + 1)
        self._drafts.fill(num_before, drafts)
        columns = self._columns.rows(num_before, num_before + 1) | self._drafts.blocks(size)
        if num_before:
            self._run_beside(num_before, columns, size, size, reads_all=reads_all)
        else:
            if (size, reads_all) not in self._verifies:
                self._verifies[size, reads_all] = self._bind(0, 1, columns, num_ends=size, reads_all=reads_all)
            self._adapt(self._verifies[size, reads_all], self._slots.adapters[:1], size)
            self._verifies[size, reads_all].run()
        return self._next.read(num_before + size, num_before + size, reads_all=reads_all)

    def end(self, slot: int) -> None:
        """See Pasts. A slot's memory is its own, whoever holds it."""

    def share(self, source: int, target: int) -> None:
        """See Pasts."""
        self.move(source, target)

    def move(self, source: int, target: int) -> None:
        """Move a slot's state into a hole."""
        past = int(self._slots.past_lengths[source])
        memory = int(self._slots.memory_lengths[source])
        self.states.move(source, target, past, memory)

    def fork(self, sources: np.ndarray, targets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
        """Copy rows onto other rows of their sequences, pair by pair. See States.fork."""
        self.states.fork(sources, targets, starts, stops)

    def warm(self) -> None:
        """Run each shape once, so that no request pays for being its first."""
        deque(self.first_runs(), maxlen=0)

    def first_runs(self) -> Iterator[None]:
        """Do as `warm`, a run a turn.

        1. Decode runs: every batch. With a recurrent state each runs twice, once for each order of its two buffers.
        2. Decode runs that read all logits. On the host it is one with all rows, for the memory that it takes. On a
           device it is every batch here too: there, a first run makes plans, and may be captured.
        3. Prefill runs, where there is no encoder: every bucket, on a device also behind other tokens, and also read as
           a whole. Of questions: those that the longest one needs.
        4. Mixed runs: the smallest bucket beside every number of rows.
        5. On a device, the encoder's runs: every shape.

        On the host, larger pieces of a prompt beside rows, and smaller runs that read all logits, are bound when first
        asked for. On a device nothing is left.
        """
        yield from self._warm_decodes()
        if self.encoder is None or self._max_question:
            yield from self._warm_prefills()
        if self.mixes:
            for num_rows in range(1, self._slots.num_slots):
                self.mixed(num_rows, np.full(min(self.chunks.buckets[0], self._max_total - 1), self._pad_id), ends=True)
                self._slots.past_lengths[:] = 0
                yield
        for sources in self.shapes.trials():
            self.encode(sources, range(len(sources)))
            yield

    def _warm_decodes(self) -> Iterator[None]:
        sizes = first_run_order(set(self._batches) - {0}, self._device)
        for reads_all in self._asking.readings:
            self._slots.reads_all[:] = reads_all
            for num_rows in sizes[-1:] if reads_all and self._device.in_place else sizes:
                for _ in range(1 + self._flips):
                    candidates = self.decode(num_rows, captures=True)
                    if self._reads_all(0, num_rows):
                        # On a device it is fetched by a graph of its own, which takes memory the first time.
                        np.asarray(candidates.logits[0])
                    yield
                self._slots.past_lengths[:] = 0
        self._slots.reads_all[:] = False

    def _warm_prefills(self) -> Iterator[None]:
        self._slots.memory_lengths[0] = self._num_places
        is_one_kind = self._device.in_place or self._asking.prompts_read_all
        for reads_all in self._asking.readings[:1] if is_one_kind else self._asking.readings:
            self._slots.reads_all[:] = reads_all
            for length in first_run_order(self.chunks.buckets, self._device):
                if self._max_question and length > min(self.question_piece, 2 * self._max_question):
                    continue
                if length >= 2 * self._max_total:
                    continue  # one of a smaller bucket is as long as the cache
                # A prompt leaves room for a token.
                token_ids = np.full(min(length, self._max_total - 1), self._pad_id)
                # On a device, the first tokens of a prompt take another kernel than later ones.
                for past in (0,) if self._device.in_place else (0, length):
                    if past + length <= self._max_total or not past:
                        self._slots.past_lengths[0] = past
                        self.prefill(0, token_ids)
                        yield
                self._slots.past_lengths[:] = 0
        self._slots.reads_all[:] = False
        self._slots.memory_lengths[0] = 1

    @property
    def _num_held(self) -> int:
        """Slots that may be held: those of the rows, and the one in prefill."""
        return min(self._slots.num_running + 1, self._slots.num_slots)

    def _reads_all(self, start: int, stop: int) -> bool:
        """Whether one of the rows [start, stop) needs more of a run than its best candidates."""
        return self._asking.reads_all(self._slots, slice(start, stop))

    def _adapt(self, bound: BoundSession, adapters: np.ndarray, seq: int) -> None:
        """Let a run read the adapters of its rows, [rows], each of so many positions."""
        if self._slots.stack:
            self._slots.stack.give(bound, adapters, seq)

    def _bind(
        self, start: int, stop: int, columns: dict[str, Block], *, num_ends: int | None = None, reads_all: bool
    ) -> BoundSession:
        """Bind a run over slots [start, stop) that reads its ids and lengths from `columns`.

        It is asked what follows `num_ends` tokens, if that is not one for each slot.
        """
        inputs, written = self.states.blocks(start, stop)
        inputs |= self._told(reads_all=reads_all)
        inputs |= self._asking.columns(columns, reads_all=reads_all)
        written |= self._next.blocks(num_ends or stop - start, reads_all=reads_all)
        return self._asking.session(reads_all=reads_all).bind(inputs, written)

    def _run_beside(
        self, num_rows: int, columns: dict[str, Block], size: int, num_ends: int, *, reads_all: bool
    ) -> None:
        """Give the first rows a token each, and read `size` tokens of the slot behind; `num_ends` of them are asked."""
        assert self._mixed is not None, "this bundle has no mixed graph. This is a bug."
        told = self._told(reads_all=reads_all)
        self._mixed.run(num_rows, columns, told, size=size, num_ends=num_ends, reads_all=reads_all)

    def _told(self, *, reads_all: bool) -> dict[str, Block]:
        """What every run reads on the host."""
        return {"total_length": block_of(self.total_length)} | self._asking.told(reads_all=reads_all)

    def _tell(self, longest: int, columns: Columns) -> None:
        """Send to a device what a run reads of the host. After the run no row is longer than `longest`."""
        if not self._tells_capacity:
            self.total_length[0] = min(self._max_total, -(-longest // _TOTAL_STEP) * _TOTAL_STEP)
        columns.send()
