"""What an answer attended to in the pictures of its prompt: which columns are whose, and what it takes to tell."""

import asyncio
import base64
import gc
import io
import json
import shutil
import threading

import numpy as np
import pytest
from google.protobuf import json_format
from PIL import Image
from tiny_parts import image_spec
from tiny_sight import MAX_TOKENS, NUM_PLACES, TILE, TILING

from loaded import ask
from openai_calls import serving
from pictured_chats import DECODING, PICTURES, answer, chat, run
from waiting import until
from weft_proto.tiling import tiled
from weft_proto.v1 import common_pb2, generation_pb2
from weft_proto.v1.methods import METHODS
from weft_server.errors import CannotExplain, InvalidRequest
from weft_server.models.explainer import MAX_SEEING_AGAIN
from weft_server.models.picture_features import PictureFeatures
from weft_server.preprocessing.images import PictureBounds
from weft_server.preprocessing.picture_views import PictureViews
from weft_server.preprocessing.pictured_prompt import PromptPicture
from weft_server.preprocessing.wanted import Wanted
from weft_server.requests.pictured_ids import PicturedIds

CHAT = "/v1/chat/completions"


async def alignment_of(model, messages, decoding=DECODING, tenant="", **explain):
    """What an answer to messages attended to."""
    asked = {"messages": messages, "decoding": decoding, "explain": common_pb2.Explain(**explain)}
    return (await ask(model, tenant, **asked)).alignment


def test_columns_of_pictures_lie_where_their_places_are(tiny_repository):
    """Of two pictures in two turns: each grid is a run of places, in the order of the pictures."""

    async def use(model):
        asked = chat(("what", PICTURES[0]), ("and", PICTURES[1], "there"))
        return await alignment_of(model, asked), await alignment_of(model, chat(("hello",)))

    seen, blind = run(tiny_repository, "tiny-llava", use)
    places = [column for column, token in enumerate(seen.source_tokens) if token == "<image>"]
    starts = [places[0], places[NUM_PLACES]]
    assert places == [start + each for start in starts for each in range(NUM_PLACES)]
    found = [(each.picture, each.first_column, each.grid_rows, each.grid_columns) for each in seen.pictures]
    assert [(0, starts[0], 4, 6), (1, starts[1], 4, 6)] == found
    assert [6, 6] == [each.row_columns for each in seen.pictures]
    assert [] == list(blind.pictures)
    assert "<image>" not in blind.source_tokens


def views_of(spec, size):
    """The grids of a picture of so many pixels, and of one of several."""
    file = io.BytesIO()
    Image.new("RGB", size).save(file, "PNG")
    views, wanted = PictureViews(spec, PictureBounds(10_000, 10_000)), Wanted()
    picture = PromptPicture(common_pb2.Image(data=file.getvalue()), "image")
    (alone,) = views.cut([picture], wanted)
    # Each picture is one stretch of places.
    (of_one,), (of_several,) = views.grids(alone, wanted), views.grids(picture, wanted)
    return of_one, of_several


def test_a_grid_lies_on_what_was_cut_out():
    """Of a picture of 60 x 20 made 48 x 16, the middle third lies under it, behind the class token."""
    spec = image_spec(3, 16, 16, 4)
    spec.shortest_edge, spec.num_class_tokens = 16, 1
    (grid,), _ = views_of(spec, (60, 20))
    assert (1, 4, 4, 4) == grid[:4]
    np.testing.assert_allclose((1 / 3, 0, 2 / 3, 1), grid.region)


TILES = image_spec(3, TILE, TILE, 4)
TILES.tiling.CopyFrom(TILING)


@pytest.mark.parametrize("size", [(40, 22), (22, 40), (64, 16), (16, 16), (90, 7)])
def test_grids_of_tiles_lie_on_the_picture(size):
    """The whole picture, then its tiles: rows with an end each, on no more than one place beyond its edges."""
    (whole, tiles), (square,) = views_of(TILES, size)
    cut = tiled(TILES, *size)
    assert (0, 4, 4, 4, None) == whole
    assert (16, *cut.pooled, cut.pooled[1] + 1) == tiles[:4]
    # A place has four of the pixels that the picture was made of. The middle is the middle.
    across, down = 4 / cut.inner[0], 4 / cut.inner[1]
    left, top, right, bottom = tiles.region
    np.testing.assert_allclose((0, 0), (left, top), atol=max(across, down))
    np.testing.assert_allclose((1, 1), (left + right, top + bottom), atol=max(across, down))
    # Of a square around it, the picture is what lies between its edges.
    side = max(size)
    assert (0, 4, 4, 4) == square[:4]
    np.testing.assert_allclose(side / size[0], square.region.right - square.region.left)
    np.testing.assert_allclose(side / size[1], square.region.bottom - square.region.top)


def test_what_has_left_the_cache_is_seen_again_with_the_same_bits(tiny_repository):
    """With room for no picture, an explanation encodes it once more, and tells the same."""

    async def use(model):
        session, runs = model.sight.lanes[0].sessions["pixel_values"], []
        encode = session.run
        session.run = lambda feeds: runs.append(1) or encode(feeds)
        asked = chat(("what", *PICTURES[:2]))
        kept = await alignment_of(model, asked)
        after_one = len(runs)
        model.picture_features = PictureFeatures(model.metrics, 0)
        anew = await alignment_of(model, asked)
        return kept, anew, after_one, len(runs) - after_one

    kept, anew, after_one, more = run(tiny_repository, "tiny-llava", use)
    assert kept == anew
    assert (True, 2 * after_one) == (after_one > 0, more)


