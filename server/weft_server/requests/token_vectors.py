"""What a model says of single tokens: their vectors and weights, and how well two texts match by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_proto.token_vectors import BYTES_OF_A_NUMBER, MAX_VECTOR_BYTES, row_width
from weft_server.errors import InvalidRequest
from weft_server.source import FilledIds

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from weft_proto.v1 import bundle_pb2
    from weft_server.sequence import Sequence
    from weft_server.source import Source

_TINY = np.finfo(np.float32).tiny


class TokenVectors(NamedTuple):
    """Tokens that have a vector: their ids int64 [tokens], and the vectors float32 [tokens, dimensions]."""

    token_ids: np.ndarray
    vectors: np.ndarray


class Matches(NamedTuple):
    """What each token of a query met: a place among the tokens of a document, and the product of both vectors."""

    places: np.ndarray
    scores: np.ndarray
    total: float


def check_room(sources: Many[Source], spec: bundle_pb2.EmbeddingSpec) -> None:
    """Raise InvalidRequest where all vectors of the tokens of some texts are more than an answer has room for."""
    size = sum(source.num_given for source in sources) * row_width(spec) * BYTES_OF_A_NUMBER
    if size > MAX_VECTOR_BYTES:
        why = f"have so many tokens that their vectors take {size:,} bytes; an answer has at most {MAX_VECTOR_BYTES:,}"
        raise InvalidRequest("inputs", why, "INPUT_TOO_LONG")


def token_vectors_of(sequence: Sequence, spec: bundle_pb2.EmbeddingSpec, dimensions: int) -> TokenVectors:
    """Return the vectors of the tokens of a text that keep one, cut to `dimensions` as `vector_of` cuts one."""
    # Where tokens have weights, the first row is the vector of the whole text.
    first = int(spec.tokens.weighs)
    ids, vectors = sequence.source.array[first:], sequence.reply.values[first:, : spec.dimensions]
    if isinstance(sequence.source, FilledIds) and sequence.source.skipped_ids:
        kept = ~np.isin(ids, sequence.source.skipped_ids)
        ids, vectors = ids[kept], vectors[kept]
    return TokenVectors(ids, cut(vectors, dimensions, normalized=spec.normalized))


def weights_of(sequence: Sequence, spec: bundle_pb2.EmbeddingSpec) -> dict[int, float]:
    """Return the weight of each token of a text that has one above 0, by ascending id: the largest at any place."""
    ids, weights = sequence.source.array, sequence.reply.values[:, -1]
    counts = (weights > 0) & ~np.isin(ids, spec.tokens.unweighted_ids)
    # Of several the last one counts, which is the largest.
    return dict(sorted(zip(ids[counts].tolist(), weights[counts].tolist(), strict=True)))


def cut(vectors: np.ndarray, dimensions: int, *, normalized: bool) -> np.ndarray:
    """Return the first `dimensions` numbers of vectors, float32, of length 1 again where the model is `normalized`."""
    if dimensions == vectors.shape[-1]:
        return vectors
    vectors = vectors[..., :dimensions]
    if not normalized:
        return vectors
    # In float64: the sum of squares is exact enough to be rounded once.
    length = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=-1, keepdims=True))
    scaled: np.ndarray = (vectors / np.maximum(length, _TINY)).astype(np.float32)
    return scaled


def matched(query: TokenVectors, document: TokenVectors, *, averages: bool) -> Matches:
    """Return what each token of a query met in a document ("ColBERT", Khattab and Zaharia 2020, equation 3).

    Neither is empty. Nothing else is in the product, so nothing else can change its bits.
    """
    products = query.vectors @ document.vectors.T
    places = products.argmax(axis=1)
    scores = products[np.arange(len(places)), places]
    total = float(scores.sum(dtype=np.float64))
    return Matches(places, scores, total / len(scores) if averages else total)
