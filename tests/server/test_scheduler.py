"""Laws of the scheduler: bounds hold, nobody is lost, lanes share fairly, batches share a padded length."""

from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_server.engine import queue_limits
from weft_server.engine.lane import Intake
from weft_server.engine.run_shapes import RunShapes
from weft_server.engine.scheduler import Scheduler
from weft_server.errors import DeadlineExpired, Overloaded
from weft_server.runtime.device import HOST
from weft_server.sequence import Sequence
from weft_server.source import Ids


def make(length):
    """A sequence of so many input tokens."""
    return Sequence(f"of-{length}", Ids(np.zeros(length, np.int64)), None)


def enqueue(scheduler, *lengths):
    """Let sequences of these lengths wait."""
    made = [make(length) for length in lengths]
    for sequence in made:
        scheduler.reserve()
        scheduler.enqueue(sequence)
    return made


def batch(scheduler, *, most, budget, lane=0, unpadded=False):
    """What a lane of the host takes to classify it."""
    shapes = RunShapes(HOST, attrgetter("bucket"), {}, most=most, budget=budget, unpadded=unpadded)
    return scheduler.take(lane, Intake(most=most, budget=budget, shapes=shapes))


def test_reserved_places_count_as_waiting():
    """The queue refuses one request more than its bound, whether the others are tokenized yet or not."""
    scheduler = Scheduler(1, max_queued_requests=2, max_queued_tokens=100)
    enqueue(scheduler, 5)
    scheduler.reserve()

    with pytest.raises(Overloaded, match="2 requests are waiting") as refused:
        scheduler.reserve()

    assert "QUEUE_FULL" == refused.value.reason
    scheduler.release()
    scheduler.reserve()


def test_waiting_tokens_are_bounded_but_one_request_always_may_wait():
    """A request over the token bound is refused unless nobody waits; its place stays reserved."""
    scheduler = Scheduler(1, max_queued_requests=9, max_queued_tokens=10)
    enqueue(scheduler, 50)
    scheduler.reserve()

    with pytest.raises(Overloaded) as refused:
        scheduler.enqueue(make(1))

    assert "TOKEN_BUDGET" == refused.value.reason
    assert 1 == scheduler.num_reserved


def test_waiting_bytes_are_bounded_but_one_request_always_may_wait(monkeypatch):
    """A small file may make much: a request over the bound is refused unless nobody waits. Who leaves makes room."""
    monkeypatch.setattr(queue_limits, "MAX_BYTES", 100)
    scheduler = Scheduler(1, max_queued_requests=9, max_queued_tokens=1000)
    (first,) = enqueue(scheduler, 20)
    scheduler.reserve(count=2)

    with pytest.raises(Overloaded, match="inputs of 160 bytes are waiting") as refused:
        scheduler.enqueue(make(1))
    assert ("BYTE_BUDGET", 2) == (refused.value.reason, scheduler.num_reserved)

    assert scheduler.remove(first)
    scheduler.enqueue(make(5))
    scheduler.enqueue(make(7))
    assert [5, 7] == [each.num_input_tokens for each in scheduler.take(0, Intake(most=2, budget=100))]
    assert 0 == scheduler.bounds.num_bytes


def test_a_promised_place_is_had_beyond_the_bounds():
    """Nothing is held for it before. While it waits, it counts as others do, and nothing new is let in."""
    scheduler = Scheduler(1, max_queued_requests=2, max_queued_tokens=10)
    scheduler.check_open()
    assert 0 == scheduler.num_queued
    enqueue(scheduler, 6)
    scheduler.enqueue(make(6), is_promised=True)

    with pytest.raises(Overloaded, match="2 requests are waiting"):
        scheduler.reserve()
    assert (2, 0, 12) == (scheduler.num_queued, scheduler.num_reserved, scheduler.queued_tokens)
    scheduler.bounds.max_requests = 9
    with pytest.raises(Overloaded, match="12 tokens are waiting"):
        scheduler.check_open()
    assert 2 == len(scheduler.take(0, Intake(most=2, budget=100)))
    scheduler.check_open()


def test_sequences_that_belong_together_may_wait_alone_whatever_they_cost():
    """No retry would ever help them. Beside what waits they are refused."""
    scheduler = Scheduler(1, max_queued_requests=9, max_queued_tokens=10)
    scheduler.reserve(count=2)
    scheduler.enqueue(make(6), make(5))
    assert 11 == scheduler.queued_tokens
    scheduler.reserve(count=2)
    with pytest.raises(Overloaded, match="11 tokens are waiting") as refused:
        scheduler.enqueue(make(6), make(5))

    assert ("TOKEN_BUDGET", 11, 4) == (refused.value.reason, scheduler.queued_tokens, scheduler.num_queued)


