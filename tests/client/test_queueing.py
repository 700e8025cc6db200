"""The arithmetic of `weft plan`, against closed forms and a simulation of the same queue."""

import heapq
import math
from random import Random

import pytest

from weft_bench.queueing import Level, Prediction, levels_of


def linear(slots, per_s, first_s=0.01):
    """A server whose rate grows with each of its slots, measured at each power of two: M/M/slots."""
    return tuple(Level(n, n * per_s, (first_s,), (1 / per_s,)) for n in (1, 2, 4, 8, 16) if n <= slots)


@pytest.mark.parametrize("rate", [0.5, 4.0, 7.9])
def test_one_slot_is_the_queue_of_the_books(rate):
    """M/M/1: the mean time is 1 / (service - rate), and an empty server has the share 1 - rate / service."""
    prediction = Prediction(linear(1, 8.0), rate)

    assert pytest.approx(1 / (8.0 - rate)) == prediction.mean_s
    assert pytest.approx(1 - rate / 8.0) == prediction.shares[0]


@pytest.mark.parametrize("rate", [1.0, 30.0, 60.0])
def test_many_slots_wait_as_erlang_says(rate):
    """M/M/16: who waits is Erlang's C, and so is the mean time."""
    prediction = Prediction(linear(16, 4.0), rate)
    load, slots = rate / 4.0, 16
    full = load**slots / math.factorial(slots) / (1 - load / slots)
    erlang = full / (sum(load**n / math.factorial(n) for n in range(slots)) + full)

    assert pytest.approx(erlang) == prediction.shares[slots] + prediction.shares[-1]
    assert pytest.approx(1 / 4.0 + erlang / (slots * 4.0 - rate)) == prediction.mean_s
    assert pytest.approx(1 - erlang) == prediction.within(0.01, first=True)


def test_first_messages_come_as_a_simulation_says():
    """With what comes at random and is served at random, the share within a time is that of 200,000 requests."""
    rate, slots, per_s, first_s = 14.0, 4, 4.0, 0.01
    prediction = Prediction(linear(slots, per_s, first_s), rate)
    random, at, free, waits = Random(7), 0.0, [0.0] * slots, []
    for _ in range(200_000):
        at += random.expovariate(rate)
        begins = max(at, heapq.heappop(free))
        heapq.heappush(free, begins + random.expovariate(per_s))
        waits.append(begins - at + first_s)

    for seconds in (0.01, 0.1, 0.5):
        assert pytest.approx(sum(wait <= seconds for wait in waits) / len(waits), abs=0.02) == prediction.within(
            seconds, first=True
        )


def test_a_time_keeps_its_share():
    """`time_of` turns `within` round."""
    prediction = Prediction(linear(4, 4.0), 14.0)
    for share in (0.6, 0.95, 0.999):
        assert pytest.approx(share, abs=1e-6) == prediction.within(prediction.time_of(share, first=True), first=True)


def test_more_than_it_answers_is_not_stable():
    """A rate of what was measured is one too many."""
    assert [True, False] == [Prediction(linear(4, 4.0), rate).is_stable for rate in (15.9, 16.0)]


def test_between_two_measures_lies_a_line():
    """Three at once were not measured: they have the middle of two and four."""
    levels = (Level(1, 10.0, (0.1,), (0.2,)), Level(2, 20.0, (0.2,), (0.4,)), Level(4, 30.0, (0.4,), (0.8,)))

    assert Level(3, 25.0, pytest.approx((0.3,)), pytest.approx((0.6,))) == levels_of(levels)[2]


def test_more_than_were_measured_are_as_the_most_of_them():
    """Where 5.7 were in the server on average, six are possible."""
    levels = (Level(1, 10.0, (0.1,), (0.2,)), Level(5.7, 30.0, (0.4,), (0.8,)))

    assert 6 == Prediction(levels, 5.0).slots
    assert [30.0, (0.8,)] == [levels_of(levels)[5].per_s, levels_of(levels)[5].wholes_s]
    assert 0.99 < Prediction(levels, 5.0).within(0.8, first=False) < 1


def test_a_time_is_one_of_those_that_were_seen():
    """Nine of ten answers took 0.1 s, and each tenth 1 s, however many there were: so do those of a light load."""
    levels = tuple(Level(n, 10.0 * n, (), (*[0.1] * 9, 1.0)) for n in (1, 2, 4, 8))
    prediction = Prediction(levels, 4.0)

    assert pytest.approx(0.9, abs=1e-4) == prediction.within(0.5, first=False)
    assert pytest.approx([0.1, 1.0], abs=1e-6) == [prediction.time_of(share, first=True) for share in (0.89, 0.95)]
