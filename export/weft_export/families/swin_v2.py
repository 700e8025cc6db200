"""Swin Transformer V2 for image classification: norms behind sublayers, and cosines for scores (Liu et al. 2022)."""

from torch import Tensor, nn

from weft_export.families.swin import PatchMerging, Swin, SwinLayer
from weft_export.layers.windows import Grid, pick_windows


class SwinV2Layer(SwinLayer):
    """z + LN((S)W-MSA(z)), then z + LN(MLP(z)) ("res-post-norm", section 3.2), with scaled cosine attention."""

    cosine = True

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, width] to the same shape."""
        x = x + self.attention_norm(self.attention(x))
        out: Tensor = x + self.feed_forward_norm(self.feed_forward(x))
        return out

    def weights(self, x: Tensor) -> Tensor:
        """Return the attention weights [batch, windows, h, w, w] that forward uses."""
        return self.attention.weights(x)


class SwinV2Merging(PatchMerging):
    """Concatenate each 2 x 2 neighbours, project them to 2 C, and only then norm them."""

    def __init__(self, grid: Grid, width: int) -> None:
        super().__init__(grid, width)
        self.norm = nn.LayerNorm(2 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, positions, C] to [batch, positions / 4, 2 C]."""
        out: Tensor = self.norm(self.reduction(pick_windows(x, self.positions).flatten(2)))
        return out


class SwinV2(Swin):
    """Swin with the layers and the merging of its second version; the sizes are those of SwinConfig.

    The bias for each offset stands in a table. The paper computes it of the offset's logarithm by a small network.
    For one size of windows both are the same (section 3.3).
    """

    layer = SwinV2Layer
    merging = SwinV2Merging
