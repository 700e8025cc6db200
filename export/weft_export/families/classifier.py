"""What a family of models that classify, or tag tokens, gives the exporter."""

from typing import Any

from torch import Tensor, nn

from weft_export.layers.explaining import Explanation


class Classifier(nn.Module):
    """A model that puts a source, or each of its tokens, into labels; `source` as in Writer."""

    config: Any
    attention_heads: tuple[int, ...] = ()
    """Heads of each layer that can explain, in order; empty when nothing attends."""
    summarises: bool = True
    """Whether explain has a summary of all layers; without one, the checkpoint names the layer that explains."""

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, labels]; for a tagger [batch, seq, labels]."""
        raise NotImplementedError

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return what a batch of one attended to; layer and head are int64 [1], -1 for the summary and the average.

        One row, over the tokens or the grid; for a tagger a row for each token.
        """
        raise NotImplementedError
