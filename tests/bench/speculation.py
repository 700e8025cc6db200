"""`make bench-speculation`: tokens a second of answers with and without drafts, one in flight. Figures, not tests.

A model at int8 in this process, one lane of one thread. Each prompt is asked twice, without drafts and with them, one
after the other, because a machine's speed drifts. Both answers have to be equal, log-probabilities too. With
`--in-flight` so many are asked together.

SmolLM2-135M-Instruct is asked two sets of prompts, which stand in prompts/grounded.json:

1. Grounded: each of ten passages with each of five tasks, whose answers repeat much of the passage.
2. Free: prompts whose answers repeat little.

The demo's text-to-text, which has an encoder, is asked held-out texts of its three tasks.

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
from weft_recipes.grammar.text_tasks import TASKS, examples

# Of each task of text-to-text.
NUM_TEXTS, SEED = 100, 24
PROMPTS = Path(__file__).parent / "prompts" / "grounded.json"
SERVED = {"lanes": 1, "threads": 1, "slots": 8}


def main():
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle of a chat model at int8, or of text-to-text")
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of an answer")
    parser.add_argument("--every", type=int, default=1, help="ask only each so many of the prompts")
    parser.add_argument("--drafts", type=int, default=7)
    parser.add_argument("--in-flight", type=int, default=1, help="beyond 1, of a bundle with --mixed-runs")
    parser.add_argument("--answers", type=Path, help="write each prompt's tokens and answer here")
    arguments = parser.parse_args()
    print("MACHINE", json.dumps(machine()))
    figures = asyncio.run(measured(arguments))
    for kind, each in figures.items():
        print(
            "RESULT",
            json.dumps({"prompts": kind, "in_flight": arguments.in_flight, "drafts": arguments.drafts, **each}),
        )


def prompts(model):
    """Texts by the name of their set."""
    if model.manifest.text.prefixes:
        return {
            prefix.strip(": "): [e.text for e in examples(prefix, NUM_TEXTS, SEED, held_out=True)] for prefix in TASKS
        }
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
        for kind, texts in prompts(models[0]).items():
            clock, cpu, num_tokens = [0.0, 0.0], [0.0, 0.0], 0
            drafted, accepted = metrics.draft_tokens.value, metrics.accepted_tokens.value
            asked = texts[:: arguments.every]
            # Several are asked together, and the next when all have ended: both ways have the same company.
            for first in range(0, len(asked), arguments.in_flight):
                together, answers = asked[first : first + arguments.in_flight], []
                for index, model in enumerate(models):
                    began, worked = time.perf_counter(), time.process_time()
                    answers.append(await asyncio.gather(*(answer(model, each, arguments.tokens) for each in together)))
                    clock[index] += time.perf_counter() - began
                    cpu[index] += time.process_time() - worked
                assert answers[0] == answers[1], f"{together}: {answers}"
                num_tokens += sum(len(token_ids) for token_ids, _ in answers[0])
                written += [(kind, text, *each) for text, each in zip(together, answers[0], strict=True)]
            figures[kind] = {
                "answers": len(asked),
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
    if model.manifest.text.prefixes:
        given = {"text": text}
    else:
        turn = generation_pb2.Message(role="user", content=text)
        given = {"messages": generation_pb2.Messages(turns=[turn])}
    most = min(num_tokens, model.manifest.text.max_new_tokens)
    decoding = common_pb2.Decoding(max_new_tokens=most, greedy=common_pb2.Greedy())
    response = await ask(model, **given, decoding=decoding, return_scores=True)
    return list(response.completion.token_ids), list(response.completion.token_log_probs)


if __name__ == "__main__":
    main()
