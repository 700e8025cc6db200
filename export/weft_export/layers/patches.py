"""Images as sequences of patches ("An Image is Worth 16x16 Words", Dosovitskiy et al. 2021)."""

from torch import Tensor, nn


class PatchEmbedding(nn.Module):
    """Cut an image into P x P patches and project each one linearly: x_p E of the paper, eq. 1."""

    def __init__(self, channels: int, patch_size: int, d_model: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(channels * patch_size**2, d_model)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Map pixel_values [batch, channels, height, width] to [batch, patches, d_model], patches in reading order."""
        # A matrix product over reshaped pixels is the usual strided convolution, and gives the same bits in any batch.
        batch, channels, height, width = pixel_values.shape
        side = self.patch_size
        grid = pixel_values.reshape(batch, channels, height // side, side, width // side, side)
        patches = grid.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * side * side)
        out: Tensor = self.projection(patches.to(self.projection.weight.dtype))
        return out
