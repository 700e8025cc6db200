"""A masked language model: which tokens fit in the places of a text's masks (BERT, Devlin et al. 2019, section 3.1)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.families.classifier import IDENTITY, Classifier
from weft_export.families.encoder_only import Body, EncoderConfig
from weft_export.families.sizes import require_among
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.feed_forward import ACTIVATIONS


@dataclass(frozen=True, kw_only=True)
class MaskedLmConfig(EncoderConfig):
    """A body, and what makes logits of a place.

    embeddings: says too whether the logits are of the tokens' table, and whether they have a bias.
    head_activation: what follows the linear layer before the logits.
    head_bias: that layer has a bias.
    """

    head_activation: str = "gelu"
    head_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("head_activation", self.head_activation, tuple(ACTIVATIONS))


class MaskedLm(Classifier):
    """E N(f(x W + b)) + c for some places x of an encoded text, E being the tokens' table or a matrix of its own."""

    scoring = IDENTITY

    def __init__(self, config: MaskedLmConfig) -> None:
        super().__init__()
        self.config = config
        self.body = Body(config)
        # Where words are narrower than the layers, this brings their width back.
        width = config.d_embedding or config.d_model
        self.dense = nn.Linear(config.d_model, width, bias=config.head_bias)
        self.activation = ACTIVATIONS[config.head_activation]
        self.norm = config.style.plain_norm(width)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, masks, vocab].

        source: input_ids int64 [batch, seq], right-padded, lengths [batch], and mask_positions int64 [batch, masks].
        """
        input_ids, lengths, mask_positions = source
        encoded = self.body(input_ids, lengths)
        # Of the others there are no logits: they would take more than all layers together.
        index = mask_positions[..., None].expand(-1, -1, encoded.shape[-1])
        x = torch.gather(encoded, 1, index)
        logits: Tensor = self.body.embeddings.logits(self.norm(self.activation(self.dense(x))))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return a row for each of source[2], mask_positions [1, masks], over the tokens of source[0], [1, seq]."""
        flow = pick_flow(self.body.encoder.attentions(self.body.embed(source[0])), layer, head)
        return over_source(flow[source[2][0]])
