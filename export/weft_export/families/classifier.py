"""What a family of models that classify, tag tokens or embed gives the exporter."""

from typing import Any

from torch import Tensor, nn

from weft_export.layers.explaining import Explanation

SOFTMAX, SIGMOID, IDENTITY = SCORINGS = "softmax", "sigmoid", "identity"


class Classifier(nn.Module):
    """A model that puts a source, or each of its tokens, into labels, or makes a vector of it; `source` as in Writer.

    The config of one that embeds has `dimensions`, `pooling` and `normalized`.
    """

    config: Any
    attention_heads: tuple[int, ...] = ()
    """How many heads each layer that can explain has, in order. Empty when nothing attends."""
    summarises: bool = True
    """Whether explain has a summary of all layers. Without one, the checkpoint names the layer that explains."""

    @property
    def scoring(self) -> str:
        """What makes scores of logits: SOFTMAX over the labels, or of each by itself the SIGMOID or the IDENTITY."""
        scoring: str = getattr(self.config, "scoring", SOFTMAX)
        return scoring

    @property
    def towers(self) -> "dict[str, Classifier]":
        """Of a model that matches, what embeds one kind of input, by its family: first pictures, then texts."""
        return {}

    @property
    def scale(self) -> float:
        """Of a model that matches, what cosines are multiplied by."""
        return 1.0

    @property
    def bias(self) -> float:
        """Of a model that matches, what is then added to them."""
        return 0.0

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, labels]; for a tagger [batch, seq, labels]; else vectors [batch, dimensions]."""
        raise NotImplementedError

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return what a batch of one attended to. layer and head are int64 [1].

        Layer -1 is the summary of all layers, and head -1 is the average over heads. There is one row, over the tokens
        or the grid. For a tagger there is a row for each token.
        """
        raise NotImplementedError
