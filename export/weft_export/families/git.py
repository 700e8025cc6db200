"""Answers about pictures with the picture in the prompt: "GIT" (Wang et al. 2022), "LLaVA" (Liu et al. 2023).

An encoder of ViT's kind sees the picture. What it gives is projected to the width of the words. It stands before them
in one causal Transformer, which has no cross-attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from weft_export.families.causal import CausalTransformer
from weft_export.families.sizes import require_divisible, require_head, require_sizes
from weft_export.families.writer import flat, pairs
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.encoder import Encoder
from weft_export.layers.explaining import Explanation, over_source, pick
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.style import Style


@dataclass(frozen=True)
class GitConfig:
    """Sizes and choices. Image sizes are in pixels.

    max_target_tokens: places of the cache: those of the picture, then the tokens of question and answer.
    class_token: whether one stands before the patches.
    first_norm: whether the picture passes a norm before the encoder's layers, as in CLIP.
    """

    target_vocab_size: int
    max_target_tokens: int
    channels: int
    image_height: int
    image_width: int
    patch_size: int
    d_encoder: int
    num_encoder_heads: int
    d_encoder_ff: int
    num_encoder_layers: int
    d_model: int
    num_decoder_heads: int
    d_decoder_ff: int
    num_decoder_layers: int
    class_token: bool = False
    first_norm: bool = False
    encoder_style: Style = field(default_factory=Style)
    style: Style = field(default_factory=Style)
    embeddings: EmbeddingStyle = field(default_factory=lambda: EmbeddingStyle(positions=True))
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_encoder", self.d_encoder, "num_encoder_heads", self.num_encoder_heads)
        require_head("d_model / num_decoder_heads", self.d_model, self.num_decoder_heads, 8)
        require_divisible("image_height", self.image_height, "patch_size", self.patch_size)
        require_divisible("image_width", self.image_width, "patch_size", self.patch_size)
        if self.max_target_tokens <= self.num_positions:
            raise ValueError(f"model.max_target_tokens must be more than the {self.num_positions} of a picture")

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image_height // self.patch_size, self.image_width // self.patch_size

    @property
    def num_class_tokens(self) -> int:
        """How many places of the picture are no patches."""
        return int(self.class_token)

    @property
    def num_positions(self) -> int:
        """Places of the picture."""
        return self.num_class_tokens + self.grid[0] * self.grid[1]

    @property
    def num_words(self) -> int:
        """How many tokens a question and an answer have together."""
        return self.max_target_tokens - self.num_positions


class Git(CausalTransformer):
    """Places of the picture attend to each other. Each word attends to them, and to the words before it.

    So no place of the picture depends on the words. In each layer its keys and values are those of the picture alone:
    the encoder's graph computes them, and they are the beginning of the cache. Words are counted from 0 behind them.
    """

    max_candidates = 16
    mixes = False
    # ScoreService takes no question.
    scores = False
    explains_target = True

    def __init__(self, config: GitConfig) -> None:
        heads, width = config.num_decoder_heads, config.d_model
        super().__init__(
            config.num_decoder_layers,
            width,
            heads,
            heads,
            config.d_decoder_ff,
            config.dropout,
            config.style,
            max_tokens=config.max_target_tokens,
        )
        self.config = config
        self.num_positions = config.num_positions
        self.patches = PatchEmbedding(config.channels, config.patch_size, config.d_encoder)
        if config.class_token:
            self.class_token = nn.Parameter(torch.zeros(1, 1, config.d_encoder))
        self.positions = nn.Parameter(torch.randn(config.num_positions, config.d_encoder) * 0.02)
        if config.first_norm:
            self.first_norm = nn.LayerNorm(config.d_encoder, config.encoder_style.norm_eps)
        encoder_sizes = (config.d_encoder, config.num_encoder_heads, config.d_encoder_ff, config.dropout)
        self.encoder = Encoder(config.num_encoder_layers, *encoder_sizes, config.encoder_style)
        self.projection = nn.Linear(config.d_encoder, width)
        self.projection_norm = nn.LayerNorm(width, config.encoder_style.norm_eps)
        self.embeddings = Embeddings(config.target_vocab_size, config.max_target_tokens, width, config.embeddings)
        self.states = tuple(replace(state, encoded=True) for state in self.states)

    def embed(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """See CausalTransformer. past_lengths count the picture's places."""
        places = None if past_lengths is None else past_lengths - self.num_positions
        embedded: Tensor = self.embeddings(ids, places)
        return embedded

    def logits(self, x: Tensor) -> Tensor:
        """See CausalTransformer."""
        return self.embeddings.logits(x)

    def encode_states(self, *source: Tensor) -> tuple[Tensor, ...]:
        """Return each layer's keys and values of the picture, [batch, h, places, head_dim]."""
        (pixel_values,) = source
        x = self._see(pixel_values)
        kept = []
        for layer in self.layers[:-1]:
            x, state = layer.fill(x)
            kept.append(state)
        # Nothing reads what the last layer would make of the picture.
        return flat([*kept, self.layers[-1].keep(x)])

    def forward(self, pixel_values: Tensor, target_ids: Tensor) -> Tensor:  # type: ignore[override] # it has a picture
        """Return logits [batch, target, vocab], as Captioner does."""
        return self.decode(target_ids, pixel_values)

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] of the whole target, teacher-forced."""
        return self.read(target_ids, self.cross_attention_cache(*source))

    def cross_attention_cache(self, *source: Tensor) -> list[KeyValue]:
        """Return what stands before the words in each layer, as words attend to it: [batch, h, places, head_dim]."""
        states = pairs(self.encode_states(*source))
        roundings = [layer.attention.rounding for layer in self.layers]
        return [kept if each is None else each.widened(*kept) for kept, each in zip(states, roundings, strict=True)]

    def read(self, target_ids: Tensor, pictures: Sequence[KeyValue]) -> Tensor:
        """Return logits [batch, target, vocab] of the whole target behind what `remember` has given."""
        x, mask = self.dropout(self.embed(target_ids)), self._mask(target_ids.shape[1])
        for layer, picture in zip(self.layers, pictures, strict=True):
            x = layer(x, mask, None, before=picture)
        return self.logits(self.norm(x))

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return what each of target_ids [1, target] attends to among the patches, [target, patches], and among itself.

        source_mass is what lay on them, and not on class tokens or words. Of a row all three are parts of one softmax.
        """
        # One pass over both: ONNX Runtime opens no graph in which two integer products read the same weights.
        x = torch.cat((self._see(*source), self.embed(target_ids)), dim=1)
        mask = self._mask(target_ids.shape[1], of_picture=True)
        layers = []
        for block in self.layers:
            layers.append(block.weights(x, mask, None)[:, :, self.num_positions :])
            x = block(x, mask, None)
        weights = pick(layers, layer, head)
        told = over_source(weights[:, self.config.num_class_tokens : self.num_positions])
        return (*told, weights[:, self.num_positions :]) if self.explains_target else told

    def _see(self, pixel_values: Tensor) -> Tensor:
        """Return the places of a picture in the width of the words, [batch, places, d_model]."""
        x = self.patches(pixel_values)
        if self.config.class_token:
            x = torch.cat((self.class_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = x + self.positions
        seen = self.encoder(self.first_norm(x) if self.config.first_norm else x, None)
        projected: Tensor = self.projection_norm(self.projection(seen))
        return projected

    def _mask(self, seq: int, *, of_picture: bool = False) -> Tensor:
        """Return bool [1, 1, seq, places + seq]: a word sees the picture, the words before it, and itself.

        of_picture asks for the rows of the picture too, before those of the words. Each of its places sees all others.
        """
        places = torch.arange(self.num_positions + seq)
        rows = places if of_picture else places[self.num_positions :]
        return (places <= rows[:, None].clamp(min=self.num_positions - 1))[None, None]
