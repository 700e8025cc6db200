"""What adapters cost a step: 32 rows of a random decoder, of which all have one of 1, 4 or 16, over the same without.

`python tests/bench/adapters.py`. One thread, and nothing around the model: sessions, slots and the stack as the server
opens them. It is the thread's own time on a processor that counts, and rounds take turns: so what else runs here
touches the figures little, and all alike.
"""

import statistics
import sys
import time
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS), str(TESTS / "export")]

import numpy as np
from machine import machine
from tiny_parts import END, PAD, randomised, word_tokenizer

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.runtime.adapter_stack import AdapterStack
from weft_server.runtime.session import Session
from weft_server.sequence import Adapter

OUT = Path(__file__).parents[2] / "build" / "bench" / "adapters"
ROWS, PAST, VOCAB, WIDTH, LAYERS = 32, 64, 8192, 512, 6
RANK, NUMBERS = 8, (0, 1, 4, 16)
PRODUCTS = {"all products": None, "attention alone": "qkv,output"}
ROUNDS, STEPS = 40, 4


def main():
    """Export what is missing, measure, and print a table."""
    print(machine())
    print(
        f"{LAYERS} layers of {WIDTH}, vocabulary {VOCAB}, {ROWS} rows at {PAST} tokens, rank {RANK}, fp32, one thread"
    )
    plain = Run(bundle("plain", None))
    for name, products in PRODUCTS.items():
        runs = {"without": plain}
        directory = bundle(name.replace(" ", "-"), products, RANK)
        runs |= {f"{number} adapters": Run(directory, number) for number in NUMBERS}
        times = {each: [] for each in runs}
        for _ in range(ROUNDS):
            for each, run in runs.items():
                times[each].append(run.step_ms())
        base = statistics.median(times["without"])
        shares = [statistics.median(map(float.__truediv__, times[each], times["without"])) for each in runs]
        print(f"{name}: a step without {base:.2f} ms;", *(f"{e} {s:.2f}" for e, s in zip(runs, shares, strict=True)))


def bundle(name, products, rank=None):
    """The bundle of a random decoder, exported once."""
    directory = OUT / "models" / name / "1"
    if not directory.is_dir():
        config = CausalLmConfig(VOCAB, 512, WIDTH, 8, 8, 4 * WIDTH, LAYERS)
        checkpoint = Checkpoint(
            family="causal_lm",
            description="A random decoder.",
            model=randomised(CausalLm(config), 0.7),
            golden=bundle_pb2.Golden(text="w1 w2 w3"),
            text=bundle_pb2.TextSpec(
                source_tokenizer="tokenizer.json",
                target_tokenizer="tokenizer.json",
                source_vocab_size=VOCAB,
                target_vocab_size=VOCAB,
                end_ids=[END],
                pad_id=PAD,
                max_total_tokens=512,
                max_new_tokens=128,
            ),
            max_new_tokens=16,
            attention_layer=0,
            files={"tokenizer.json": word_tokenizer([f"w{index}" for index in range(VOCAB - 4)], ends=False)},
        )
        save_checkpoint(OUT / "checkpoint", checkpoint)
        options = ExportOptions(adapters=rank, adapted=products, no_explain=True, no_score=True)
        export_checkpoint(OUT / "checkpoint", directory, options)
    return directory


class Run:
    """A decoder whose rows have one of some adapters in turn, or none."""

    def __init__(self, directory, number=0):
        loaded = load_bundle(directory)
        spec = loaded.manifest.adapters
        stack = AdapterStack(spec, ROWS) if spec.layers else None
        self.slots = Slots(ROWS, 128, 0, stack)
        path = loaded.path(loaded.graph(bundle_pb2.GRAPH_ROLE_DECODER).path)
        self.runner = DecodeRunner(loaded.manifest, None, Session(path, 1), self.slots)
        rng = np.random.default_rng(0)
        adapters = [_random(rng, spec, index) for index in range(number)]
        for row in range(ROWS if number else 0):
            self.slots.adapters[row] = stack.take(adapters[row % number])
        self.slots.num_running = ROWS
        self.step_ms()

    def step_ms(self):
        """The milliseconds that a step computes, the mean of some."""
        started = time.thread_time()
        for _ in range(STEPS):
            self.slots.past_lengths[:] = PAST
            self.runner.decode(ROWS)
        return (time.thread_time() - started) * 1e3 / STEPS


def _random(rng, spec, index):
    pairs = {}
    for layer in spec.layers:
        shapes = (layer.inputs, layer.rank), (layer.rank, layer.outputs)
        pairs[layer.name] = tuple(rng.standard_normal(shape, np.float32) * 0.01 for shape in shapes)
    return Adapter(str(index), str(index), pairs)


if __name__ == "__main__":
    main()