def test_slots_are_given_in_order_of_arrival_within_the_budget():
    """First come, first served; the first is admitted whatever it costs."""
    scheduler = Scheduler(1, 9, 1000)
    waiting = enqueue(scheduler, 40, 8, 8, 8)

    assert waiting[:1] == scheduler.take(0, Intake(most=4, budget=16))
    assert waiting[1:3] == scheduler.take(0, Intake(most=4, budget=16))
    assert [] == scheduler.take(0, Intake(most=0, budget=16))
    assert waiting[3:] == scheduler.take(0, Intake(most=1, budget=16))


def test_places_and_tokens_are_had_all_or_none():
    """Sequences that belong together are refused together, and then nothing of them waits."""
    scheduler = Scheduler(1, 4, 20)
    enqueue(scheduler, 5)
    with pytest.raises(Overloaded, match="1 request is waiting already, and 4 more do not fit"):
        scheduler.reserve(count=4)
    assert 1 == scheduler.num_queued
    scheduler.reserve(count=3)
    with pytest.raises(Overloaded) as refused:
        scheduler.enqueue(make(8), make(8))
    assert ("TOKEN_BUDGET", 5, 4) == (refused.value.reason, scheduler.queued_tokens, scheduler.num_queued)
    scheduler.enqueue(make(8), make(7))
    assert (1, 3, 20) == (scheduler.num_reserved, len(scheduler.waiting), scheduler.queued_tokens)
    scheduler.release(count=1)
    assert 0 == scheduler.num_reserved


def test_who_finds_no_memory_stays_the_first():
    """A lane that has slots and lacks something else takes nobody, and whoever would fit does not pass."""
    scheduler = Scheduler(1, max_queued_requests=99, max_queued_tokens=99)
    large, small = enqueue(scheduler, 9, 1)
    asked = []

    def fits(sequence):
        asked.append(sequence)
        return sequence.num_input_tokens < 5 or len(asked) > 1

    assert [] == scheduler.take(0, Intake(most=2, budget=99, fits=fits))
    assert [large, small] == scheduler.take(0, Intake(most=2, budget=99, fits=fits))
    assert [large, large, small] == asked


def test_a_lane_takes_its_even_share_of_what_waits():
    """Whoever asks first, two lanes hold the same number; one that holds more than the other takes nothing."""
    scheduler = Scheduler(2, 99, 1000)
    enqueue(scheduler, *[8] * 10)

    assert 5 == len(scheduler.take(0, Intake(most=8, budget=1000)))
    assert 0 == len(scheduler.take(0, Intake(most=8, budget=1000)))
    assert 5 == len(scheduler.take(1, Intake(most=8, budget=1000)))
    enqueue(scheduler, 8)
    assert 1 == len(scheduler.take(1, Intake(most=8, budget=1000)))
    enqueue(scheduler, 8)
    assert 0 == len(scheduler.take(1, Intake(most=8, budget=1000)))
    assert 1 == len(scheduler.take(0, Intake(most=8, budget=1000)))


def test_nobody_waits_for_a_lane_that_takes_nothing():
    """A lane that holds fewer but is closed leaves everything to the others; once it is open again, it takes."""
    scheduler = Scheduler(2, 99, 1000)
    scheduler.loads = [3, 2]
    waiting = enqueue(scheduler, 8, 8)
    assert not scheduler.may_take(0)
    assert [] == scheduler.take(0, Intake(most=9, budget=100))

    scheduler.closed.add(1)
    assert scheduler.may_take(0)
    assert waiting[:1] == scheduler.take(0, Intake(most=1, budget=100))
    scheduler.closed.discard(1)
    assert not scheduler.may_take(0)
    assert waiting[1:] == scheduler.take(1, Intake(most=9, budget=100))


def test_a_lane_takes_none_unless_there_are_enough_for_its_liking():
    """With `least`, too few who wait or too few free slots give none; enough stay together in one lane."""
    scheduler = Scheduler(2, 99, 1000)
    enqueue(scheduler, 8, 8, 8)

    assert [] == scheduler.take(0, Intake(most=8, budget=1000, least=4))
    assert [] == scheduler.take(0, Intake(most=2, budget=1000, least=3))
    assert 3 == len(scheduler.take(0, Intake(most=8, budget=1000, least=3)))


@pytest.mark.parametrize(("length", "streams", "num_taken"), [(64, False, 0), (65, False, 2), (8, True, 2)])
def test_streams_and_long_inputs_do_not_wait_for_company(length, streams, num_taken):
    """They gain nothing by it; whoever waits beside one goes too."""
    scheduler = Scheduler(1, 99, 1000)
    _, last = enqueue(scheduler, 8, length)
    last.wants_tokens = streams

    assert num_taken == len(scheduler.take(0, Intake(most=8, budget=1000, least=3)))


