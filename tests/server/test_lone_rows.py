"""A row that is alone has the bits that it has among others, also where a processor has another kernel for one row."""

import asyncio

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from crowd import answers_of, requests_for
from loaded import Loaded
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import Bundle, load_bundle
from weft_server.engine.run_shapes import RunShapes
from weft_server.loading import lanes, lone_rows
from weft_server.loading.lone_rows import keep_lone_decodes, keep_lone_rows
from weft_server.runtime.device import Device
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids

batches, feeds = Device.batches, RunShapes.feeds


def counting(path, *, differs):
    """Write a classifier that answers with its input's length, and, if it differs, with how many inputs share a run."""
    nodes = [helper.make_node("Shape", ["input_ids"], ["rows"], start=0, end=1 if differs else 0)]
    nodes += [
        helper.make_node("ReduceProd", ["rows"], ["number"], keepdims=1),
        helper.make_node("Add", ["number", "lengths64"], ["sums"]),
    ]
    nodes.insert(0, helper.make_node("Cast", ["lengths"], ["lengths64"], to=TensorProto.INT64))
    nodes.append(helper.make_node("Cast", ["sums"], ["logits"], to=TensorProto.FLOAT))
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])
    lengths = helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch"])
    graph = helper.make_graph(nodes, "counting", [ids, lengths], [logits])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return Session(path, 1)


@pytest.mark.parametrize(("differs", "num_rows"), [(False, 1), (True, 2)])
def test_an_input_is_filled_up_where_alone_it_has_other_bits(differs, num_rows, tmp_path):
    """A run of one input has a second row exactly if its graph answers one input alone otherwise than two."""
    session = counting(tmp_path / "graph.onnx", differs=differs)
    text = bundle_pb2.TextSpec(max_source_tokens=16, source_vocab_size=9)
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_CLASSIFY_TEXT, text=text)
    keep_lone_rows(session, Bundle("m", 1, tmp_path, manifest), bundle_pb2.GRAPH_ROLE_CLASSIFIER)

    shapes = RunShapes(session.device, lambda source: source.bucket, {}, most=8, budget=64)
    source = Ids(np.arange(3))
    assert num_rows == shapes.num_rows(1) == len(shapes.feeds([source], 0)["lengths"])
    assert 2 == shapes.num_rows(2)
    together = session.run(shapes.feeds([source] * 2, 0))["logits"]
    assert together[0] == session.run(shapes.feeds([source], 0))["logits"][0]


@pytest.mark.parametrize(
    ("name", "role"),
    [("tiny-llava", bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER), ("tiny-text", bundle_pb2.GRAPH_ROLE_CLASSIFIER)],
)
def test_each_graph_without_states_is_tried(name, role, tiny_repository, monkeypatch):
    """That of pictures in a prompt too: before the first request, so that an answer never hangs on its company."""
    tried = []
    monkeypatch.setattr(lanes, "keep_lone_rows", lambda session, bundle, role: tried.append(role))

    async def run():
        async with Loaded(tiny_repository / name / "1", slots=2, lanes=1):
            return list(tried)

    assert [role] == asyncio.run(run())


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-rnn"])
def test_float32_rows_are_not_filled_up(name, tiny_repository):
    """A row of a graph that keeps rows apart runs alone, also where a state is carried from run to run."""
    directory = tiny_repository / name / "1"
    decoder = Session(directory / "decoder.onnx", 1)
    keep_lone_decodes(decoder, load_bundle(directory))

    assert 1 == decoder.device.least_rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate", "tiny-rnn", "tiny-bert"])
def test_a_row_that_fills_up_changes_no_answer(name, tiny_repository, monkeypatch):
    """The answers of filled runs are, bit for bit, those of others: alone on one slot, in a crowd, and with prompts.

    The graphs keep rows apart on every processor, so only the second row could change something.
    """
    directory = tiny_repository / name / "1"
    asked = requests_for(load_bundle(directory).manifest, 12, seed=5)
    plain = asyncio.run(answers_of(directory, asked, range(12), crowd=False))
    monkeypatch.setattr(lone_rows, "_is_same", lambda alone, beside: False)
    filled = []
    monkeypatch.setattr(
        Device, "batches", lambda self, most: filled.append(batches(self, most)[1]) or batches(self, most)
    )
    monkeypatch.setattr(RunShapes, "feeds", lambda self, *given: filled.append(self.num_rows(1)) or feeds(self, *given))

    for crowd in (False, True):
        filled.clear()
        assert plain == asyncio.run(answers_of(directory, asked, range(12), crowd=crowd))
        assert 2 == max(filled)


def test_a_row_that_has_ended_where_its_cache_does_stays_in_it(tiny_repository, monkeypatch):
    """Two answers of full length end in both slots. The next one runs alone, and beside it the other slot's row."""
    monkeypatch.setattr(lone_rows, "_is_same", lambda alone, beside: False)

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1", slots=2, lanes=1) as model:
            longest = model.manifest.text.max_new_tokens

            async def ask(num_tokens):
                model.engine.reserve()
                sequence = Sequence("a", Ids(np.arange(5)), Decoding(num_tokens, num_tokens))
                model.engine.submit(sequence)
                await sequence.reply.done()
                return len(sequence.reply.token_ids)

            assert [longest, longest] == await asyncio.gather(ask(longest), ask(longest))
            assert 4 == await ask(4)

    asyncio.run(run())
