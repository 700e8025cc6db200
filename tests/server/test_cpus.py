"""The CPU quota is the cgroup's, not the machine's."""

import os

import pytest

from weft_proto.v1 import bundle_pb2
from weft_server.cpus import cpu_quota, share_cpus
from weft_server.model import capped_threads


def test_quota_v2(tmp_path):
    """In cgroup v2: quota over period, never more than the affinity mask."""
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cpu_quota(tmp_path) == 0.5


def test_quota_v1(tmp_path):
    """In cgroup v1: quota over period from two files."""
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("75000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota(tmp_path) == 0.75


@pytest.mark.parametrize("limit", ["max 100000\n", None, "99900000 100000\n", "", "50000\n", "50000 0\n", "a b\n"])
def test_no_quota_is_the_affinity_mask(tmp_path, limit):
    """Without a limit, with one above it, or with a file that says none, the affinity mask counts."""
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    assert cpu_quota(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("lanes", "threads", "quota", "expected"),
    [(0, 0, 8.0, (8, 1)), (0, 0, 0.5, (1, 1)), (1, 0, 8.0, (1, 8)), (4, 0, 2.0, (4, 1)), (0, 3, 2.9, (2, 3))],
)
def test_lanes_and_threads_share_the_quota(lanes, threads, quota, expected):
    """Zeroes are filled from whole CPUs, given numbers stand, and nothing falls below one."""
    assert expected == share_cpus(lanes, threads, quota)


def test_no_more_threads_than_heads():
    """A session that attends over a cache has one for each head of its smallest layer, or of keys and values."""
    cache = bundle_pb2.StateTensor(kind=bundle_pb2.STATE_KIND_KV_CACHE, shape=[4, 64, 16])
    recurrent = bundle_pb2.StateTensor(kind=bundle_pb2.STATE_KIND_RECURRENT, shape=[6])
    manifest = bundle_pb2.BundleManifest(states=[cache])
    assert [3, 4, 4] == [capped_threads(threads, manifest) for threads in (3, 4, 16)]
    manifest.attention.heads.extend([12, 8])
    assert [3, 8, 8] == [capped_threads(threads, manifest) for threads in (3, 8, 16)]
    assert capped_threads(16, bundle_pb2.BundleManifest(states=[recurrent])) == 16
