"""Pictures of a prompt that are cut by their longest edge: what is read is the rule's, whatever stands beside it."""

import asyncio
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tiny_sight import MAX_SPLIT_TOKENS, SPLIT_PLACES, SPLITTING, TILE, tokenizer
from tokenizers import Tokenizer

from loaded import Loaded, ask
from pictured_chats import DECODING, answer, chat, noise, run
from weft_proto.splitting import split, split_text
from weft_proto.tiling import most_places, most_tiles, places_of, tiling_fault
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import InvalidRequest
from weft_server.loading.golden import verify_golden
from weft_server.preprocessing.images import PictureBounds
from weft_server.preprocessing.tiles import load_split
from weft_server.preprocessing.wanted import Wanted

BOUNDS = PictureBounds(1 << 24, 1 << 22)
# Strips, portraits, what is smaller than a tile, and what is much larger.
SHAPES = ((40, 22), (7, 60), (90, 5), (16, 16), (3, 4), (33, 32), (200, 150))


def image_of(tiling=SPLITTING, tile=TILE, grid=2):
    """An ImageSpec of square tiles whose values are the pixels themselves, over 255."""
    image = bundle_pb2.ImageSpec(channels=3, height=tile, width=tile, resample=bundle_pb2.RESAMPLE_LANCZOS)
    image.mean.extend([0, 0, 0])
    image.std.extend([1, 1, 1])
    image.grid_rows = image.grid_columns = grid
    image.tiling.CopyFrom(tiling)
    return image


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 4096), st.integers(1, 4096), st.booleans())
def test_whatever_the_size_a_picture_is_within_its_bounds(width, height, longest, tile, cuts):
    """It is made of whole tiles, has the longest edge before, and has no more tiles than is stated."""
    image = image_of(bundle_pb2.TilingSpec(longest_edge=longest, before_tile="[]" * cuts), tile)
    cut = split(image, width, height)
    assert longest <= max(cut.first) <= longest + longest % 2
    assert 1 <= min(cut.first)
    rows, columns = cut.grid
    assert (max(1, columns) * tile, max(1, rows) * tile) == cut.second
    assert 1 != rows * columns
    assert cut.num_tiles <= most_tiles(image)
    assert sum(places_of(image, cut)) <= most_places(image)


def test_a_side_of_one_pixel_is_kept():
    """Its ratio times the other side may be rounded to less than 1: 187 * (1 / 187) is."""
    image = image_of(bundle_pb2.TilingSpec(longest_edge=187, before_tile="[]"), 1)
    assert (187, 1) == split(image, 1, 187).grid


def test_tiles_laid_out_are_the_picture():
    """Resized twice, row by row; and the whole is made of them."""
    image = image_of()
    for width, height in SHAPES:
        data = noise(1, width, height)
        cut = split(image, width, height)
        *tiles, whole = load_split(data, image, BOUNDS, cut, Wanted())
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        for size in (cut.first, cut.second):
            picture = picture.resize(size, Image.Resampling.LANCZOS)
        if tiles:
            rows, columns = cut.grid
            lines = [np.concatenate(tiles[row * columns : (row + 1) * columns], 2) for row in range(rows)]
            expected = np.asarray(picture, np.float32).transpose(2, 0, 1) / np.float32(255)
            assert np.array_equal(expected, np.concatenate(lines, 1))
        small = np.asarray(picture.resize((TILE, TILE), Image.Resampling.LANCZOS), np.float32)
        assert np.array_equal(small.transpose(2, 0, 1) / np.float32(255), whole)


def test_texts_stand_around_tiles():
    """Those of each tile, row and picture; of one tile alone, those of the whole."""
    assert "[1/1]*[1/2]*\n[2/1]*[2/2]*\n\n[all]*[end]" == split_text(SPLITTING, (2, 2), "*")
    assert "[all]*[end]" == split_text(SPLITTING, (0, 0), "*")


def test_a_picture_of_another_size_than_its_header_says_is_refused():
    """Its prompt has tiles for what the header says."""
    cut = split(image_of(), 40, 22)
    with pytest.raises(InvalidRequest, match="is not as large as its header says"):
        load_split(noise(1, 22, 40), image_of(), BOUNDS, cut, Wanted())


def test_an_answer_is_its_own_in_any_company(tiny_repository):
    """Pictures of every shape at once, alone and in pairs, with the cache or without: the same tokens as one by one."""
    files = [noise(seed, *size) for seed, size in enumerate(SHAPES)]
    asked = [chat(("what", each)) for each in files] + [chat(("two", *files[at : at + 2])) for at in range(5)]

    async def one_by_one(model):
        return [await answer(model, each) for each in asked]

    async def at_once(model):
        found = await asyncio.gather(*(answer(model, each, f"t{at % 3}") for at, each in enumerate(asked)))
        return list(found), [await answer(model, each) for each in asked[::-1]][::-1]

    expected = run(tiny_repository, "tiny-split", one_by_one)
    assert (expected, expected) == run(tiny_repository, "tiny-split", at_once, prefix_cache_mb=8)
    assert len(SHAPES) <= len({tuple(tokens) for tokens, _ in expected})