def test_few_explanations_hold_what_was_seen(tiny_repository):
    """While one is read, one more lies ready. Others that have ended wait without features, and nothing is left."""

    async def use(model):
        goes_on, explain = threading.Event(), model.explainer.explain
        model.explainer.explain = lambda *given: explain(*given) if goes_on.wait(30) else None
        asks = [alignment_of(model, chat(("what", PICTURES[each % 3]), (str(each),))) for each in range(6)]
        tasks = [asyncio.create_task(each) for each in asks]
        await until(lambda: model.explainer.num_waiting == MAX_SEEING_AGAIN)
        await until(lambda: model.engine.stats().running == 0)
        await asyncio.sleep(0.2)
        gc.collect()
        held = sum(isinstance(each, PicturedIds) for each in gc.get_objects())
        goes_on.set()
        found = await asyncio.gather(*tasks)
        gc.collect()
        return held, len(found), [each for each in gc.get_objects() if isinstance(each, PicturedIds)]

    # That with grids is made of one without, which its caller holds as long.
    held, count, left = run(tiny_repository, "tiny-llava", use)
    assert held <= 2 * MAX_SEEING_AGAIN
    assert (6, []) == (count, left)


def test_who_leaves_while_its_answer_is_explained_leaves_nothing(tiny_repository):
    """Callers that are cancelled at any moment give back what they held."""

    async def use(model):
        asked = [chat(("go", each)) for each in PICTURES]
        expected = await alignment_of(model, asked[1], tenant="b")
        for pause in range(12):
            tasks = [asyncio.create_task(alignment_of(model, each, tenant=f"t{pause}")) for each in asked]
            await asyncio.sleep(pause * 0.004)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        again = await alignment_of(model, asked[1], tenant="c")
        return expected == again, model.seeing.num_requests, model.explainer.num_places

    assert (True, 0, 0) == run(tiny_repository, "tiny-llava", use)


def test_the_largest_prompt_is_explained(tiny_repository):
    """Four pictures and words up to the last token but one; and a layer or a head that is not there is named."""

    async def use(model):
        _, length = await answer(model, chat(("", *[PICTURES[0]] * 4)))
        full = chat(("z" * (MAX_TOKENS - 1 - length), *[PICTURES[0]] * 4))
        one = common_pb2.Decoding(max_new_tokens=1, greedy={})
        alignment = await alignment_of(model, full, one)
        refused = []
        for explain in ({"layer": 2}, {"layer": 1, "head": 2}, {"head": 0}):
            with pytest.raises(InvalidRequest) as error:
                await alignment_of(model, full, one, **explain)
            refused.append(error.value.field)
        return len(alignment.source_tokens), len(alignment.weights), sum(alignment.weights), refused

    columns, count, total, refused = run(tiny_repository, "tiny-llava", use)
    assert MAX_TOKENS - 1 == columns == count
    assert pytest.approx(1, abs=1e-5) == total
    assert ["explain.layer", "explain.head", "explain.head"] == refused


def test_an_older_bundle_cannot_explain(tiny_repository, tmp_path):
    """Without an EXPLAIN graph it is ready, answers as before, and says so."""
    older = tmp_path / "tiny-llava" / "1"
    shutil.copytree(tiny_repository / "tiny-llava" / "1", older)
    manifest = json.loads((older / "bundle.json").read_text())
    for part in ("graphs", "files"):
        manifest[part] = [each for each in manifest[part] if each["path"] != "explain.onnx"]
    del manifest["attention"]
    (older / "explain.onnx").unlink()
    (older / "bundle.json").write_text(json.dumps(manifest))

    async def use(model):
        with pytest.raises(CannotExplain):
            await alignment_of(model, chat(("what", PICTURES[0])))
        return await answer(model, chat(("what", PICTURES[0])))

    async def ordinary(model):
        return await answer(model, chat(("what", PICTURES[0])))

    assert run(tiny_repository, "tiny-llava", ordinary) == run(tmp_path, "tiny-llava", use)


def test_explain_by_http_is_that_of_generate(tiny_repository):
    """OpenAI's door has the same message under `alignment`, and names a layer that is not there."""
    url = "data:image/png;base64," + base64.b64encode(PICTURES[0]).decode()
    said = [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": url}}]
    asked = {"model": "tiny-llava", "messages": [{"role": "user", "content": said}], "max_tokens": 12, "temperature": 0}

    async def main():
        async with serving(tiny_repository, "tiny-llava") as client:
            request = generation_pb2.GenerateRequest(
                messages=chat(("what", PICTURES[0])), decoding=DECODING, explain=common_pb2.Explain(layer=0)
            )
            typed = (await client.caller.unary(METHODS["Generate"], request)).alignment
            whole = await client.post(CHAT, **asked, explain={"layer": 0})
            events = await client.post(CHAT, **asked, explain={"layer": 0}, stream=True)
            (last,) = [each["alignment"] for each in events if isinstance(each, dict) and "alignment" in each]
            assert whole["alignment"] == last
            wrong = await client.refusal(CHAT, **asked, explain={"layer": 9})
            return typed, json_format.ParseDict(whole["alignment"], common_pb2.Alignment()), wrong

    typed, told, wrong = asyncio.run(main())
    assert typed == told
    assert [24] == [each.grid_rows * each.grid_columns for each in told.pictures]
    assert (400, "explain.layer", "invalid_field") == wrong
