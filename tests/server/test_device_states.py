"""The path for a device whose memory the host cannot read, run for real on the CPU as if it were one.

What needs CUDA itself is in tests/gpu.
"""

import asyncio
import ctypes
import random

import numpy as np
import pytest
import tiny_t5
from tiny import CHECKPOINTS

from far_models import answers_of
from few import counts
from toy import START, Toy
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.graphs import attends_with_bias
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.prefill_chunks import PrefillChunks
from weft_server.engine.slots import Slots
from weft_server.errors import BundleError
from weft_server.runtime.blocks import block_of
from weft_server.runtime.buffers import Columns, FarRows, Outputs
from weft_server.runtime.cuda.copies import Copies, Stretch
from weft_server.runtime.cuda.device_states import DeviceStates
from weft_server.runtime.device import HOST, Device
from weft_server.runtime.session import Session, Value
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics

FAR = Device(in_place=False)


def content(block):
    """What lies in a block of the CPU's memory, as float32."""
    words = (ctypes.c_float * (block.num_bytes // 4)).from_address(block.pointer)
    return np.ctypeslib.as_array(words).reshape(block.words(block.num_bytes // 4).shape)


def far(array):
    """A far tensor with the array's content, and its block."""
    value = Value.like(array, FAR)
    value.send(array)
    return value


def test_columns_are_seen_when_they_are_sent():
    """Far runs see what was last sent, all in one transfer; on the host they see what is there."""
    arrays = {"first": np.arange(4, dtype=np.float32), "other": np.arange(80, dtype=np.int64).reshape(4, 20)}
    columns = Columns(arrays, FAR)
    columns.send()
    arrays["first"][0], arrays["other"][3, 19] = 7, 8
    assert [0, 1, 2, 3] == content(columns.rows(0, 4)["first"]).tolist()
    columns.send()
    assert [7, 1, 2, 3] == content(columns.rows(0, 4)["first"]).tolist()
    assert [*range(60, 79), 8] == content(columns.rows(3, 4)["other"]).view(np.int64).tolist()
    assert arrays["first"].ctypes.data == Columns(arrays, HOST).rows(0, 4)["first"].pointer


def test_copies_touch_their_targets_alone():
    """Rows are copied onto rows at any offset, all in one run, and nothing else changes."""
    first, second = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(8, dtype=np.int64).reshape(4, 2)
    one, other = far(first), far(second)
    pairs = [(one.block.rows(3, 4), one.block.rows(0, 1)), (other.block.rows(0, 2), other.block.rows(2, 4))]
    Copies(2, FAR).run(pairs)
    np.testing.assert_array_equal(first[[3, 1, 2, 3]], one.fetch())
    np.testing.assert_array_equal(second[[0, 1, 0, 1]], other.fetch())


@pytest.mark.parametrize("length", [2, 5, 7])
def test_a_stretch_keeps_the_head_of_the_middle_axis(length):
    """A shorter, equal or longer source lands at the start of each target row, with zeros behind it."""
    source = far(np.random.default_rng(0).normal(size=(6, length, 3)).astype(np.float32))
    target = far(np.full((6, 5, 3), 9, np.float32))
    Stretch(FAR).run(source.block, target.block)
    expected = np.zeros((6, 5, 3), np.float32)
    expected[:, :length] = source.fetch()[:, :5]
    np.testing.assert_array_equal(expected, target.fetch())


def test_outputs_are_fetched_as_far_as_they_were_written():
    """What comes back, in one transfer, is the rows of the last run, and not all slots."""
    outputs = Outputs({"first": np.zeros((4, 2), np.float32), "other": np.zeros(4, np.int64)}, FAR)
    blocks = outputs.blocks(3)
    written = np.arange(6, dtype=np.float32), np.arange(3)
    Copies(2, FAR).run([(block_of(array), blocks[name]) for array, name in zip(written, blocks, strict=True)])
    read = outputs.read(3)
    assert [[0, 1], [2, 3], [4, 5]] == read["first"].tolist()
    assert [0, 1, 2] == read["other"].tolist()


def test_far_rows_are_fetched_one_by_one():
    """Whoever asks for a row gets that row; the shape is known without fetching."""
    rows = FarRows(3, 5, FAR)
    Copies(1, FAR).run([(block_of(np.arange(15, dtype=np.float32)), rows.block)])
    assert (3, 5) == rows.shape
    assert [5, 6, 7, 8, 9] == rows[1].tolist()


@pytest.mark.parametrize(
    "data_type", [bundle_pb2.DATA_TYPE_FLOAT16, bundle_pb2.DATA_TYPE_BFLOAT16, bundle_pb2.DATA_TYPE_INT8]
)
def test_narrow_states_move_by_their_bits(data_type):
    """States of two bytes or one, also of a type that numpy lacks, move with every bit; others stay."""
    cache = bundle_pb2.StateTensor(
        kind=bundle_pb2.STATE_KIND_KV_CACHE, past="p", present="q", data_type=data_type, shape=[2, 3, 4], length_axis=1
    )
    states = DeviceStates([cache], 3, FAR)
    (block,) = states.blocks(0, 3)[0].values()
    bits = np.frombuffer((ctypes.c_char * block.num_bytes).from_address(block.pointer), np.uint16).reshape(3, -1)
    assert not bits.any()
    bits[:] = np.random.default_rng(1).integers(0, 2**16, bits.shape)
    before = bits.copy()
    states.move(2, 0, past=1, memory=1)
    np.testing.assert_array_equal(before[[2, 1, 2]], bits)


def test_a_state_of_odd_bytes_is_refused():
    """States are copied in words of four bytes, so a position of another size is refused by name."""
    odd = bundle_pb2.StateTensor(
        kind=bundle_pb2.STATE_KIND_RECURRENT, past="p", present="q", data_type=bundle_pb2.DATA_TYPE_FLOAT16, shape=[3]
    )
    with pytest.raises(BundleError, match="'p' has 6 bytes a position"):
        DeviceStates([odd], 2, FAR)


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize("attends", [False, True], ids=["recurrent", "recurrent and memory"])
def test_far_answers_are_the_definitions(tmp_path, attends, captures):
    """Whatever arrives together and ends apart, each sequence on far states gets what the recurrence gives."""
    device = Device(in_place=False, captures=captures)
    toy = Toy(tmp_path, attends=attends)
    slots = Slots(11, 24)
    decoder = Session(toy.path, 1, device, captures=captures)
    runner = DecodeRunner(toy.manifest, Session(toy.encoder_path, 1, device), decoder, slots)
    runner.warm()
    metrics = Metrics().for_model("toy", 1, "translate")
    lane = DecodeLane(slots, runner, start_id=START, end_ids=(2,), prefill_budget=64, metrics=metrics)
    rng = random.Random(4)
    sources = [[rng.randrange(3, 50) for _ in range(rng.randrange(1, 17))] for _ in range(60)]

    async def answers():
        waiting = [Sequence(str(n), Ids(np.array(s)), Decoding(1 + n % 12)) for n, s in enumerate(sources)]
        found = {}

        def take(intake):
            return [waiting.pop() for _ in range(min(intake.most, len(waiting), rng.randrange(4)))]

        while len(found) < len(sources):
            for delivery in lane.step(take):
                found[int(delivery.sequence.request_id)] = delivery.token_ids
        return found

    found = asyncio.run(answers())
    assert [toy.greedy(s, 1 + n % 12) for n, s in enumerate(sources)] == [found[n] for n in range(len(sources))]


@pytest.mark.parametrize(("captures", "totals"), [(False, [256, 512, 1000]), (True, [1000, 1000, 1000])])
def test_kernels_are_told_the_longest_row(tmp_path, captures, totals):
    """Far runs hear the longest row in steps of 256, up to the capacity; captured ones always hear the capacity."""
    toy, slots, device = Toy(tmp_path), Slots(4, 24), Device(in_place=False, captures=captures)
    toy.manifest.text.max_total_tokens = 1000
    runner = DecodeRunner(toy.manifest, None, Session(toy.path, 1, device, captures=captures), slots)
    heard = []
    for longest in (255, 256, 999):
        slots.past_lengths[1] = longest
        runner.decode(2)
        heard.append(int(runner.total_length[0]))
    assert totals == heard


def test_a_device_reads_larger_pieces_of_prompts():
    """A run reads up to 2,048 tokens there and 128 on the host; what recurs reads one token wherever it is."""
    far, near, recurrent = (
        PrefillChunks(device, max_total=10_000, pad_id=0, one_by_one=one_by_one, has_memory=False)
        for device, one_by_one in ((FAR, False), (HOST, False), (FAR, True))
    )
    assert [2048, 128, 1] == [chunks.size(5000) for chunks in (far, near, recurrent)]
    assert [384, 64, 1] == [chunks.size(400 if chunks is far else 100) for chunks in (far, near, recurrent)]
    assert [768, 610] == [far.filled(np.arange(600), past, 0).bucket for past in (0, 10_000 - 610)]


@pytest.fixture(scope="module")
def long_t5(tmp_path_factory):
    """The bundle of a tiny T5 whose cache has 300 places."""
    checkpoint, repository = tmp_path_factory.mktemp("checkpoint"), tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_t5, "MAX_TARGET", 300)
        save_checkpoint(checkpoint, tiny_t5.tiny_t5())
    export_checkpoint(checkpoint, repository / "t5" / "1", ExportOptions(no_explain=True, no_score=True))
    return repository / "t5" / "1"


def test_a_bias_over_more_than_256_places_is_told_all_of_them(long_t5, monkeypatch):
    """T5 adds a bias with a column for each place of its cache, and kernels take no other total_length with it.

    So such a model is told its capacity, and its answers are those of the CPU in place.
    """
    near = asyncio.run(answers_of(long_t5, HOST, monkeypatch))
    assert near == asyncio.run(answers_of(long_t5, FAR, monkeypatch))


def test_which_graphs_add_a_bias(tiny_repository):
    """The decoder's own graph says so."""
    assert attends_with_bias(tiny_repository / "tiny-t5" / "1" / "decoder.onnx")
    assert not attends_with_bias(tiny_repository / "tiny-translate" / "1" / "decoder.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("count", counts(20, 40))
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_far_model_answers_the_same_bits(tiny_repository, name, count, monkeypatch):
    """Every family: states that only device copies touch, and filled-up batches, give what the in-place path gives."""
    directory = tiny_repository / name / "1"
    near = asyncio.run(answers_of(directory, HOST, monkeypatch, count))
    assert near == asyncio.run(answers_of(directory, FAR, monkeypatch, count))


def test_a_chunk_is_as_long_as_a_bucket_within_the_budget():
    """On a device it ends before the cache does. The host's chunks are padded there, and the smallest is never cut."""
    sizes = {"max_total": 100, "pad_id": 0, "one_by_one": False, "has_memory": False}
    host, far = (PrefillChunks(Device(in_place=in_place), **sizes) for in_place in (True, False))
    asked = [(64, 0), (100, 0), (64, 70), (64, 98), (1, 0)]
    assert [64, 64, 64, 64, 8] == [host.size(*each) for each in asked]
    assert [64, 64, 16, 2, 2] == [far.size(*each) for each in asked]
