"""What a lane asks of the prefix cache: its slots begin with what has been read before, and it keeps what they read.

Only what prefill or an encoder has written is kept. A decode run has another kernel, which gives other bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.engine.prefix_cache import PrefixCache
from weft_server.engine.rows import slot_of
from weft_server.runtime.prefix_store import kept_states

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.prefix_index import Trail
    from weft_server.engine.slots import Slots
    from weft_server.engine.stretch_runner import StretchRunner
    from weft_server.runtime.states import HostStates
    from weft_server.sequence import Sequence
    from weft_server.source import Source
    from weft_server.telemetry.model_metrics import ModelMetrics

# Tokens of a prompt that are kept together.
PIECE = 32
# A source is kept as a whole, in places of so many tokens. So a short one leaves little of its last place empty.
BLOCK = 8


def prefix_cache_of(manifest: bundle_pb2.BundleManifest, num_bytes: int, metrics: ModelMetrics) -> PrefixCache:
    """Return an empty cache for a model, of at most `num_bytes`. All its lanes share it."""
    size = BLOCK if manifest.text.HasField("start_id") else PIECE
    return PrefixCache(kept_states(manifest.states), size, num_bytes, metrics)


class PrefixReader:
    """One lane's way to the cache that it shares. It follows the one prompt that the lane reads."""

    def __init__(
        self,
        cache: PrefixCache,
        states: HostStates,
        slots: Slots,
        metrics: ModelMetrics,
        stretches: StretchRunner | None = None,
    ) -> None:
        """`stretches` says which parts of a prompt are read in one run each, if there are such."""
        self._cache = cache
        self._prefix_store = cache.prefix_store
        self._states = states
        self._slots = slots
        self._metrics = metrics
        self._stretches = stretches
        self._passes = any(state.recurrent for state in states.states)
        # Of the prompt in prefill.
        self._trail: Trail | None = None
        # Of the sources that the encoder is about to read.
        self.trails: dict[Sequence, Trail] = {}

    def begin_prompt(self, sequence: Sequence, slot: int) -> None:
        """Copy what is kept of a prompt's beginning into its slot, which is empty. Its last token is left to be read.

        To prefill, this is one more cut of the prompt, and where a prompt is cut does not show.
        """
        size, source = self._prefix_store.size, sequence.source
        ids = source.array
        contents = [source.content(start, start + size) for start in range(0, len(ids) - size + 1, size)]
        self._trail = trail = self._cache.follow(contents, sequence.cache_key)
        usable = trail.entries[: self._num_usable(source, len(trail.entries), size)]
        num_cached = size * len(usable)
        try:
            self._prefix_store.give([entry.places[0] for entry in usable], self._states, slot, 0, num_cached)
        finally:
            self._cache.release(trail.entries)
        self._slots.past_lengths[slot] = num_cached
        # One that is no longer than a piece is never found, so it is not looked for.
        if len(ids) > size:
            self._count(sequence, num_cached)

    def _num_usable(self, source: Source, num_found: int, size: int) -> int:
        """Return how many of the pieces that were found are of use: the last token is to be read.

        They do not end within a stretch: that is read as a whole.
        """
        count = min(num_found, (len(source.array) - 1) // size)
        while self._stretches and (stretch := self._stretches.next_of(source, count * size)):
            if stretch[0] >= count * size:
                break
            count = stretch[0] // size
        return count

    def longest_run(self, slot: int) -> int | None:
        """Return how many tokens a run may read of the prompt in prefill: up to the end of a piece that is to be kept.

        None: any number. What attends finds each token's part in its cache later. A recurrent state passes by.
        """
        trail, size = self._trail, self._prefix_store.size
        if not self._passes or trail is None or not trail.wants_more:
            return None
        return size * (len(trail.entries) + 1) - int(self._slots.past_lengths[slot])

    def keep_prompt(self, slot: int) -> None:
        """Keep the pieces of the prompt in prefill that its last run has completed, if they were seen before.

        A recurrent state is known where the run has ended alone: at the end of a piece, as `longest_run` says.
        """
        trail, size = self._trail, self._prefix_store.size
        assert trail is not None, "a piece of no prompt. This is a bug."
        done = int(self._slots.past_lengths[slot])
        while trail.wants_more and (stop := size * (len(trail.entries) + 1)) <= done:
            self._keep(trail, slot, stop - size, stop)

    def recall_source(self, sequence: Sequence) -> bool:
        """Copy what is kept of a source into its slot. Returns whether it was; otherwise the source is to be read."""
        length = sequence.num_input_tokens
        trail = self._cache.follow([sequence.source.array.tobytes()], sequence.cache_key)
        if not trail.entries:
            self.trails[sequence] = trail
            self._count(sequence, 0)
            return False
        try:
            self._prefix_store.give(trail.entries[0].places, self._states, slot_of(sequence), 0, length)
        finally:
            self._cache.release(trail.entries)
        self._count(sequence, length)
        return True

    def keep_source(self, sequence: Sequence) -> None:
        """Keep what an encoder has just made of a source, if it was seen before."""
        trail = self.trails.pop(sequence)
        if trail.wants_more:
            self._keep(trail, slot_of(sequence), 0, sequence.num_input_tokens)

    def forget(self) -> None:
        """Forget what the lane was reading: its step has failed."""
        self._trail = None
        self.trails.clear()

    def _keep(self, trail: Trail, slot: int, start: int, stop: int) -> None:
        def copy(places: Many[int]) -> None:
            self._prefix_store.keep(places, self._states, slot, start, stop)

        self._cache.keep(trail, self._prefix_store.num_places(stop - start), copy)

    def _count(self, sequence: Sequence, num_cached: int) -> None:
        sequence.num_cached_tokens = num_cached
        self._metrics.looked_up(num_cached)
