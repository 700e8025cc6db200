"""Laws of who waits and who goes on: classes, tenants, deadlines and bounds, over a fake runner and a virtual clock."""

import math
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queued import make, one, wait
from weft_server.engine.lane import Intake
from weft_server.engine.request_queue import MOST_PASSED
from weft_server.engine.scheduler import Scheduler
from weft_server.errors import Overloaded
from weft_server.sequence import Priority, Sequence, Standing

HIGH, NORMAL, LOW = Priority
NUM_SLOTS = 4


def order(scheduler):
    """The names of those who wait, in their order."""
    return [sequence.request_id for sequence in scheduler.waiting.in_order()]


def test_a_higher_class_goes_on_first_and_each_class_as_it_came():
    """High before normal before low, whoever came first."""
    scheduler = Scheduler(1, 99, 10_000)
    classes = {"a": LOW, "b": NORMAL, "c": HIGH, "d": NORMAL, "e": HIGH, "f": LOW}
    wait(scheduler, *(make(name, Standing(priority)) for name, priority in classes.items()))
    assert ["c", "e", "b", "d", "a", "f"] == order(scheduler)


@pytest.mark.parametrize("num_before", [0, 3])
def test_nobody_starves_behind_a_stream_of_high_ones(num_before):
    """With n of its class before it and high ones without end, a low one is the (n + 1) * (MOST_PASSED + 1)-th."""
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, *(make("before", Standing(LOW)) for _ in range(num_before)), make("low", Standing(LOW)))
    turns = 0
    while True:
        wait(scheduler, make("high", Standing(HIGH, f"{turns % 3}")), make("high", Standing(HIGH)))
        turns += 1
        if "low" == one(scheduler):
            break
    assert (num_before + 1) * (MOST_PASSED + 1) == turns


def test_a_class_that_comes_anew_has_no_turn_yet():
    """Low ones were passed over, and went. Who comes then waits as long as the first one would have."""
    scheduler = Scheduler(1, 99, 10_000)
    gone = make("gone", Standing(LOW))
    wait(scheduler, gone, *(make("high", Standing(HIGH)) for _ in range(30)))
    for _ in range(MOST_PASSED):
        assert "high" == one(scheduler)
    assert scheduler.remove(gone)
    wait(scheduler, make("low", Standing(LOW)))
    assert ["high"] * MOST_PASSED + ["low"] == [one(scheduler) for _ in range(MOST_PASSED + 1)]


def test_the_higher_class_keeps_most_turns():
    """A stream of high ones has MOST_PASSED of MOST_PASSED + 1 turns, and of one more if two classes wait below."""
    for below, num_others in ((LOW,), 1), ((NORMAL, LOW), 2):
        scheduler = Scheduler(1, 9999, 10**6)
        wait(scheduler, *(make("other", Standing(each)) for each in below for _ in range(200)))
        wait(scheduler, *(make("high", Standing(HIGH)) for _ in range(400)))
        had = Counter(one(scheduler) for _ in range(400))
        assert abs(had["high"] - 400 * (1 - num_others / (MOST_PASSED + 1))) <= 2


CLASSES = st.lists(st.tuples(st.sampled_from(Priority), st.sampled_from(["a", "b", "c"])), max_size=4)


@settings(deadline=None, max_examples=100)
@given(start=CLASSES, steps=st.lists(CLASSES, min_size=10, max_size=80))
def test_no_class_that_waits_is_passed_over_for_long(start, steps):
    """Whoever comes and goes: MOST_PASSED times in a row at most, or once more where two classes are due at once."""
    scheduler = Scheduler(1, 9999, 10**7, {"b": 4.0})
    passed = Counter()
    for number, coming in enumerate((start, *steps)):
        wait(scheduler, *(make(f"{number}", Standing(*each)) for each in coming))
        waiting = {each.standing.priority for each in scheduler.waiting.in_order()}
        if waiting:
            expected = order(scheduler)[0]
            (taken,) = scheduler.take(0, Intake(most=1, budget=10**6))
            assert expected == taken.request_id
            scheduler.free(0, 1, taken.standing.tenant)
            scheduler.settle(taken)
            for each in Priority:
                passed[each] = passed[each] + 1 if each in waiting and each is not taken.standing.priority else 0
            assert max(passed.values()) <= MOST_PASSED + 1


