"""What pictures in prompts take of a server: memory, places in queues, time; each request is counted once."""

import asyncio
import gc
import threading
import time
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs
from tiny_sight import CHAT_TEMPLATE, MAX_TILED_TOKENS, MAX_TOKENS, NUM_PLACES, TILE, TILE_PLACES

from chat_bundles import with_template
from loaded import Loaded, answering, ask
from pictured_chats import DECODING, PICTURES, answer, chat, run
from waiting import until
from weft_proto.tiling import most_places
from weft_proto.v1 import bundle_pb2, common_pb2, generation_pb2
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.bundle.load import Bundle, load_bundle
from weft_server.config import read_config
from weft_server.errors import DeadlineExpired, InvalidRequest, Overloaded
from weft_server.loading.memory_check import memory_need_of, sight_bytes
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.models.seeing import MAX_SEEING, Seeing
from weft_server.requests.pictured_ids import PicturedIds


def test_features_leave_with_the_end_of_their_prompt(tiny_repository):
    """While an answer is written, nobody holds what its prompt showed. Its rules look back at the ids still."""

    async def use(model):
        lane = model.engine.lanes[0]
        step, held = lane.step, []

        def watched(take):
            deliveries = step(take)
            running = [each for each in lane.slots.sequences[: lane.slots.num_running] if each]
            held.extend(isinstance(each.source, PicturedIds) for each in running)
            return deliveries

        lane.step = watched
        decoding = common_pb2.Decoding(max_new_tokens=24, greedy={}, num_outputs=1)
        several = common_pb2.Decoding(max_new_tokens=24, sampling={}, num_outputs=3, penalties={"repetition": 1.2})
        for each in (decoding, several):
            await ask(model, messages=chat(("what", *PICTURES[:2])), decoding=each)
        gc.collect()
        return held, [each for each in gc.get_objects() if isinstance(each, PicturedIds)]

    held, left = run(tiny_repository, "tiny-llava", use)
    assert len(held) > 20
    assert not any(held)
    assert [] == left


def test_pictures_take_memory_at_their_bounds(tiny_repository):
    """The cache, four requests full of pictures on the way, a full queue, a prompt in each lane, three explained."""
    bundle = load_bundle(tiny_repository / "tiny-llava" / "1")
    blind = Bundle("m", 1, bundle.directory, bundle_pb2.BundleManifest())
    blind.manifest.CopyFrom(bundle.manifest)
    kept = [each for each in blind.manifest.graphs if each.role != bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER]
    del blind.manifest.graphs[:]
    blind.manifest.graphs.extend(kept)
    for queued, lanes in ((1000, 1), (50, 3)):
        config = read_config(repository=tiny_repository.folder, slots=5, lanes=lanes, max_queued_tokens=queued)
        seeing, other = (memory_need_of(each, config) for each in (bundle, blind))
        # 24 places of 32 numbers, of 3 x 16 x 24 pixels: five fit into 128 tokens.
        on_the_way = MAX_SEEING * 5 * (3 * 16 * 24 + NUM_PLACES * 32)
        held = on_the_way + (max(queued, MAX_TOKENS) + (lanes + 3) * MAX_TOKENS) * 32
        assert seeing.at_once == other.at_once
        assert 256 * 2**20 + 4 * held == seeing.full - other.full


@pytest.mark.parametrize("longest", [60, MAX_TILED_TOKENS])
def test_tiles_take_memory_at_their_bounds(longest, tiny_repository):
    """Of four requests, each with the largest picture or with as many as fit: pixels, features, what these become."""
    manifest = load_bundle(tiny_repository / "tiny-tiles" / "1").manifest
    manifest.text.max_total_tokens = longest
    config = read_config(repository=tiny_repository.folder, slots=5, lanes=1, max_queued_tokens=1000)
    places = TILE_PLACES + 1
    # Five tiles: each has its features twice while they are put together.
    tiles = 5 * (3 * TILE * TILE + 2 * places * 32) + min(longest, most_places(manifest.image)) * 32
    views = longest // places * (3 * TILE * TILE + places * 32)
    assert (tiles > views) == (longest == 60)
    held = MAX_SEEING * max(tiles, views) + (1000 + longest) * 32
    explained = 3 * longest * 32
    assert 256 * 2**20 + 4 * (held + explained) == sight_bytes(manifest, config)
    del manifest.graphs[next(at for at, each in enumerate(manifest.graphs) if each.path == "explain.onnx")]
    assert 256 * 2**20 + 4 * held == sight_bytes(manifest, config)


@contextmanager
def held(model):
    """Let no picture be encoded until the block ends."""
    session, goes_on = model.sight.lanes[0].sessions["pixel_values"], threading.Event()
    encode = session.run
    session.run = lambda feeds: encode(feeds) if goes_on.wait(30) else None
    try:
        yield
    finally:
        session.run = encode
        goes_on.set()


