"""A model that would not fit into memory is refused before it takes any. Else the system would end the server."""

import asyncio
import math
import mmap
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from loaded import Loaded
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2 as pb
from weft_proto.v1 import common_pb2
from weft_server.bundle.graphs import weight_bytes
from weft_server.bundle.load import Bundle, load_bundle
from weft_server.config import read_config
from weft_server.errors import BundleError
from weft_server.loading import lanes, memory_check
from weft_server.runtime import huge_pages
from weft_server.runtime.memory import free_memory
from weft_server.runtime.states import DTYPES

STATES = [
    pb.StateTensor(kind=pb.STATE_KIND_KV_CACHE, data_type=pb.DATA_TYPE_FLOAT32, shape=[2, 100, 4], length_axis=1),
    pb.StateTensor(kind=pb.STATE_KIND_MEMORY, data_type=pb.DATA_TYPE_FLOAT16, shape=[3, 50, 4], length_axis=1),
    pb.StateTensor(kind=pb.STATE_KIND_RECURRENT, data_type=pb.DATA_TYPE_FLOAT32, shape=[7]),
]
MEMINFO = "MemTotal:  9000 kB\nMemAvailable:   4000 kB\nHugePages_Total:       0\n"


@pytest.fixture
def system(tmp_path):
    """Writes what a system says of its memory, and returns what is free then."""

    def free(groups: str, files: dict[str, str], meminfo: str | None = MEMINFO) -> int | None:
        (tmp_path / "groups").write_text(groups)
        if meminfo is not None:
            (tmp_path / "meminfo").write_text(meminfo)
        for path, content in files.items():
            (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "root" / path).write_text(content)
        return free_memory(tmp_path / "root", tmp_path / "groups", tmp_path / "meminfo")

    return free


def test_without_a_limit_the_machine_counts(system):
    """What is available on the machine is free where no group has a limit."""
    assert 4000 << 10 == system("0::/\n", {"memory.max": "max\n", "memory.current": "77\n"})


def test_a_limit_v2(system):
    """What a group has left is free, and pages of files too. A group above binds as well."""
    files = {
        "a/memory.max": "90000\n",
        "a/memory.current": "50000\n",
        "a/memory.stat": "anon 40000\nactive_file 1000\ninactive_file 2000\n",
        "a/b/memory.max": "80000\n",
        "a/b/memory.current": "10000\n",
    }
    assert 90000 - 50000 + 3000 == system("0::/a/b\n", files)


def test_a_limit_v1(system):
    """v1 has other names, and a number larger than any memory where there is no limit."""
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": "50000\n",
        "memory/m/memory.limit_in_bytes": "60000\n",
        "memory/m/memory.usage_in_bytes": "50000\n",
        "memory/m/memory.stat": "cache 7\ntotal_active_file 400\ntotal_inactive_file 30\n",
    }
    assert 10430 == system("3:memory:/m\n", files)


def test_over_its_limit_nothing_is_free(system):
    """A group may use more than its limit says for a while."""
    assert 0 == system("0::/\n", {"memory.max": "5\n", "memory.current": "77\n"})


def test_a_system_that_does_not_say(system):
    """Elsewhere than on Linux nobody knows."""
    assert system("0::/\n", {}, meminfo=None) is None


def test_more_slots_than_memory_are_refused(tiny_repository, monkeypatch):
    """The bundle is refused before a graph is opened, and the sentence names the setting that helps."""
    monkeypatch.setattr(memory_check, "free_memory", lambda: 1_000_000)
    monkeypatch.setattr(lanes, "Session", None)

    async def load():
        async with Loaded(tiny_repository / "tiny-generate" / "1", slots=1024):
            raise AssertionError("it was loaded")

    with pytest.raises(BundleError, match=r"1024 slots take \d+\.\d GB at once, and 0\.0 GB .* a smaller --slots"):
        asyncio.run(load())


