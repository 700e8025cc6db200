"""Alignments become pictures whose labels can be read."""

import struct
import sys
import zlib
from random import Random

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import weft
from weft.plot import plot_alignment

WORDS = ("we", "are", "eating", "$bread$", "\n", "</s>")


def text_alignment(source, target, seed=1):
    """Random rows that sum to 1."""
    random = Random(seed)
    rows = [[random.random() for _ in source] for _ in target]
    return weft.Alignment(tuple(target), tuple(source), 0, 0, tuple(tuple(w / sum(row) for w in row) for row in rows))


def image_alignment(target, rows, columns):
    """Each word looks at one patch."""
    size = rows * columns
    weights = tuple(tuple(float(patch == word % size) for patch in range(size)) for word in range(len(target)))
    return weft.Alignment(tuple(target), (), rows, columns, weights)


def png(width, height):
    """A white picture."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\xff\xff" * width) * height))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def size_of(path):
    """Width and height that the header of a PNG states."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


def texts(figure):
    """What can be read in a figure."""
    axes = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    ticks = [label for ax in axes if ax.axison for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
    return [label for label in (*ticks, *(ax.title for ax in axes)) if label.get_text()]


@pytest.mark.parametrize(
    ("alignment", "image"),
    [
        (text_alignment(WORDS, ("estamos", "comiendo", "pan")), None),
        (text_alignment([f"a-rather-long-token-{i}" for i in range(50)], [f"t{i}" for i in range(40)]), None),
        (text_alignment(("x",), ("y",)), None),
        (image_alignment(["a", "red", "circle", "above", "a", "blue", "square"], 4, 6), None),
        (image_alignment(["a", "red", "circle", "above", "a", "blue", "square"], 4, 6), png(30, 20)),
    ],
    ids=["sentence", "long", "single", "grid", "image"],
)
def test_no_label_is_clipped(tmp_path, alignment, image):
    """The file is a PNG of the figure's size, and every label and the title lie within it."""
    path = tmp_path / "new" / "folder" / "out.png"
    figure = plot_alignment(
        alignment, path, title="what the model looked at, in a title that is rather long", image=image
    )
    width, height = size_of(path)

    assert (round(figure.get_figwidth() * 120), round(figure.get_figheight() * 120)) == pytest.approx(
        (width, height), abs=1
    )
    figure.set_dpi(120)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [label.get_window_extent(renderer) for label in (*texts(figure), figure._suptitle)]
    assert min(box.x0 for box in boxes) >= 0
    assert min(box.y0 for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= width
    assert max(box.y1 for box in boxes) <= height


def test_a_longer_text_gets_a_larger_picture(tmp_path):
    """Each token has room of its own, so the labels never lie on each other."""
    plot_alignment(text_alignment(WORDS, WORDS), tmp_path / "small.png")
    plot_alignment(text_alignment(WORDS * 5, WORDS * 5), tmp_path / "large.png")

    assert all(
        large > 2 * small
        for small, large in zip(size_of(tmp_path / "small.png"), size_of(tmp_path / "large.png"), strict=True)
    )


def test_labels_are_the_tokens():
    """Tokens stand as they are, dollar signs included; white space becomes visible."""
    figure = plot_alignment(text_alignment(WORDS, ("estamos", " pan", " ")))
    labels = [label.get_text() for label in texts(figure)]

    assert ["we", "are", "eating", "$bread$", "↵", "</s>", "estamos", "pan", "␣"] == labels


def test_an_image_has_a_panel_per_word():
    """One panel for each produced token, titled with it."""
    words = ["a", "red", "circle", "above", "a", "blue", "square"]

    assert words == [ax.get_title() for ax in plot_alignment(image_alignment(words, 3, 3)).axes]


def test_a_text_can_be_drawn_into_given_axes():
    """Axes of the caller's are used, and their figure returned; an image's alignment needs a figure of its own."""
    ax = Figure().add_subplot()

    assert ax.figure is plot_alignment(text_alignment(WORDS, WORDS), ax, title="here")
    assert "here" == ax.get_title()
    with pytest.raises(weft.InvalidRequest, match="figure of its own"):
        plot_alignment(image_alignment(WORDS, 2, 2), ax)


def test_what_cannot_be_drawn_is_an_error_of_ours(tmp_path):
    """A path that can't be written, a format nobody knows, and an image that is none are InvalidRequests."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "out.png", tmp_path / "out.nonsense"):
        with pytest.raises(weft.InvalidRequest, match="cannot write"):
            plot_alignment(text_alignment(WORDS, WORDS), path)
    for image in (b"no image", tmp_path / "missing.png", png(4, 4)[:40]):
        with pytest.raises(weft.InvalidRequest):
            plot_alignment(image_alignment(WORDS, 2, 2), image=image)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    """Where matplotlib is missing, the error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(weft.Error, match=r"pip install 'weft\[plot\]'"):
        plot_alignment(text_alignment(WORDS, WORDS))
