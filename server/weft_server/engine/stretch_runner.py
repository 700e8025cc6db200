"""Reads stretches of prompts whose places see each other: each in one run, which reads nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.sight import feature_width, stretches
from weft_server.engine.full_logits import FullLogits
from weft_server.engine.prefill_chunks import PrefillChunk
from weft_server.runtime.blocks import block_of
from weft_server.runtime.next_tokens import NextTokens, candidates_of

if TYPE_CHECKING:
    import numpy as np

    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.decode_runner import DecodeRunner
    from weft_server.engine.slots import Slots
    from weft_server.runtime.session import Session
    from weft_server.sampling.candidates import Candidates
    from weft_server.source import Beside, Source


class StretchRunner:
    """The BIDIRECTIONAL graph over one lane's slots.

    A run has no padding and no company. So what a row gets hangs on its own prompt alone.
    """

    def __init__(
        self, manifest: bundle_pb2.BundleManifest, session: Session, slots: Slots, runner: DecodeRunner
    ) -> None:
        """`runner` reads what stands around stretches, into the same states."""
        self._kind = manifest.text.bidirectional
        self._session = session
        self._slots = slots
        self._states = runner.states
        self._total_length = runner.total_length
        self._pad_id = manifest.text.pad_id
        self._width = feature_width(manifest)
        self._asking = FullLogits(manifest, session, None, candidates_of(manifest))
        self._next = NextTokens(1, self._asking, manifest.text.target_vocab_size, session.device)

    def next_of(self, source: Source, done: int) -> tuple[int, int] | None:
        """Return where the first stretch of a prompt begins and ends that ends behind `done` places, or None."""
        found = stretches(self._kind, len(source.array), source.picture_places)
        return next((each for each in found if each[1] > done), None)

    def read(self, slot: int, token_ids: np.ndarray, beside: Beside) -> Candidates:
        """Append a stretch to the slot's state. Returns candidates [1, ...] after its last place."""
        past, length = int(self._slots.past_lengths[slot]), len(token_ids)
        # Lengths are many, and such a run is long: nothing is kept of it.
        chunk = PrefillChunk(
            length, self._session.device, has_memory=False, width=self._width, offsets=False, weighs=False
        )
        chunk.fill(token_ids, past, 0, self._pad_id, beside)
        chunk.columns.send()
        inputs, written = self._states.blocks(slot, slot + 1)
        inputs |= chunk.columns.rows(0, 1) | {"total_length": block_of(self._total_length)}
        bound = self._session.bind(inputs, written | self._next.blocks(1, reads_all=True))
        if self._slots.stack:
            self._slots.stack.give(bound, self._slots.adapters[slot : slot + 1], length)
        bound.run()
        self._slots.past_lengths[slot] = past + length
        return self._next.read(1, 1, reads_all=True)
