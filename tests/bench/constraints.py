"""What a constraint costs: opening a model, building, a step's mask, a copy. Against a vocabulary of random words.

python tests/bench/constraints.py [VOCABULARY]
"""

import json
import statistics
import sys
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from followed import vocabulary
from weft_proto.v1 import common_pb2
from weft_server.logits_processors.history import History
from weft_server.structured_output.grammars import Grammars

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "email": {"type": "string", "format": "email"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 5},
        "parent": {"$ref": "#"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
LARK = (
    'start: sum\nsum: product (("+" | "-") product)*\nproduct: atom (("*" | "/") atom)*\natom: NUMBER | "(" sum ")"\n'
)
KINDS = {
    "JSON Schema": common_pb2.Constraint(json_schema=json.dumps(PERSON)),
    "any JSON": common_pb2.Constraint(json_schema="{}"),
    "regex": common_pb2.Constraint(regex=r"[A-Z][a-z]+( [a-z]+){3,20}\."),
    "Lark": common_pb2.Constraint(lark=LARK + "NUMBER: /[0-9]+/"),
    "choice of 1,000": common_pb2.Constraint(choice=common_pb2.Choice(texts=[f"label {i}" for i in range(1000)])),
}


def longest_gap(job):
    """What `job` gives, and the longest time in seconds for which it kept this thread from running."""
    found = []
    thread = threading.Thread(target=lambda: found.append(job()))
    thread.start()
    longest, last = 0.0, time.perf_counter()
    while thread.is_alive():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return found[0], longest


def timed(job):
    """What `job` gives, and its seconds."""
    started = time.perf_counter()
    found = job()
    return found, time.perf_counter() - started


def main(size=32_000):
    """Print a table."""
    tokenizer = vocabulary(size)
    end = tokenizer.num_ids
    grammars = Grammars(tokenizer, end + 1, [end], "m", "bench")
    (_, first), gap = longest_gap(lambda: timed(grammars.open))
    print(f"{size} tokens: opened in {first:.3f} s, other threads stood still for {gap:.3f} s at most")
    rng = np.random.default_rng(1)
    for name, asked in KINDS.items():
        builds = [timed(lambda asked=asked: grammars.build(asked)) for _ in range(9)]
        constraint = builds[0][0]
        looks, copies, applies = [], [], []
        for _ in range(10):
            following, history = constraint.begin(History([])), History([], room=200)
            scores = np.zeros(end + 1, np.float32)
            for _ in range(150):
                scores[:] = 0
                applies.append(timed(lambda: following.apply(None, scores, history))[1])  # noqa: B023 - called here
                allowed = np.flatnonzero(scores[:-1] == 0)
                if not len(allowed):
                    break
                token = int(rng.choice(allowed))
                looks.append(timed(lambda: following.take(token))[1])  # noqa: B023 - called here
                copies.append(timed(following.fork)[1])
        build = statistics.median(seconds for _, seconds in builds)
        print(
            f"{name}: build {build * 1e3:.1f} ms; step median {statistics.median(looks) * 1e6:.0f} us, "
            f"mean {statistics.mean(looks) * 1e6:.0f}, max {max(looks) * 1e6:.0f}, of {len(looks)}; "
            f"whole row {statistics.median(applies) * 1e6:.0f} us; copy {statistics.median(copies) * 1e6:.0f} us"
        )
    grammars.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
