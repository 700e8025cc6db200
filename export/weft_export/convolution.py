"""Convolutions over pictures; in ONNX Runtime a row's bits do not depend on its batch."""

from collections.abc import Sequence

from torch import Tensor, nn


class ConvolutionBlock(nn.Module):
    """ReLU(BatchNorm(x * W)) with a 3 x 3 kernel; in a bundle the norm is part of the kernel's weights."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, height, width] to [batch, out_channels, height / stride, width / stride]."""
        out: Tensor = self.norm(self.convolution(x)).relu()
        return out


class ConvolutionStack(nn.Module):
    """Blocks that each halve height and width, and one more that does not."""

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        steps = zip((channels, *widths), widths, strict=False)
        self.blocks = nn.Sequential(
            *(ConvolutionBlock(before, after, stride=2) for before, after in steps),
            ConvolutionBlock(widths[-1], widths[-1], stride=1),
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Map pixel_values [batch, channels, height, width] to the grid's vectors [batch, rows * columns, width]."""
        grid: Tensor = self.blocks(pixel_values)
        return grid.flatten(2).transpose(1, 2)
