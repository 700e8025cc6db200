"""Pictures of a prompt in tiles: what is read of them is the rule's, and nothing else in the batch changes it."""

import asyncio
import io
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tiny_sight import MAX_TILED_TOKENS, TILE, TILE_PLACES, TILING

from loaded import Loaded
from pictured_chats import answer, chat, noise, run
from weft_proto.questions import picture_places
from weft_proto.tiling import most_places, tiled, tiling_fault
from weft_proto.v1 import bundle_pb2
from weft_server.errors import InvalidRequest
from weft_server.loading.golden import verify_golden
from weft_server.preprocessing.images import PictureBounds, shown_size
from weft_server.preprocessing.tiles import arranged, load_square, load_tiles
from weft_server.preprocessing.wanted import Wanted

BOUNDS = PictureBounds(1 << 24, 1 << 22)
# Strips, portraits, what is smaller than a tile, and what is much larger.
SHAPES = ((40, 22), (7, 60), (90, 5), (16, 16), (3, 4), (33, 32), (200, 150))


def image_of(side=TILE, patch=4, tiling=TILING):
    """An ImageSpec of square tiles whose values are the pixels themselves, over 255."""
    grid = side // patch
    image = bundle_pb2.ImageSpec(channels=3, height=side, width=side, resample=bundle_pb2.RESAMPLE_BICUBIC)
    image.mean.extend([0, 0, 0])
    image.std.extend([1, 1, 1])
    image.grid_rows = image.grid_columns = grid
    image.tiling.CopyFrom(tiling)
    return image


def saved(picture, kind="PNG", **more):
    """A picture's file."""
    file = io.BytesIO()
    picture.save(file, kind, **more)
    return file.getvalue()


def opened(data):
    """The picture of a file, as Pillow opens it."""
    return Image.open(io.BytesIO(data)).convert("RGB")


@given(
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12, unique=True),
    st.integers(1, 12),
)
def test_whatever_the_size_a_picture_is_within_its_bounds(width, height, grids, max_tiles):
    """What is kept lies within the tiles, what is resized fits into them, and places are no more than is stated."""
    tiling = bundle_pb2.TilingSpec(max_tiles=max_tiles, square_padding=[0, 0, 0])
    for rows, columns in grids:
        tiling.grids.add(rows=rows, columns=columns)
    image = image_of(28, 4, tiling)
    cut = tiled(image, width, height)
    rows, columns = cut.grid
    assert cut.grid in grids
    assert 1 <= cut.inner[0] <= columns * 28
    assert 1 <= cut.inner[1] <= rows * 28
    top, left, bottom, right = cut.kept
    assert 0 <= top <= bottom <= 7 * rows
    assert 0 <= left <= right <= 7 * columns
    assert 49 + cut.num_places <= most_places(image)
    assert picture_places(image) - 1 + cut.num_places <= most_places(image)


def test_tiles_laid_out_are_the_picture_in_black():
    """The first tile is the whole picture. The others, laid side by side, are it as large as fits, in the middle."""
    image = image_of()
    for width, height in SHAPES:
        data = noise(1, width, height)
        cut = tiled(image, width, height)
        whole, *tiles = load_tiles(data, image, BOUNDS, cut, Wanted())
        rows, columns = cut.grid
        laid = np.concatenate([np.concatenate(tiles[row * columns : (row + 1) * columns], 2) for row in range(rows)], 1)
        expected = np.zeros((3, rows * TILE, columns * TILE), np.float32)
        inner = np.asarray(opened(data).resize(cut.inner, Image.Resampling.BICUBIC), np.float32).transpose(2, 0, 1)
        top, left = (expected.shape[1] - cut.inner[1]) // 2, (expected.shape[2] - cut.inner[0]) // 2
        expected[:, top : top + cut.inner[1], left : left + cut.inner[0]] = inner / np.float32(255)
        assert np.array_equal(expected, laid)
        small = np.asarray(opened(data).resize((TILE, TILE), Image.Resampling.BICUBIC), np.float32)
        assert np.array_equal(small.transpose(2, 0, 1) / np.float32(255), whole)


