"""Pictures that are read at a size near their own: how large they are made, and where their places stand."""

import asyncio
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from samples import sample
from tiny_sight import CELL, CELLS, IMAGE_ID, MAX_CELLED_TOKENS

from crowd import Request, seen
from loaded import Loaded, ask
from pictured_chats import DECODING, answer, chat, noise, run
from weft_proto.fitting import aspect_fault, fit, least_fitted
from weft_proto.tiling import most_places, places_of, tiling_fault
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.errors import InvalidRequest
from weft_server.loading.golden import verify_golden
from weft_server.loading.memory_check import sight_bytes
from weft_server.models.seeing import MAX_SEEING
from weft_server.preprocessing.images import PictureBounds
from weft_server.preprocessing.tiles import load_cells
from weft_server.preprocessing.wanted import Wanted
from weft_server.requests.pictured_ids import PicturedIds, SeenPicture, offsets_of
from weft_server.sequence import Decoding, Sequence
from weft_server.source import NOTHING, Cells, Ids

BOUNDS = PictureBounds(1 << 24, 1 << 22)
# Strips, portraits, what has fewer pixels than one is made to have, and what has many more.
SHAPES = ((40, 22), (7, 60), (90, 5), (16, 16), (3, 4), (33, 32), (200, 150))


def image_of(most=20, least=4, cell=CELL):
    """An ImageSpec of square cells whose values are the pixels themselves, over 255."""
    image = bundle_pb2.ImageSpec(channels=3, height=cell, width=cell, resample=bundle_pb2.RESAMPLE_BICUBIC)
    image.mean.extend([0, 0, 0])
    image.std.extend([1, 1, 1])
    image.grid_rows = image.grid_columns = 1
    image.tiling.max_pixels, image.tiling.min_pixels = most * cell**2, least * cell**2
    return image


SIDES = st.integers(1, 3000)


@given(SIDES, SIDES, st.integers(1, 60), st.integers(1, 60), st.sampled_from([4, 28]), st.integers(-20, 20))
def test_whatever_the_size_a_picture_is_within_its_bounds(width, height, one, other, cell, more):
    """It is made of whole cells, as few and as many as is stated. Those of a long strip may be many."""
    image = image_of(max(one, other), min(one, other), cell)
    image.tiling.max_pixels += abs(more)
    image.tiling.min_pixels = max(1, image.tiling.min_pixels + more)
    if image.tiling.min_pixels > image.tiling.max_pixels or aspect_fault(width, height):
        return
    cut = fit(image, width, height)
    rows, columns = cut.grid
    assert (columns * cell, rows * cell) == cut.inner
    assert least_fitted(image) <= rows * columns == sum(places_of(image, cut)) <= most_places(image)
    if rows * columns > image.tiling.max_pixels / cell**2:
        assert 1 in cut.grid or rows * columns < image.tiling.min_pixels / cell**2 + rows + columns


def test_cells_laid_out_are_the_picture():
    """Resized once, row by row."""
    image = image_of()
    for width, height in SHAPES:
        data = noise(1, width, height)
        cut = fit(image, width, height)
        cells = load_cells(data, image, BOUNDS, cut, Wanted())
        picture = Image.open(io.BytesIO(data)).convert("RGB").resize(cut.inner, Image.Resampling.BICUBIC)
        expected = np.asarray(picture, np.float32).transpose(2, 0, 1) / np.float32(255)
        assert (*cut.grid, 3, CELL, CELL) == cells.shape
        lines = [np.concatenate(list(row), 2) for row in cells]
        assert np.array_equal(expected, np.concatenate(lines, 1))


def test_places_stand_in_rows_and_columns():
    """A text has one position thrice. A picture has its first, and rows and columns; what follows is behind both."""
    shown = [
        SeenPicture(2, b"", np.zeros((6, 1)), cells=(2, 3)),
        SeenPicture(9, b"", np.zeros((4, 1)), 1, cells=(4, 1)),
    ]
    positions = np.arange(15)[:, None] + offsets_of(14, shown)
    expected = [[at] * 3 for at in range(2)]
    expected += [[2, 2 + row, 2 + column] for row in range(2) for column in range(3)]
    expected += [[5] * 3]
    expected += [[6, 6 + row, 6] for row in range(4)]
    assert [*expected, [10] * 3, [11] * 3] == positions.tolist()
    assert offsets_of(14, [each._replace(cells=None) for each in shown]) is None


