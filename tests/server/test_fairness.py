"""Laws of who waits and who goes on: classes, tenants, deadlines and bounds, over a fake runner and a virtual clock."""

import math
from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft_server.engine.scheduler import Scheduler
from weft_server.engine.waiting import MAX_TENANTS, MOST_PASSED
from weft_server.errors import Overloaded
from weft_server.sequence import ANYBODY, Decoding, Priority, Sequence, Standing
from weft_server.source import Ids

HIGH, NORMAL, LOW = Priority
NUM_SLOTS = 4


def make(name, standing=ANYBODY, *, accepted=0.0, length=8, new=8, width=1, deadline=math.inf):
    """A sequence that waits since `accepted`."""
    decoding = Decoding(max_new_tokens=new, num_outputs=width)
    sequence = Sequence(name, Ids(np.zeros(length, np.int64)), decoding, standing=standing, deadline=deadline)
    sequence.times.accepted = accepted
    return sequence


def wait(scheduler, *sequences, now=0.0):
    """Let them in one after the other."""
    for sequence in sequences:
        scheduler.reserve(sequence.standing, now=now)
        scheduler.enqueue(sequence, now=now)


def order(scheduler):
    """The names of those who wait, in their order."""
    return [sequence.request_id for sequence in scheduler.waiting.in_order()]


def one(scheduler, now=0.0):
    """The name of the one that a lane takes, which ends at once."""
    (taken,) = scheduler.take(0, most=1, budget=10**6, now=now)
    scheduler.free(0, taken.width, taken.standing.tenant)
    scheduler.settle(taken)
    return taken.request_id


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


def test_the_higher_class_keeps_most_turns():
    """A stream of high ones has MOST_PASSED of MOST_PASSED + 1 turns, and of one more if two classes wait below."""
    for below, share in ((LOW,), MOST_PASSED / (MOST_PASSED + 1)), ((NORMAL, LOW), (MOST_PASSED - 1) / (MOST_PASSED + 1)):
        scheduler = Scheduler(1, 9999, 10**6)
        wait(scheduler, *(make("other", Standing(each)) for each in below for _ in range(200)))
        wait(scheduler, *(make("high", Standing(HIGH)) for _ in range(400)))
        had = Counter(one(scheduler) for _ in range(400))
        assert abs(had["high"] - share * 400) <= 2


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
            (taken,) = scheduler.take(0, most=1, budget=10**6)
            assert expected == taken.request_id
            scheduler.free(0, 1, taken.standing.tenant)
            scheduler.settle(taken)
            for each in Priority:
                passed[each] = passed[each] + 1 if each in waiting and each is not taken.standing.priority else 0
            assert max(passed.values()) <= MOST_PASSED + 1


def share(callers, lengths, *, num_slots=8, weights=None, ends_early=False, pause=0):
    """Tokens of inputs and answers of `a` for each of `b`, where each of their callers asks again when answered.

    A caller asks again within `pause` steps.
    """
    rng = np.random.default_rng(0)
    scheduler, had, rows, due = Scheduler(1, 10_000, 10**7, weights), Counter(), [], deque()
    for tenant, number in callers.items():
        due.extend((0, tenant) for _ in range(number))
    for step in range(4000):
        for _ in range(len(due)):
            when, tenant = due.popleft()
            if when > step:
                due.append((when, tenant))
            else:
                wait(scheduler, make(tenant, Standing(tenant=tenant), new=lengths[tenant]))
        free = num_slots - len(rows)
        for taken in scheduler.take(0, most=free, room=free, budget=10**6) if free else []:
            most = taken.decoding.max_new_tokens
            rows.append((taken, int(rng.integers(1, most + 1)) if ends_early else most))
            had[taken.request_id] += taken.num_input_tokens
        for row in list(rows):
            taken, end = row
            taken.num_output_tokens += 1
            had[taken.request_id] += 1
            if taken.num_output_tokens == end:
                rows.remove(row)
                scheduler.free(0, 1, taken.standing.tenant)
                scheduler.settle(taken)
                due.append((step + 1 + int(rng.integers(0, pause + 1)), taken.request_id))
    return had["a"] / had["b"]


@pytest.mark.parametrize("num_slots", [1, 2, 8, 32])
@pytest.mark.parametrize("lengths", [{"a": 32, "b": 32}, {"a": 8, "b": 100}, {"a": 100, "b": 8}])
@pytest.mark.parametrize("ends_early", [False, True])
def test_four_to_one_is_four_to_one(num_slots, lengths, ends_early):
    """Where both always wait, within a tenth: few slots or many, short answers or long, and whatever max_new_tokens."""
    callers = {"a": 2 * num_slots, "b": 2 * num_slots}
    assert 3.6 <= share(callers, lengths, num_slots=num_slots, weights={"a": 4.0}, ends_early=ends_early) <= 4.4


