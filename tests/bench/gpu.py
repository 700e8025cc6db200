"""`make bench-gpu`: a generator of Llama's shape on a CUDA device, beside transformers. Figures, not tests.

It was written without a GPU and has not run on one yet. `--rehearse` runs all of it but transformers on the CPU, with a
small model in memory that the host does not touch; its figures mean nothing.
"""

import argparse
import importlib.util
import json
import math
import sys
import time
from pathlib import Path
from typing import NamedTuple

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS / "bench" / "peers"), str(TESTS), str(TESTS / "export")]

import numpy as np
import torch
from bare import Bare
from machine import machine

from weft_export.checkpoints.directory import load_checkpoint
from weft_export.errors import ParityError
from weft_export.proofs.bounds import gauge_of
from weft_export.proofs.golden import next_logits
from weft_server.config import ConfigError
from weft_server.runtime.copies import Copies
from weft_server.runtime.device import Device
from weft_server.runtime.session import Value, verify_device

ITEM_BYTES = 2
_TORCH_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
SEED = 7


class Scale(NamedTuple):
    """How much is done: a CUDA device's, or a rehearsal's."""

    prompt: int
    num_new: int
    in_flight: tuple[int, ...]
    seconds: float
    copied_bytes: int


FULL = Scale(64, 64, (1, 8, 32, 64), 5.0, 2**30)
SMALL = Scale(16, 8, (1, 3, 8), 0.3, 2**20)


def generated(bare, prompts, num_new):
    """Greedy tokens [prompts, num_new] of one batch, and the logits [prompts, num_new, vocab] that they came from."""
    slots, runner = bare.opened(len(prompts))
    tokens, logits = [], [[] for _ in prompts]
    for slot, prompt in enumerate(prompts):
        _, candidates = runner.prefill(slot, prompt)
        slots.input_ids[slot] = candidates.topk_ids[0, 0]
        logits[slot].append(candidates.logits[0].copy())
    tokens.append(slots.input_ids[:, 0].copy())
    for _ in range(num_new - 1):
        candidates = runner.decode(len(prompts))
        slots.input_ids[:, 0] = candidates.topk_ids[:, 0]
        tokens.append(slots.input_ids[:, 0].copy())
        for slot in range(len(prompts)):
            logits[slot].append(candidates.logits[slot].copy())
    return np.stack(tokens, axis=1), np.array(logits)


def check_parity(bare, folder, prompts, num_new):
    """The largest difference of a logit from torch in float32; each token must be the greedy one but for rounding."""
    model = load_checkpoint(folder / "checkpoint").model.eval()
    gauge = gauge_of(bare.manifest.precision, model)
    tokens, logits = generated(bare, prompts, num_new)
    with torch.inference_mode():
        for prompt, written, actual in zip(prompts, tokens, logits, strict=True):
            fed = [*prompt.tolist(), *written[:-1].tolist()]
            expected = next_logits(model, (), fed)[len(prompt) - 1 :]
            try:
                for row, array in zip(expected, actual, strict=True):
                    gauge.compare("parity: a step's logits", row, array)
            except ParityError as error:
                sys.exit(str(error))
            chosen = expected.gather(1, torch.from_numpy(written)[:, None])[:, 0]
            if bool((expected.max(dim=1).values - chosen > gauge.near_tie(expected)).any()):
                sys.exit("parity: a token is not the greedy one, and no near tie explains it")
    return {"largest_difference": gauge.worst, "bound": gauge.tolerance, "unit": gauge.unit, "tokens": int(tokens.size)}


def check_agreement(bare, prompts, num_new):
    """How many answers are the same tokens in one batch and alone: on a GPU no promise, but it should be nearly all."""
    together, _ = generated(bare, prompts, num_new)
    alone = [generated(bare, [prompt], num_new)[0][0] for prompt in prompts]
    same = sum(bool((one == other).all()) for one, other in zip(together, alone, strict=True))
    return {"same_answers": same, "of": len(prompts)}


