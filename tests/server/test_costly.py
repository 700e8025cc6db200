"""What a row costs in a step does not grow with its lists, and costly rows are few in each lane. Both are counted."""

import asyncio

import numpy as np
import pytest

from queued import make, wait
from running import Running
from toy import Toy
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.engine.lane import Intake
from weft_server.engine.scheduler import SLOTS_FOR_COSTLY, Scheduler
from weft_server.logits_processors import base as rules_module
from weft_server.logits_processors.phrases import PhraseEndings
from weft_server.models.model import DecodingLimits
from weft_server.requests import decoding_config
from weft_server.requests.decoding_config import resolve_decoding
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding, Priority, Standing
from worst_processors import worst_decoding, worst_rules

VOCAB, ENDS = 1536, np.array([2])
NUM_SLOTS = 4 * SLOTS_FOR_COSTLY


def counted(monkeypatch, owner, name):
    """The list of calls of a function, from now on."""
    calls, real = [], getattr(owner, name)

    def call(*given):
        calls.append(given)
        return real(*given)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_phrases_are_looked_up_once_for_each_token(monkeypatch):
    """Once by biases and once by bans, however often the rules are asked before the next token."""
    row = worst_rules(VOCAB, ENDS, 64)
    looked = counted(monkeypatch, PhraseEndings, "now")

    row.history.ids = np.append(row.history.ids, [0])
    row.advance(7)
    for _ in range(3):
        row.raised(512)
        row.touched(512)
        row.apply(None, np.zeros(VOCAB, np.float32))

    assert 2 == len(looked)


def test_a_token_that_begins_no_ending_costs_one_look_up():
    """Phrases of other tokens are not looked for, whatever lengths they have."""
    looked = []

    class Noted(dict):
        def get(self, before, default):
            looked.append(before)
            return super().get(before, default)

    endings = PhraseEndings([*((*range(10, 10 + length), 5) for length in range(1, 32)), (139, 5)])
    endings.by_length = {length: Noted(phrases) for length, phrases in endings.by_length.items()}

    assert [] == endings.now(np.arange(100, 139))
    assert [] == looked
    assert [31] == endings.now(np.arange(100, 140))
    assert [(139,)] == looked


def test_bans_that_stay_are_not_joined_again(monkeypatch):
    """All bans of a row are one array, made when one of them changes."""
    row = worst_rules(VOCAB, ENDS, 64)
    row.history.ids = np.append(row.history.ids, np.zeros(9, np.int64))
    # Tokens that have come once: what followed them is barred by the rule that no pair comes twice.
    fresh = [token for token in range(VOCAB) if token not in row.history.read][:9]
    monkeypatch.setattr(PhraseEndings, "now", lambda *_: [])
    row.advance(fresh[0])
    joined = counted(monkeypatch, rules_module, "once")

    for token in fresh[1:]:
        row.advance(token)

    assert [] == joined


def test_many_that_may_rise_are_not_joined(monkeypatch):
    """Of one rule alone there are too many. Then nobody looks which they are."""
    row = worst_rules(VOCAB, ENDS, 64)
    joined = counted(monkeypatch, rules_module, "once")

    assert row.raised(16) is None
    assert [] == joined


def resolved(**fields):
    """How a request is answered that asks for these fields of a Decoding."""
    text = bundle_pb2.TextSpec(
        max_total_tokens=99, max_new_tokens=9, source_vocab_size=VOCAB, target_vocab_size=VOCAB, end_ids=ENDS
    )
    manifest = bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSLATE, text=text)
    manifest.decoding.max_new_tokens = 9
    # A model's own cuts are no wish of the caller.
    manifest.decoding.sampling.typical_p = 0.9
    return resolve_decoding(common_pb2.Decoding(**fields), manifest, DecodingLimits(8, 8, 64), 0)


COSTLY = {
    "typical_p": {"sampling": {"typical_p": 0.9}},
    "epsilon_cutoff": {"sampling": {"epsilon_cutoff": 0.1}},
    "eta_cutoff": {"sampling": {"eta_cutoff": 0.1}},
}
CHEAP = {
    "nothing": {},
    "a draw": {"sampling": {"top_p": 0.9, "top_k": 50, "min_p": 0.1, "typical_p": 1}},
    "a search": {"beams": {"num_beams": 8}},
    "all penalties": {
        "penalties": {
            "repetition": 1.2,
            "presence": 0.1,
            "frequency": 0.1,
            "no_repeat_ngram_size": 3,
            "encoder_repetition": 2,
            "encoder_no_repeat_ngram_size": 4,
        }
    },
    "stop strings and bans": {
        "stop": ["a", "b", "c", "d"],
        "banned": [{"token_ids": {"ids": [5, token]}} for token in range(3, 1027)],
        "suppressed": {"ids": range(3, 1027)},
    },
}


@pytest.mark.parametrize("kind", [*COSTLY, *CHEAP])
def test_what_is_costly(kind):
    """Cuts that may sort a row. Penalties, stop strings and long lists are not."""
    assert (kind in COSTLY) == resolved(**(COSTLY | CHEAP)[kind]).is_costly


