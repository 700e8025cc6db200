"""Convolutions over pictures. In ONNX Runtime a row's bits do not depend on its batch."""

from collections.abc import Sequence

from torch import Tensor, nn


class ConvolutionBlock(nn.Module):
    """ReLU(BatchNorm(x * W)); in a bundle the norm is part of the kernel's weights."""

    def __init__(self, channels: int, out_channels: int, stride: int, kernel: int = 3) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, out_channels, kernel, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, height, width] to [batch, out_channels, height / stride, width / stride]."""
        out: Tensor = self.norm(self.convolution(x)).relu()
        return out


class ConvolutionStack(nn.Module):
    """Blocks that each halve height and width, and one more that does not.

    The blocks that halve have 4 x 4 kernels. With an odd kernel a position would see more of what is above it and to
    its left than of the other sides. Then a map of attention would be off by half a cell.
    """

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        steps = zip((channels, *widths), widths, strict=False)
        self.blocks = nn.Sequential(
            *(ConvolutionBlock(before, after, stride=2, kernel=4) for before, after in steps),
            ConvolutionBlock(widths[-1], widths[-1], stride=1),
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Map pixel_values [batch, channels, height, width] to the grid's vectors [batch, rows * columns, width]."""
        grid: Tensor = self.blocks(pixel_values)
        return grid.flatten(2).transpose(1, 2)
