"""Lanes go where the most memory is left, by our books and by CUDA. Pure: the devices here are numbers."""

import asyncio
import random

import pytest

from loaded import Loaded
from weft_server.errors import BundleError
from weft_server.models import placement as module
from weft_server.models.placement import Placement
from weft_server.runtime.device import HOST, Device

FIRST, SECOND, THIRD = (Device("cuda", index, in_place=False) for index in range(3))
GB = 10**9


class Cuda:
    """What CUDA says is free, by device."""

    def __init__(self, *free):
        self.free = dict(zip((FIRST, SECOND, THIRD), free, strict=False))

    def placement(self):
        """All of them, with nothing on them."""
        return Placement(list(self.free), self.free.get)


def placed(placement, *sizes):
    """Where a model goes that has loaded."""
    claim = placement.claim("m", sizes)
    with claim.loading():
        return claim


def test_a_model_goes_where_most_is_left():
    """The fullest device waits until the others are as full. Of two that have the same, the first is taken."""
    placement = Cuda(10, 30, 30).placement()
    assert [[SECOND], [THIRD], [SECOND], [THIRD], [FIRST]] == [placed(placement, 11).devices for _ in range(4)] + [
        placed(placement, 9).devices
    ]
    assert {"0": 9, "1": 22, "2": 22} == placement.claimed()


def test_lanes_go_to_devices_of_their_own():
    """The largest lane goes where the most is left, and no two of a model share a device."""
    placement = Cuda(30, 20, 40).placement()
    assert [THIRD, FIRST] == placed(placement, 15, 10).devices
    assert {"0": 10, "1": 0, "2": 15} == placement.claimed()
    assert [THIRD, FIRST, SECOND] == placed(placement, 3, 3, 3).devices


def test_who_does_not_fit_is_refused_with_what_is_left():
    """The sentence says what it takes, what each device has, and what helps. Nothing is taken."""
    placement = Cuda(2 * GB, 3 * GB).placement()
    with pytest.raises(BundleError) as refused:
        placement.claim("m", [4 * GB])
    says = "its weights and caches take 4.0 GB of a device, and left are: cuda:0 2.0 GB, cuda:1 3.0 GB; "
    assert says + "a smaller --slots or --cache-gb takes less" == str(refused.value)
    with pytest.raises(BundleError, match=r"take 3\.0 GB and 2\.5 GB of 2 devices, and left are"):
        placement.claim("m", [3 * GB, GB * 5 // 2])
    assert {"0": 0, "1": 0} == placement.claimed()
    assert [SECOND] == placed(placement, 3 * GB).devices


def test_who_leaves_gives_its_place_back_once():
    """Released twice, as a model that is stopped twice does, it frees its bytes once."""
    placement = Cuda(10, 0).placement()
    claim = placed(placement, 7)
    other = placed(placement, 3)
    claim.release()
    claim.release()
    assert {"0": 3, "1": 0} == placement.claimed()
    assert [FIRST] == placed(placement, 7).devices
    other.release()


def test_a_load_that_fails_takes_nothing():
    """Whatever ends it, what it claimed is there for others."""
    placement = Cuda(10).placement()
    claim = placement.claim("m", [10])
    with pytest.raises(KeyboardInterrupt), claim.loading():
        raise KeyboardInterrupt
    assert [FIRST] == placed(placement, 10).devices


def test_what_others_take_counts():
    """A process beside this one takes memory that our books do not know of."""
    cuda = Cuda(10, 8)
    placement = cuda.placement()
    cuda.free[FIRST] = 5
    assert [SECOND] == placed(placement, 6).devices
    with pytest.raises(BundleError):
        placement.claim("m", [6])


def test_a_model_that_loads_is_not_counted_twice():
    """Half of its weights are there already. What it will take is known, so two may load at a time that fit."""
    cuda = Cuda(10)
    placement = cuda.placement()
    with placement.claim("large", [6]).loading():
        cuda.free[FIRST] = 7
        with pytest.raises(BundleError):
            placement.claim("too large", [5])
        assert [FIRST] == placement.claim("beside", [4]).devices


def test_where_nobody_knows_what_is_free_all_are_filled_alike():
    """A claim is never refused then, and goes where the fewest bytes are claimed."""
    placement = Cuda(None, None).placement()
    assert [[FIRST], [SECOND], [SECOND]] == [placed(placement, size).devices for size in (10**15, 5, 5)]


def test_no_device_is_ever_promised_more_than_it_has():
    """Whatever comes and goes, the claims on a device fit into it."""
    rng = random.Random(7)
    cuda = Cuda(50, 30, 80)
    placement, claims = cuda.placement(), []
    for _ in range(2000):
        if claims and rng.random() < 0.4:
            claims.pop(rng.randrange(len(claims))).release()
            continue
        sizes = sorted((rng.randrange(1, 40) for _ in range(rng.randrange(1, 4))), reverse=True)
        try:
            claims.append(placed(placement, *sizes))
        except BundleError:
            continue
        assert all(placement.claimed()[str(device.index)] <= free for device, free in cuda.free.items())
    for claim in claims:
        claim.release()
    assert {"0": 0, "1": 0, "2": 0} == placement.claimed()


def test_the_host_has_all_lanes(tiny_repository, monkeypatch):
    """A model of several lanes on the CPU claims the one device that there is, and no bytes of it."""
    monkeypatch.setattr(module, "free_on", None)

    async def devices():
        async with Loaded(tiny_repository / "tiny-generate" / "1", lanes=2, slots=4) as model:
            return model.devices, len(model.engine.lanes)

    assert (["cpu"], 2) == asyncio.run(devices())
    assert {} == Placement([HOST]).claimed()
