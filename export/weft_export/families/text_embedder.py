"""A text to a vector: an encoder-only body whose places become one ("Sentence-BERT", Reimers and Gurevych 2019)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.classifier import Classifier
from weft_export.families.encoder_only import Body, EncoderConfig
from weft_export.families.sizes import require_among
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.pooling import (
    FIRST,
    LAST,
    MAX,
    MEAN,
    NONE,
    POOLINGS,
    max_of_real,
    mean_of_real,
    position_before_end,
)
from weft_proto.v1 import bundle_pb2


@dataclass(frozen=True)
class Dense:
    """A linear layer behind the pooling. activation: None for none."""

    d_out: int
    activation: str | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        require_among("dense.activation", self.activation or "tanh", tuple(ACTIVATIONS))


@dataclass(frozen=True)
class TokenWeights:
    """Each token has a vector and a weight, beside the vector of the text ("BGE M3-Embedding", Chen et al. 2024).

    unweighted: tokens that have no weight.
    """

    unweighted: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TextEmbedderConfig(EncoderConfig):
    """A body and what makes one vector of it.

    pooling: of POOLINGS: the vector of the first or the last place, their mean, or the largest value of each dimension.
        NONE: each place keeps its own ("ColBERT", Khattab and Zaharia 2020).
    dense: layers that the pooled vector goes through.
    normalized: vectors have the length 1.
    cut: only so many first numbers of them are kept, behind that; None for all.
    filled_with: texts are filled up with this token to max_tokens, and the last place is read, as in SigLIP. None: not.
    sees_filling: what they are filled up with is attended to.
    averages: a score of two texts, of which each token has a vector, is a mean and not a sum.
    weighs: for pooling first: what each other token has besides. None: nothing.
    """

    pooling: str = MEAN
    dense: tuple[Dense, ...] = ()
    normalized: bool = True
    cut: int | None = None
    filled_with: int | None = None
    sees_filling: bool = True
    averages: bool = False
    weighs: TokenWeights | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("pooling", self.pooling, (*POOLINGS, NONE))
        if self.pooling == NONE and self.cut is not None:
            raise ValueError("cut is for one vector of a text, and pooling none makes several")
        if self.filled_with is not None and (self.pooling != LAST or not 0 <= self.filled_with < self.vocab_size):
            raise ValueError("filled_with is a token of the vocabulary, for pooling last")
        if self.weighs is not None:
            if self.pooling != FIRST or self.dense or self.cut is not None or not self.normalized:
                raise ValueError("weighs is for pooling first, normalized, without dense and cut")
            if max(self.weighs.unweighted) >= self.vocab_size:
                raise ValueError("weighs.unweighted are tokens of the vocabulary")

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return width_of(self, self.d_model)

    @property
    def tokens(self) -> bundle_pb2.TokenVectorSpec | None:
        """What there is for each token of a text; None where the whole has one vector."""
        if self.weighs is not None:
            return bundle_pb2.TokenVectorSpec(
                weighs=True, unweighted_ids=self.weighs.unweighted, averages=self.averages
            )
        return bundle_pb2.TokenVectorSpec(averages=self.averages) if self.pooling == NONE else None


def width_of(config: Any, d_model: int) -> int:
    """Return how many numbers a vector has behind what an Embedder's config says."""
    width: int = config.dense[-1].d_out if config.dense else d_model
    return width if config.cut is None else min(width, config.cut)


