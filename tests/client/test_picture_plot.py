"""Heat over the pictures of a chat."""

from random import Random

import pytest

import weft
from figures import axes_of, png
from weft._picture_plot import MAX_PANELS, heat_of_part
from weft.plot import plot_alignment

WHOLE = (0.0, 0.0, 1.0, 1.0)
# Words, a picture of 2 x 3 places, a word, one in tiles: 2 x 2 places of the whole, then 2 rows of 2 with an end each.
SOURCE = ("<s>", *["<image>"] * 6, "and", *["<image>"] * 10, "?")
COLUMNS = (
    weft.PictureColumns(0, 1, 2, 3, 3, (0.25, 0.0, 0.75, 1.0)),
    weft.PictureColumns(1, 8, 2, 2, 2),
    weft.PictureColumns(1, 12, 2, 2, 3, (0.0, 0.0, 1.0, 1.0)),
)


def chat_alignment(words, pictures=COLUMNS, source=SOURCE, seed=1):
    """Random rows over a prompt."""
    random = Random(seed)
    rows = [[random.random() for _ in source] for _ in words]
    weights = tuple(tuple(each / sum(row) for each in row) for row in rows)
    return weft.Alignment(tuple(words), tuple(source), 0, 0, weights, pictures=tuple(pictures))


def test_columns_are_those_of_words_or_lie_on_a_picture():
    """Row by row, without the ends of rows; words are all that is no place."""
    alignment = chat_alignment(["a"])
    row = alignment.weights[0]
    first, whole, tiles = (alignment.over(0, each) for each in alignment.pictures)
    assert (row[1:4], row[4:7]) == first
    assert (row[8:10], row[10:12]) == whole
    assert (row[12:14], row[15:17]) == tiles
    assert (0, 7, 18) == alignment.word_columns


def test_each_picture_has_a_panel_for_each_word_and_the_prompts_words_a_matrix():
    """Titles tell the share of a row that lay on the picture, and the matrix what lay on each word of the prompt."""
    words = ["a", "red"]
    alignment = chat_alignment(words)
    matrix, *panels = axes_of(plot_alignment(alignment, images=[png(40, 20), png(9, 9)]))
    shares = [[sum(row[1:7]), sum(row[8:14]) + sum(row[15:17])] for row in alignment.weights]
    titles = [["picture 1", *(f"{word} {row[0]:.0%}" for word, row in zip(words, shares, strict=True))]]
    titles.append(["picture 2", *(f"{word} {row[1]:.0%}" for word, row in zip(words, shares, strict=True))])
    assert titles == [[ax.get_title() for ax in panels[:3]], [ax.get_title() for ax in panels[3:]]]
    assert "prompt" == matrix.get_title()
    assert ["<s>", "and", "?"] == [label.get_text() for label in matrix.get_xticklabels()]
    (heat,) = matrix.images
    assert [[row[at] for at in (0, 7, 18)] for row in alignment.weights] == heat.get_array().tolist()


def test_heat_lies_on_the_part_of_the_picture_that_was_seen():
    """One grid stays the blocks that it is, on its region."""
    alignment = chat_alignment(["a"], COLUMNS[:1])
    _, original, heated = axes_of(plot_alignment(alignment, images=[png(40, 20)]))
    assert [(0, 40, 20, 0), (10, 30, 20, 0)] == [tuple(image.get_extent()) for image in heated.images]
    assert alignment.over(0, COLUMNS[0]) == tuple(map(tuple, heated.images[1].get_array().tolist()))
    assert 1 == len(original.images)


@pytest.mark.parametrize("region", [(0.0, 0.0, 1.0, 1.0), (-0.25, -0.1, 1.25, 1.1), (0.1, 0.0, 0.9, 1.0)])
def test_several_grids_of_a_picture_add_up(region):
    """What lies on the picture of each grid lies there together. What is beside the picture is left out."""
    grids = (weft.PictureColumns(0, 0, 2, 2, 2), weft.PictureColumns(0, 4, 3, 4, 5, region))
    alignment = chat_alignment(["a"], grids, ["<image>"] * 19)
    heat = heat_of_part(alignment, 0, ["a"])
    (cells,) = heat.cells
    left, top, right, bottom = region
    wide, high = (right - left) / 4, (bottom - top) / 3

    def within(first, size):
        return max(0.0, min(1.0, first + size) - max(0.0, first)) / size

    expected = sum(map(sum, alignment.over(0, grids[0])))
    for at, row in enumerate(alignment.over(0, grids[1])):
        for place, weight in enumerate(row):
            expected += weight * within(left + place * wide, wide) * within(top + at * high, high)
    assert expected == pytest.approx(sum(map(sum, cells)))
    assert WHOLE == heat.region
    assert (round(max(2, 1 / high)), round(max(2, 1 / wide))) == (len(cells), len(cells[0]))


def test_a_weight_lies_where_its_cell_is():
    """Of two grids, what lies on the lower right of each is on the lower right of the picture."""
    grids = (weft.PictureColumns(0, 0, 1, 1, 1), weft.PictureColumns(0, 1, 2, 2, 2))
    alignment = weft.Alignment(("a",), ("<image>",) * 5, 0, 0, ((0.4, 0.0, 0.0, 0.0, 0.6),), pictures=grids)
    assert [[pytest.approx(0.1)] * 2, [pytest.approx(0.1), pytest.approx(0.7)]] == heat_of_part(
        alignment, 0, ["a"]
    ).cells[0]


def test_a_long_answer_has_its_first_words_drawn():
    """The matrix has all of them, and the picture says so."""
    words = ["w"] * (MAX_PANELS + 5)
    figure = plot_alignment(chat_alignment(words, COLUMNS[:1]), images=[png(9, 9)])
    matrix, *panels = axes_of(figure)
    assert MAX_PANELS + 1 == len(panels)
    assert len(words) == len(matrix.images[0].get_array())
    assert f"the first {MAX_PANELS} of {len(words)} tokens" in figure.get_supxlabel().replace("\n", " ")


def test_a_long_word_is_cut_over_a_narrow_picture():
    """Its share stays."""
    alignment = chat_alignment(["incomprehensible"], COLUMNS[:1])
    *_, panel = axes_of(plot_alignment(alignment, images=[png(10, 40)]))
    share = sum(alignment.weights[0][1:7])
    assert panel.get_title().endswith(f"\u2026 {share:.0%}")
    assert 12 > len(panel.get_title())


def test_pictures_are_all_there_or_none():
    """Without any, grids are drawn alone; of too few it is said how many there are."""
    alignment = chat_alignment(["a"])
    assert 3 == len(axes_of(plot_alignment(alignment)))
    with pytest.raises(weft.InvalidRequest, match="images: the chat has 2 pictures, and 1 were given"):
        plot_alignment(alignment, images=[png(9, 9)])