def test_a_moment_in_which_nobody_waits_costs_no_share():
    """A tenant whose callers take some steps to ask again waits nearly always. It keeps what its weight gives it."""
    callers, lengths = {"a": 12, "b": 12}, {"a": 16, "b": 64}
    assert 3.6 <= share(callers, lengths, weights={"a": 4.0}, pause=4) <= 4.4
    assert 3.6 <= share(callers, {"a": 32, "b": 32}, weights={"a": 4.0}, pause=4) <= 4.4


def test_a_claim_of_many_tokens_gains_nothing():
    """Who asks for twice as many tokens, and takes half of them as everybody here, has no more than the other."""
    assert 0.9 <= share({"a": 12, "b": 12}, {"a": 100, "b": 50}, ends_early=True) <= 1.1


@pytest.mark.parametrize("weights", [{}, {"a": 3.0}, {"a": 0.5, "b": 2.0, "c": 7.0}])
def test_tenants_have_tokens_by_their_weights(weights):
    """However many requests of whatever length each sends: within a tenth, while all of them wait."""
    rng = np.random.default_rng(0)
    scheduler = Scheduler(1, 10_000, 10**7, weights)
    had = Counter()
    backlog = {"a": 40, "b": 10, "c": 3}
    for tenant, number in backlog.items():
        for _ in range(number):
            wait(scheduler, make(tenant, Standing(tenant=tenant), length=8, new=8))
    for _ in range(4000):
        (taken,) = scheduler.take(0, most=1, budget=10**6)
        taken.num_output_tokens = int(rng.integers(1, taken.decoding.max_new_tokens + 1))
        had[taken.request_id] += taken.num_input_tokens + taken.num_output_tokens
        scheduler.free(0, 1, taken.standing.tenant)
        scheduler.settle(taken)
        length, new = (int(each) for each in rng.integers(1, 100 if taken.request_id == "a" else 30, 2))
        wait(scheduler, make(taken.request_id, taken.standing, length=length, new=new))
    shares = [had[tenant] / weights.get(tenant, 1.0) for tenant in backlog]
    assert max(shares) <= 1.1 * min(shares), had


def test_a_flood_of_one_tenant_costs_another_one_turn():
    """Who comes with one request behind a hundred of somebody else's goes on after the next one."""
    scheduler = Scheduler(1, 10_000, 10**6)
    wait(scheduler, *(make(f"flood-{number}", Standing(tenant="flood")) for number in range(100)))
    one(scheduler)
    wait(scheduler, make("alone", Standing(tenant="alone")))
    assert "alone" in {one(scheduler), one(scheduler)}


def test_who_comes_back_has_no_claim_on_the_past():
    """A tenant that asked for nothing while others were served does not go before them all afterwards."""
    scheduler = Scheduler(1, 10_000, 10**6)
    wait(scheduler, *(make("a", Standing(tenant="a")) for _ in range(60)), make("b", Standing(tenant="b")))
    for _ in range(31):
        one(scheduler)
    wait(scheduler, *(make("b", Standing(tenant="b")) for _ in range(20)))
    assert 5 <= Counter(one(scheduler) for _ in range(12))["a"] <= 7


@pytest.mark.parametrize(
    ("num_slots", "width", "most"), [(8, 1, 7), (32, 1, 30), (32, 8, 24), (64, 1, 60), (4, 1, 4)]
)
def test_a_tenant_leaves_slots_to_others(num_slots, width, most):
    """Of many slots one of sixteen, of eight or more one, of fewer none. Whoever comes finds them, in the next step."""
    scheduler = Scheduler(1, 999, 10**6)
    wait(scheduler, make("other", Standing(tenant="other")))
    one(scheduler)
    wait(scheduler, *(make("flood", Standing(tenant="flood"), width=width) for _ in range(100)))

    def room():
        return num_slots - scheduler.loads[0]

    for _ in range(num_slots):
        scheduler.take(0, most=room() or 1, room=room(), budget=10**6)
    assert most == scheduler.loads[0]
    wait(scheduler, make("other", Standing(tenant="other")))
    taken = scheduler.take(0, most=room() or 1, room=room(), budget=10**6)
    assert ["other"] * (most < num_slots) == [each.request_id for each in taken]