def test_a_wide_one_that_was_first_once_stays_the_first():
    """It finds too few slots. Neither a higher class nor another tenant passes it until it has them."""
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, make("wide", Standing(LOW, "a"), width=3))
    assert [] == scheduler.take(0, Intake(most=4, budget=1000, room=2))
    wait(scheduler, make("high", Standing(HIGH, "b")))
    assert ["wide", "high"] == order(scheduler)
    assert [] == scheduler.take(0, Intake(most=4, budget=1000, room=2))
    assert ["wide", "high"] == [each.request_id for each in scheduler.take(0, Intake(most=4, budget=1000, room=4))]


def test_a_held_up_one_that_goes_holds_up_nobody():
    """A cancelled one leaves its place to the next."""
    scheduler = Scheduler(1, 99, 10_000)
    wide = make("wide", width=3)
    wait(scheduler, wide, make("next"))
    assert [] == scheduler.take(0, Intake(most=4, budget=1000, room=2))
    assert scheduler.remove(wide)
    assert ["next"] == [each.request_id for each in scheduler.take(0, Intake(most=4, budget=1000, room=2))]


def test_each_class_has_its_bound():
    """Low ones leave half of the places to others, and high ones find a quarter more than normal ones."""
    for priority, most in ((LOW, 4), (NORMAL, 8), (HIGH, 10)):
        scheduler = Scheduler(1, 8, 10_000)
        for _ in range(most):
            scheduler.reserve(Standing(priority))
        for other in Priority:
            if other >= priority:
                with pytest.raises(Overloaded, match=f"^{most} requests are waiting already$"):
                    scheduler.reserve(Standing(other))
    scheduler = Scheduler(1, 1, 10_000)
    scheduler.reserve(Standing(LOW))


def test_one_tenant_leaves_places_to_others():
    """Alone it fills four fifths of the places, and what it may hold shrinks when others come."""
    scheduler = Scheduler(1, 100, 10_000)
    flood = Standing(tenant="flood")
    for _ in range(80):
        scheduler.reserve(flood)
    with pytest.raises(Overloaded) as refused:
        scheduler.reserve(flood)
    assert "TENANT_QUEUE_FULL" == refused.value.reason
    for _ in range(16):
        scheduler.reserve(Standing(tenant="other"))
    scheduler.release(flood, 30)
    for _ in range(18):
        scheduler.reserve(flood)
    with pytest.raises(Overloaded):
        scheduler.reserve(flood)
    scheduler.reserve(Standing(tenant="third"))
    scheduler = Scheduler(1, 100, 10_000)
    for _ in range(100):
        scheduler.reserve()


def _paced():
    """A scheduler with 10 waiting that has let ten a second go on, and the time."""
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, *(make(str(number)) for number in range(30)))
    for number in range(20):
        one(scheduler, now=(number + 1) / 10)
    return scheduler, 2.0


def test_a_deadline_that_the_pace_cannot_meet_is_refused_at_the_door():
    """Ten wait and ten go on in a second: who has half a second comes in vain, and who has two seconds waits."""
    scheduler, now = _paced()
    with pytest.raises(Overloaded, match=r"^those who wait already take about 1\.0 s, and the deadline is in 0\.5 s$"):
        scheduler.reserve(deadline=now + 0.5, now=now)
    scheduler.reserve(deadline=now + 2, now=now)
    assert 11 == scheduler.num_queued