class Embedder(Classifier):
    """What follows a body: dense layers behind the pooling, and the length 1."""

    def __init__(self, config: Any, d_model: int) -> None:
        """Make the layers. config has `pooling`, `dense`, `normalized` and `cut`."""
        super().__init__()
        self.config = config
        widths = [d_model, *(dense.d_out for dense in config.dense)]
        self.dense = nn.ModuleList(
            nn.Linear(d_in, dense.d_out, bias=dense.bias) for d_in, dense in zip(widths, config.dense, strict=False)
        )

    def ended(self, x: Tensor) -> Tensor:
        """Return vectors [batch, dimensions] of what was pooled, [batch, d_model]; of all places with one more axis."""
        for linear, dense in zip(self.dense, self.config.dense, strict=True):
            x = linear(x)
            if dense.activation is not None:
                x = ACTIVATIONS[dense.activation](x)
        # In float32 at any precision: squares of float16 overflow soon.
        x = functional.normalize(x.float(), dim=-1) if self.config.normalized else x
        return x if self.config.cut is None else x[:, : self.config.cut]

    def read(self, flow: Tensor) -> Tensor:
        """Return the row that is pooled, [1, seq], of what flows to each token, [seq, seq]; of several, their mean."""
        rows = {FIRST: flow[:1], LAST: flow[-1:]}
        return rows.get(self.config.pooling, flow.mean(dim=0, keepdim=True))


def pooled(x: Tensor, lengths: Tensor, pooling: str) -> Tensor:
    """Return a vector [batch, width] of the first lengths [batch] places of x [batch, seq, width]."""
    if pooling == FIRST:
        return x[:, 0]
    return {MEAN: mean_of_real, LAST: position_before_end, MAX: max_of_real}[pooling](x, lengths)


class TextEmbedder(Embedder):
    """Turns a text into a vector."""

    def __init__(self, config: TextEmbedderConfig) -> None:
        super().__init__(config, config.d_model)
        self.body = Body(config)
        self.body.encoder.unpads = config.pooling != NONE and config.filled_with is None
        # What each of many vectors was read from is more than one row.
        self.attention_heads = () if config.pooling == NONE else (config.num_heads,) * config.num_layers
        if config.weighs is not None:
            # One product for both: that of a single column may be summed in another order for one row than for many.
            self.of_tokens = nn.Linear(config.d_model, config.d_model + 1)

    def forward(self, *source: Tensor) -> Tensor:
        """Return vectors [batch, dimensions] for input_ids int64 [batch, seq], right-padded, and lengths [batch].

        Where nothing is pooled they are [batch, seq, dimensions], of places behind lengths too. Where tokens have
        weights they are [batch, seq, dimensions + 1]: the vector of the text, then one of each token; last its weight.
        """
        if self.config.weighs is not None:
            return self._weighed(self.body(*source))
        if self.config.pooling == NONE:
            return self.ended(self.body(*source))
        if self.config.filled_with is not None:
            return self.ended(self.body(*self._filled(*source))[:, -1])
        num_read = 1 if self.config.pooling == FIRST else None
        return self.ended(pooled(self.body(*source, num_read=num_read), source[1], self.config.pooling))

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the row that is pooled, over the tokens of source[0], input_ids [1, seq]: of several, their mean."""
        input_ids, seen = source[0], None
        if self.config.filled_with is not None:
            input_ids, seen = self._filled(input_ids, torch.full((1,), input_ids.shape[1]))
        flow = pick_flow(self.body.encoder.attentions(self.body.embed(input_ids), seen), layer, head)
        return over_source(self.read(flow)[:, : source[0].shape[1]])

    def _weighed(self, x: Tensor) -> Tensor:
        """Return vectors and weights [batch, seq, d_model + 1] of what the body gave, [batch, seq, d_model]."""
        of_tokens = self.of_tokens(x).float()
        vectors = functional.normalize(of_tokens[:, 1:, :-1], dim=-1)
        rows = torch.cat((self.ended(x[:, :1]), vectors), dim=1)
        return torch.cat((rows, functional.relu(of_tokens[..., -1:])), dim=-1)

    def _filled(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return texts of max_tokens, and how much of each is seen; None for all."""
        place = torch.arange(self.config.max_tokens)
        filling = torch.full((1, len(place)), self.config.filled_with).expand(input_ids.shape[0], -1)
        longer = torch.cat((input_ids, filling), dim=1)[:, : len(place)]
        filled = torch.where(place < lengths[:, None], longer, filling)
        return filled, None if self.config.sees_filling else lengths
