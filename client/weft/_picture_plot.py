"""Heat over pictures: a panel for each token, and what several grids of one picture tell together."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from weft._types import Alignment, PictureColumns

# Inches: the widest picture of panels, and the side of a square panel.
WIDTH = 9.0
PANEL = 1.7
# The width of most characters of a title.
CHARACTER = 0.09
# Of a chat's answer so many tokens are drawn over each picture. An answer may have thousands.
MAX_PANELS = 60
# Cells down and across, where what several grids tell is put together.
MAX_CELLS = 64

Cells = Sequence[Sequence[float]]
Region = tuple[float, float, float, float]


class Heat(NamedTuple):
    """What lay on one picture: for each label cells, down and across, of which all are alike where each has `even`.

    region is where the cells lie on the picture.
    """

    labels: Sequence[str]
    cells: Sequence[Cells]
    region: Region
    even: float
    # Of each label, the share of its row that lay on the picture. None are told where it is all.
    shares: Sequence[float] = ()

    def title(self, index: int, width: float) -> str:
        """Return a label, with its share if there are any, that fits over so many inches."""
        label = self.labels[index]
        if not self.shares:
            return label
        share = f" {self.shares[index]:.0%}"
        room = max(1, int(width / CHARACTER) - len(share))
        return (label if len(label) <= room else label[: room - 1] + "\u2026") + share


def heat_of_image(alignment: Alignment, labels: Sequence[str]) -> Heat:
    """Return the heat of an alignment whose source is a picture."""
    cells = [alignment.grid(index) for index in range(len(labels))]
    return Heat(labels, cells, alignment.region, 1 / (alignment.grid_rows * alignment.grid_columns))


def heat_of_part(alignment: Alignment, picture: int, labels: Sequence[str]) -> Heat:
    """Return the heat of a picture of a prompt, with the share of each row that lay on it."""
    grids = [each for each in alignment.pictures if each.picture == picture]
    found = [[alignment.over(index, grid) for grid in grids] for index in range(len(labels))]
    shares = [sum(map(sum, (row for cells in each for row in cells))) for each in found]
    # That of all columns of the prompt.
    even = sum(each.grid_rows * each.grid_columns for each in grids) / len(alignment.source_tokens)
    if len(grids) == 1:
        (grid,) = grids
        cells = [each[0] for each in found]
        return Heat(labels, cells, grid.region, even / (grid.grid_rows * grid.grid_columns), shares)
    size = _cells_of(grids)
    spread = [_Spread(grid, size) for grid in grids]
    joined = [_joined(zip(spread, each, strict=True), size) for each in found]
    return Heat(labels, joined, (0.0, 0.0, 1.0, 1.0), even / (size[0] * size[1]), shares)


def _cells_of(grids: Iterable[PictureColumns]) -> tuple[int, int]:
    """Return how many cells a picture gets, down and across: as fine as its finest grid."""
    down, across = 1.0, 1.0
    for each in grids:
        left, top, right, bottom = each.region
        down, across = max(down, each.grid_rows / (bottom - top)), max(across, each.grid_columns / (right - left))
    return min(MAX_CELLS, round(down)), min(MAX_CELLS, round(across))


class _Spread:
    """Which shares of a grid's rows and columns lie in which cells. What lies beside the picture is in none."""

    def __init__(self, grid: PictureColumns, size: tuple[int, int]) -> None:
        left, top, right, bottom = grid.region
        self.down = _overlaps(top, bottom, grid.grid_rows, size[0])
        self.across = _overlaps(left, right, grid.grid_columns, size[1])


def _overlaps(first: float, last: float, count: int, cells: int) -> list[list[tuple[int, float]]]:
    """Return for each of `count` equal parts of [first, last] the cells of [0, 1] that it lies in, and its shares."""
    step, found = (last - first) / count, []
    for index in range(count):
        low, high = (first + index * step) * cells, (first + (index + 1) * step) * cells
        parts = range(max(0, math.floor(low)), min(cells, math.ceil(high)))
        found.append([(part, (min(high, part + 1) - max(low, part)) / (high - low)) for part in parts])
    return found


