"""Pictures of alignments, with matplotlib (the extra `plot`)."""

import math
import textwrap
from importlib.util import find_spec
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

from weft._types import Alignment, Picture
from weft.exceptions import Error, InvalidRequest

CELL = 0.32  # inches of a token's row or column
PANEL_COLUMNS = 5


def require_matplotlib() -> None:
    """Raise an Error that says what to install when matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise Error("drawing needs matplotlib: pip install 'weft[plot]'")


def plot_alignment(
    alignment: Alignment,
    path_or_ax: str | PathLike[str] | Any | None = None,
    *,
    title: str | None = None,
    image: Picture | None = None,
) -> Any:
    """Draw an alignment: produced against source tokens, or for an image its patch grid once per produced token.

    Args:
        alignment: What `explain=True` brought.
        path_or_ax: Where to write the picture, its format by the suffix; or the matplotlib Axes to draw a text's
            alignment into; None for neither, as in a notebook.
        title: Stands above the picture.
        image: The picture that was described; its patches are drawn over it.

    Returns:
        The matplotlib Figure.

    Raises:
        Error: matplotlib is missing.
        InvalidRequest: The path can't be written, or the image can't be read.
    """
    require_matplotlib()
    from matplotlib.axes import Axes  # noqa: PLC0415 - only who draws loads it
    from matplotlib.figure import Figure  # noqa: PLC0415 - same

    if isinstance(path_or_ax, Axes):
        if alignment.grid_rows:
            raise InvalidRequest("an image's alignment needs a figure of its own: give a path, or nothing")
        _draw_matrix(path_or_ax, alignment)
        path_or_ax.set_title(title or "")
        return path_or_ax.figure
    figure = Figure(layout="constrained")
    if alignment.grid_rows:
        _draw_panels(figure, alignment, None if image is None else _pixels(image))
    else:
        width, height = (max(2.0, CELL * len(t)) for t in (alignment.source_tokens, alignment.target_tokens))
        figure.set_size_inches(width + 2.3, height + 1.2)
        _draw_matrix(figure.add_subplot(), alignment)
    if title:
        figure.suptitle(textwrap.fill(title, round(9 * figure.get_figwidth())), parse_math=False)
    if path_or_ax is not None:
        _save(figure, path_or_ax)
    return figure


def _draw_matrix(ax: Any, alignment: Alignment) -> None:
    heat = ax.imshow(alignment.weights, cmap="Blues", vmin=0.0, aspect="auto")
    ax.figure.colorbar(heat, ax=ax, label="weight")
    ax.set_xticks(
        range(len(alignment.source_tokens)), map(_label, alignment.source_tokens), rotation=90, parse_math=False
    )
    ax.set_yticks(range(len(alignment.target_tokens)), map(_label, alignment.target_tokens), parse_math=False)
    ax.set_xlabel("source")
    ax.set_ylabel("target")


def _draw_panels(figure: Any, alignment: Alignment, pixels: Any | None) -> None:
    """Draw one panel per produced token: the grid in colour, or the image with what was not looked at in the dark."""
    rows, columns = alignment.grid_rows, alignment.grid_columns
    across = min(PANEL_COLUMNS, len(alignment.target_tokens))
    down = math.ceil(len(alignment.target_tokens) / across)
    figure.set_size_inches(1.8 * across, 1.8 * down * max(0.5, rows / columns) + 0.25 * down + 0.4)
    brightest = max(map(max, alignment.weights)) or 1.0
    for index, token in enumerate(alignment.target_tokens):
        ax = figure.add_subplot(down, across, index + 1)
        ax.set_title(_label(token), fontsize="medium", parse_math=False)
        ax.set_axis_off()
        grid = alignment.grid(index)
        extent = (0, columns, rows, 0)
        if pixels is None:
            ax.imshow(grid, cmap="Blues", vmin=0.0, vmax=brightest, extent=extent)
        else:
            ax.imshow(pixels, extent=extent)
            shade = [[0.7 * (1.0 - weight / brightest) for weight in row] for row in grid]
            ax.imshow([[0.0] * columns] * rows, cmap="gray", vmin=0.0, vmax=1.0, alpha=shade, extent=extent)


def _label(token: str) -> str:
    """Show a token's text so that white space can be seen."""
    return token.strip() or token.replace("\n", "\u21b5").replace("\t", "\u21e5").replace(" ", "\u2423") or "\u2205"


def _pixels(image: Picture) -> Any:
    from matplotlib.image import imread  # noqa: PLC0415 - only who draws loads it

    try:
        data = bytes(image) if isinstance(image, bytes | bytearray | memoryview) else Path(image).read_bytes()
        return imread(BytesIO(data), format="png" if data.startswith(b"\x89PNG") else "any")
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidRequest(f"image: {error}", reason="BAD_IMAGE") from None


def _save(figure: Any, path: str | PathLike[str]) -> None:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot write {path}: {error}") from None
