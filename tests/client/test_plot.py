"""Alignments become pictures whose labels can be read."""

import io
import struct
import sys
import wave
from dataclasses import replace
from itertools import pairwise
from random import Random
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

import weft
from figures import axes_of, png
from late import Late
from weft.plot import plot_alignment

backend_agg, figures = Late("matplotlib.backends.backend_agg"), Late("matplotlib.figure")

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


def asked_alignment(target, question, rows=4, columns=6):
    """The same, and half of each word's attention to words lay on the question."""
    words = text_alignment(question, target)
    given = {"question_tokens": words.source_tokens, "question_weights": words.weights}
    return replace(image_alignment(target, rows, columns), **given, question_mass=(0.5,) * len(target))


def tone(seconds=0.5, rate=8000):
    """A tone that rises, as a WAV of two channels."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        frames = (struct.pack("<hh", (index * index // 50) % 20000 - 10000, 0) for index in range(int(seconds * rate)))
        file.writeframes(b"".join(frames))
    return out.getvalue()


def size_of(path):
    """Width and height that the header of a PNG states."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


def texts(figure):
    """What can be read in a figure."""
    axes = axes_of(figure)
    ticks = [label for ax in axes if ax.axison for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
    words = [label for ax in axes for label in (ax.title, *ax.texts)]
    return [label for label in (*ticks, *words) if label.get_text()]


def boxes_of(figure, labels):
    """Where labels stand in a figure that was saved, in pixels."""
    figure.set_dpi(120)
    renderer = backend_agg.FigureCanvasAgg(figure).get_renderer()
    return [label.get_window_extent(renderer) for label in labels]


@pytest.mark.parametrize(
    ("alignment", "image"),
    [
        (text_alignment(WORDS, ("estamos", "comiendo", "pan")), None),
        (text_alignment([f"a-rather-long-token-{i}" for i in range(50)], [f"t{i}" for i in range(40)]), None),
        (replace(text_alignment(WORDS, [f"t{i}" for i in range(20)]), source_mass=(0.5,) * 20, layer=1), None),
        (text_alignment(("x",), ("y", "z")), None),
        (text_alignment(("x",), ("y",)), None),
        (text_alignment([f"word-{i}" for i in range(90)], ("y",)), None),
        (replace(image_alignment(["7"], 4, 4), source_mass=(0.5,), layer=11), png(8, 8)),
        (image_alignment([f"word-{i}" for i in range(30)], 3, 3), png(20, 90)),
        (image_alignment(["a", "red", "circle", "above", "a", "blue", "square"], 4, 6), None),
        (image_alignment(["a", "red", "circle", "above", "a", "blue", "square"], 4, 6), png(30, 20)),
        (asked_alignment(["a", "red", "circle"], ["what", "is", "above", "it", "?"]), png(30, 20)),
        (asked_alignment([f"word-{i}" for i in range(30)], [f"a-rather-long-word-{i}" for i in range(60)]), None),
    ],
    ids=["sentence", "long", "shares", "column", "token", "text", "digit", "tall", "grid", "image", "asked", "why"],
)
def test_no_label_is_clipped(tmp_path, alignment, image):
    """The file is a PNG of the figure's size, and every label and the title lie within it."""
    path = tmp_path / "new" / "folder" / "out.png"
    figure = plot_alignment(
        alignment, path, title="what the model looked at, in a title that is rather long", image=image
    )
    width, height = size_of(path)

    assert pytest.approx((width, height), abs=1) == (
        round(figure.get_figwidth() * 120),
        round(figure.get_figheight() * 120),
    )
    boxes = boxes_of(figure, (*texts(figure), figure._suptitle, figure._supxlabel))
    assert min(box.x0 for box in boxes) >= 0
    assert min(box.y0 for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= width
    assert max(box.y1 for box in boxes) <= height


@pytest.mark.parametrize(
    ("columns", "rows", "word"),
    [(6, 6, "word"), (60, 60, "word"), (300, 2, "word"), (2, 300, "word"), (60, 2, "")],
    ids=["short", "long", "wide", "high", "characters"],
)
def test_a_longer_text_gets_a_larger_picture(tmp_path, columns, rows, word):
    """Each token has room of its own, so the labels never lie on each other; a very long text skips some labels."""
    path = tmp_path / "out.png"
    source, target = ([f"{word}{index % 60:02}" for index in range(count)] for count in (columns, rows))
    figure = plot_alignment(text_alignment(source, target), path)
    (ax,) = axes_of(figure)
    across, down = (boxes_of(figure, labels) for labels in (ax.get_xticklabels(), ax.get_yticklabels()))

    assert max(size_of(path)) < 30 * 120
    assert (min(columns, 100), min(rows, 100)) == (len(across), len(down))
    assert all(left.x1 <= right.x0 for left, right in pairwise(across))
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(down))


def test_a_text_is_wrapped_and_its_tokens_stand_apart(tmp_path):
    """A classified text is written out in lines, and no token lies on another or outside the axes."""
    words = [f"w{'o' * (index % 20)}rd" for index in range(150)]
    figure = plot_alignment(text_alignment(words, ["label"]), tmp_path / "out.png")
    (ax,) = axes_of(figure)
    boxes = boxes_of(figure, ax.texts)
    lines = {}
    for label, box in zip(ax.texts, boxes, strict=True):
        lines.setdefault(label.get_position()[1], []).append(box)

    assert 10 < len(lines) < 40
    assert all(left.x1 < right.x0 for line in lines.values() for left, right in pairwise(line))
    assert max(box.x1 for box in boxes) <= ax.get_window_extent().x1


@pytest.mark.parametrize("count", [1, 5, 14])
def test_a_text_of_one_line_stands_under_its_title(count):
    """A line that ends early leaves no more room on its right than on its left."""
    figure = plot_alignment(text_alignment(["word"] * count, ["label"]))
    (ax,) = axes_of(figure)
    boxes = boxes_of(figure, ax.texts)
    frame = ax.get_window_extent()

    assert pytest.approx(frame.x1 - boxes[-1].x1, abs=2) == boxes[0].x0 - frame.x0


@pytest.mark.parametrize("lines", [1, 2, 4])
@pytest.mark.parametrize("most", [0.0101, 0.013, 0.024, 0.034, 0.045, 0.062, 0.085, 0.1, 0.115, 0.13, 0.3, 0.6, 1.0])
def test_numbers_under_a_text_stand_apart(tmp_path, most, lines):
    """Whatever the greatest weight is, the scale's numbers do not touch each other."""
    count = 16 * lines
    alignment = text_alignment(["word"] * count, ["label"])
    figure = plot_alignment(
        replace(alignment, weights=((most,) + (0.0,) * (count - 1),)), tmp_path / "out.png", title="label (96.4%)"
    )
    (scale,) = set(figure.axes) - set(axes_of(figure))
    low, high = scale.get_xlim()
    shown = [label for label in scale.get_xticklabels() if low <= label.get_position()[0] <= high]
    boxes = boxes_of(figure, shown)

    assert len(boxes) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_labels_are_the_tokens():
    """Tokens stand as they are, dollar signs included; white space becomes visible, what is long is cut."""
    figure = plot_alignment(text_alignment(WORDS, ("estamos", " pan", " ", "a" * 17)))
    labels = [label.get_text() for label in texts(figure)]

    assert ["we", "are", "eating", "$bread$", "↵", "</s>", "estamos", "pan", "␣", "a" * 15 + "…"] == labels


def test_a_script_that_the_font_lacks_is_no_warning(tmp_path):
    """Tokens in any script are drawn without a word on stderr."""
    plot_alignment(text_alignment(("漢字", "x"), ("字", "y")), tmp_path / "out.png", title="漢字")


def test_an_image_has_a_panel_per_word():
    """One panel for each target token, titled with it, and the picture first."""
    words = ["a", "red", "circle", "above", "a", "blue", "square"]
    alignment = image_alignment(words, 3, 3)

    assert words == [ax.get_title() for ax in axes_of(plot_alignment(alignment))]
    assert ["picture", *words] == [ax.get_title() for ax in axes_of(plot_alignment(alignment, image=png(9, 9)))]


def test_a_question_has_a_matrix_below_the_picture():
    """A row for each word of the answer, a column for each of the question, and beside them the shares of attention."""
    words, question = ["a", "red", "circle"], ["what", "is", "it", "?"]
    alignment = asked_alignment(words, question)
    matrix, *panels, shares = axes_of(plot_alignment(alignment, image=png(9, 9)))

    assert ["question", "picture", *words] == [ax.get_title() for ax in (matrix, *panels)]
    assert matrix.get_window_extent().y1 < min(ax.get_window_extent().y0 for ax in panels)
    assert (question, words) == tuple(
        [label.get_text() for label in labels] for labels in (matrix.get_xticklabels(), matrix.get_yticklabels())
    )
    (heat,) = matrix.images
    assert alignment.question_weights == tuple(map(tuple, heat.get_array().tolist()))
    assert ["50%"] * 3 == [label.get_text() for label in shares.get_yticklabels()]


@pytest.mark.parametrize(("size", "orientation"), [((40, 20), 1), ((20, 40), 6)])
def test_panels_have_the_aspect_of_the_upright_picture(size, orientation):
    """Heat and picture fill the same 2 : 1, whatever the grid is; a photograph is turned as the server turns it."""
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", size).save(file, "JPEG", exif=exif)
    for ax in axes_of(plot_alignment(image_alignment(["a", "b"], 3, 3), image=file.getvalue())):
        assert {(0, 40, 20, 0)} == {tuple(image.get_extent()) for image in ax.images}
        assert ((0, 40), (20, 0), 1.0) == (ax.get_xlim(), ax.get_ylim(), ax.get_aspect())


def test_heat_lies_on_what_the_model_saw():
    """Of a picture whose middle it cut out, the grid is drawn over the middle, and a line is around it."""
    alignment = replace(image_alignment(["a"], 2, 2), region=(0.25, 0.0, 0.75, 1.0))
    original, heated = axes_of(plot_alignment(alignment, image=png(40, 20)))

    assert [(0, 40, 20, 0)] == [tuple(image.get_extent()) for image in original.images]
    assert [(0, 40, 20, 0), (10, 30, 20, 0)] == [tuple(image.get_extent()) for image in heated.images]
    assert ((0, 40), (20, 0)) == (heated.get_xlim(), heated.get_ylim())
    assert [(10, 0, 20, 20)] == [(*line.get_xy(), line.get_width(), line.get_height()) for line in heated.patches]


@pytest.mark.parametrize(
    ("mode", "colour", "seen"),
    [("I;16", 257 * 128, (128, 128, 128)), ("RGBA", (0, 0, 0, 0), (255, 255, 255)), ("1", 1, (255, 255, 255))],
)
def test_a_picture_is_shown_as_the_server_sees_it(mode, colour, seen):
    """16-bit greys are scaled, not clipped, and what is transparent is white."""
    file = io.BytesIO()
    Image.new(mode, (4, 4), colour).save(file, "PNG")
    first = axes_of(plot_alignment(image_alignment(["a"], 2, 2), image=file.getvalue()))[0]

    assert seen == tuple(first.images[0].get_array()[1, 1][:3])


READINGS = [
    ({}, "attention rollout over all layers"),
    ({"layer": 0}, "attention of layer 0, average over heads"),
    ({"layer": 1, "head": 0}, "attention of layer 1, head 0"),
    ({"layer": 1, "source_mass": (0.736,)}, "attention of layer 1, average over heads; 74% of it lay on what is shown"),
]


@pytest.mark.parametrize(("read", "said"), READINGS)
def test_a_picture_says_which_attention_it_shows(read, said):
    """Layer and head, or rollout, stand under the picture."""
    for alignment in (text_alignment(WORDS, ("label",)), image_alignment(["label"], 2, 2)):
        assert said == plot_alignment(replace(alignment, **read)).get_supxlabel().replace("\n", " ")


def test_shares_stand_beside_the_rows():
    """Where some attention lay elsewhere, each row says how much lay on what is shown; else nothing is said."""
    whole = replace(text_alignment(WORDS, ("a", "b")), source_mass=(1.0, 0.9999))
    partly = replace(whole, source_mass=(0.25, 1.0))

    assert 1 == len(axes_of(plot_alignment(whole)))
    assert ["25%", "100%"] == [label.get_text() for label in axes_of(plot_alignment(partly))[1].get_yticklabels()]


def test_a_part_of_a_figure_can_be_drawn_into():
    """Axes of a SubFigure are axes too."""
    part, _ = figures.Figure().subfigures(1, 2)

    assert plot_alignment(text_alignment(("a", "b"), ("c", "d")), part.subplots()) is part


def test_a_text_can_be_drawn_into_given_axes():
    """Axes of the caller's are used, and their figure returned; an image's alignment needs a figure of its own."""
    ax = figures.Figure().add_subplot()

    assert ax.figure is plot_alignment(text_alignment(WORDS, WORDS), ax, title="here")
    assert ["here", "attention rollout over all layers"] == ax.get_title().splitlines()
    with pytest.raises(weft.InvalidRequest, match="figure of its own"):
        plot_alignment(image_alignment(WORDS, 2, 2), ax)


def test_control_characters_leave_a_picture_whole(tmp_path):
    """Signs stand for them in tokens and title, so that an SVG stays XML."""
    path = tmp_path / "odd.SVG"
    plot_alignment(text_alignment(("a\x01b", "c"), ("\x02", "d")), path, title="x\x03y")

    ET.parse(path)


def test_what_cannot_be_drawn_is_an_error_of_ours(tmp_path):
    """A path that can't be written, a format nobody knows, and an image that is none are InvalidRequests."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "out.png", tmp_path / "out.nonsense"):
        with pytest.raises(weft.InvalidRequest, match="cannot write"):
            plot_alignment(text_alignment(WORDS, WORDS), path)
    with pytest.raises(weft.InvalidRequest, match="no rows"):
        plot_alignment(text_alignment(WORDS, ()))
    for image in (b"no image", tmp_path / "missing.png", png(4, 4)[:40]):
        with pytest.raises(weft.InvalidRequest):
            plot_alignment(image_alignment(WORDS, 2, 2), image=image)


def test_colour_begins_above_an_even_share():
    """Over a picture, a block with no more than an even share of the attention is left as it is."""
    weights = (0.05, 0.15, 0.25, 0.55)
    figure = plot_alignment(weft.Alignment(("5",), (), 2, 2, (weights,)), image=png(4, 4))
    (heat,) = [image for axes in figure.axes for image in axes.images if image.get_array().shape == (2, 2)]
    opacity = [float(heat.cmap(heat.norm(weight))[3]) for weight in weights]

    assert [0.0, 0.0] == opacity[:2]
    assert 0.02 > opacity[2]
    assert 0.8 < opacity[3]


def test_a_flat_map_has_no_colour():
    """Attention that lies everywhere alike colours nothing."""
    figure = plot_alignment(weft.Alignment(("5",), (), 2, 2, ((0.25,) * 4,)), image=png(4, 4))
    (heat,) = [image for axes in figure.axes for image in axes.images if image.get_array().shape == (2, 2)]

    assert 0.02 > float(heat.cmap(heat.norm(0.25))[3])


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    """Where matplotlib is missing, the error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(weft.Error, match=r"pip install 'weft-serving\[plot\]'"):
        plot_alignment(text_alignment(WORDS, WORDS))


@pytest.mark.parametrize("samples", [bytes(16000), b"\x01\x10", bytes(8000) + b"\0\x40\0\xc0" * 2000], ids=len)
def test_silence_and_moments_are_drawn_without_a_warning(samples, tmp_path):
    """A second of zeros, one sample, and half a second of zeros before a tone: no logarithm of nothing is told of."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 8000, 0, "NONE", ""))
        out.writeframes(samples)
    alignment = weft.Alignment(("set",), (), 0, 0, ((0.5, 0.5, 0.0, 0.0),), column_s=0.5, num_columns=4)
    figure = plot_alignment(alignment, tmp_path / "a.png", recording=file.getvalue())

    above, below, _ = figure.axes
    assert (0.0, min(2.0, len(samples) / 16000)) == below.get_xlim() == above.get_xlim()
    assert "word" == below.get_ylabel()


@pytest.mark.parametrize(("recording", "num_axes", "end_s"), [(tone(), 3, 0.5), (b"fLaC", 2, 2.0), (None, 2, 2.0)])
def test_a_recording_stands_above_its_moments(recording, num_axes, end_s, tmp_path):
    """A WAV is drawn as a spectrogram, as long as it is; what Python does not read is left out. Below are seconds."""
    rows = ((0.5, 0.25, 0.25, 0.0), (0.0, 0.0, 0.5, 0.5))
    alignment = weft.Alignment(("set", "a"), (), 0, 0, rows, column_s=0.5, num_columns=4)
    figure = plot_alignment(alignment, tmp_path / "a.png", recording=recording)

    # The scale of the weights is one more.
    assert num_axes == len(figure.axes)
    below = figure.axes[num_axes - 2]
    assert ("seconds", (0.0, end_s)) == (below.get_xlabel(), below.get_xlim())
    assert ["set", "a"] == [label.get_text() for label in below.get_yticklabels()]
