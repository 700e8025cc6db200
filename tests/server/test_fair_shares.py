"""Laws of what tenants have: tokens by their weights, and slots that are kept for others."""

from collections import Counter, deque

import numpy as np
import pytest

from queued import make, one, wait
from weft_server.engine.lane import Intake
from weft_server.engine.live_sequences import LiveSequences
from weft_server.engine.request_queue import MAX_TENANTS
from weft_server.engine.scheduler import Scheduler
from weft_server.sequence import Delivery, FinishReason, Priority, Standing
from weft_server.telemetry.metrics import Metrics


def share(callers, lengths, *, num_slots=8, weights=None, ends_early=False, pause=0):
    """Tokens of inputs and answers of `a` for each of `b`, where each of their callers asks again when answered.

    A caller asks again within `pause` steps.
    """
    rng = np.random.default_rng(0)
    scheduler, had, rows, due = Scheduler(1, 10_000, 10**7, weights), Counter(), [], deque()
    for tenant, number in callers.items():
        due.extend((0, tenant) for _ in range(number))
    for step in range(max(2000, 8000 // num_slots)):
        for _ in range(len(due)):
            when, tenant = due.popleft()
            if when > step:
                due.append((when, tenant))
            else:
                wait(scheduler, make(tenant, Standing(tenant=tenant), new=lengths[tenant]))
        free = num_slots - len(rows)
        for taken in scheduler.take(0, Intake(most=free, room=free, budget=10**6)) if free else []:
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


@pytest.mark.parametrize("num_slots", [1, 8, 32])
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
        (taken,) = scheduler.take(0, Intake(most=1, budget=10**6))
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


@pytest.mark.parametrize(("num_slots", "width", "most"), [(8, 1, 7), (32, 1, 30), (32, 8, 24), (64, 1, 60), (4, 1, 4)])
def test_a_tenant_leaves_slots_to_others(num_slots, width, most):
    """Of many slots one of sixteen, of eight or more one, of fewer none. Whoever comes finds them, in the next step."""
    scheduler = Scheduler(1, 999, 10**6)
    wait(scheduler, make("other", Standing(tenant="other")))
    one(scheduler)
    wait(scheduler, *(make("flood", Standing(tenant="flood"), width=width) for _ in range(100)))

    def room():
        return num_slots - scheduler.loads[0]

    for _ in range(num_slots):
        scheduler.take(0, Intake(most=room() or 1, room=room(), budget=10**6))
    assert most == scheduler.loads[0]
    wait(scheduler, make("other", Standing(tenant="other")))
    taken = scheduler.take(0, Intake(most=room() or 1, room=room(), budget=10**6))
    assert ["other"] * (most < num_slots) == [each.request_id for each in taken]


@pytest.mark.parametrize("classes", [(Priority.NORMAL, Priority.NORMAL), (Priority.HIGH, Priority.LOW)])
def test_who_holds_no_slot_has_the_kept_one_though_it_is_not_its_turn(classes):
    """It has had more than who holds all others, or its class is lower. Not if it has had more than they claim."""
    theirs, its = classes
    scheduler = Scheduler(1, 999, 10**6)
    wait(scheduler, make("other", Standing(its, "other"), new=32))
    one(scheduler)
    wait(scheduler, *(make("flood", Standing(theirs, "flood")) for _ in range(15)))
    assert 15 == len(scheduler.take(0, Intake(most=16, room=16, budget=10**6)))
    wait(scheduler, *(make("flood", Standing(theirs, "flood")) for _ in range(15)))
    had = scheduler.waiting.had

    def take():
        return [each.request_id for each in scheduler.take(0, Intake(most=1, room=1, budget=10**6), now=9.0)]

    assert [] == take()
    late = make("late", Standing(its, "other"), deadline=5.0)
    wait(scheduler, late, make("wide", Standing(its, "wide"), width=2), make("other", Standing(its, "other")))
    had["other"] = had["flood"] + 15 * 16 + 1
    had["wide"] = had["flood"] + 1
    assert [] == take()
    had["other"] -= 1
    assert ["other"] == take()
    assert [late] == scheduler.late


def test_slots_before_the_turn_change_no_weights():
    """More tenants than slots: always somebody holds none, and a weight of 4 still gives 4 to 1."""
    tenants = {"a": 4.0} | {f"{number}": 1.0 for number in range(20)}
    scheduler, had, rows = Scheduler(1, 999, 10**7, tenants), Counter(), deque()

    def ask(tenant):
        wait(scheduler, make(tenant, Standing(tenant=tenant), new=32))

    for tenant in tenants:
        ask(tenant)
        ask(tenant)
    for _ in range(12):
        ask("a")
    for step in range(16 * 200):
        rows.extend(scheduler.take(0, Intake(most=16 - len(rows), room=16 - len(rows), budget=10**6)))
        taken = rows.popleft()
        had[taken.request_id] += step >= 16 * 20
        taken.num_output_tokens = 32
        scheduler.free(0, 1, taken.standing.tenant)
        scheduler.settle(taken)
        ask(taken.request_id)
    others = [had[tenant] for tenant in tenants if tenant != "a"]
    assert 3.6 <= had["a"] / (sum(others) / len(others)) <= 4.4


def test_a_tenant_that_is_alone_has_all_slots():
    """So has everybody who has no name, and a request that is as wide as the lane."""
    for tenants in (("a",), ("",)):
        scheduler = Scheduler(1, 999, 10**6)
        wait(scheduler, *(make("x", Standing(tenant=tenant)) for tenant in tenants for _ in range(99)))
        assert 32 == len(scheduler.take(0, Intake(most=32, room=32, budget=10**6)))
    scheduler = Scheduler(1, 999, 10**6)
    wait(scheduler, make("x", Standing(tenant="a")), make("wide", Standing(tenant="b"), width=8))
    one(scheduler)
    assert ["wide"] == [each.request_id for each in scheduler.take(0, Intake(most=8, room=8, budget=10**6))]


def test_slots_that_are_free_again_are_no_tenants():
    """A tenant has all slots of a lane for one wide request, when its others have ended, and when the lane is gone."""
    scheduler = Scheduler(1, 999, 10**6)
    live_sequences = LiveSequences(scheduler, Metrics().for_model("m", 1, "generate"))
    wait(scheduler, make("other", Standing(tenant="other")))
    one(scheduler)
    for ends in (True, False):
        small, wide = make("small", Standing(tenant="a")), make("wide", Standing(tenant="a"), width=8)
        for sequence in (small, wide):
            scheduler.reserve(sequence.standing)
            live_sequences.enter((sequence,), is_promised=False)
        assert [small] == scheduler.take(0, Intake(most=1, room=8, budget=10**6))
        if ends:
            live_sequences.free(0, [Delivery(small, [], [], FinishReason.STOP, num_freed=1)])
        else:
            scheduler.vacate(0)
            scheduler.closed.clear()
        assert [wide] == scheduler.take(0, Intake(most=8, room=8, budget=10**6))
        live_sequences.free(0, [Delivery(wide, [], [], FinishReason.STOP, num_freed=8)])


def test_slots_are_counted_by_tenant():
    """Whatever ends makes room for as much."""
    scheduler = Scheduler(1, 999, 10**6)
    wait(scheduler, make("other", Standing(tenant="other")))
    one(scheduler)
    wait(scheduler, *(make("x", Standing(tenant="a")) for _ in range(99)))
    assert 7 == len(scheduler.take(0, Intake(most=8, room=8, budget=10**6)))
    scheduler.free(0, 3, "a")
    assert 3 == len(scheduler.take(0, Intake(most=4, room=4, budget=10**6)))


def test_a_claim_that_runs_puts_nobody_back():
    """A tenant that was alone when its long requests went on is given back what it had not.

    Who comes meanwhile has had nothing, and not what these were charged. So it has as many tokens first as they had.
    """
    scheduler = Scheduler(1, 999, 10**6)
    alone = [make("a", Standing(tenant="a"), new=200) for _ in range(10)]
    wait(scheduler, *alone)
    for taken in scheduler.take(0, Intake(most=10, budget=10**6)):
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
    assert [runs] == scheduler.take(0, Intake(most=1, budget=10**6))
    for number in range(MAX_TENANTS + 50):
        wait(scheduler, make(f"{number}", Standing(tenant=f"{number}")))
        for sequence in list(scheduler.waiting.in_order()):
            if sequence.request_id != "waits":
                scheduler.remove(sequence)
    assert len(scheduler.waiting.had) <= MAX_TENANTS
    scheduler.settle(runs)
    wait(scheduler, *(make("runs", Standing(tenant="runs")) for _ in range(3)))
    assert "waits" == one(scheduler)
    for _ in range(3):
        one(scheduler)
    wait(scheduler, make("new", Standing(tenant="new")))
    assert {"new"} == set(scheduler.waiting.had)
