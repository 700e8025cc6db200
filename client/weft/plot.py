"""Pictures of alignments, with matplotlib (the extra `plot`)."""

import math
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

from weft._picture_plot import MAX_PANELS, WIDTH, draw_panels, heat_of_image, heat_of_part, panels_size
from weft._sound_plot import draw_sound, read_sound
from weft._types import Alignment, PictureFile, Recording
from weft.exceptions import Error, InvalidRequest

DPI = 120
# Characters of a token that are shown.
LABEL = 16
# Pixels of a picture's longer side. A panel shows fewer.
PIXELS = 512
# The most labels on an axis.
MAX_TICKS = 120

# All of these are inches.
# The width of a character of the fixed-width font at 10 points, and the way from line to line.
CHARACTER = 0.084
LINE = 0.27
# From one token's label to the next.
TICK = 0.2


def require_matplotlib(extra: str = "plot") -> None:
    """Raise an Error that names the extra to install when matplotlib is missing."""
    if find_spec("matplotlib") is None:
        remedy = f"pip install 'weft-serving[{extra}]', or in a clone: pip install '.[{extra}]'"
        raise Error(f"drawing needs matplotlib: {remedy}")


def plot_alignment(
    alignment: Alignment,
    path_or_ax: str | PathLike[str] | Any | None = None,
    *,
    title: str | None = None,
    image: PictureFile | None = None,
    images: Sequence[PictureFile] = (),
    recording: Recording | None = None,
) -> Any:
    """Draw an alignment, one of five ways.

    Over an image: its grid once for each target token, at the picture's aspect and wrapped into rows. Grid cells stay
    the blocks they are: the model gave one number for each, and smoothing would show edges that it never saw. A dotted
    line is around what the model saw, if it cut that out of the picture. A matrix below it has the tokens of a
    question, if the alignment has.
    Over the pictures of a chat: the same for each picture, the first MAX_PANELS tokens, and behind each token the share
    of its row that lay on this picture. A matrix below has the words of the prompt.
    Over a text: a matrix, target tokens down, source tokens across; for a single target, the text itself in the colours
    of its weights.
    Over a recording: a matrix too, words down and seconds across, under the spectrogram of a WAV of 16 bits.
    Where not all attention lay on the source, the shares that did stand beside the rows.

    Args:
        alignment: What `explain=True` brought.
        path_or_ax: Where to write the picture, its format by the suffix; or the matplotlib Axes to draw a text's
            matrix into; None for neither, as in a notebook.
        title: Stands above the picture, and under it which attention it shows.
        image: The picture that was asked about; the heat is drawn over it.
        images: The pictures of a chat, in their order: all of them, or none.
        recording: The recording that was asked about; its spectrogram is drawn above.

    Returns:
        The matplotlib Figure.

    Raises:
        Error: matplotlib is missing.
        InvalidRequest: The path can't be written, or the image can't be read.
    """
    if not alignment.weights:
        raise InvalidRequest("alignment: has no rows to draw")
    require_matplotlib()
    from matplotlib.axes import Axes  # noqa: PLC0415 - only who draws loads it
    from matplotlib.figure import Figure  # noqa: PLC0415 - same

    if isinstance(path_or_ax, Axes):
        if alignment.grid_rows or alignment.pictures:
            raise InvalidRequest("an image's alignment needs a figure of its own: give a path, or nothing")
        _draw_matrix(path_or_ax, alignment)
        titles = [title, _reading(alignment)] if title else [_reading(alignment)]
        path_or_ax.set_title(_printable("\n".join(titles)), parse_math=False)
        return path_or_ax.figure

    figure = Figure(layout="constrained")
    if alignment.grid_rows:
        _draw_image(figure, alignment, None if image is None else _read(image))
    elif alignment.pictures:
        _draw_chat(figure, alignment, _pictures(alignment, images))
    elif alignment.num_columns:
        labels = _labels(alignment.target_tokens)
        ax, heat = draw_sound(figure, alignment, labels, None if recording is None else read_sound(recording))
        _draw_scale(figure, heat, ax)
    elif len(alignment.target_tokens) == 1:
        _draw_text(figure, alignment)
    else:
        _draw_matrix(figure.add_subplot(), alignment, resize=True)

    reading = textwrap.fill(_reading(alignment), round(12 * figure.get_figwidth()))
    figure.supxlabel(reading, fontsize="small", color="dimgray", parse_math=False)
    if title:
        figure.suptitle(
            "\n".join(textwrap.wrap(_printable(title), round(9 * figure.get_figwidth()), max_lines=3)), parse_math=False
        )
    if path_or_ax is not None:
        save(figure, path_or_ax)
    return figure


