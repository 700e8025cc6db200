"""Several devices: models and lanes are apart, nothing runs or lies on the wrong one, and what leaves leaves nothing.

`make test-gpu-standin` gives the stand-in two devices.
"""

import asyncio
import ctypes
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from weakref import WeakSet

import pytest
from standin import RUNTIME, WHY_NOT, counting, device, resize, verify_clean

from loaded import Loaded, ask, golden_request
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2, model_pb2
from weft_server.checks.bundles import look_at_bundles
from weft_server.checks.settings import look_at_settings
from weft_server.config import ConfigError, read_config, try_config
from weft_server.engine.classify_lane import ClassifyLane
from weft_server.loading.loader import load_entry
from weft_server.models.placement import Placement
from weft_server.models.registry import RegistryEntry
from weft_server.runtime.device import Device, devices_of
from weft_server.runtime.session import verify_device
from weft_server.telemetry.metrics import Metrics

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
CHECKPOINTS = Path(__file__).parents[3] / "export" / "checkpoints"
# One that generates, one that translates, one that classifies pictures.
NAMES = ("pydocs", "en-es", "digits")
BOTH = {"device": "cuda", "cuda_device": "0,1"}
MEMORY = 80 << 30


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """A repository of models in fp16."""
    repository = tmp_path_factory.mktemp("halves")
    for name in NAMES:
        export_checkpoint(CHECKPOINTS / name, repository / name / "1", ExportOptions(precision="fp16"))
    return repository


@pytest.fixture(autouse=True)
def _whole_devices():
    yield
    for index in range(2):
        resize(index, MEMORY)


def allocated():
    """Bytes that each device holds."""
    gc.collect()
    return [device(index).allocated_bytes for index in range(2)]


def operations():
    """What each device was given to do."""
    return [device(index).operations for index in range(2)]


async def said(model, num=6):
    """What a model answers to requests that come at once."""
    golden = golden_request(model)
    if "image" in golden:
        requests = [golden] * num
    else:
        more = [{"decoding": common_pb2.Decoding(max_new_tokens=3 + index)} for index in range(num - 1)]
        requests = [{**golden, **each} for each in more] + [{**golden, "explain": common_pb2.Explain()}]
    answers = await asyncio.gather(*(ask(model, **request) for request in requests))
    return [_shown(answer) for answer in answers]


def _shown(answer):
    if hasattr(answer, "labels"):
        return [(label.label, pytest.approx(label.score, abs=0.02)) for label in answer.labels]
    return answer.completion.text, list(answer.completion.token_ids)


async def answers(directory, **settings):
    """The same of a bundle. Returns where the model was, and how many operations each device had for the answers."""
    async with Loaded(directory, slots=4, **settings) as model:
        before = operations()
        answers = await said(model)
        return answers, model.devices, [now - then for now, then in zip(operations(), before, strict=True)]


def meet(monkeypatch, num_lanes):
    """Let each lane that classifies wait with its first batch until the others have theirs."""
    barrier, begun, run = threading.Barrier(num_lanes), WeakSet(), ClassifyLane._run

    def run_with_the_others(lane, batch):
        if lane not in begun:
            begun.add(lane)
            barrier.wait(60)
        return run(lane, batch)

    monkeypatch.setattr(ClassifyLane, "_run", run_with_the_others)


async def loaded(directory, placement, **settings):
    """A version that was loaded as a server does it."""
    entry = RegistryEntry(directory.parent.name, 1, directory)
    config = read_config(repository=directory.parent.parent, slots=4, **settings)
    await load_entry(entry, config, Metrics(), placement)
    return entry


@pytest.mark.parametrize(("name", "cuda_graphs"), [*((name, False) for name in NAMES), ("en-es", True)])
def test_a_lane_on_each_device(halves, name, cuda_graphs, monkeypatch):
    """One model with a lane on each answers as the CPU does. Both work, nothing strays, and nothing is left.

    So it is if each lane captures its steps.
    """
    both = {"lanes": 2, "cuda_graphs": cuda_graphs, "max_batch": 1, **BOTH}
    directory = halves / name / "1"
    expected, *_ = asyncio.run(answers(directory))
    verify_device(Device("cuda", 1, in_place=False))
    before = allocated()
    meet(monkeypatch, 2)
    with counting() as counts:
        found, where, num_operations = asyncio.run(answers(directory, **both))
    assert (expected, {"cuda:0", "cuda:1"}) == (found, set(where))
    assert min(num_operations) > 0
    assert cuda_graphs == bool(counts.launches)
    verify_clean(counts)
    assert before == allocated()