@pytest.mark.parametrize("strip", [1, 7, 1 << 20])
def test_a_square_made_in_strips_is_the_whole_one(strip, monkeypatch):
    """Whatever their height: bit by bit what Pillow makes of the whole square, which may be far larger."""
    monkeypatch.setattr("weft_server.preprocessing.tiles._STRIP_PIXELS", strip * 90)
    image = image_of()
    for width, height in SHAPES:
        data = noise(2, width, height)
        side = max(width, height)
        square = Image.new("RGB", (side, side), tuple(TILING.square_padding))
        square.paste(opened(data), ((side - width) // 2, (side - height) // 2))
        expected = np.asarray(square.resize((TILE, TILE), Image.Resampling.BICUBIC), np.float32).transpose(2, 0, 1)
        assert np.array_equal(expected / np.float32(255), load_square(data, image, BOUNDS, Wanted()))


def test_a_long_strip_is_refused_before_its_square_is_made():
    """Of one that is a million pixels long and one high, even the narrow part is too large."""
    data = saved(Image.new("L", (1_000_000, 1)))
    with pytest.raises(InvalidRequest, match="would be 16 x 1000000 for this model") as error:
        load_square(data, image_of(), BOUNDS, Wanted())
    assert "IMAGE_TOO_LARGE" == error.value.reason
    cut = tiled(image_of(), 1_000_000, 1)
    assert cut.num_tiles == len(load_tiles(data, image_of(), BOUNDS, cut, Wanted()))


def behind_its_pixels(data):
    """A PNG whose chunk of EXIF stands at its end."""
    chunks, at = [], 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4])
        chunks.append(data[at : at + 12 + length])
        at += 12 + length
    said = [each for each in chunks if each[4:8] == b"eXIf"]
    assert said
    rest = [each for each in chunks if each not in said]
    return data[:8] + b"".join([*rest[:-1], *said, rest[-1]])


@pytest.mark.parametrize("turn", range(1, 9))
def test_the_size_of_a_picture_is_told_by_its_header(turn):
    """As it is shown, whatever EXIF says of how it stands, and wherever in a PNG that is said."""
    exif = Image.Exif()
    exif[0x0112] = turn
    picture = Image.new("RGB", (40, 22))
    expected = (40, 22) if turn < 5 else (22, 40)
    png = saved(picture, exif=exif)
    for data in (png, behind_its_pixels(png), saved(picture, "JPEG", exif=exif), saved(picture, "WEBP", exif=exif)):
        assert expected == shown_size(data, BOUNDS, Wanted())
        cut = tiled(image_of(), *expected)
        assert cut.num_tiles == len(load_tiles(data, image_of(), BOUNDS, cut, Wanted()))


def test_a_picture_of_another_size_than_its_header_says_is_refused():
    """Its prompt has places for what the header says."""
    cut = tiled(image_of(), 40, 22)
    with pytest.raises(InvalidRequest, match="is not as large as its header says"):
        load_tiles(noise(1, 22, 40), image_of(), BOUNDS, cut, Wanted())


def test_places_are_laid_out_as_the_picture_is():
    """Each place says where it lies: tile by tile they come, and row by row of the picture they stand in a prompt."""
    image = image_of()
    for width, height in SHAPES[:4]:
        cut = tiled(image, width, height)
        rows, columns = cut.grid
        if cut.pooled != (cut.kept[2] - cut.kept[0], cut.kept[3] - cut.kept[1]):
            continue
        features = np.zeros((cut.num_tiles, 17, 2), np.float32)
        features[0, :16, 0] = -1
        features[:, 16] = -2
        for tile, (row, column) in enumerate(itertools.product(range(rows), range(columns)), 1):
            for place, (down, across) in enumerate(itertools.product(range(4), range(4))):
                features[tile, place] = (4 * row + down, 4 * column + across)
        top, left, bottom, right = cut.kept
        expected = [[-1, 0]] * 16
        for down in range(top, bottom):
            expected += [*([down, across] for across in range(left, right)), [-2, -2]]
        assert expected == arranged(features, cut).tolist()


def test_places_are_joined_as_torch_joins_them():
    """Of more than 1.21 times the places of max_tiles tiles, bilinearly; rounding alone differs."""
    cut = tiled(image_of(), 200, 150)
    kept = cut.kept[2] - cut.kept[0], cut.kept[3] - cut.kept[1]
    assert cut.pooled < kept
    features = np.random.default_rng(0).normal(size=(cut.num_tiles, 17, 5)).astype(np.float32)
    laid = torch.from_numpy(features[1:, :16]).reshape(*cut.grid, 4, 4, 5).permute(0, 2, 1, 3, 4).reshape(8, 8, 5)
    laid = laid[cut.kept[0] : cut.kept[2], cut.kept[1] : cut.kept[3]].permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(laid, cut.pooled, mode="bilinear")[0].permute(1, 2, 0).numpy()
    found = arranged(features, cut)[16:].reshape(cut.pooled[0], cut.pooled[1] + 1, 5)
    assert np.abs(expected - found[:, :-1]).max() < 1e-6
    assert (found[:, -1] == features[0, 16]).all()


