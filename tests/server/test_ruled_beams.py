"""A law of searches under rules: each is the plain one over whole rows, whatever a request asks for at once."""
# ruff: noqa: D102 - the protocols document them

import asyncio
import contextlib
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from plain_beams import search
from running import Running
from toy import END, NUM_CANDIDATES, START, VOCAB, Toy
from weft_server.errors import InvalidRequest
from weft_server.logits_processors.base import RowRules
from weft_server.logits_processors.constraint import Constraint, Lexicon
from weft_server.logits_processors.history import History
from weft_server.logits_processors.penalties import (
    LengthDecay,
    NoRepeat,
    NoSourceRepeat,
    PresencePenalty,
    RepetitionPenalty,
    SourceRepetitionPenalty,
)
from weft_server.logits_processors.phrases import Banned, SequenceBias, Suppressed
from weft_server.runtime.session import Session
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Decoding, EarlyStopping

STOPPING = {EarlyStopping.HEURISTIC: False, EarlyStopping.FULL: True, EarlyStopping.NEVER: "never"}
# Rules enlarge what rounding makes of a score: a decay of length up to thirty times.
NEAR = 1e-4
NUM_STATES = 5
# Tokens below are no text.
FIRST_WORD = 3


class Machine:
    """A finite automaton of words, at one of its states: a matcher. Of each word, `table` says where it leads."""

    def __init__(self, table, accepting, state=0):
        self.table, self.accepting, self.state = table, accepting, state

    def compute_bitmask(self):
        fits = np.zeros(VOCAB + 6, np.uint8)
        fits[list(self.table[self.state])] = 1
        return np.packbits(fits, bitorder="little").tobytes()

    def consume_token(self, word):
        self.state = self.table[self.state][word]
        return True

    def is_accepting(self):
        return self.state in self.accepting

    def is_error(self):
        return False

    def deep_copy(self):
        return Machine(self.table, self.accepting, self.state)


def constraint(rng, ends, workers):
    """A random automaton as a constraint. No state is a dead end."""
    table = [
        {word: rng.randrange(NUM_STATES) for word in rng.sample(range(FIRST_WORD, VOCAB), rng.choice([1, 5, 30]))}
        for _ in range(NUM_STATES)
    ]
    words = np.arange(VOCAB)
    words[:FIRST_WORD] = 0
    raw = [None] * FIRST_WORD + [b"x"] * (VOCAB - FIRST_WORD)
    lexicon = Lexicon(VOCAB, words, words, words, np.array([], np.int64), raw, [True] * VOCAB, ())
    accepting = {state for state in range(NUM_STATES) if rng.random() < 0.5}
    return Constraint(Machine(table, accepting), lexicon, frozenset(ends), workers, "decoding.constraint.lark")


def tokens(rng, num):
    """Some words."""
    return [rng.randrange(FIRST_WORD, VOCAB) for _ in range(num)]


def begun(rng, follows, num):
    """Words that an answer may begin with."""
    if follows is None:
        return tuple(tokens(rng, num))
    words, table, state = [], follows.matcher.table, 0
    for _ in range(num):
        words.append(rng.choice(sorted(table[state])))
        state = table[state][words[-1]]
    return tuple(words)


def drawn(rng, workers):
    """A search that the toy's candidates can decide, with some of everything."""
    max_new = rng.randrange(3, 12)
    stop_ids = frozenset(rng.choice([(), (0,), (0, 1)]))
    ends = (END, *stop_ids)
    follows = constraint(rng, ends, workers) if rng.random() < 0.5 else None
    forced = begun(rng, follows, rng.choice([0, 0, 1, 2]))
    before = [
        lambda: SequenceBias([(tokens(rng, rng.randrange(1, 3)), rng.choice([-4.0, 3.0])) for _ in range(4)]),
        lambda: SourceRepetitionPenalty(rng.choice([0.5, 2.0])),
        lambda: RepetitionPenalty(rng.choice([0.7, 1.5])),
        lambda: PresencePenalty(rng.choice([-1.0, 1.0]), rng.choice([-0.5, 0.5])),
        lambda: NoRepeat(rng.randrange(1, 4)),
        lambda: NoSourceRepeat(rng.randrange(1, 3)),
        lambda: Banned([tokens(rng, rng.randrange(1, 3)) for _ in range(6)]),
        lambda: Suppressed(ends, rng.randrange(1, max_new + 1)),
    ]
    after = [
        lambda: LengthDecay(rng.randrange(max_new), rng.choice([0.7, 1.4]), ends),
        lambda: Suppressed(tokens(rng, 30)),
        lambda: Suppressed(tokens(rng, 20), len(forced) + 1),
    ]
    rules = [rule() for rule in before if rng.random() < 0.25]
    rules += [follows] * (follows is not None) + [rule() for rule in after if rng.random() < 0.3]
    num_beams = rng.randrange(1, NUM_CANDIDATES - len(ends) + 1)
    return Decoding(
        max_new,
        rules=tuple(rules),
        beams=Beams(num_beams, rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0]), rng.choice(list(EarlyStopping))),
        num_outputs=num_beams,
        stop_ids=stop_ids,
        forced_ids=forced,
        num_unscored=rng.choice([0, len(forced)]),
        forced_last_id=rng.choice([None, None, END]),
    )


