"""`make bench-speculation`: tokens a second of answers with and without drafts, one in flight. Figures, not tests.

SmolLM2-135M-Instruct at int8 in this process, one lane of one thread. Each prompt is asked twice, without drafts and
with them, one after the other, because a machine's speed drifts. Both answers have to be equal, log-probabilities too.

Two sets of prompts stand in prompts/grounded.json:

1. Grounded: each of ten passages with each of five tasks, whose answers repeat much of the passage.
2. Free: prompts whose answers repeat little.

A ratio is plain time over time with drafts, summed over a set; of CPU time too, for a machine that others use.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS)]

from machine import machine

from loaded import Loaded, ask
from weft_proto.v1 import common_pb2, generation_pb2

PROMPTS = Path(__file__).parent / "prompts" / "grounded.json"
SERVED = {"lanes": 1, "threads": 1, "slots": 4}


def main():
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle of a chat model at int8")
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of an answer")
    parser.add_argument("--every", type=int, default=1, help="ask only each so many of the prompts")
    parser.add_argument("--drafts", type=int, default=7)
    parser.add_argument("--answers", type=Path, help="write each prompt's tokens and answer here")
    arguments = parser.parse_args()
    print("MACHINE", json.dumps(machine()))
    figures = asyncio.run(measured(arguments))
    for kind, each in figures.items():
        print("RESULT", json.dumps({"prompts": kind, "drafts": arguments.drafts, **each}))


def prompts():
    """Texts by the name of their set."""
    texts = json.loads(PROMPTS.read_text())
    grounded = [f"{task}\n\n{passage}" for passage in texts["passages"] for task in texts["tasks"]]
    return {"grounded": grounded, "free": texts["free"]}


async def measured(arguments):
    """Figures of each set."""
    figures, written = {}, []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.bundle.parent)))
        models = []
        for name, most in (("plain", 0), ("drafting", arguments.drafts)):
            # A model waits at its end for all threads of its name.
            shutil.copytree(arguments.bundle, folder / name / "1")
            model = Loaded(folder / name / "1", num_speculative_tokens=most, **SERVED)
            models.append(await stack.enter_async_context(model))
        metrics = models[1].metrics
        for kind, texts in prompts().items():
            clock, cpu, num_tokens = [0.0, 0.0], [0.0, 0.0], 0
            drafted, accepted = metrics.draft_tokens.value, metrics.accepted_tokens.value
            for text in texts[:: arguments.every]:
                answers = []
                for index, model in enumerate(models):
                    began, worked = time.perf_counter(), time.process_time()
                    answers.append(await answer(model, text, arguments.tokens))
                    clock[index] += time.perf_counter() - began
                    cpu[index] += time.process_time() - worked
                assert answers[0] == answers[1], f"{text}: {answers}"
                num_tokens += len(answers[0][0])
                written.append((kind, text, *answers[0]))
            figures[kind] = {
                "answers": len(texts[:: arguments.every]),
                "tokens": num_tokens,
                "plain_tokens_per_s": round(num_tokens / clock[0], 1),
                "tokens_per_s": round(num_tokens / clock[1], 1),
                "ratio": round(clock[0] / clock[1], 3),
                "cpu_ratio": round(cpu[0] / cpu[1], 3),
                "drafted": metrics.draft_tokens.value - drafted,
                "accepted": metrics.accepted_tokens.value - accepted,
            }
    if arguments.answers:
        arguments.answers.write_text(json.dumps(written, ensure_ascii=False))
    return figures


async def answer(model, text, num_tokens):
    """The greedy answer's tokens and log-probabilities."""
    messages = generation_pb2.Messages(turns=[generation_pb2.Message(role="user", content=text)])
    decoding = common_pb2.Decoding(max_new_tokens=num_tokens, greedy=common_pb2.Greedy())
    response = await ask(model, messages=messages, decoding=decoding, return_scores=True)
    return list(response.completion.token_ids), list(response.completion.token_log_probs)


if __name__ == "__main__":
    main()