def _joined(given: Iterable[tuple[_Spread, Cells]], size: tuple[int, int]) -> list[list[float]]:
    """Return cells whose weight is the sum of what lies in them."""
    cells = [[0.0] * size[1] for _ in range(size[0])]
    for spread, rows in given:
        for row, down in zip(rows, spread.down, strict=True):
            for weight, across in zip(row, spread.across, strict=True):
                for at, high in down:
                    for place, wide in across:
                        cells[at][place] += weight * high * wide
    return cells


def panels_size(heat: Heat, picture: Any | None) -> tuple[int, int, float, float]:
    """Return rows and columns of panels, and the width and height that they take, in inches."""
    across, down = _panel_of(heat, picture)
    count = len(heat.labels) + (picture is not None)
    columns = min(count, int(WIDTH / across))
    rows = math.ceil(count / columns)
    return rows, columns, max(4.0, columns * across + 0.2), rows * (down + 0.3) + 1.2


def _panel_of(heat: Heat, picture: Any | None) -> tuple[float, float]:
    """Return the width and height of a panel, in inches."""
    width, height = _size_of(heat, picture)
    aspect = min(3.0, max(1 / 3, height / width))
    return PANEL / math.sqrt(aspect), PANEL * math.sqrt(aspect)


def draw_panels(figure: Any, heat: Heat, picture: Any | None, name: str = "picture") -> tuple[Any, list[Any]]:
    """Draw the picture, then for each label its cells, over the picture in grey. Returns what a scale is drawn of.

    Colour begins above an even share: a model that looked everywhere alike leaves the picture as it is.
    """
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415 - only who draws loads it
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - same

    width, height = _size_of(heat, picture)
    whole = (0, width, height, 0)
    left, top, right, bottom = heat.region if picture is not None else (0.0, 0.0, 1.0, 1.0)
    seen = (left * width, right * width, bottom * height, top * height)
    rows, columns, *_ = panels_size(heat, picture)
    panels = [figure.add_subplot(rows, columns, at + 1) for at in range(len(heat.labels) + (picture is not None))]
    for ax in panels:
        ax.set(xticks=[], yticks=[])
    if picture is not None:
        panels[0].imshow(picture, extent=whole)
        panels[0].set_title(name, fontsize="medium", style="italic")

    # A map that is nearly flat shall look so.
    most = max(2 * heat.even, *(max(map(max, cells)) for cells in heat.cells))
    begin = heat.even / most
    colours = [(0.0, "#ffdd0000"), (begin, "#ffdd0000"), ((1 + begin) / 2, "#ff7700aa"), (1.0, "#cc0000dd")]
    colormap = LinearSegmentedColormap.from_list("heat", colours)

    across, _ = _panel_of(heat, picture)
    for index, (ax, cells) in enumerate(zip(panels[-len(heat.labels) :], heat.cells, strict=True)):
        ax.set_title(heat.title(index, across), fontsize="medium", parse_math=False)
        if picture is not None:
            ax.imshow(picture.convert("L"), cmap="gray", vmin=0, vmax=255, extent=whole)
        shown = ax.imshow(cells, cmap=colormap, vmin=0.0, vmax=most, extent=seen)
        ax.set(xlim=whole[:2], ylim=whole[2:])
        if seen != whole:
            ax.add_patch(Rectangle(seen[::3], seen[1] - seen[0], seen[2] - seen[3], fill=False, linestyle=":"))
    return shown, panels


def _size_of(heat: Heat, picture: Any | None) -> tuple[int, int]:
    """Return width and height of a picture, or of cells without one."""
    if picture is not None:
        width, height = picture.size
        return width, height
    return len(heat.cells[0][0]), len(heat.cells[0])
