"""The CPU quota is the cgroup's, not the machine's."""

import os

import pytest

from weft_proto.v1 import bundle_pb2
from weft_server.loading.build import capped_threads
from weft_server.runtime.cpus import cpu_quota, share_cpus


def test_quota_v2(tmp_path):
    """In cgroup v2: quota over period, never more than the affinity mask."""
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert 0.5 == cpu_quota(tmp_path)


def test_quota_v1(tmp_path):
    """In cgroup v1: quota over period from two files."""
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("75000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert 0.75 == cpu_quota(tmp_path)


@pytest.mark.parametrize(
    ("groups", "quota_of", "expected"),
    [
        ("0::/a.slice/b.service\n", {"a.slice/b.service": 0.5}, 0.5),
        ("0::/a.slice/b.service\n", {"a.slice": 0.25, "a.slice/b.service": 0.5}, 0.25),
        ("1:name=systemd:/x\n0::/a.slice\n", {"a.slice": 0.5, "x": 0.1, "": 0.75}, 0.5),
        ("0::/only/the/host/has/it\n", {"": 0.5}, 0.5),
        ("0::/../other\n", {"other": 0.5}, 0.5),
        ("not of this form", {"": 0.5}, 0.5),
    ],
)
def test_quota_of_a_group_below_the_root(tmp_path, groups, quota_of, expected):
    """The least of all from the process's own group to the root counts: systemd's services have one of their own."""
    (tmp_path / "groups").write_text(groups)
    for path, quota in quota_of.items():
        (tmp_path / "root" / path).mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path / "cpu.max").write_text(f"{int(quota * 100_000)} 100000\n")
    assert expected == cpu_quota(tmp_path / "root", tmp_path / "groups")


def test_quota_v1_of_a_group_below_the_root(tmp_path):
    """In cgroup v1 each controller has a path of its own, and several may share a line."""
    (tmp_path / "groups").write_text("3:memory:/m\n2:cpu,cpuacct:/c/d\n")
    for path, quota in (("c", "50000"), ("c/d", "-1"), ("m", "1000")):
        (tmp_path / "cpu" / path).mkdir(parents=True)
        (tmp_path / "cpu" / path / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (tmp_path / "cpu" / path / "cpu.cfs_period_us").write_text("100000\n")
    assert 0.5 == cpu_quota(tmp_path, tmp_path / "groups")


@pytest.mark.parametrize("limit", ["max 100000\n", None, "99900000 100000\n", "", "50000\n", "50000 0\n", "a b\n"])
def test_no_quota_is_the_affinity_mask(tmp_path, limit):
    """Without a limit, with one above it, or with a file that says none, the affinity mask counts."""
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    assert len(os.sched_getaffinity(0)) == cpu_quota(tmp_path)


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
    assert 16 == capped_threads(16, bundle_pb2.BundleManifest(states=[recurrent]))