def test_a_batch_shares_the_padded_length_of_the_oldest():
    """Later sequences of that length join, others keep their place."""
    scheduler = Scheduler(1, 99, 1000)
    a, b, c, d = enqueue(scheduler, 9, 20, 16, 11)

    assert [a, c, d] == batch(scheduler, most=64, budget=1000)
    assert [b] == batch(scheduler, most=64, budget=1000)


def test_a_batch_keeps_to_its_bounds():
    """Neither more requests nor more padded tokens than allowed, but always one."""
    scheduler = Scheduler(1, 99, 1000)
    enqueue(scheduler, *[10] * 5)

    assert 3 == len(batch(scheduler, most=64, budget=48))
    assert 1 == len(batch(scheduler, most=1, budget=48))
    assert 1 == len(batch(scheduler, most=64, budget=1))


def test_a_batch_has_texts_of_any_length_where_no_padding_is_computed():
    """Up to 64 tokens, each counted as the longest that may come. Longer ones go with their like."""
    scheduler = Scheduler(1, 99, 1000)
    a, b, c, d, e, f = enqueue(scheduler, 9, 64, 65, 1, 66, 67)

    assert [a, b] == batch(scheduler, most=64, budget=128, unpadded=True)
    assert [c, e] == batch(scheduler, most=64, budget=1000, unpadded=True)
    assert [d] == batch(scheduler, most=64, budget=1, unpadded=True)
    assert [f] == batch(scheduler, most=64, budget=1000, unpadded=True)


def test_a_batch_is_no_more_than_an_even_share():
    """Of those who wait, idle lanes leave each other a part. A lane beside one that is as busy takes all."""
    scheduler = Scheduler(2, 99, 1000)
    enqueue(scheduler, *[10] * 5)

    assert 3 == len(batch(scheduler, most=64, budget=1000))
    assert 2 == len(batch(scheduler, most=64, budget=1000, lane=1))
    scheduler.free(1, 2)
    enqueue(scheduler, 10, 10, 10)
    assert 3 == len(batch(scheduler, most=64, budget=1000, lane=1))


@dataclass
class Books:
    """What went in and what came out."""

    waiting: list
    held: list


actions = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.integers(1, 60)),
        st.tuples(
            st.just("take"), st.integers(0, 2), st.integers(0, 5), st.integers(1, 200), st.integers(1, 4), st.booleans()
        ),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("finish"), st.integers(0, 9)),
    ),
    max_size=60,
)


@given(actions)
def test_nobody_is_lost_or_taken_twice(steps):
    """After any history, waiting and held are exactly who came in less who went out, and the counters agree."""
    scheduler, live_sequences = Scheduler(3, 8, 150), Books([], [])
    for kind, *arguments in steps:
        if kind == "enqueue":
            sequence = make(arguments[0])
            try:
                scheduler.reserve()
            except Overloaded:
                continue
            try:
                scheduler.enqueue(sequence)
                live_sequences.waiting.append(sequence)
            except Overloaded:
                scheduler.release()
        elif kind == "take":
            lane, most, budget, least, alike = arguments
            shapes = RunShapes(HOST, attrgetter("bucket"), {}, most=most, budget=budget) if alike else None
            for sequence in scheduler.take(lane, Intake(most=most, budget=budget, least=least, shapes=shapes)):
                live_sequences.waiting.remove(sequence)
                live_sequences.held.append(sequence)
        elif kind == "remove" and live_sequences.waiting:
            assert scheduler.remove(live_sequences.waiting.pop(arguments[0] % len(live_sequences.waiting)))
        elif kind == "finish" and live_sequences.held:
            sequence = live_sequences.held.pop(arguments[0] % len(live_sequences.held))
            assert not scheduler.remove(sequence)
            scheduler.free(sequence.lane)

    assert live_sequences.waiting == list(scheduler.waiting.in_order())
    assert len(live_sequences.held) == sum(scheduler.loads)
    assert sum(sequence.num_input_tokens for sequence in live_sequences.waiting) == scheduler.queued_tokens
    assert 0 == scheduler.num_reserved
    assert scheduler.num_queued <= 8


def test_a_deadline_that_is_just_reached_is_waited_for(monkeypatch):
    """Who would wait until their deadline and no longer is let in. A moment less is refused."""
    monkeypatch.setattr("weft_server.engine.scheduler.Throughput.wait_s", lambda *_: 2.0)
    scheduler = Scheduler(1, 9, 100)
    enqueue(scheduler, 5)
    scheduler.reserve(deadline=12.0, now=10.0)
    with pytest.raises(Overloaded, match=r"take about 2\.0 s, and the deadline is in 1\.5 s$") as refused:
        scheduler.reserve(deadline=11.5, now=10.0)
    assert "DEADLINE_TOO_NEAR" == refused.value.reason
    with pytest.raises(DeadlineExpired):
        scheduler.reserve(deadline=9.5, now=10.0)