def test_a_request_with_pictures_is_one_request(tiny_repository):
    """Whatever pictures it has, it is queued once while they are on the way, runs once and has waited once."""

    async def use(model):
        model.metrics.watch(model.stats)
        names = ("requests_queued", "requests_seeing", "requests_running", "queued_tokens")
        with held(model):
            started = time.monotonic()
            asked = [asyncio.create_task(answer(model, chat(("a", *PICTURES)), f"t{each}")) for each in range(6)]
            await until(lambda: model.sight.stats().queued + model.sight.stats().running == 3 * MAX_SEEING)
            await until(lambda: model.seeing.num_requests == len(asked))
            arrived = time.monotonic()
            await until(lambda: time.monotonic() > arrived + 0.2)
            least = time.monotonic() - arrived
            gauges = model.metrics.gauges()
            most = time.monotonic() - started
        await asyncio.gather(*asked)
        waits = model.metrics.queue_time.snapshot()[0][-1][1]
        after = [model.metrics.gauges()[name] for name in (*names, "oldest_queued_seconds")]
        return [gauges[name] for name in names], (least, gauges["oldest_queued_seconds"], most), waits, after

    gauges, ages, waits, after = run(tiny_repository, "tiny-llava", use)
    assert [6, 6, 0, 0] == gauges
    assert sorted(ages) == list(ages)  # the oldest came before all had, and not before the first was asked
    assert 6 == waits
    assert [0, 0, 0, 0, 0] == after


def test_the_queue_of_pictures_is_seen_by_deadlines_and_retries(tiny_repository):
    """Who would wait too long for the pictures of others hears it at once, and so does who finds the queue full."""

    async def use(model):
        session = model.sight.lanes[0].sessions["pixel_values"]
        encode = session.run
        session.run = lambda feeds: time.sleep(0.15) or encode(feeds)
        asked = [asyncio.create_task(answer(model, chat(("a", PICTURES[0])), f"t{each}")) for each in range(30)]
        await until(lambda: model.seeing.wait_s() and model.seeing.num_requests < 26)
        wait_s = model.seeing.wait_s()
        started = time.monotonic()
        with pytest.raises(Overloaded, match="pictures of those who wait") as near:
            await ask(model, "near", started + wait_s / 2, messages=chat(("a", PICTURES[1])))
        told = time.monotonic() - started
        with pytest.raises(Overloaded) as full:
            model.engine.reserve(count=40)
        await asyncio.gather(*asked)
        refusals = [near.value.reason, full.value.reason]
        return wait_s, told, refusals, near.value.retry_after_s, full.value.retry_after_s

    wait_s, told, reasons, *retries = run(tiny_repository, "tiny-llava", use, max_queued_requests=40)
    assert ["DEADLINE_TOO_NEAR", "QUEUE_FULL"] == reasons
    assert told < wait_s / 2
    # What the machine does between may make the pace another one.
    assert all(wait_s / 4 < each < 10 * wait_s for each in retries)


def test_a_deadline_ends_who_waits_for_others():
    """It is told then, leaves its place in the line, and the next one comes on."""

    async def main():
        seeing, order = Seeing(1), []

        async def come(name, deadline):
            async with seeing.place(time.monotonic(), deadline):
                order.append(name)

        async with seeing.place(time.monotonic()):
            late, other = (asyncio.create_task(come(*each)) for each in (("late", time.monotonic() + 0.05), ("b", 1e9)))
            with pytest.raises(DeadlineExpired):
                await late
            assert (2, []) == (seeing.num_requests, order)
        await other
        return order, seeing.num_requests, seeing.wait_s()

    assert (["b"], 0, 0.0) == asyncio.run(main())


NO_PLACE = {
    "texts alone": CHAT_TEMPLATE.replace("'<image>' if part['type'] == 'image' else part['text']", "part['text']"),
    "another token": CHAT_TEMPLATE.replace("<image>", "<picture>"),
    "two places": CHAT_TEMPLATE.replace("<image>", "<image><image>"),
    "no parts": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
}


@pytest.mark.parametrize("name", NO_PLACE)
def test_a_template_without_a_place_for_a_picture_is_told_at_load(name, tiny_repository, tmp_path):
    """A line of the log says it, each picture is refused by its place, and texts are answered."""
    with_template(tiny_repository / "tiny-llava" / "1", tmp_path / "m" / "1", NO_PLACE[name].encode())

    async def main():
        with capture_logs() as logs:
            async with Loaded(tmp_path / "m" / "1", slots=2, lanes=1) as model:
                assert not model.reader.takes_pictures
                tokens, _ = await answer(model, chat(("what", "is it")))
                refused = []
                for said in (("what", PICTURES[0]), ("an <image> here",)):
                    with pytest.raises(InvalidRequest) as error:
                        await answer(model, chat(said))
                    refused.append((error.value.field, error.value.reason))
        return logs, tokens, refused

    logs, tokens, refused = asyncio.run(main())
    assert ["the chat template has no place for a picture: messages hold none"] == [each["event"] for each in logs]
    assert tokens
    expected = [
        ("messages.turns[0].parts[1].image", "WRONG_INPUT_KIND"),
        ("messages.turns[0].parts[0].text", "INVALID_FIELD"),
    ]
    assert expected == refused


@pytest.mark.parametrize("name", ["tiny-llava", "tiny-generate"])
def test_the_size_of_a_message_is_that_of_its_model(name, tiny_repository):
    """Where both kinds are served, the door takes a file. A model that takes no pictures takes texts alone then."""

    async def use(model):
        refusals = []
        for size in (MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1):
            call = RequestContext("Generate")
            call.usage.request_bytes = size
            REQUEST_CONTEXT.set(call)
            request = generation_pb2.GenerateRequest(messages=chat(("a",)), decoding=DECODING)
            try:
                await answering(model)["Generate"](request, None)
                refusals.append("")
            except InvalidRequest as error:
                refusals.append(error.reason)
        return refusals

    assert ["", "MESSAGE_TOO_LARGE" * (name == "tiny-generate")] == run(tiny_repository, name, use)
