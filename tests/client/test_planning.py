"""What `weft plan` makes of what it measured, and what it refuses before it measures anything."""

import pytest

from weft_bench.planning import Wanted, _plan
from weft_bench.queueing import Level

# A server of up to ten answers a second: a lone first message takes 0.1 s, and beside three others 0.2 s.
LEVELS = (Level(1, 4.0, (0.1,), (0.3,)), Level(2, 7.0, (0.15,), (0.4,)), Level(4, 10.0, (0.2,), (0.6,)))


@pytest.mark.parametrize(("rate", "replicas"), [(0.1, 1), (8.0, 1), (8.1, 2), (80.0, 10), (1000.0, 125)])
def test_no_replica_gets_more_than_four_fifths(rate, replicas):
    """Without a bound, the number of replicas follows from the most that one can do."""
    said = _plan(LEVELS, Wanted(rate))

    assert (replicas, "throughput", 10.0) == (said["replicas"], said["bound"], said["most_per_s"])
    assert pytest.approx(rate / replicas / 10.0) == said["busy"]


def test_a_bound_asks_for_more():
    """With a bound on first messages there are as many as keep it, and one fewer does not."""
    wanted = Wanted(80.0, slo_ttft=0.25)
    said = _plan(LEVELS, wanted)

    assert ("latency", True) == (said["bound"], said["replicas"] > 10)
    assert said["ttft_p95_s"] <= 0.25
    assert 0.25 < _plan(LEVELS, Wanted(80.0 / (said["replicas"] - 1) - 1e-9))["ttft_p95_s"]


def test_no_number_is_enough_for_less_than_a_lone_request_takes():
    """A bound below what the first level showed."""
    said = _plan(LEVELS, Wanted(1.0, slo_e2e=0.29))

    assert {"replicas": None, "bound": "latency", "most_per_s": 10.0} == said


def test_slots_grow_with_the_load():
    """Nearly nothing needs one slot; four fifths of a server need more than were measured, which is said."""
    assert [1, None] == [_plan(LEVELS, Wanted(rate))["slots"] for rate in (0.01, 8.0)]


def test_more_than_the_best_level_are_no_use():
    """Eight at once get less than four: there are four slots, and the processor bounds it, not a time."""
    said = _plan((*LEVELS, Level(8, 6.0, (0.5,), (1.3,))), Wanted(80.0))

    assert (10, "throughput", 4) == (said["replicas"], said["bound"], said["slots"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nowhere", "--rate", "1"], "BUNDLE: 'nowhere' holds no bundle.json"),
        (["nowhere", "--rate", "0"], "--rate: must be more than 0"),
        (["nowhere", "--rate", "1", "--slo-ttft", "-1"], "--slo-ttft: must be a number of seconds, more than 0"),
    ],
)
def test_what_is_wrong_is_said_before_a_server_starts(weft_command, argv, said):
    """Each names its option or argument."""
    code, _, errors = weft_command("plan", *argv)

    assert code != 0
    assert said in errors