def test_the_bounds(tmp_path, monkeypatch):
    """What is taken at once must be free. Slots that do not fit once they are full are a warning only."""
    files = [{"size_bytes": 1000}, {"size_bytes": 30}]
    manifest = pb.BundleManifest(task=common_pb2.TASK_GENERATE, files=files, states=STATES)
    bundle = Bundle("m", 1, tmp_path, manifest)
    # Of a page of 160 bytes: two heads of a cache, and three of a memory, take one each at once.
    monkeypatch.setattr(memory_check, "page_bytes", lambda: 160)
    at_once = 1030 + 5 * (2 * 160 + 3 * 160 + 2 * 7 * 4)
    full = 1030 + 5 * (2 * 1600 + 3 * 400 + 2 * 7 * 4)

    def verify(free: int | None) -> list[str]:
        monkeypatch.setattr(memory_check, "free_memory", lambda: free)
        with capture_logs() as logs:
            memory_check.verify_memory(bundle, read_config(repository=tmp_path, slots=5))
        return [line["event"] for line in logs]

    assert [] == verify(None)
    assert [] == verify(full)
    assert ["slots may take more memory than is free"] == verify(full - 1)
    assert ["slots may take more memory than is free"] == verify(at_once)
    with pytest.raises(BundleError, match=r"5 slots take 0\.0 GB at once"):
        verify(at_once - 1)


def test_adapters_take_memory_too(tmp_path):
    """When all are there: each is held once, and once more beside each row of a run. At once there is none."""
    layers = [{"name": "a", "inputs": 8, "outputs": 24, "rank": 2}, {"name": "b", "inputs": 8, "outputs": 8, "rank": 1}]
    one = 4 * (2 * (8 + 24) + 1 * (8 + 8))
    config = read_config(repository=tmp_path, slots=5, max_batch=7, max_adapters=3)
    for task, rows in ((common_pb2.TASK_GENERATE, 5), (common_pb2.TASK_CLASSIFY_TEXT, 7)):
        plain = pb.BundleManifest(task=task, files=[{"size_bytes": 1000}])
        adapted = pb.BundleManifest(task=task, files=plain.files, adapters={"layers": layers})
        before, after = (
            memory_check.memory_need_of(Bundle("m", 1, tmp_path, each), config) for each in (plain, adapted)
        )
        assert (before.at_once, before.full + (3 + rows) * one) == after


@pytest.mark.parametrize("name", ["tiny-translate", "tiny-text"])
def test_what_lanes_take_of_devices(tiny_repository, name):
    """Weights once for each graph that runs there, explanations on the first device, and the slots divided."""
    bundle = load_bundle(tiny_repository / name / "1")
    manifest = bundle.manifest
    config = read_config(repository=tiny_repository.folder, slots=5)
    weights = {graph.role: weight_bytes(bundle.path(graph.path)) for graph in manifest.graphs}
    explaining = weights[pb.GRAPH_ROLE_EXPLAIN]
    slots = 3 * (sum(map(slot_bytes, manifest.states)) + 4 * manifest.text.target_vocab_size) if manifest.states else 0
    each = slots + sum(weights[role] for role in TASKS[manifest.task].needs)
    assert explaining > 0
    assert [each + explaining, each] == memory_check.lane_memory_needs(bundle, config, 2)
    assert sum(file.size_bytes for file in manifest.files) > max(weights.values())


def slot_bytes(state):
    """What a slot's part of a state takes, when it is full."""
    return math.prod(state.shape) * DTYPES[state.data_type]().itemsize


def test_short_stretches_share_a_page(tmp_path, monkeypatch):
    """Where a page holds several, what is touched at once is all of it."""
    bundle = Bundle("m", 1, tmp_path, pb.BundleManifest(task=common_pb2.TASK_GENERATE, states=STATES))
    monkeypatch.setattr(memory_check, "page_bytes", lambda: 4096)
    monkeypatch.setattr(memory_check, "free_memory", lambda: 2 * 1600 + 3 * 400 + 2 * 7 * 4 - 1)
    with pytest.raises(BundleError, match="at once"):
        memory_check.verify_memory(bundle, read_config(repository=tmp_path, slots=1))


def test_a_touch_takes_a_page():
    """What `zeros` takes for one byte in each of eight stretches is at most a page each."""
    array = huge_pages.zeros((8, 4 << 20), np.dtype(np.uint8))
    before = resident()
    array[:, 1 << 20] = 1
    taken = resident() - before
    assert 8 * mmap.PAGESIZE <= taken <= 8 * huge_pages.page_bytes() + (1 << 20)


def resident() -> int:
    """This process's resident memory, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