def _reading(alignment: Alignment) -> str:
    """Say which attention it is, and for a single row how much of it there was."""
    if alignment.layer is None:
        which = "attention rollout over all layers"
    elif alignment.head is None:
        which = f"attention of layer {alignment.layer}, average over heads"
    else:
        which = f"attention of layer {alignment.layer}, head {alignment.head}"
    if len(alignment.source_mass) == 1 and _is_partial(alignment):
        which += f"; {alignment.source_mass[0]:.0%} of it lay on what is shown"
    if alignment.pictures and len(alignment.target_tokens) > MAX_PANELS:
        which += f"; over pictures, the first {MAX_PANELS} of {len(alignment.target_tokens)} tokens"
    return which


def _pictures(alignment: Alignment, images: Sequence[PictureFile]) -> list[Any | None]:
    """Return the pictures of a chat as the server sees them, or nothing for each."""
    count = 1 + max(each.picture for each in alignment.pictures)
    if images and len(images) != count:
        raise InvalidRequest(f"images: the chat has {count} pictures, and {len(images)} were given")
    return [_read(each) for each in images] if images else [None] * count


def _is_partial(alignment: Alignment) -> bool:
    return any(mass < 0.9995 for mass in alignment.source_mass)


def _draw_matrix(ax: Any, alignment: Alignment, *, resize: bool = False) -> None:
    """Draw the weights as a matrix; with `resize` its figure becomes as large as the labels need."""
    source = _columns(alignment)
    target = _labels(alignment.target_tokens)
    if resize:
        width, height = _matrix_size(source, target)
        ax.figure.set_size_inches(max(4.0, width), height)

    heat = ax.imshow(alignment.weights, cmap="Blues", vmin=0.0, aspect="auto")
    across = _ticks(len(source))
    down = _ticks(len(target))
    upright = max(map(len, source)) <= 2  # characters fit side by side
    labels = [source[i] for i in across]
    ax.set_xticks(across, labels, rotation=0 if upright else 90, fontsize="small", parse_math=False)
    ax.set_yticks(down, [target[i] for i in down], fontsize="small", parse_math=False)
    ax.set_xlabel("looks at")
    ax.set_ylabel("word" if alignment.num_columns else "token")

    if _is_partial(alignment):
        shares = ax.secondary_yaxis("right")
        shares.set_yticks(down, [f"{alignment.source_mass[i]:.0%}" for i in down], fontsize="small")
        shares.set_ylabel("share of its attention")
    _draw_scale(ax.figure, heat, ax)


def _matrix_size(source: Sequence[str], target: Sequence[str]) -> tuple[float, float]:
    """Return the width and the height that a matrix and its labels take, in inches."""
    beside = CHARACTER * max(map(len, target))
    below = CHARACTER * max(map(len, source))
    return _inches(len(source)) + beside + 1.3, _inches(len(target)) + below + 1.7


def _parted(figure: Any, sizes: Sequence[tuple[float, float]], words: Alignment, title: str) -> Sequence[Any]:
    """Draw the matrix of words below parts of a figure, which are returned, of so many inches each."""
    wide, high = _matrix_size(_columns(words), _labels(words.target_tokens))
    heights = [*(height for _, height in sizes), high]
    figure.set_size_inches(max(wide, *(width for width, _ in sizes)), sum(heights))
    parts = figure.subfigures(len(heights), 1, height_ratios=heights)
    above, below = list(parts[:-1]), parts[-1]
    ax = below.add_subplot()
    ax.set_title(title, fontsize="medium", style="italic")
    _draw_matrix(ax, words)
    return above


def _columns(alignment: Alignment) -> list[str]:
    """Return what stands under each column: a token, or the moment at which it begins."""
    if alignment.num_columns:
        return [f"{index * alignment.column_s:.2f} s" for index in range(alignment.num_columns)]
    return _labels(alignment.source_tokens)


def _inches(count: int) -> float:
    """Return the length of an axis of `count` tokens: room for each label, as far as a picture should grow."""
    each = max(TICK, min(2 * TICK, 8.0 / count))
    return min(MAX_TICKS * TICK, count * each)


def _ticks(count: int) -> range:
    """Return which tokens have a label: all of them, or of too many each second, third, ..."""
    return range(0, count, math.ceil(count / MAX_TICKS))