def test_a_piece_of_a_prompt_has_its_own_positions():
    """Wherever it is cut. A prompt without such pictures has none, and what it writes stands behind it."""
    ids = np.arange(12)
    shown = (SeenPicture(2, b"a", np.zeros((6, 4), np.float32), cells=(2, 3)),)
    offsets = offsets_of(12, shown)
    source = PicturedIds(ids, shown, 99, Ids(ids), offsets)
    for start, stop in ((0, 12), (0, 1), (3, 7), (6, 12)):
        assert np.array_equal(offsets[start:stop], source.beside(start, stop).offsets)
    assert -3 == source.offset_behind
    assert (NOTHING, 0) == (Ids(ids).beside(0, 12), Ids(ids).offset_behind)
    assert PicturedIds(ids, (), 99, Ids(ids)).beside(0, 12) == NOTHING


def test_pictures_of_one_shape_share_a_run():
    """Those of another do not, also where they have as many cells."""

    def alike(rows, columns):
        return Cells(np.zeros((rows, columns, 3, 2, 2), np.float32), (rows, columns)).alike

    assert alike(2, 3) == alike(2, 3) != alike(3, 2)


def test_a_picture_of_another_size_than_its_header_says_is_refused():
    """Its prompt has places for what the header says."""
    with pytest.raises(InvalidRequest, match="is not as large as its header says"):
        load_cells(noise(1, 22, 40), image_of(), BOUNDS, fit(image_of(), 40, 22), Wanted())