def test_a_long_queue_of_others_is_no_reason_to_refuse_who_goes_before_them():
    """High ones go before normal ones, and a tenant takes turns with another one that has filled the queue."""
    scheduler, now = _paced()
    scheduler.reserve(Standing(HIGH), deadline=now + 0.2, now=now)
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, *(make(str(number), Standing(tenant="flood")) for number in range(60)))
    for number in range(20):
        one(scheduler, now=(number + 1) / 10)
    with pytest.raises(Overloaded):
        scheduler.reserve(Standing(tenant="flood"), deadline=now + 0.5, now=now)
    scheduler.reserve(Standing(tenant="alone"), deadline=now + 0.5, now=now)


def test_a_pace_of_long_ago_refuses_nobody():
    """After a while without a queue, what was slow then says nothing; and who is being tokenized is no queue."""
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, *(make(str(number)) for number in range(21)))
    for number in range(21):
        one(scheduler, now=float(number + 1))
    for _ in range(50):
        scheduler.reserve(deadline=25.0, now=22.0)
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, *(make(str(number)) for number in range(21)))
    for number in range(21):
        one(scheduler, now=float(number + 1))
    wait(scheduler, *(make("later", deadline=3605.0) for _ in range(8)), now=3600.0)
    scheduler.reserve(deadline=3605.0, now=3600.0)


@pytest.mark.parametrize(
    "standing", [Standing(), Standing(LOW), Standing(HIGH), Standing(tenant="a"), Standing(LOW, "a")]
)
@pytest.mark.parametrize("weight", [0.01, 0.5, 1.0, 9.0])
def test_what_can_be_had_together_is_said_beforehand(standing, weight):
    """So many places are had in an empty room, behind a first one, and not one more."""
    scheduler = Scheduler(1, 100, 10_000, {"a": weight})
    most = scheduler.bounds.most_for(standing)
    scheduler.reserve(standing)
    scheduler.reserve(standing, most - 1)
    with pytest.raises(Overloaded):
        scheduler.reserve(standing)


def test_no_place_is_no_question():
    """A text of one sentence asks for no further places, which a full queue has too."""
    scheduler = Scheduler(1, 2, 10_000)
    scheduler.reserve(count=2)
    scheduler.reserve(Standing(LOW), 0)


def test_a_refusal_says_when_the_room_will_be_empty():
    """By the pace, in tenths of a second; a second while no pace is known."""
    scheduler, now = _paced()
    with pytest.raises(Overloaded) as refused:
        scheduler.reserve(deadline=now, now=now)
    assert 1.0 == refused.value.retry_after_s
    wait(scheduler, *(make("more") for _ in range(89)))
    with pytest.raises(Overloaded) as refused:
        scheduler.reserve(now=now)
    assert 9.9 == refused.value.retry_after_s


def test_a_room_that_empties_says_nothing_of_the_pace():
    """Requests that come one a minute and go on at once are no sign that a minute is needed for each."""
    scheduler = Scheduler(1, 99, 10_000)
    for minute in range(10):
        wait(scheduler, make("one"), now=60.0 * minute)
        one(scheduler, now=60.0 * minute + 0.001)
    scheduler.reserve(deadline=600.5, now=600.0)
    scheduler.reserve(deadline=600.5, now=600.0)


def test_who_is_late_is_dropped_before_it_costs_anything():
    """A lane takes those that are in time. Whoever takes ends the others."""
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, make("late", deadline=1.0), make("early", deadline=3.0), make("too late", deadline=2.0))
    assert ["early"] == [each.request_id for each in scheduler.take(0, Intake(most=4, budget=1000), now=2.0)]
    assert ["late", "too late"] == [each.request_id for each in scheduler.late]
    assert (0, 0, [1]) == (scheduler.num_queued, scheduler.queued_tokens, scheduler.loads)