def test_more_rules_than_are_cheap_are_costly(monkeypatch):
    """As many as that are not."""
    for most, is_costly in ((1, False), (0, True)):
        monkeypatch.setattr(decoding_config, "MOST_CHEAP_RULES", most)
        found = resolved(penalties={"frequency": 0.1})
        assert (1, is_costly) == (len(found.rules), found.is_costly)


def test_a_request_with_every_rule_is_costly():
    """Nine rules are. No ordinary request has so many."""
    worst = worst_decoding(np.random.default_rng(1), VOCAB, 9)

    assert 9 <= len(resolve_worst(worst).rules)
    assert resolve_worst(worst).is_costly


def resolve_worst(worst):
    """The same of a message."""
    return resolved(**{field.name: value for field, value in worst.ListFields()})


def costly(name, width=1, standing=Standing()):  # noqa: B008 - it is never changed
    """A sequence that is costly."""
    sequence = make(name, standing)
    sequence.decoding = Decoding(8, num_outputs=width, is_costly=True)
    return sequence


def taken(scheduler, lane=0):
    """Who goes on now in a lane of NUM_SLOTS slots."""
    room = NUM_SLOTS - scheduler.loads[lane]
    return [each.request_id for each in scheduler.take(lane, Intake(most=room, room=room, budget=10**6))]


def test_costly_rows_hold_few_slots_and_others_pass_them():
    """Of 32 slots four. Who is not costly goes on, in their order, also behind hundreds of them."""
    scheduler = Scheduler(1, 999, 10_000)
    wait(scheduler, *(costly(f"costly {number}") for number in range(500)))
    wait(scheduler, *(make(name) for name in ("a", "b")))

    assert ["costly 0", "costly 1", "costly 2", "costly 3", "a", "b"] == taken(scheduler)
    assert [] == taken(scheduler)

    scheduler.free(0, 1, is_costly=True)
    assert ["costly 4"] == taken(scheduler)


def test_a_wide_costly_one_goes_on_alone():
    """One that is wider than all that they may hold waits until no other costly one is there, and is not passed."""
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, costly("first"), costly("wide", width=8), costly("behind"), make("cheap"))

    assert ["first", "cheap"] == taken(scheduler)
    scheduler.free(0, 1, is_costly=True)
    assert ["wide"] == taken(scheduler)
    scheduler.free(0, 8, is_costly=True)
    assert ["behind"] == taken(scheduler)


def test_a_costly_one_that_is_held_up_holds_up_costly_ones_alone():
    """It waits for the slots of one lane. Another lane, where it may not go on, takes who is behind it."""
    scheduler = Scheduler(2, 99, 10_000)
    wait(scheduler, costly("one"))
    assert ["one"] == taken(scheduler, 1)
    scheduler.closed.add(1)
    wait(scheduler, *(make(f"{number}") for number in range(28)))
    assert 28 == len(taken(scheduler))
    wait(scheduler, costly("wide", width=8), make("behind"))
    assert [] == taken(scheduler)

    scheduler.closed.clear()
    assert ["behind"] == taken(scheduler, 1)


def test_costly_ones_keep_their_place_in_the_order():
    """Class, tenant and arrival decide among those that may go on, costly or not."""
    scheduler = Scheduler(1, 99, 10_000)
    high = Standing(Priority.HIGH)
    wait(scheduler, make("a"), costly("b"), make("c"), costly("d", standing=high), make("e", high))

    assert ["d", "e", "a", "b", "c"] == taken(scheduler)


def test_a_lane_that_is_gone_holds_nothing_costly():
    """The next one at its place may take as many as any."""
    scheduler = Scheduler(1, 99, 10_000)
    wait(scheduler, costly("a", width=8), costly("b", width=8))
    assert ["a"] == taken(scheduler)

    scheduler.vacate(0)

    assert ["b"] == taken(scheduler)


def test_a_step_has_few_costly_rows_and_all_of_them_end(tmp_path):
    """Of a lane's 16 slots two, in every step, while ordinary rows go on beside them. All are answered."""
    toy = Toy(tmp_path)
    toy.encoder, toy.decoder = Session(toy.encoder_path, 1), Session(toy.path, 1)

    async def run():
        async with Running(toy, num_slots=16, num_lanes=1) as running:
            (runner,), (slots,) = running.runners, running.slots
            steps, decode = [], runner.decode

            def step(num_rows):
                held = [sequence.decoding.is_costly for sequence in slots.sequences[:num_rows]]
                steps.append((sum(held), num_rows))
                return decode(num_rows)

            runner.decode = step
            costly_ones = [running.submit([5, 6], Decoding(6, 6, is_costly=True)) for _ in range(9)]
            others = [running.submit([5, 6], Decoding(6, 6)) for _ in range(9)]
            async with asyncio.timeout(60):
                for sequence in (*costly_ones, *others):
                    await sequence.reply.done()
            return steps

    steps = asyncio.run(run())
    assert 2 == max(costly for costly, _ in steps)
    assert 11 == max(rows for _, rows in steps)