def test_a_prompt_has_each_tile_and_its_texts(tiny_repository):
    """Two pictures have the places of both, whatever stands beside them. What was kept of one is found again."""
    wide, small = noise(1, 40, 20), noise(2, 16, 16)
    image, reader = image_of(), Tokenizer.from_buffer(tokenizer())

    def length_of(width, height):
        cut = split(image, width, height)
        around = reader.encode(split_text(SPLITTING, cut.grid, "<image>"), add_special_tokens=False)
        return len(around) - cut.num_tiles + sum(places_of(image, cut))

    async def use(model):
        _, bare = await answer(model, chat(("what", "")))
        found = []
        for parts in ((wide,), (wide, small), (small, wide)):
            _, length = await answer(model, chat(("what", *parts)))
            counters = model.metrics.counters
            hits = [int(counters["picture_cache_lookups_total", each].value) for each in ("hit", "miss")]
            found.append((length - bare, *hits))
        return found

    one, two = length_of(40, 20), length_of(40, 20) + length_of(16, 16)
    assert one >= 7 * SPLIT_PLACES
    assert [(one, 0, 1), (two, 1, 2), (two, 3, 2)] == run(tiny_repository, "tiny-split", use)


def test_what_does_not_fit_is_refused_before_it_is_decoded(tiny_repository):
    """By the number of its places, which its header tells; and a broken one by its own field."""
    whole = noise(1, 150, 150)

    async def use(model):
        most = model.reader.max_tokens
        refused = []
        for parts in (
            ("a" * (most - 30), whole),
            ("w", *[whole] * 60),
            ("what", whole[:-2000]),
            ("what", b"no picture"),
        ):
            with pytest.raises(InvalidRequest) as error:
                await answer(model, chat(parts))
            refused.append((error.value.field, error.value.reason))
        return refused

    place = "messages.turns[0].parts[1].image.data"
    expected = [*[("messages", "INPUT_TOO_LONG")] * 2, *[(place, "BAD_IMAGE")] * 2]
    assert expected == run(tiny_repository, "tiny-split", use)
    assert MAX_SPLIT_TOKENS > most_places(image_of())


def spell(tiling, **fields):
    """Set fields of a message."""
    tiling.MergeFrom(bundle_pb2.TilingSpec(**fields))


FAULTS = {
    "so are grids": lambda image: image.tiling.grids.add(rows=1, columns=2),
    "max_tiles or": lambda image: spell(image.tiling, max_tiles=2),
    "or square_padding": lambda image: spell(image.tiling, square_padding=[1, 2, 3]),
    "makes 289 tiles": lambda image: spell(image.tiling, longest_edge=17 * TILE),
    "of more than 16,777,216 pixels": lambda image: image.MergeFrom(
        bundle_pb2.ImageSpec(height=2049, width=2049, tiling=bundle_pb2.TilingSpec(longest_edge=4096))
    ),
    "is for square pictures": lambda image: setattr(image, "width", 2 * TILE),
    "with a square grid": lambda image: setattr(image, "grid_rows", 3),
    "so is num_class_tokens": lambda image: setattr(image, "num_class_tokens", 1),
    "up to 92,160 places": lambda image: image.MergeFrom(bundle_pb2.ImageSpec(grid_rows=96, grid_columns=96)),
    "texts around tiles, and no longest_edge": lambda image: (
        image.tiling.MergeFrom(
            bundle_pb2.TilingSpec(max_tiles=1, square_padding=[1, 2, 3], grids=[bundle_pb2.TileGrid(rows=1, columns=1)])
        )
        or image.tiling.ClearField("longest_edge")
    ),
}


@pytest.mark.parametrize("why", FAULTS)
def test_a_splitting_that_no_server_follows_is_refused(why):
    """Each fault is told."""
    image = image_of()
    assert tiling_fault(image) is None
    FAULTS[why](image)
    assert why in str(tiling_fault(image))


def test_a_bundle_that_splits_is_loaded_and_proves_itself(tiny_repository):
    """Its golden request is a picture in tiles."""

    async def main():
        async with Loaded(tiny_repository / "tiny-split" / "1", slots=2, lanes=1) as model:
            await verify_golden(model)
            return model.metrics.counters["picture_cache_lookups_total", "miss"].value

    assert 1 == asyncio.run(main())


def test_columns_of_tiles_lie_where_the_tiles_do(tiny_repository):
    """Of the second picture of a chat: a grid for each tile, on its part of the picture, and last that of the whole."""
    wide = noise(1, 40, 20)
    cut = split(image_of(), 40, 20)

    async def use(model):
        messages = chat(("two", noise(2, 16, 16), wide))
        return (await ask(model, messages=messages, decoding=DECODING, explain=common_pb2.Explain())).alignment

    seen = run(tiny_repository, "tiny-split", use)
    places = [column for column, token in enumerate(seen.source_tokens) if token == "<image>"]
    grids = [each for each in seen.pictures if each.picture == 1]
    starts = places[-SPLIT_PLACES * cut.num_tiles :: SPLIT_PLACES]
    assert cut.num_tiles == len(grids) < len(seen.pictures)
    assert [(start, 2, 2, 2) for start in starts] == [
        (each.first_column, each.grid_rows, each.grid_columns, each.row_columns) for each in grids
    ]
    rows, columns = cut.grid
    expected = [
        (column / columns, row / rows, (column + 1) / columns, (row + 1) / rows)
        for row in range(rows)
        for column in range(columns)
    ]
    found = [(each.region.left, each.region.top, each.region.right, each.region.bottom) for each in grids[:-1]]
    assert np.allclose(expected, found)
    assert not grids[-1].HasField("region")
