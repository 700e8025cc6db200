"""What pictures in prompts take of a server: memory, places in queues, time; each request is counted once."""

import gc

from tiny_sight import MAX_TOKENS, NUM_PLACES

from loaded import ask
from pictured_chats import PICTURES, chat, run
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import Bundle, load_bundle
from weft_server.config import read_config
from weft_server.loading.memory_check import memory_need_of
from weft_server.models.model import MAX_SEEING
from weft_server.source import PicturedIds


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
    """The cache, four requests full of pictures on the way, a full queue, and a prompt in each lane."""
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
        held = on_the_way + (max(queued, MAX_TOKENS) + lanes * MAX_TOKENS) * 32
        assert seeing.at_once == other.at_once
        assert 256 * 2**20 + 4 * held == seeing.full - other.full
