"""The simulation of `make simulate` keeps the books: nothing is lost, and steps take what they are said to."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench/simulate"))

from run import LANES, MEAN_INPUT, MEAN_OUTPUT, capacity, costs_of
from simulated_cluster import Autoscaler, Cluster
from simulated_replica import Costs

COSTS = Costs(read_token_s=0.001, step_s=0.01, row_s=0.002)


def short(random):
    """Ten tokens in, five out."""
    return 10, 5


def test_a_lone_request_takes_its_reading_and_its_steps():
    """Ten tokens are read and five decoded, the first of them after one step."""
    cluster = Cluster(COSTS, 1, lanes=1, slots=4)
    cluster.run(30.0, lambda now: 0.2, short)
    request = cluster.requests[0]

    assert pytest.approx(10 * 0.001 + 0.012) == request.first - request.came
    assert pytest.approx(10 * 0.001 + 5 * 0.012) == request.ended - request.came


@pytest.mark.parametrize("rate", [20.0, 60.0])
def test_every_request_ends_once(rate):
    """Under a load below and above what two lanes can bear, each is answered in order of its times, or refused."""
    cluster = Cluster(COSTS, 1, lanes=2, slots=8)
    cluster.run(20.0, lambda now: rate, short)

    assert len(cluster.requests) > 15 * rate
    assert all(each.came < each.first < each.ended for each in cluster.requests if not each.is_refused)
    assert [0] == [each.num_queued for each in cluster.replicas]
    assert [0, 0] == cluster.replicas[0].scheduler.loads
    assert [] == cluster.replicas[0].requests()


def test_a_full_lane_answers_as_fast_as_its_steps_allow():
    """Four rows of five tokens take five steps of 18 ms, and 40 ms to read: 31 answers a second, in a long queue."""
    cluster = Cluster(COSTS, 1, lanes=1, slots=4)
    cluster.run(60.0, lambda now: 100.0, short)
    ended = [each.ended for each in cluster.requests if not math.isnan(each.ended) and 10 < each.ended < 50]

    assert pytest.approx(4 / (5 * 0.018 + 0.04), rel=0.05) == len(ended) / 40


def test_a_lost_zone_loses_no_request():
    """A third of the replicas goes with all that is in them; each request is asked again, and answered."""
    cluster = Cluster(COSTS, 6, lanes=2, slots=8)
    cluster.lose_zone(5.0)
    cluster.run(10.0, lambda now: 150.0, short)

    assert 4 == len(cluster.replicas)
    assert any(each.times_asked > 1 for each in cluster.requests)
    assert not [each for each in cluster.requests if math.isnan(each.ended) and not each.is_refused]


def test_an_autoscaler_is_late_by_what_a_replica_loads():
    """It looks after 15 s and a replica serves 60 s later: before that there are as many as there were."""
    cluster = Cluster(COSTS, 2, lanes=2, slots=8)
    cluster.scale(Autoscaler(), 90.0)
    cluster.run(90.0, lambda now: 150.0, short)
    replicas = {round(at): number for at, number, _ in cluster.seen}

    assert {2} == {number for at, number in replicas.items() if at < 75}
    assert replicas[80] > 2


def test_what_was_measured_is_what_is_simulated():
    """Levels of a server whose steps and reading are known give these back, and so what a replica can do."""
    costs = Costs(read_token_s=0.0006, step_s=0.001, row_s=0.0006)
    levels = []
    for callers in (2, 4, 8, 16, 32):
        rows = callers / LANES
        round_s = MEAN_OUTPUT * costs.step(rows) + rows * costs.read_token_s * MEAN_INPUT
        first_s = round_s / MEAN_OUTPUT + costs.read_token_s * MEAN_INPUT
        levels.append({"in_flight": callers, "per_s": callers / round_s, "first_s": first_s})

    assert pytest.approx(levels[-1]["per_s"]) == capacity(costs_of(levels))
