"""`make bench-draws`: a step of 32 rows that draw, over one of greedy rows, on a real model. Figures, not tests.

SmolLM2-135M-Instruct, one lane of one thread, so the thread's processor time is that of a whole step: the model's run,
the draws and the bookkeeping. Rows begin with different texts and have seeds of their own. Greedy steps and each kind
of draw take turns, because a machine's speed drifts.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS)]

import numpy as np
from bare import Bare
from machine import machine
from tokenizers import Tokenizer

from weft_server.engine.decode_lane import DecodeLane
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Cancelled, Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics

PROMPTS = Path(__file__).parent / "prompts" / "grounded.json"
ROWS, PROMPT, STEPS = 32, 24, 24
WISHES = {
    "greedy": None,
    "temperature 1": {"temperature": 1.0},
    "temperature 1, top-p 0.95": {"temperature": 1.0, "top_p": 0.95},
    "temperature 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
}


def prompts(directory):
    """Token ids of as many different beginnings as there are rows."""
    tokenizer = Tokenizer.from_file(str(next(directory.rglob("tokenizer.json"))))
    texts = json.loads(PROMPTS.read_text())
    words = tokenizer.encode(" ".join((*texts["free"], *texts["passages"]))).ids
    return [np.array(words[start : start + PROMPT]) for start in range(0, ROWS * PROMPT, PROMPT)]


class Lane:
    """A lane of the server, over one bundle."""

    def __init__(self, directory):
        bare = Bare(directory, 1, 1)
        self.metrics = Metrics().for_model("bench", 1, "generate")
        slots, runner = bare.opened(ROWS)
        # No answer ends by itself, so all rows run in each step.
        self._lane = DecodeLane(slots, runner, start_id=None, end_ids=(), prefill_budget=100_000, metrics=self.metrics)

    def steps(self, ids, wish, seed):
        """Processor milliseconds of each of STEPS steps of ROWS rows, and how many rows were weighed whole in them."""
        waiting = []
        for row, prompt in enumerate(ids):
            sampling = wish and Sampling(**{"top_k": 0, "top_p": 1.0, **wish}, seed=seed + row)
            waiting.append(Sequence(str(row), Ids(prompt), Decoding(10 * STEPS, sampling=sampling)))

        def take(intake):
            return [waiting.pop() for _ in range(min(intake.most, len(waiting)))]

        while self._lane.slots.num_running < ROWS:
            self._lane.step(take)
        read, found = self._num_read(), []
        for _ in range(STEPS):
            began = time.thread_time()
            self._lane.step(take)
            found.append((time.thread_time() - began) * 1e3)
        self._lane.fail(Cancelled)
        return found, self._num_read() - read

    def _num_read(self):
        return self.metrics.counters["rows_read_whole_total", "draw"].value


async def measured(directory, rounds):
    """By wish: the median step of each turn over the greedy one's, and the share of rows that were weighed whole."""
    lane, ids = Lane(directory), prompts(directory)
    lane.steps(ids, None, 0)
    turns = [{name: lane.steps(ids, wish, turn * ROWS) for name, wish in WISHES.items()} for turn in range(rounds)]
    for name in WISHES:
        own = [statistics.median(turn[name][0]) for turn in turns]
        greedy = [statistics.median(turn["greedy"][0]) for turn in turns]
        yield {
            "wish": name,
            "ms_a_step": round(statistics.median(own), 2),
            "over_greedy": round(statistics.median(each / plain for each, plain in zip(own, greedy, strict=True)), 3),
            "rows_weighed_whole": round(sum(turn[name][1] for turn in turns) / (rounds * STEPS * ROWS), 5),
        }


async def main():
    """Print lines that start with RESULT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle of a language model")
    parser.add_argument("--rounds", type=int, default=6, help="turns of each")
    given = parser.parse_args()
    print("RESULT", json.dumps({"machine": machine()}), flush=True)
    async for figures in measured(given.bundle, given.rounds):
        print("RESULT", json.dumps(figures), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
