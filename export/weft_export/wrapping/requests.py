"""Seeded random requests to an ONNX model, in batches as a server makes them, and their answers by ONNX Runtime."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft_export.errors import ExportError
from weft_export.wrapping.onnx_model import OnnxModel

Array = NDArray[Any]
# A server pads texts of up to _SHORT tokens to a multiple of 8, and longer ones to a multiple of 2.
_SHORT = 64
# It tries no more tokens than these before a bundle is ready.
_LONGEST = 2048
_MIDDLE = 256
# What a server puts in one batch unless it is told otherwise.
_MANY = 64
# So many pictures are tried at once that they have no more values than these: 64 MiB. 7 are tried in any case.
_VALUES, _FEW = 2**24, 7
_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}


@dataclass(frozen=True)
class Batch:
    """Requests that may share a run: ids int64 [length] or pixel_values, and the padded length of texts."""

    requests: list[Array]
    width: int

    def feeds(self, rows: Sequence[int], padding: Array) -> dict[str, Array]:
        """Return what a bundle's graph reads of some of the requests. padding is [requests, width], or unused."""
        chosen = [self.requests[row] for row in rows]
        if self.width == 0:
            return {"pixel_values": np.stack(chosen)}
        input_ids = padding[list(rows)]
        for place, ids in enumerate(chosen):
            input_ids[place, : len(ids)] = ids
        return {"input_ids": input_ids, "lengths": np.array([len(ids) for ids in chosen], np.int32)}

    def padding(self, fill: Callable[[tuple[int, int]], Array]) -> Array:
        """Return what stands behind each request's end: fill makes it for a shape."""
        return fill((len(self.requests), self.width))

    def own(self, row: int, output: Array, *, per_token: bool) -> Array:
        """Return the part of a row's output that is not padding."""
        return output[: len(self.requests[row])] if per_token else output

    def describe(self, row: int) -> str:
        """Say which request it is, for people."""
        if self.width == 0:
            return f"row {row}"
        return f"row {row} ({len(self.requests[row])} tokens, padded to {self.width})"


def batches_of(described: OnnxModel) -> list[Batch]:
    """Return batches of random requests: a few and many short texts, longer ones, the longest; or pictures."""
    rng = np.random.default_rng(0)
    if described.image is not None:
        image = described.image
        shape = (image.channels, image.height, image.width)
        many = max(_FEW, min(_MANY, _VALUES // math.prod(shape)))
        return [
            Batch([rng.standard_normal(shape, np.float32) for _ in range(number)], 0) for number in sorted({_FEW, many})
        ]
    vocab_size, longest = described.text_spec.source_vocab_size, min(described.text_spec.max_source_tokens, _LONGEST)
    middle = min(longest // 2, _MIDDLE)
    lengths = [
        [8, 1, 5, 3, 7, 2, 6],
        [16, 9, 12, 10, 15, 11, 14],
        [8 - place % 7 for place in range(_MANY)],
        [middle, middle - 1, middle * 3 // 4, middle - 2, middle // 2 + 1],
        [longest, longest - 1, longest],
    ]
    batches = []
    for wanted in lengths:
        kept = [length for length in wanted if 0 < length <= longest]
        if kept:
            ids = [rng.integers(0, vocab_size, length) for length in kept]
            ids[0][-1] = vocab_size - 1
            batches.append(Batch(ids, max(map(padded, kept))))
    return batches


def padded(length: int) -> int:
    """Return how long a server makes a text of so many tokens."""
    step = 8 if length <= _SHORT else 2
    return -(-length // step) * step


def answer(session: Any, feeds: Mapping[str, Array], described: OnnxModel) -> Array:
    """Return the probabilities [batch, labels], of a tagger [batch, seq, labels]; or vectors [batch, dimensions].

    Raises:
        ExportError: the graph fails, or gives another shape, or what is no distribution.
    """
    first = next(iter(feeds.values()))
    (out,) = run(session, feeds)
    rows = first.shape if described.row.labels_tokens else first.shape[:1]
    width = len(described.labels) if described.embedding is None else described.embedding.dimensions
    if out.shape != (*rows, width):
        raise ExportError(f"the graph gives {list(out.shape)} values where {[*rows, width]} are due")
    if not np.isfinite(out).all():
        raise ExportError("the graph's answer to a random request is not finite: look for NaN in its weights")
    if described.embedding is not None:
        return out
    if out.min() < 0 or not np.allclose(out.sum(axis=-1), 1, atol=1e-2):
        raise ExportError(
            "the graph's probabilities do not sum to 1; if they are logits, say so by --rename probabilities=logits."
            " A model that gives each label a probability of its own cannot be served"
        )
    return out


def run(session: Any, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
    """Run a graph on what it takes of feeds, in its data types, and return the outputs of these names, or all.

    Raises:
        ExportError: it fails.
    """
    taken: dict[str, Array] = {port.name: feeds[port.name].astype(_NUMPY[port.type]) for port in session.get_inputs()}
    try:
        outputs: list[Array] = session.run(names, taken)
    except Exception as error:  # ONNX Runtime's errors share no narrower type
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in taken.items())
        raise ExportError(f"the graph fails on {shapes}: {str(error).splitlines()[0]:.300}") from error
    return outputs