def ruled(decoding, scores, given, token_ids):
    """Log-probabilities of the token behind some, as the rules leave them: each made anew and told all of these.

    Where they leave nothing and the text is whole, the end is left.
    """
    own = float(scores[END])
    rules = RowRules.begin(decoding.rules, given)
    for token in token_ids:
        rules.advance(token)
    rules.apply(None, scores)
    if not np.isfinite(scores).any() and rules.refusal(ends=True) is None:
        scores[END] = own
    return scores


def plain(toy, source, decoding, prefix):
    """What the plain search makes of it. It begins behind what is not scored."""
    memory, unscored = toy.embedding[source], decoding.forced_ids[: decoding.num_unscored]

    def log_probs_of(token_ids):
        token_ids = [*unscored, *token_ids]
        state = np.tanh(memory[0])
        for token in (START, *prefix, *token_ids):
            state = toy.next_state(state, token, memory)
        logits = (state @ toy.head).astype(np.float64)
        scores = (logits - np.log(np.exp(logits).sum())).astype(np.float32)
        if len(token_ids) < len(decoding.forced_ids):
            only = np.full(VOCAB, -np.inf, np.float32)
            only[decoding.forced_ids[len(token_ids)]] = 0
            return only
        given = History((START, *prefix), np.array(source), decoding.max_new_tokens)
        return ruled(decoding, scores, given, token_ids)

    return search(
        log_probs_of,
        decoding.beams.num_beams,
        end_ids=[END, *decoding.stop_ids],
        max_new=decoding.max_new_tokens - len(unscored),
        length_penalty=decoding.beams.length_penalty,
        early_stopping=STOPPING[decoding.beams.early_stopping],
        forced_end=decoding.forced_last_id,
        num_fed=0 if unscored else len(prefix),
    )


def test_a_search_under_rules_is_the_plain_one_over_whole_rows(tmp_path):
    """Penalties, n-grams, bans, decay, a grammar, forced tokens, stop tokens, a prefix: together, and in a crowd.

    Where these leave no answer, there is none.
    """

    async def run(workers):
        rng, num_near, num_asked = random.Random(11), 0, 60
        toy = Toy(tmp_path, attends=True)
        toy.encoder, toy.decoder = Session(toy.encoder_path, 1), Session(toy.path, 1)
        async with Running(toy, num_slots=9, num_lanes=1) as running:
            asked, beside = [], []
            for index in range(num_asked):
                source = tokens(rng, rng.randrange(1, 9))
                prefix = tuple(tokens(rng, rng.choice([0, 0, 2])))
                decoding = drawn(rng, workers)
                asked.append((source, decoding, prefix, running.submit(source, decoding, prefix_ids=prefix)))
                crowd = Decoding(rng.randrange(1, 9), sampling=rng.choice([None, Sampling(1.0, 0, 0.9, index)]))
                beside.append(running.submit(source, crowd))
            for source, decoding, prefix, sequence in asked:
                # One that finds no answer is refused.
                with contextlib.suppress(InvalidRequest):
                    await sequence.reply.done()
                expected = plain(toy, source, decoding, prefix)
                if expected.margin < NEAR:
                    num_near += 1
                    continue
                given = list(decoding.forced_ids[: decoding.num_unscored])
                wanted = expected.answers
                outputs = sequence.reply.outputs
                assert [given + one.token_ids for one in wanted] == [one.token_ids for one in outputs], decoding
                scores = [pytest.approx(one.score, rel=NEAR, abs=NEAR) for one in wanted]
                assert scores == [one.score for one in outputs]
            for sequence in beside:
                await sequence.reply.done()
        assert num_near < num_asked / 6

    with ThreadPoolExecutor(2) as workers:
        asyncio.run(run(workers))
