"""How long steps over caches in blocks take: rows alone, without prompts."""

import time

import numpy as np

from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine.paged.paged_runner import PagedPromptPiece, PagedRunner
from weft_server.engine.slots import Slots
from weft_server.runtime.cuda.best_only import open_decoder
from weft_server.runtime.halt import Halt


def block_steps(directory, device, scale):
    """One result for each number of rows: the time of a greedy step, and whether a captured graph was replayed."""
    bundle = load_bundle(directory)
    manifest = bundle.manifest
    path = bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_DECODER).path)
    decoder, best = open_decoder(path, 1, device, Halt(), num_best=1 + len(manifest.text.end_ids))
    slots = Slots(max(scale.in_flight), manifest.text.max_new_tokens)
    most = scale.prompt + scale.num_new
    prompt = np.arange(scale.prompt) % (manifest.text.source_vocab_size - 4) + 4
    block_tokens = manifest.states[0].shape[0]
    runner = PagedRunner(manifest, decoder, slots, slots.num_slots * -(-most // block_tokens), best=best)
    for _ in runner.first_runs():
        pass
    for num_rows in scale.in_flight:
        for row in range(num_rows):
            runner.grow(row, most)
            runner.run(0, [PagedPromptPiece(row, prompt, ends=True)])
        step_s = _step_s(runner, slots, num_rows, scale)
        for row in range(num_rows):
            runner.end(row)
            slots.past_lengths[row] = 0
        yield {
            "captured": device.captures,
            "rows": num_rows,
            "step_us": round(1e6 * step_s, 1),
            "tokens_per_s": round(num_rows / step_s, 1),
        }


def _step_s(runner, slots, num_rows, scale):
    """Seconds of a step: the median of those within `scale.seconds`, and of one answer's at least."""
    times, until = [], time.perf_counter() + scale.seconds
    while not times or time.perf_counter() < until:
        slots.past_lengths[:num_rows], slots.input_ids[:num_rows] = scale.prompt, 5
        for _ in range(scale.num_new):
            started = time.perf_counter()
            candidates = runner.run(num_rows, [])[1]
            times.append(time.perf_counter() - started)
            slots.input_ids[:num_rows, 0] = candidates.topk_ids[:, 0]
    return float(np.median(times))