def copy_bandwidth(device, num_bytes):
    """Bytes read and written per second by copying one large tensor, the best of ten."""
    words = np.zeros(0, np.float32)
    source, target = (Value((num_bytes // words.itemsize,), 1, device).block for _ in range(2))
    copies, times = Copies(1, device), []
    for _ in range(10):
        started = time.perf_counter()
        copies.run([(source, target)])
        times.append(time.perf_counter() - started)
    return 2 * num_bytes / min(times)


def bytes_per_step(manifest, num_rows, length):
    """Bytes that a decode step has to read: each weight once (the embedding is the projection), each row's cache."""
    entry = sum(math.prod(state.shape) / manifest.text.max_total_tokens for state in manifest.states)
    return ITEM_BYTES * (manifest.provenance.num_parameters + num_rows * length * entry)


def measure(bare, prompt, scale, bandwidth):
    """One result for each number of rows: a decode loop that reads its prompts, and its steps alone."""
    for num_rows in scale.in_flight:
        served = bare.tokens_per_s(num_rows, prompt.tolist(), scale.num_new, scale.seconds, reads=True)
        steps = bare.tokens_per_s(num_rows, prompt.tolist(), scale.num_new, scale.seconds, reads=False) / num_rows
        moved = bytes_per_step(bare.manifest, num_rows, len(prompt) + scale.num_new / 2)
        yield {
            "system": "weft, bare loop" + (", graphs" if bare.device.captures else ""),
            "in_flight": num_rows,
            "tokens_per_s": round(served, 1),
            "step_us": round(1e6 / steps, 1),
            "share_of_bandwidth": round(moved * steps / bandwidth, 3),
        }


def transformers_results(folder, prompt, scale, dtype):
    """`generate` at each number of rows, with a growing cache and with a static, compiled one; the better counts."""
    missing = [name for name in ("transformers",) if importlib.util.find_spec(name) is None]
    if missing or not torch.cuda.is_available():
        print(f"transformers is not compared: {' and '.join(missing) or 'torch has no CUDA'} (pip install it here)")
        return
    import transformers
    from hugging_face import hugging_face

    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(hugging_face(folder), dtype=dtype)
    model = model.to("cuda").eval()
    for num_rows in scale.in_flight:
        ids = torch.tensor(np.tile(prompt, (num_rows, 1)), device="cuda")
        rates = {cache: _generate_rate(model, ids, scale, cache) for cache in ("dynamic", "static")}
        best = max(rates, key=rates.get)
        yield {
            "system": f"transformers {transformers.__version__}, {best} cache",
            "in_flight": num_rows,
            "tokens_per_s": round(rates[best], 1),
        }


def _generate_rate(model, ids, scale, cache):
    options = {"do_sample": False, "eos_token_id": None, "max_new_tokens": scale.num_new, "cache_implementation": cache}
    with torch.inference_mode():
        for _ in range(2):  # compiles, and allocates what the next ones use again
            model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        torch.cuda.synchronize()
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < scale.seconds:
            count += model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, ids.shape[1] :].numel()
            torch.cuda.synchronize()
    return count / (time.perf_counter() - started)


def prepared(precision):
    """The folder of the peer benchmark's generator, with a bundle of that precision."""
    from prepare import prepare
    from systems import WEIGHTS

    if not prepare("llama", precision, keep=False):
        sys.exit(f"bench-gpu has no {precision} bundle to measure")
    return WEIGHTS / "llama", WEIGHTS / "llama" / f"weft-{precision}" / "llama" / "1"


def rehearsal(precision):
    """The same of a tiny generator."""
    from tiny import save_tiny

    from weft_export.export import export_checkpoint

    folder = TESTS.parent / "build" / "bench" / "gpu-rehearsal"
    save_tiny("tiny-generate", folder / "checkpoint")
    bundle = folder / "tiny-generate" / "1"
    export_checkpoint(folder / "checkpoint", bundle, precision, explains=False, scores=False, force=True)
    return folder, bundle


def main():
    """Check, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda-device", type=int, default=0)
    parser.add_argument("--precision", choices=_TORCH_TYPES, default="fp16")
    parser.add_argument("--rehearse", action="store_true", help="run on the CPU, to see that it runs")
    arguments = parser.parse_args()
    if arguments.rehearse and arguments.precision == "bf16":
        parser.error("no CPU has kernels for bf16: rehearse with fp16")
    device = Device(in_place=False) if arguments.rehearse else Device("cuda", arguments.cuda_device, in_place=False)
    try:
        verify_device(device)
    except ConfigError as error:
        print(f"bench-gpu needs a CUDA device, and there is none: {error}")
        sys.exit(2)
    scale = SMALL if arguments.rehearse else FULL
    folder, bundle = (rehearsal if arguments.rehearse else prepared)(arguments.precision)
    if arguments.rehearse:
        print("A rehearsal on the CPU: no figure below means anything.")
    print("MACHINE", json.dumps({**machine(), "device": device.kind, "precision": arguments.precision}))
    rng = np.random.default_rng(SEED)
    bare = Bare(bundle, 1, 1, device)
    prompts = list(rng.integers(4, bare.manifest.text.source_vocab_size, (max(scale.in_flight), scale.prompt)))
    print("PARITY", json.dumps(check_parity(bare, folder, prompts[:4], scale.num_new)))
    print("AGREEMENT", json.dumps(check_agreement(bare, prompts, scale.num_new)))
    bandwidth = copy_bandwidth(device, scale.copied_bytes)
    print("BANDWIDTH", json.dumps({"copy_gb_per_s": round(bandwidth / 1e9, 1)}))
    results = list(measure(bare, prompts[0], scale, bandwidth))
    if device.kind == "cuda":
        graphs = Bare(bundle, 1, 1, Device("cuda", device.index, in_place=False, captures=True))
        print("AGREEMENT with graphs", json.dumps(check_agreement(graphs, prompts, scale.num_new)))
        results += measure(graphs, prompts[0], scale, bandwidth)
        results += transformers_results(folder, prompts[0], scale, _TORCH_TYPES[arguments.precision])
    for result in results:
        print("RESULT", json.dumps({"workload": "c", "precision": arguments.precision, **result}))
    print_table(results)


def print_table(results):
    """The results as a page shows them."""
    columns = ("system", "in_flight", "tokens_per_s", "step_us", "share_of_bandwidth")
    print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for result in results:
        print("| " + " | ".join(str(result.get(column, "")) for column in columns) + " |")


if __name__ == "__main__":
    main()