def asked():
    """Chats about pictures of every shape, alone and in pairs, and about none."""
    files = [noise(seed, *size) for seed, size in enumerate(SHAPES)]
    alone = [chat(("what", each)) for each in files]
    return [*alone, *(chat(("two", *files[at : at + 2])) for at in range(5)), chat(("no picture at all", ""))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-cells", "tiny-cells-int8", "tiny-deep", "tiny-deep-int8"])
def test_an_answer_is_its_own_in_any_company(name, tiny_bundle):
    """Pictures of every shape and a text at once, with the prefix cache or without: the same as one by one."""

    async def one_by_one(model):
        return [await answer(model, each) for each in asked()]

    async def at_once(model):
        found = await asyncio.gather(*(answer(model, each, f"t{at % 3}") for at, each in enumerate(asked())))
        return list(found), [await answer(model, each) for each in asked()[::-1]][::-1]

    repository = tiny_bundle(name).parent.parent
    expected = run(repository, name, one_by_one)
    assert (expected, expected) == run(repository, name, at_once, prefix_cache_mb=8)
    assert len(SHAPES) <= len({tuple(tokens) for tokens, _ in expected})


def test_what_a_prefix_cache_knows_of_a_picture_stands_where_it_stood(tiny_repository):
    """A second question reads what is new alone, behind a picture that was read by another request."""
    picture = noise(1, 40, 22)
    said = "A long text of many words, so that whole blocks of the cache stand behind the picture. "
    turns = [chat((picture, said + each)) for each in ("What is this?", "And where is it?")]

    async def use(model):
        found = []
        # What has been read twice is kept.
        for each in (turns[0], *turns):
            completion = (await ask(model, messages=each, decoding=DECODING)).completion
            found.append((list(completion.token_ids), completion.usage.cached_tokens))
        return found

    apart = [run(tiny_repository, "tiny-cells", lambda model, each=each: answer(model, each)) for each in turns]
    (first, none), _, (second, cached) = run(tiny_repository, "tiny-cells", use, prefix_cache_mb=8)
    assert [first, second] == [tokens for tokens, _ in apart]
    assert none == 0 < fit(image_of(), 40, 22).num_places < cached


def test_what_is_written_stands_where_it_would_if_it_had_been_given(tiny_repository):
    """A prompt with the beginning of its answer behind it is answered with the rest, whatever picture is in it."""
    rng = np.random.default_rng(3)
    pixels = rng.normal(0, 1, (3, 5, 3, CELL, CELL)).astype(np.float32)
    prompt = [7, 8, *[IMAGE_ID] * 15, 9]

    async def written(model, ids, count):
        request = Request(Ids(np.array(ids)), None, False, False, None, ((2, Cells(pixels, (3, 5))),))
        sequence = Sequence("1", await seen(model, request), Decoding(count, 0, (), None))
        model.engine.reserve()
        model.engine.submit(sequence)
        await sequence.reply.done()
        return list(sequence.reply.token_ids)

    async def use(model):
        whole = await written(model, prompt, 20)
        return whole, [whole[:at] + await written(model, prompt + whole[:at], 20 - at) for at in (1, 8, 13)]

    whole, parts = run(tiny_repository, "tiny-cells", use)
    assert [whole] * 3 == parts
    assert len(set(whole)) > 5


def test_beams_stand_behind_the_picture(tiny_repository):
    """Of a search with one beam more than is kept, the best is what a search of its own finds, whoever is beside it."""
    decoding = common_pb2.Decoding(max_new_tokens=10, beams={"num_beams": 3})
    chats = [chat((noise(seed, 40, 22), "what")) for seed in range(3)]

    async def use(model, several):
        asked = [ask(model, messages=each, decoding=decoding) for each in chats]
        found = await asyncio.gather(*asked) if several else [await each for each in asked]
        return [list(each.completion.token_ids) for each in found]

    alone = run(tiny_repository, "tiny-cells", lambda model: use(model, several=False), slots=3)
    assert alone == run(tiny_repository, "tiny-cells", lambda model: use(model, several=True), slots=9)
    assert 3 == len({tuple(each) for each in alone})


def test_drafts_stand_behind_the_picture(tiny_bundle):
    """A row that runs alone may be given several tokens: those that it would have been given one by one."""
    repeated = chat((noise(2, 40, 22), "abab" * 12))
    decoding = common_pb2.Decoding(max_new_tokens=60, greedy={})
    repository = tiny_bundle("tiny-cells-int8").parent.parent

    async def use(model):
        found = (await ask(model, messages=repeated, decoding=decoding)).completion
        return list(found.token_ids), model.metrics.draft_tokens.value

    found, drafted = run(repository, "tiny-cells-int8", use, slots=1, num_speculative_tokens=4)
    expected, none = run(repository, "tiny-cells-int8", use, slots=1, num_speculative_tokens=0)
    assert expected == found
    assert drafted > none == 0


def test_what_does_not_fit_is_refused_before_it_is_decoded(tiny_repository):
    """By the number of its places, which its header tells; a strip by its sides; and a broken one by its own field."""
    whole = noise(1, 40, 30)

    async def use(model):
        refused = []
        for parts in (
            ("w" * (model.reader.max_tokens - 30), whole),
            ("w", *[whole] * 12),
            ("what", noise(1, 402, 2)),
            ("what", whole[:-800]),
            ("what", b"no picture"),
        ):
            with pytest.raises(InvalidRequest) as error:
                await answer(model, chat(parts))
            refused.append((error.value.field, error.value.reason, "200 times the shorter" in error.value.message))
        await answer(model, chat(("what", noise(1, 400, 2))))
        return refused

    place = "messages.turns[0].parts[1].image.data"
    too_long, broken = ("messages", "INPUT_TOO_LONG", False), (place, "BAD_IMAGE", False)
    strip = (place, InvalidRequest(place, "").reason, True)
    assert [too_long, too_long, strip, broken, broken] == run(tiny_repository, "tiny-cells", use)
    assert MAX_CELLED_TOKENS > most_places(image_of())


FAULTS = {
    "so is grids": lambda image: image.tiling.grids.add(rows=1, columns=2),
    "so is longest_edge": lambda image: setattr(image.tiling, "longest_edge", 16),
    "so is before_tile": lambda image: setattr(image.tiling, "before_tile", "[]"),
    "min_pixels is missing": lambda image: image.tiling.ClearField("min_pixels"),
    "or larger than max_pixels": lambda image: setattr(image.tiling, "min_pixels", image.tiling.max_pixels + 1),
    "cells that are one place": lambda image: image.MergeFrom(bundle_pb2.ImageSpec(grid_rows=2, grid_columns=2)),
    "is for square pictures": lambda image: setattr(image, "width", 2 * CELL),
    "so is num_class_tokens": lambda image: setattr(image, "num_class_tokens", 1),
    "of more than 16,777,216 pixels": lambda image: setattr(image.tiling, "max_pixels", 16_777_300),
    "up to 262,144 places": lambda image: image.MergeFrom(
        bundle_pb2.ImageSpec(height=8, width=8, tiling=bundle_pb2.TilingSpec(max_pixels=16_777_216))
    ),
}


@pytest.mark.parametrize("why", FAULTS)
def test_cells_that_no_server_follows_are_refused(why):
    """Each fault is told."""
    image = image_of()
    assert tiling_fault(image) is None
    FAULTS[why](image)
    assert why in str(tiling_fault(image))


def test_a_bundle_of_cells_is_loaded_and_proves_itself(tiny_repository):
    """Its golden request is a picture of several cells, and it is explained."""

    async def main():
        async with Loaded(tiny_repository / "tiny-cells" / "1", slots=2, lanes=1) as model:
            await verify_golden(model)
            return model.metrics.counters["picture_cache_lookups_total", "miss"].value

    assert 1 == asyncio.run(main())


def test_columns_of_cells_lie_where_the_cells_do(tiny_repository):
    """Each picture has one grid, on the whole of it, of its own rows and columns."""
    shapes = ((40, 22), (7, 60))
    files = [noise(seed, *size) for seed, size in enumerate(shapes)]

    async def use(model):
        explained = ask(model, messages=chat(("two", *files)), decoding=DECODING, explain=common_pb2.Explain())
        return (await explained).alignment

    found = run(tiny_repository, "tiny-cells", use)
    places = [column for column, token in enumerate(found.source_tokens) if token == "<image>"]
    first, other = (fit(image_of(), *size) for size in shapes)
    expected = [(0, places[0], *first.grid), (1, places[first.num_places], *other.grid)]
    grids = [(each.picture, each.first_column, each.grid_rows, each.grid_columns) for each in found.pictures]
    assert expected == grids
    assert first.num_places + other.num_places == len(places)
    assert not any(each.HasField("region") for each in found.pictures)


def test_what_an_answer_looked_at_stands_where_the_cells_do(tiny_repository):
    """What is told is what the model in torch says of the same ids, features and positions."""
    rng = np.random.default_rng(4)
    cells = Cells(rng.normal(0, 1, (2, 4, 3, CELL, CELL)).astype(np.float32), (2, 4))
    prompt, answer_ids = [7, *[IMAGE_ID] * 8, 9, 10], [11, 12, 13]

    async def use(model):
        source = await seen(model, Request(Ids(np.array(prompt)), None, False, False, None, ((1, cells),)))
        reading = model.explainer.resolve(common_pb2.Explain(layer=1))
        return source, model.explainer.read(source, answer_ids, reading).weights

    source, weights = run(tiny_repository, "tiny-cells", use)
    features, offsets = (torch.from_numpy(each)[None] for each in source.beside(0, len(prompt)))
    ids = torch.from_numpy(source.piece(0, len(prompt)))[None]
    lengths, layer, head = (torch.tensor([each]) for each in (len(prompt), 1, -1))
    with torch.inference_mode():
        model = sample("tiny-cells").model
        expected, _ = model.explain(layer, head, torch.tensor([answer_ids[:-1]]), ids, lengths, features, offsets)
    assert np.abs(expected.numpy() - weights).max() < 1e-4
    assert offsets.any()


def test_cells_take_memory_at_their_bounds(tiny_repository):
    """Of four requests, each with as many cells as fit into a prompt: pixels and features."""
    manifest = load_bundle(tiny_repository / "tiny-cells" / "1").manifest
    config = read_config(repository=tiny_repository.folder, slots=5, lanes=1, max_queued_tokens=1000)
    on_the_way = MAX_SEEING * MAX_CELLED_TOKENS * (3 * CELL**2 + 32)
    held = on_the_way + (1000 + MAX_CELLED_TOKENS + 3 * MAX_CELLED_TOKENS) * 32
    assert 256 * 2**20 + 4 * held == sight_bytes(manifest, config)
    assert CELLS == manifest.image.tiling