def _draw_text(figure: Any, alignment: Alignment) -> None:
    """Draw the source as a text, each token on the colour of its weight."""
    from matplotlib import colormaps  # noqa: PLC0415 - only who draws loads it
    from matplotlib.cm import ScalarMappable  # noqa: PLC0415 - same
    from matplotlib.colors import Normalize  # noqa: PLC0415 - same

    weights = alignment.weights[0]
    norm = Normalize(0.0, max(weights))
    ax = figure.add_subplot()

    columns = WIDTH / CHARACTER
    longest = 0.0
    x = 0.0
    y = 0
    for token, weight in zip(map(_label, alignment.source_tokens), weights, strict=True):
        width = len(token) + 1
        if x + width > columns:
            x = 0.0
            y += 1
        ax.broken_barh([(x, width)], (y, 0.9), facecolor=colormaps["Blues"](norm(weight)))
        look = {"color": "white" if norm(weight) > 0.6 else "black", "family": "monospace"}
        ax.text(x + width / 2, y + 0.45, token, ha="center", va="center", parse_math=False, **look)
        x += width
        longest = max(longest, x)

    columns = max(longest, 4.0 / CHARACTER)  # a short text leaves room for what is said of it
    beside = (columns - longest) / 2
    figure.set_size_inches(columns * CHARACTER + 0.1, LINE * (y + 1) + 1.3)
    ax.set(xlim=(-beside, longest + beside), ylim=(y + 1, 0))
    ax.set_axis_off()
    _draw_scale(figure, ScalarMappable(norm, "Blues"), ax, parts=3)  # a low picture has a short strip


def _draw_image(figure: Any, alignment: Alignment, picture: Any | None) -> None:
    """Draw heat over the one picture that was asked about, and what lay on a question below it."""
    heat = heat_of_image(alignment, _labels(alignment.target_tokens))
    size = panels_size(heat, picture)[2:]
    figure.set_size_inches(*size)
    if alignment.question_tokens:
        rows, mass = alignment.question_weights, alignment.question_mass
        asked = replace(alignment, source_tokens=alignment.question_tokens, weights=rows, source_mass=mass)
        (figure,) = _parted(figure, [size], asked, "question")
    _draw_scale(figure, *draw_panels(figure, heat, picture))


def _draw_chat(figure: Any, alignment: Alignment, pictures: Sequence[Any | None]) -> None:
    """Draw heat over each picture of a prompt, and what lay on its words below them."""
    labels = _labels(alignment.target_tokens[:MAX_PANELS])
    heats = [heat_of_part(alignment, index, labels) for index in range(len(pictures))]
    sizes = [panels_size(*each)[2:] for each in zip(heats, pictures, strict=True)]
    columns = alignment.word_columns
    words = replace(
        alignment,
        source_tokens=tuple(alignment.source_tokens[column] for column in columns),
        weights=tuple(tuple(row[column] for column in columns) for row in alignment.weights),
    )
    for number, (part, heat, picture) in enumerate(
        zip(_parted(figure, sizes, words, "prompt"), heats, pictures, strict=True), 1
    ):
        name = f"picture {number}" if len(pictures) > 1 else "picture"
        _draw_scale(part, *draw_panels(part, heat, picture, name))


def _draw_scale(figure: Any, heat: Any, axes: Any, parts: int = 5) -> None:
    """Draw which colour is which weight, in a strip about three inches wide, with at most `parts` parts."""
    width, height = figure.get_figure(root=True).get_size_inches()
    scale = figure.colorbar(
        heat,
        ax=axes,
        location="bottom",
        shrink=min(1.0, 3.0 / width),
        aspect=25,
        fraction=0.2 / height,
        pad=0.1 / height,
    )
    scale.set_label("weight")
    scale.ax.locator_params(nbins=parts)


def _labels(tokens: Sequence[str]) -> list[str]:
    return [_label(token) for token in tokens]


def _label(token: str) -> str:
    """Show a token's text so that white space can be seen, and cut it where it is long."""
    shown = token.strip() or token.replace("\n", "\u21b5").replace("\t", "\u21e5").replace(" ", "\u2423") or "\u2205"
    shown = _printable(shown)
    return shown if len(shown) <= LABEL else shown[: LABEL - 1] + "\u2026"


def _printable(text: str) -> str:
    """Show control characters by a sign: an SVG may hold none of them."""
    return "".join(char if char.isprintable() or char in " \n" else "\ufffd" for char in text)


def _read(image: PictureFile) -> Any:
    """Return the picture as the server sees it, upright and on white."""
    from PIL import Image, ImageOps  # noqa: PLC0415 - only who draws loads it

    try:
        data = bytes(image) if isinstance(image, bytes | bytearray | memoryview) else Path(image).read_bytes()
        opened: Any = ImageOps.exif_transpose(Image.open(BytesIO(data)))
        opened.thumbnail((PIXELS, PIXELS))  # each panel holds a copy
        if opened.mode.startswith("I"):  # 16-bit greys, which Pillow's own conversion would clip to 255
            opened = opened.convert("I").point(lambda grey: grey * (1 / 257)).convert("L")
        return Image.alpha_composite(Image.new("RGBA", opened.size, "white"), opened.convert("RGBA"))
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidRequest(f"image: {error}", reason="BAD_IMAGE") from None


def save(figure: Any, path: str | PathLike[str]) -> None:
    """Write a figure, its format by the suffix; raises InvalidRequest when that can't be."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a box in the picture says it too
            figure.savefig(path, dpi=DPI)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot write {path}: {error}") from None
