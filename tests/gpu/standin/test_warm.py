"""What a model does before it is ready, over the stand-in: captures, plans and memory, whatever others do meanwhile."""

import asyncio
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from standin import WHY_NOT, counting, failing, lingering, verify_clean

from loaded import Loaded, ask, golden_request
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.errors import LaneFailed
from weft_server.loading.golden import verify_golden
from weft_server.loading.lanes import Graphs
from weft_server.runtime import session as session_module
from weft_server.runtime.blocks import FLOAT, block_of
from weft_server.runtime.cuda.copies import Copies
from weft_server.runtime.device import Device
from weft_server.runtime.session import Session, Value, verify_device

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
CHECKPOINTS = Path(__file__).parents[3] / "export" / "checkpoints"
CUDA = Device("cuda", in_place=False)
CAPTURING = {"device": "cuda", "cuda_graphs": True}
# Milliseconds that a capture lasts. Within them, another thread would do something.
LONG = 20
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function: the directory of a trained model's bundle in fp16, by name."""
    made = {}

    def bundle(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("fp16") / name / "1"
            export_checkpoint(CHECKPOINTS / name, made[name], ExportOptions(precision="fp16"))
        return made[name]

    return bundle


async def asked_all_the_time(model, stop):
    """Ask a model for one answer with its explanation after the other, until `stop` is set. Returns all answers."""
    answers = []
    while not stop.is_set():
        answer = await ask(model, **golden_request(model, explain=common_pb2.Explain()))
        answers.append(list(answer.completion.token_ids))
    return answers


async def loads_beside(first, second):
    """Load a model twice, and unload it, while another one answers and explains. Returns what that one answered."""
    async with Loaded(first, slots=3, **CAPTURING) as model:
        await verify_golden(model)
        stop = asyncio.Event()
        asking = [asyncio.create_task(asked_all_the_time(model, stop)) for _ in range(2)]
        for _ in range(2):
            loaded = Loaded(second, slots=3, **CAPTURING)
            # Its own loop and thread, as its loader has one.
            await asyncio.to_thread(asyncio.run, golden_of(loaded))
        stop.set()
        return [answer for answers in await asyncio.gather(*asking) for answer in answers]


async def golden_of(loaded):
    """The model gives its golden answer."""
    async with loaded as model:
        await verify_golden(model)


def test_no_capture_is_disturbed(exported):
    """Models load, capture, answer and close beside one that answers and explains: no capture sees a forbidden call."""
    with counting() as counts, lingering(LONG):
        answers = asyncio.run(loads_beside(exported("pydocs"), exported("en-es")))
    assert (0, 0) == (counts.violations, counts.unemulated)
    assert counts.captures > 0
    assert len(answers) > 4
    assert [answers[0]] * len(answers) == answers


def test_without_the_gate_a_capture_is_disturbed(exported, monkeypatch):
    """The same stand-in counts what breaks a capture, once another thread may allocate during it."""

    class Broken(nullcontext):
        def alone(self):
            return nullcontext()

    for name, value in {"GATE": Broken(), "device_gate_of": lambda _: nullcontext()}.items():
        monkeypatch.setattr(session_module, name, value)
    stop = threading.Event()

    def opens():
        while not stop.is_set():
            # A broken capture says no to everybody.
            with suppress(Exception):
                Copies(1, CUDA)

    thread = threading.Thread(target=opens)
    with counting() as counts, lingering(LONG):
        thread.start()
        # What a broken capture does to a model is not the question.
        with suppress(Exception):
            asyncio.run(golden_of(Loaded(exported("pydocs"), slots=3, **CAPTURING)))
        stop.set()
        thread.join()
    assert counts.violations > 0


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "captured"])
@pytest.mark.parametrize("name", ["pydocs", "en-es"])
def test_no_request_pays_for_being_the_first(exported, name, cuda_graphs):
    """Once a model is ready, requests of each kind capture nothing, and take no memory of the device."""

    async def run():
        async with Loaded(exported(name), slots=5, device="cuda", cuda_graphs=cuda_graphs) as model:
            return await counted_requests(model)

    counts = asyncio.run(run())
    assert (0, 0) == (counts.captures, counts.allocations)
    verify_clean(counts)