def test_an_answer_is_its_own_in_any_company(tiny_repository):
    """Pictures of every shape at once, alone and in pairs, with the cache or without: the same tokens as one by one."""
    files = [noise(seed, *size) for seed, size in enumerate(SHAPES)]
    asked = [chat(("what", each)) for each in files] + [chat(("two", *files[at : at + 2])) for at in range(5)]

    async def one_by_one(model):
        return [await answer(model, each) for each in asked]

    async def at_once(model):
        found = await asyncio.gather(*(answer(model, each, f"t{at % 3}") for at, each in enumerate(asked)))
        return list(found), [await answer(model, each) for each in asked[::-1]][::-1]

    expected = run(tiny_repository, "tiny-tiles", one_by_one)
    assert (expected, expected) == run(tiny_repository, "tiny-tiles", at_once, prefix_cache_mb=8)
    assert len(SHAPES) <= len({tuple(tokens) for tokens, _ in expected})


def test_a_picture_that_is_alone_is_another_than_one_of_two(tiny_repository):
    """It takes its tiles' places alone, and one view's in company. Neither finds what was kept of the other."""
    data = noise(1, 40, 22)
    cut = tiled(image_of(), 40, 22)

    async def use(model):
        _, bare = await answer(model, chat(("what", "")))
        found = []
        for parts in ((data,), (data, data), (data,), (data, data)):
            _, length = await answer(model, chat(("what", *parts)))
            counters = model.metrics.counters
            hits = [int(counters["picture_cache_lookups_total", each].value) for each in ("hit", "miss")]
            found.append((length - bare, *hits))
        return found

    one, two = TILE_PLACES + cut.num_places, 2 * (TILE_PLACES + 1)
    assert [(one, 0, 1), (two, 0, 2), (one, 1, 2), (two, 2, 2)] == run(tiny_repository, "tiny-tiles", use)


def test_what_does_not_fit_is_refused_before_it_is_decoded(tiny_repository, tmp_path):
    """By the number of its places, which its header tells; and a broken one by its own field."""
    whole = noise(1, 200, 150)

    async def use(model):
        most = model.reader.max_tokens
        refused = []
        for parts in (("a" * (most - 30), whole), ("what", whole[:-2000]), ("what", b"no picture")):
            with pytest.raises(InvalidRequest) as error:
                await answer(model, chat(parts))
            refused.append((error.value.field, error.value.reason))
        return refused

    place = "messages.turns[0].parts[1].image.data"
    expected = [("messages", "INPUT_TOO_LONG"), (place, "BAD_IMAGE"), (place, "BAD_IMAGE")]
    assert expected == run(tiny_repository, "tiny-tiles", use)
    assert MAX_TILED_TOKENS > most_places(image_of())


FAULTS = {
    "max_tiles is missing": lambda image: image.tiling.ClearField("max_tiles"),
    "grids are missing": lambda image: image.tiling.ClearField("grids"),
    "one of more than 256 tiles": lambda image: image.tiling.grids.add(rows=256, columns=2),
    "one of more than 16,777,216 pixels": lambda image: image.MergeFrom(bundle_pb2.ImageSpec(height=2049, width=2049)),
    "square_padding has 2 values": lambda image: image.tiling.square_padding.pop(),
    "is for square pictures": lambda image: setattr(image, "width", 2 * TILE),
    "with a square grid": lambda image: setattr(image, "grid_rows", 2),
    "so is num_class_tokens": lambda image: setattr(image, "num_class_tokens", 1),
    "up to 69,888 places": lambda image: image.MergeFrom(
        bundle_pb2.ImageSpec(
            grid_rows=64,
            grid_columns=64,
            tiling=bundle_pb2.TilingSpec(max_tiles=256, grids=[bundle_pb2.TileGrid(rows=4, columns=4)]),
        )
    ),
}


@pytest.mark.parametrize("why", FAULTS)
def test_a_tiling_that_no_server_follows_is_refused(why):
    """Each fault is told."""
    image = image_of()
    assert tiling_fault(image) is None
    FAULTS[why](image)
    assert why in str(tiling_fault(image))


def test_a_bundle_with_tiles_is_loaded_and_proves_itself(tiny_repository):
    """Its golden request is a picture in tiles."""

    async def main():
        async with Loaded(tiny_repository / "tiny-tiles" / "1", slots=2, lanes=1) as model:
            await verify_golden(model)
            return model.metrics.counters["picture_cache_lookups_total", "miss"].value

    assert 1 == asyncio.run(main())
