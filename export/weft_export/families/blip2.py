"""BLIP-2 (Li et al. 2023): a ViT, and few queries that read what it gives, before a decoder.

The queries pass the layers of a BERT ("Q-Former"). Some of these attend to the picture too. What becomes of a query is
brought to the width of the words, and is one place of the prompt. So a picture takes 32 of them, whatever its size.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft_export.families.pictured_decoder import PicturedDecoder, PicturedDecoderConfig
from weft_export.families.sizes import require_divisible, require_sizes
from weft_export.families.vit import VitBody, VitSizes
from weft_export.families.writer import Writer
from weft_export.layers.attention import SelfAttention
from weft_export.layers.cross_attention import CrossAttention
from weft_export.layers.style import Style, StyledLayer


@dataclass(frozen=True, kw_only=True)
class QueriesConfig:
    """The queries of a picture, and the layers that they pass.

    reads_every: the first layer attends to the picture, and then each that is so many behind.
    """

    num_queries: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    reads_every: int
    style: Style = field(default_factory=lambda: Style(residual="post"))

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)


@dataclass(frozen=True, kw_only=True)
class QuerySightConfig:
    """What sees a picture: a tower of ViT's kind, whose class token is read too, and queries."""

    tower: VitSizes
    queries: QueriesConfig

    @property
    def channels(self) -> int:
        """Of a picture."""
        return self.tower.channels

    @property
    def image_height(self) -> int:
        """In pixels."""
        return self.tower.image_height

    @property
    def image_width(self) -> int:
        """In pixels."""
        return self.tower.image_width

    @property
    def grid(self) -> tuple[int, int]:
        """No place of a picture lies anywhere on it: each query reads the whole."""
        return 0, 0

    @property
    def num_class_tokens(self) -> int:
        """So all places are like class tokens."""
        return self.queries.num_queries

    @property
    def num_places(self) -> int:
        """Places of a picture in a prompt."""
        return self.queries.num_queries


@dataclass(frozen=True, kw_only=True)
class Blip2Config(PicturedDecoderConfig):
    """A decoder, and what sees pictures for it."""

    sight: QuerySightConfig


class QueryLayer(StyledLayer):
    """Self-attention, attention to the picture where d_memory says its width, and feed-forward."""

    def __init__(self, sizes: QueriesConfig, d_memory: int | None) -> None:
        style, d_model = sizes.style, sizes.d_model
        super().__init__(style, 0.0)
        self.attention_norm = style.norm(d_model)
        self.attention = SelfAttention(d_model, sizes.num_heads, **style.self_attention)
        self.reads = d_memory is not None
        if self.reads:
            self.cross_attention_norm = style.norm(d_model)
            self.cross_attention = CrossAttention(d_model, sizes.num_heads, **style.attention, d_memory=d_memory)
        self.feed_forward_norm = style.norm(d_model)
        self.feed_forward = style.feed_forward(d_model, sizes.d_ff)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Map queries x [batch, queries, d_model] to the same shape, for what is seen [batch, positions, d_memory]."""
        attended = self.attention.encode(self.before(self.attention_norm, x), None)
        x = self.after(self.attention_norm, x, attended)
        if self.reads:
            memory, everything = self.cross_attention.project(seen), torch.ones(1, 1, 1, 1, dtype=torch.bool)
            read = self.cross_attention(self.before(self.cross_attention_norm, x), memory, everything)
            x = self.after(self.cross_attention_norm, x, read)
        return self.fed(self.feed_forward_norm, self.feed_forward, x, x)


class QueriedSight(Writer):
    """The part of a model that sees by queries."""

    def look_with(self, sight: QuerySightConfig, d_model: int) -> None:
        """Make the tower, the queries and their layers, and what brings them to the width of words, d_model."""
        tower, sizes = sight.tower, sight.queries
        self.tower = VitBody(tower)
        self.queries = nn.Parameter(torch.randn(1, sizes.num_queries, sizes.d_model) * 0.02)
        self.queries_norm = sizes.style.plain_norm(sizes.d_model)
        # Not `layers`, which are the decoder's.
        self.query_layers = nn.ModuleList(
            QueryLayer(sizes, None if index % sizes.reads_every else tower.d_model) for index in range(sizes.num_layers)
        )
        self.projector = nn.Linear(sizes.d_model, d_model)

    def see(self, pixel_values: Tensor) -> Tensor:
        """See Writer."""
        seen = self.tower.encoded(pixel_values)
        # For each picture by itself: what hangs on no input would be computed when the graph is opened.
        x = self.queries_norm(self.queries.expand(seen.shape[0], -1, -1))
        for layer in self.query_layers:
            x = layer(x, seen)
        features: Tensor = self.projector(x)
        return features


class Blip2(QueriedSight, PicturedDecoder):
    """See PicturedDecoder."""

    config: Blip2Config

    def __init__(self, config: Blip2Config) -> None:
        super().__init__(config)
        self.look_with(config.sight, config.d_model)
