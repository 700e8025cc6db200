"""The law of a greedy row: it pays for nothing that it has not asked for, whatever its neighbours ask for."""

import numpy as np
import pytest

from rows_of_logits import candidates_of
from running import rows_of
from toy import START, VOCAB, Toy
from weft_server.engine import token_selection
from weft_server.logits_processors.penalties import RepetitionPenalty
from weft_server.runtime.session import Session
from weft_server.sampling import processed_candidates, sampler
from weft_server.sampling.candidates import Candidates
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Decoding, Sequence
from weft_server.source import Ids

WORK = {
    token_selection: ("process", "force", "best_of_row", "top_logprobs_of"),
    processed_candidates: ("whole", "best"),
    sampler: ("_draw", "_full_row", "uniform"),
}
RULES = (RepetitionPenalty(2.0),)
# Each as a request may ask for it beside greedy ones: its decoding, and how many top tokens it wants.
NEIGHBOURS = {
    "rules": (Decoding(9, rules=RULES), 0),
    "a draw": (Decoding(9, sampling=Sampling(2.0, 0, 0.9, 1, typical_p=0.9)), 0),
    "a search": (Decoding(9, beams=Beams(2)), 0),
    "a search with rules": (Decoding(9, rules=RULES, beams=Beams(2)), 0),
    "alternatives": (Decoding(9, alternatives=True, num_outputs=6), 0),
    "a forced token": (Decoding(9, forced_ids=(7,)), 0),
    "a stop token": (Decoding(9, stop_ids=frozenset([9])), 0),
    "top tokens": (Decoding(9), 20),
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The toy, and a session of its decoder."""
    toy = Toy(tmp_path_factory.mktemp("toy"))
    return toy, Session(toy.path, 1)


class Read:
    """All logits, and which rows of them were asked for."""

    def __init__(self, logits):
        self.logits, self.shape, self.rows = logits, logits.shape, set()

    def __getitem__(self, row):
        self.rows.add(row)
        return self.logits[row]


def advance(rows, rng):
    """Give all rows a token, none of which ends. Returns which rows were read beyond their candidates."""
    logits = rng.normal(0, 2, (rows.slots.num_running, VOCAB)).astype(np.float32)
    logits[:, 2] = -20
    made = candidates_of(logits, 4)
    read = Read(logits)
    rows.advance(Candidates(made.topk_logits, made.topk_ids, made.logsumexp, read))
    assert logits.argmax(axis=1)[0] == rows.slots.input_ids[0, 0]
    return read.rows


def greedy(name):
    """A request that asks for nothing."""
    return Sequence(name, Ids(np.arange(3)), Decoding(9))


def test_a_step_of_greedy_rows_does_nothing_else(opened, monkeypatch):
    """No rule, draw, search or row of logits is looked at."""
    rows, rng = rows_of(opened), np.random.default_rng(0)
    for module, names in WORK.items():
        for name in names:
            monkeypatch.setattr(module, name, None)
    for name in ("rules_of", "decoding_of", "forced"):
        monkeypatch.setattr(rows.slots, name, None)
    rows.beams.choose = None
    for index in range(4):
        rows.begin(greedy(f"{index}"), START)

    assert [set()] * 5 == [advance(rows, rng) for _ in range(5)]
    assert not rows.slots.reads_all[:4].any()


@pytest.mark.parametrize("kind", NEIGHBOURS)
def test_a_greedy_row_pays_nothing_for_its_neighbours(opened, monkeypatch, kind):
    """What they need is done for their rows alone. Their work is there, and is not that of any other row."""
    rows, rng = rows_of(opened, 12), np.random.default_rng(0)
    decoding, num_top = NEIGHBOURS[kind]
    rows.begin(greedy("first"), START)
    rows.begin(Sequence("neighbour", Ids(np.arange(3)), decoding, num_top_tokens=num_top), START)
    rows.begin(greedy("last"), START)
    theirs, last = set(range(1, 1 + decoding.width)), 1 + decoding.width
    worked = set()

    def noted(module, name, rows_in):
        work = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, **more: worked.update(rows_in(*given)) or work(*given, **more))

    noted(token_selection, "process", lambda _, rules, *rest: rules)
    noted(token_selection, "best_of_row", lambda _, row, *rest: [row])
    noted(token_selection, "top_logprobs_of", lambda _, row, num: [row])
    noted(sampler, "_draw", lambda _, settings, sampled, allowed: sampled.tolist())
    noted(rows.slots, "rules_of", lambda slot: [slot])
    read = set.union(*(advance(rows, rng) for _ in range(4)))

    assert (read | worked) <= theirs
    is_work = kind not in ("a search", "a forced token", "a stop token")
    assert bool(worked) == is_work
    assert ["first", "last"] == [rows.slots.sequences[slot].request_id for slot in (0, last)]