def test_two_models_are_placed_apart(halves):
    """The second goes to the device that the first has left free. After they have gone, nothing is on either."""

    async def served():
        placement = Placement(devices_of(read_config(repository=halves, **BOTH)))
        entries = [await loaded(halves / name / "1", placement, **BOTH) for name in ("pydocs", "en-es")]
        assert [model_pb2.MODEL_STATE_READY] * 2 == [entry.state for entry in entries], entries[0].error
        found, where = [], []
        for entry in entries:
            before = operations()
            found.append(await said(entry.model))
            where += entry.model.devices
            assert where[-1:] == [f"cuda:{each}" for each in range(2) if operations()[each] > before[each]]
        claimed = placement.claimed()
        for entry in entries:
            assert await asyncio.to_thread(entry.model.stop, 30)
            entry.model = None
        assert {"cuda:0", "cuda:1"} == set(where)
        return found, claimed, placement.claimed()

    expected = [asyncio.run(answers(halves / name / "1"))[0] for name in ("pydocs", "en-es")]
    for index in range(2):
        verify_device(Device("cuda", index, in_place=False))
    at_first = allocated()
    with counting() as counts:
        found, claimed, left = asyncio.run(served())
    assert expected == found
    assert min(claimed.values()) > 0
    assert {"0": 0, "1": 0} == left
    verify_clean(counts)
    assert at_first == allocated()


def test_a_model_goes_where_it_fits(halves):
    """A device with too little memory is passed over. Where none has enough, the model is refused, and says why."""
    placement = Placement(devices_of(read_config(repository=halves, **BOTH)))
    resize(0, device(0).allocated_bytes + (1 << 20))
    entry = asyncio.run(loaded(halves / "en-es" / "1", placement, **BOTH))
    assert ["cuda:1"] == entry.model.devices
    assert entry.model.stop(30)
    resize(1, device(1).allocated_bytes)
    refused = asyncio.run(loaded(halves / "en-es" / "1", placement, **BOTH))
    assert model_pb2.MODEL_STATE_FAILED == refused.state
    assert "of a device, and left are: cuda:0 0.0 GB, cuda:1 0.0 GB" in refused.error


def test_a_lane_that_is_made_anew_stays_on_its_device(halves):
    """Its states, buffers and graphs are where those of the lane before it were."""

    async def made():
        async with Loaded(halves / "en-es" / "1", slots=4, lanes=2, **BOTH) as model:
            lanes = [model.engine._make_lane(index) for index in range(2)]
            places = [lane.runner.states.blocks(0, 1)[0].values() for lane in lanes]
            return [{block.device.index for block in blocks} for blocks in places]

    with counting() as counts:
        assert [{0}, {1}] == asyncio.run(made())
    verify_clean(counts)


def test_the_second_device_alone(halves):
    """A server that may use device 1 leaves device 0 alone."""
    directory = halves / "pydocs" / "1"
    expected, *_ = asyncio.run(answers(directory))
    before = operations()[0], allocated()[0]
    found, where, _ = asyncio.run(answers(directory, device="cuda", cuda_device="1"))
    assert (expected, ["cuda:1"]) == (found, where)
    assert before == (operations()[0], allocated()[0])


def test_a_device_that_is_not_there():
    """It is refused by its number, with how many there are."""
    with pytest.raises(ConfigError, match=r"--cuda-device .*: there is no device 2; CUDA has 2, counted from 0"):
        verify_device(Device("cuda", 2, in_place=False))


def test_a_machine_without_a_driver(halves):
    """The server ends with what is missing, in a sentence and not in a traceback."""
    command = [sys.executable, "-m", "weft_server", "--repository", halves, "--device", "cuda"]
    ended = subprocess.run(
        command, env=os.environ | {"STANDIN_DEVICES": "0"}, capture_output=True, text=True, timeout=120, check=False
    )
    assert 1 == ended.returncode, ended.stderr
    assert "cuda device 0 cannot be opened" in ended.stderr
    assert "a driver for them" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_check_says_where_models_would_go(halves):
    """Devices and models have a line each. One that no model goes to is a warning, with the setting that helps."""
    reading = try_config(repository=halves, slots=4, **BOTH)
    says = [finding.line for finding in look_at_settings(reading) if finding.about == "device"]
    assert [True, True] == [line.startswith(f"cuda:{index}, ") for index, line in enumerate(says)]
    says = [finding.line for finding in look_at_bundles(reading) if finding.about == "room"]
    assert [f"{name} version 1 goes to " for name in sorted(NAMES)] == [line.partition("cuda")[0] for line in says]
    wrong = try_config(repository=halves, device="cuda", cuda_device="1,7")
    assert ["cuda:1", "--cuda-"] == [
        finding.line[:7].rstrip(",") for finding in look_at_settings(wrong) if finding.about == "device"
    ]


def test_the_stand_in_finds_what_strays():
    """A copy through one device into another's memory is counted, as is work that a thread gives to another one."""
    pointers = []
    for index in range(2):
        RUNTIME.cudaSetDevice(index)
        pointers.append(_allocated())
    with counting() as counts:
        assert 0 == RUNTIME.cudaMemset(pointers[1], 0, 64)
    assert 0 == counts.strays
    with counting() as counts:
        assert 0 == RUNTIME.cudaMemset(pointers[0], 0, 64)
    assert 1 == counts.strays
    for pointer in pointers:
        RUNTIME.cudaFree(pointer)
    RUNTIME.cudaSetDevice(0)


def _allocated():
    pointer = ctypes.c_void_p()
    assert 0 == RUNTIME.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1024))
    return pointer