@dataclass
class Run:
    """A fake runner of some lanes: each row gives a token a tick, until its answer is complete."""

    scheduler: Scheduler
    rows: list[list[Sequence]]
    now: float = 0.0
    ended: Counter = field(default_factory=Counter)
    came: list[Sequence] = field(default_factory=list)

    def tick(self):
        """Each lane takes what it may, and steps."""
        self.now += 0.5
        for lane, rows in enumerate(self.rows):
            free = NUM_SLOTS - sum(row.width for row in rows)
            if free:
                rows.extend(self.scheduler.take(lane, Intake(most=free, room=free, budget=40), now=self.now))
            for late in self.scheduler.late:
                assert late.deadline <= self.now
                self.end(late)
            self.scheduler.late.clear()
            assert sum(row.width for row in rows) <= NUM_SLOTS
            for row in list(rows):
                row.num_output_tokens += row.width
                if row.num_output_tokens >= row.width * row.decoding.max_new_tokens:
                    rows.remove(row)
                    self.scheduler.free(lane, row.width, row.standing.tenant)
                    self.end(row)

    def end(self, sequence):
        """Note an end."""
        self.ended[sequence.request_id] += 1
        self.scheduler.settle(sequence)

    def check(self):
        """What holds after every step."""
        waiting = list(self.scheduler.waiting.in_order())
        assert len(waiting) == len(set(map(id, waiting))) == len(self.scheduler.waiting)
        assert sum(each.num_input_tokens for each in waiting) == self.scheduler.queued_tokens
        assert [sum(row.width for row in rows) for rows in self.rows] == self.scheduler.loads
        running = [row for rows in self.rows for row in rows]
        assert Counter(each.request_id for each in (*waiting, *running)) + self.ended == Counter(
            each.request_id for each in self.came
        )


ASKED = st.tuples(
    st.sampled_from(Priority),
    st.sampled_from(["", "a", "b"]),
    st.integers(1, NUM_SLOTS),
    st.integers(1, 20),
    st.integers(1, 6),
    st.sampled_from([0.4, 3.0, math.inf]),
)
STEPS = st.lists(
    st.one_of(st.tuples(st.just("come"), ASKED), st.just(("tick", None)), st.tuples(st.just("cancel"), st.integers(0))),
    max_size=60,
)


@settings(deadline=None, max_examples=150)
@given(steps=STEPS, weights=st.sampled_from([{}, {"a": 4.0}]))
def test_whatever_comes_ends_once_and_the_bounds_hold(steps, weights):
    """No loss, no duplicate, no starvation. Slots are conserved, and a group has all of its slots or none."""
    run = Run(Scheduler(2, 8, 60, weights), [[], []])
    for kind, what in steps:
        if kind == "come":
            come(run, *what)
        elif kind == "tick":
            run.tick()
        else:
            cancel(run, what)
        run.check()
        assert run.scheduler.num_queued <= 10
    # Each of at most ten has at most six ticks to itself.
    for _ in range(100):
        run.tick()
        run.check()
    assert all(1 == run.ended[each.request_id] for each in run.came)
    assert (0, 0, [0, 0]) == (run.scheduler.num_queued, run.scheduler.queued_tokens, run.scheduler.loads)


def come(run, priority, tenant, width, length, new, patience):
    """Ask for a place. A refusal names its reason, and changes nothing."""
    sequence = make(
        f"{len(run.came)}",
        Standing(priority, tenant),
        accepted=run.now,
        length=length,
        new=new,
        width=width,
        deadline=run.now + patience,
    )
    before = run.scheduler.num_queued
    reason = reason_of(lambda: run.scheduler.reserve(sequence.standing, 1, sequence.deadline, run.now))
    if reason is None:
        reason = reason_of(lambda: run.scheduler.enqueue(sequence, now=run.now))
        if reason is None:
            run.came.append(sequence)
            return
        run.scheduler.release(sequence.standing)
    assert reason in {"QUEUE_FULL", "TENANT_QUEUE_FULL", "DEADLINE_TOO_NEAR", "TOKEN_BUDGET"}
    assert before == run.scheduler.num_queued


def reason_of(ask):
    """Why something is refused, or None."""
    try:
        ask()
    except Overloaded as error:
        return error.reason
    return None


def cancel(run, which):
    """Somebody who waits goes."""
    waiting = deque(run.scheduler.waiting.in_order())
    if waiting:
        sequence = waiting[which % len(waiting)]
        assert run.scheduler.remove(sequence)
        run.end(sequence)
