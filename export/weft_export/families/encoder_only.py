"""An encoder-only Transformer, whose every choice is a word of its config: DistilBERT, ALBERT, MPNet, ModernBERT.

`bert` is one of its kind, as its paper has it. This one is what checkpoints of others become: a classifier of texts, or
a tagger of their tokens. `text_embedder` gives its body another end.
"""

from dataclasses import dataclass, field

from torch import Tensor, nn

from weft_export.families.classifier import SCORINGS, SOFTMAX, Classifier
from weft_export.families.sizes import require_among, require_divisible, require_each_layer, require_sizes
from weft_export.layers.disentangled import Disentangled, DisentangledAttention
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.encoder import Encoder
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.pooling import FIRST, MEAN, mean_of_real
from weft_export.layers.positions import Rope
from weft_export.layers.reach import ALL, Reach
from weft_export.layers.score_bias import RelativeBias
from weft_export.layers.style import Style


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Sizes and choices of the body. Lengths are in tokens, with those that a tokenizer adds.

    d_embedding: the width of words, which a matrix then brings to d_model. None: d_model, and no matrix.
    one_layer: all layers have the same weights.
    num_buckets, max_distance: of T5's relative bias. No buckets: none.
    disentangled: DeBERTa's attention. None: the usual one.
    rotations, rotation_of, windows: as in DecoderOnlyConfig, but that a window is what a place sees on either side.
    first_norm: the first layer has a norm before its attention.
    causal: no token sees those behind it, as in CLIP's texts. It goes with neither rotations nor buckets.
    """

    vocab_size: int
    max_tokens: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    style: Style = field(default_factory=Style)
    embeddings: EmbeddingStyle = field(default_factory=EmbeddingStyle)
    d_embedding: int | None = None
    one_layer: bool = False
    num_buckets: int | None = None
    max_distance: int = 128
    disentangled: Disentangled | None = None
    rotations: tuple[Rope, ...] = ()
    rotation_of: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    first_norm: bool = True
    causal: bool = False
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        if self.num_buckets is not None:
            require_divisible("num_buckets", self.num_buckets, "2 (behind and ahead) * 2 (exact and wide)", 4)
            if self.max_distance <= self.num_buckets // 2:
                raise ValueError("max_distance must be above num_buckets / 2, which have a distance each")
        require_each_layer("windows", self.windows, self.num_layers, ALL, self.max_tokens)
        require_each_layer("rotation_of", self.rotation_of, self.num_layers, 0, len(self.rotations) - 1)
        if bool(self.rotations) != bool(self.rotation_of) or bool(self.windows) != bool(self.rotation_of):
            raise ValueError("rotations, rotation_of and windows belong together")
        if self.causal and (self.rotations or self.num_buckets is not None or self.disentangled is not None):
            raise ValueError("causal goes with neither rotations nor buckets nor disentangled")


@dataclass(frozen=True, kw_only=True)
class EncoderOnlyConfig(EncoderConfig):
    """A body and a head.

    pooling: a text is read from its FIRST token, or from the MEAN of all.
    head_activation: what follows the linear layer before the last one. None: there is no such layer.
    head_bias, head_norm: that layer has a bias, and a norm behind its activation.
    scoring: of SCORINGS.
    """

    num_labels: int
    pooling: str = FIRST
    head_activation: str | None = "tanh"
    head_bias: bool = True
    head_norm: bool = False
    scoring: str = SOFTMAX

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("pooling", self.pooling, (FIRST, MEAN))
        require_among("scoring", self.scoring, SCORINGS)
        require_among("head_activation", self.head_activation or "tanh", tuple(ACTIVATIONS))


class Body(nn.Module):
    """Words, perhaps widened, and an encoder over them."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.d_embedding or config.d_model
        # A batch is padded to a multiple of 8, which may lie beyond max_tokens.
        longest = -(-config.max_tokens // 8) * 8
        self.embeddings = Embeddings(config.vocab_size, config.max_tokens, width, config.embeddings)
        self.widening = None if config.d_embedding is None else nn.Linear(width, config.d_model)
        bias = reach = None
        if config.num_buckets is not None:
            buckets = (config.num_buckets, config.max_distance)
            bias = RelativeBias(config.num_heads, longest, *buckets, bidirectional=True)
        if config.rotations:
            reach = Reach(longest, config.windows, config.rotations, config.rotation_of)
        sizes = (config.d_model, config.num_heads, config.d_ff, config.dropout, config.style)
        self.encoder = Encoder(
            config.num_layers,
            *sizes,
            bias,
            reach=reach,
            one_layer=config.one_layer,
            first_norm=config.first_norm,
            causal=config.causal,
        )
        if config.disentangled is not None:
            for layer in self.encoder.layers:
                layer.attention = DisentangledAttention(config.d_model, config.num_heads, longest, config.disentangled)

    def forward(self, input_ids: Tensor, lengths: Tensor | None, num_read: int | None = None) -> Tensor:
        """Encode input_ids int64 [batch, seq], right-padded to lengths [batch] or full: [batch, seq, d_model].

        With num_read, only the first num_read positions.
        """
        encoded: Tensor = self.encoder(self.embed(input_ids), lengths, num_read)
        return encoded

    def embed(self, input_ids: Tensor) -> Tensor:
        """Return what the first layer is given."""
        embedded: Tensor = self.embeddings(input_ids)
        return embedded if self.widening is None else self.widening(embedded)


class Head(nn.Module):
    """f(x W + b), normed or not, and one linear layer to the labels."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        has_dense = config.head_activation is not None
        self.activation = ACTIVATIONS[config.head_activation or "tanh"]
        self.dense = nn.Linear(config.d_model, config.d_model, bias=config.head_bias) if has_dense else None
        self.norm = config.style.plain_norm(config.d_model) if config.head_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.labels = nn.Linear(config.d_model, config.num_labels)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., d_model] to logits [..., labels]."""
        if self.dense is not None:
            x = self.norm(self.activation(self.dense(x)))
        logits: Tensor = self.labels(self.dropout(x))
        return logits


class EncoderOnly(Classifier):
    """Puts a text into one of the labels."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.config = config
        self.body = Body(config)
        self.head = Head(config)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, labels] for input_ids int64 [batch, seq], right-padded, and lengths [batch]."""
        input_ids, lengths = source
        if self.config.pooling == FIRST:
            pooled = self.body(input_ids, lengths, num_read=1)[:, 0]
        else:
            pooled = mean_of_real(self.body(input_ids, lengths), lengths)
        logits: Tensor = self.head(pooled)
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the row that is read, over the tokens of source[0], input_ids [1, seq]."""
        flow = pick_flow(self.body.encoder.attentions(self.body.embed(source[0])), layer, head)
        return over_source(flow[:1] if self.config.pooling == FIRST else flow.mean(dim=0, keepdim=True))


class EncoderOnlyTagger(Classifier):
    """Puts each token of a text into one of the labels; or says of each whether an answer starts or ends there."""

    def __init__(self, config: EncoderOnlyConfig) -> None:
        super().__init__()
        self.config = config
        self.body = Body(config)
        self.head = Head(config)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, seq, labels] for input_ids int64 [batch, seq], right-padded, and lengths [batch]."""
        logits: Tensor = self.head(self.body(*source))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return a row for each token, over all of input_ids [1, seq]."""
        return over_source(pick_flow(self.body.encoder.attentions(self.body.embed(source[0])), layer, head))