def test_a_tenant_that_is_alone_has_all_slots():
    """So has everybody who has no name, and a request that is as wide as the lane."""
    for tenants in (("a",), ("",)):
        scheduler = Scheduler(1, 999, 10**6)
        wait(scheduler, *(make("x", Standing(tenant=tenant)) for tenant in tenants for _ in range(99)))
        assert 32 == len(scheduler.take(0, most=32, room=32, budget=10**6))
    scheduler = Scheduler(1, 999, 10**6)
    wait(scheduler, make("x", Standing(tenant="a")), make("wide", Standing(tenant="b"), width=8))
    one(scheduler)
    assert ["wide"] == [each.request_id for each in scheduler.take(0, most=8, room=8, budget=10**6)]


def test_slots_that_are_free_again_are_counted_by_tenant():
    """Also those of a lane that is gone."""
    scheduler = Scheduler(1, 999, 10**6)
    wait(scheduler, make("other", Standing(tenant="other")))
    one(scheduler)
    wait(scheduler, *(make("x", Standing(tenant="a")) for _ in range(99)))
    assert 7 == len(scheduler.take(0, most=8, room=8, budget=10**6))
    scheduler.free(0, 3, "a")
    assert 3 == len(scheduler.take(0, most=4, room=4, budget=10**6))
    scheduler.vacate(0)
    assert 7 == len(scheduler.take(0, most=8, room=8, budget=10**6))


def test_a_wide_one_that_was_first_once_stays_the_first():
    """It finds too few slots. Neither a higher class nor another tenant passes it until it has them."""
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, make("wide", Standing(LOW, "a"), width=3))
    assert [] == scheduler.take(0, most=4, budget=1000, room=2)
    wait(scheduler, make("high", Standing(HIGH, "b")))
    assert ["wide", "high"] == order(scheduler)
    assert [] == scheduler.take(0, most=4, budget=1000, room=2)
    assert ["wide", "high"] == [each.request_id for each in scheduler.take(0, most=4, budget=1000, room=4)]


def test_a_held_up_one_that_goes_holds_up_nobody():
    """A cancelled one leaves its place to the next."""
    scheduler = Scheduler(1, 99, 10_000)
    wide = make("wide", width=3)
    wait(scheduler, wide, make("next"))
    assert [] == scheduler.take(0, most=4, budget=1000, room=2)
    assert scheduler.remove(wide)
    assert ["next"] == [each.request_id for each in scheduler.take(0, most=4, budget=1000, room=2)]


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


def test_a_claim_that_runs_puts_nobody_back():
    """A tenant that was alone when its long requests went on is given back what it had not.

    Who comes meanwhile has had nothing, and not what these were charged. So it has as many tokens first as they had.
    """
    scheduler = Scheduler(1, 999, 10**6)
    alone = [make("a", Standing(tenant="a"), new=200) for _ in range(10)]
    wait(scheduler, *alone)
    for taken in scheduler.take(0, most=10, budget=10**6):
        taken.num_output_tokens = 1
    wait(scheduler, *(make("b", Standing(tenant="b")) for _ in range(40)))
    wait(scheduler, *(make("a", Standing(tenant="a")) for _ in range(40)))
    for sequence in alone:
        scheduler.settle(sequence)
    scheduler.free(0, 10)
    # Ten requests of 9 tokens were answered. Those that `one` ends have 8.
    had = Counter(one(scheduler) for _ in range(46))
    assert abs(8 * had["a"] + 90 - 8 * had["b"]) <= 16


def test_what_is_known_of_tenants_is_bounded():
    """More of them than MAX_TENANTS: who neither waits nor runs is forgotten, and the others' accounts stay."""
    scheduler = Scheduler(1, 10**6, 10**8)
    runs = make("runs", Standing(tenant="runs"), new=500)
    wait(scheduler, runs, make("waits", Standing(tenant="waits")))
    assert [runs] == scheduler.take(0, most=1, budget=10**6)
    for number in range(MAX_TENANTS + 50):
        wait(scheduler, make(f"{number}", Standing(tenant=f"{number}")))
        for sequence in list(scheduler.waiting.in_order()):
            if sequence.request_id != "waits":
                scheduler.remove(sequence)
    assert len(scheduler.waiting._had) <= MAX_TENANTS
    scheduler.settle(runs)
    wait(scheduler, *(make("runs", Standing(tenant="runs")) for _ in range(3)))
    assert "waits" == one(scheduler)
    for _ in range(3):
        one(scheduler)
    wait(scheduler, make("new", Standing(tenant="new")))
    assert {"new"} == set(scheduler.waiting._had)


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
    assert ["early"] == [each.request_id for each in scheduler.take(0, most=4, budget=1000, now=2.0)]
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
                rows.extend(self.scheduler.take(lane, most=free, room=free, budget=40, now=self.now))
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
