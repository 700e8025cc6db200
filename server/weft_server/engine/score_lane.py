"""A lane that scores given answers: it batches as one that classifies does, and leaves of a run what each asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from weft_proto.bundle_rules import SCORE_PORTS, SCORED_PORTS
from weft_server.engine.classify_lane import ClassifyLane
from weft_server.sequence import Scores
from weft_server.source import Ids, Source, feeds_of, padded

if TYPE_CHECKING:
    from collections.abc import Hashable
    from collections.abc import Sequence as Many

    from weft_server.sequence import Sequence

# Positions in one turn of the graph. It holds the logits of so many, whatever the request.
TURN = 64
# Products of one row, or of few, have other kernels. So a turn has at least so many, and a multiple of it.
_STEP = 8


@dataclass(frozen=True, slots=True, eq=False)
class GivenAnswer(Source):
    """A source and an answer to it, of which the last tokens are to be scored.

    `array` is what the decoder reads, int64 [length]: the start token, a prefix, and the answer but its last token.
    Where the model has no encoder, the prompt stands before it, and `source` is None.
    """

    port: ClassVar[str] = SCORED_PORTS[0]
    array: np.ndarray
    source: Source | None
    # Each follows one of the last tokens of `array`.
    scored_ids: np.ndarray
    # What the decoder has room for.
    max_total: int

    @property
    def num_tokens(self) -> int:
        """All that is read."""
        return len(self.array) + (self.source.num_tokens if self.source else 0)

    @property
    def num_bytes(self) -> int:
        """What both take in memory."""
        return self.array.nbytes + (self.source.num_bytes if self.source else 0)

    @property
    def bucket(self) -> int:
        """All that is read, padded."""
        return self.width + (self.source.bucket if self.source else 0)

    @property
    def width(self) -> int:
        """Padded length of what the decoder reads. It goes with its own length alone."""
        # Without a source it is even, and so is the number of a run's tokens. All have room: a prompt and an answer fit
        # together, and the answer's last token is not read.
        return min(Ids(self.array).bucket, self.max_total - (self.source is None and self.max_total % 2))

    @property
    def alike(self) -> Hashable:
        """Its length, and what sources that share a run have alike: samples of a recording may be as many places."""
        return self.width, self.source.alike if self.source else None

    @staticmethod
    def feeds(sources: Many[Source], width: int, pad_id: int) -> dict[str, np.ndarray]:
        """What the decoder reads, under the name of a model with an encoder."""
        return {"target_ids": padded(sources, width, pad_id)}


def score_feeds(batch: Many[GivenAnswer], pad_id: int) -> dict[str, np.ndarray]:
    """Return what a SCORE graph reads of answers that are alike. `places` go through them in their order."""
    width = batch[0].width
    fed = feeds_of(batch, width, pad_id)
    sources = [given.source for given in batch if given.source]
    feeds = feeds_of(sources, sources[0].bucket, pad_id) | fed if sources else {"input_ids": fed["target_ids"]}
    places = np.concatenate(
        [row * width + np.arange(len(g.array) - len(g.scored_ids), len(g.array)) for row, g in enumerate(batch)]
    )
    scored_ids = np.concatenate([given.scored_ids for given in batch])
    size = min(TURN, -(-len(places) // _STEP) * _STEP)
    missing = -len(places) % size
    for name, values in zip(SCORED_PORTS, (places, scored_ids), strict=True):
        feeds[name] = np.pad(values, (0, missing), mode="edge").reshape(-1, size)
    return feeds


def scores_of(batch: Many[GivenAnswer], outputs: dict[str, np.ndarray]) -> list[Scores]:
    """Divide what a run gave among the answers that it read."""
    flat = [outputs[name].reshape(-1, *outputs[name].shape[2:]) for name in SCORE_PORTS]
    ends = np.cumsum([len(given.scored_ids) for given in batch])
    # Copies, so that no answer keeps those of the whole batch alive.
    parts = [[part.copy() for part in np.split(values[: ends[-1]], ends[:-1])] for values in flat]
    return [Scores(*own) for own in zip(*parts, strict=True)]


class ScoreLane(ClassifyLane):
    """One thread that runs batch after batch of a SCORE graph."""

    def _run(self, batch: list[Sequence]) -> list[np.ndarray | None]:
        """Leave its scores with each sequence."""
        started = time.monotonic()
        given = [source for sequence in batch if isinstance(source := sequence.source, GivenAnswer)]
        session = self.sessions[given[0].port]
        outputs = session.run(score_feeds(given, self._pad_id) | self._adapters(batch, session))
        self._observe(batch, started, len(batch) * given[0].bucket)
        for sequence, scores in zip(batch, scores_of(given, outputs), strict=True):
            sequence.scores = scores
        return [None] * len(batch)