async def counted_requests(model):
    """Ask two of each kind at once. What the device was given to do meanwhile."""
    kinds = ({"greedy": {}}, {"beams": {"num_beams": 3}}, {"sampling": {"temperature": 10.0, "seed": 3}})
    requests = [
        golden_request(model, decoding=common_pb2.Decoding(max_new_tokens=6, **kind))
        for kind in kinds
        for _ in range(2)
    ]
    with counting() as counts:
        await asyncio.gather(*(ask(model, **request) for request in requests))
    return counts


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "captured"])
def test_a_lane_that_is_made_anew_is_warm_too(exported, cuda_graphs):
    """Behind a failed step one request waits for the new lane. Those after it, in larger batches, find all done.

    What cuDNN planned and what was captured belong to a thread, so the new lane has done both again.
    """

    async def run():
        async with Loaded(exported("pydocs"), slots=5, device="cuda", cuda_graphs=cuda_graphs) as model:
            with failing("replay" if cuda_graphs else "launch"), pytest.raises(LaneFailed):
                await ask(model, **golden_request(model))
            with counting() as anew:
                await ask(model, **golden_request(model))
            return anew, await counted_requests(model)

    anew, counts = asyncio.run(run())
    assert bool(anew.captures) == cuda_graphs
    assert (0, 0) == (counts.captures, counts.allocations)
    verify_clean(counts)


def test_graphs_are_numbered_by_session(exported):
    """Two runs that are bound to one session and captured replay each its own graph."""
    bundle = load_bundle(exported("en-es"))
    session = Session(exported("en-es") / "decoder.onnx", 1, CUDA, captures=True)
    capacity = bundle.manifest.text.max_total_tokens
    bounds = [bound_of(session, num_rows, capacity) for num_rows in (2, 1)]
    for bound, _ in bounds:
        bound.capture()
    for bound, best in bounds:
        best.send(np.zeros(best.block.shape, np.float32))
        with counting() as counts:
            bound.run()
        assert (1, 0) == (counts.launches, counts.captures)
        assert best.fetch().all()


def bound_of(session, num_rows, capacity):
    """A decoder over states of zeros, and where it writes the best logits of each row."""
    sizes = {"batch": num_rows, "seq": 1, "1": 1}
    values, blocks = {}, {}
    for side in (session.opened.get_inputs(), session.opened.get_outputs()):
        for port in side:
            shape = tuple(sizes.get(size, size) for size in port.shape)
            kind = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
            array = np.ones(shape, kind.get(port.type, np.float16))
            if port.name == "total_length":
                blocks[port.name] = block_of(array * capacity)
                continue
            values[port.name] = value = Value.like(array, CUDA)
            value.send(array * (port.name != "past_lengths"))
            blocks[port.name] = value.block
    return session.bind(
        {name: blocks[name] for name in session.input_names}, {name: blocks[name] for name in session.output_names}
    ), values["topk_logits"]


def test_tensors_take_what_they_ask_for(exported):
    """Of 3 x 11 MiB of weights or states, the device gives 33 MiB and not the next power of two."""
    verify_device(CUDA)
    with counting() as counts:
        held = [Value((11 * MEBIBYTE // 4,), FLOAT, CUDA) for _ in range(3)]
    assert 33 == len(held) * 11 == counts.allocated_bytes // MEBIBYTE


def test_a_session_on_a_device_has_one_thread_of_the_host(exported):
    """Others would spin for work that is done elsewhere."""
    session = Graphs(load_bundle(exported("digits")), [CUDA], 4).open(bundle_pb2.GRAPH_ROLE_CLASSIFIER)
    assert 1 == session.opened.get_session_options().intra_op_num_threads


@pytest.mark.parametrize("name", ["pydocs", "en-es", "en-es-attention"])
def test_what_a_device_is_told_is_read_there(exported, name):
    """Of what a decoder's operators read, the host has total_length alone.

    Another input of the host would be copied once, when memory is bound. One that no operator reads counts as the
    host's, and does no harm: recurrent decoders have such ones.
    """
    path = exported(name) / "decoder.onnx"
    session = Session(path, 1, CUDA)
    infos = session.opened.get_input_memory_infos()
    on_host = {port for port, info in zip(session.input_names, infos, strict=True) if "cuda" not in info.name.lower()}
    read = {name for node in onnx.load(path, load_external_data=False).graph.node for name in node.input}
    assert on_host & read <= {"total_length"}


def test_a_long_prompt_is_read_in_pieces(exported):
    """A run reads one prompt: several with tokens before them are more than CUDA's attention takes.

    Its pieces, each behind the others, give the CPU's answer.
    """

    async def run(**settings):
        async with Loaded(exported("pydocs"), slots=3, **settings) as model:
            room = model.manifest.text.max_total_tokens
            ids = (np.arange(room - 6) % 60 + 5).tolist()
            request = {"token_ids": common_pb2.TokenIds(ids=ids), "decoding": common_pb2.Decoding(max_new_tokens=6)}
            return [list((await ask(model, **request)).completion.token_ids) for _ in range(2)]

    assert asyncio.run(run()) == asyncio.run(run(device="cuda"))
