"""How long decode steps take, and what share of the device's bandwidth they use."""

import math
import time

import numpy as np

from weft_proto.v1 import bundle_pb2
from weft_server.runtime.cuda.copies import Copies
from weft_server.runtime.session import Value

ITEM_BYTES = 2
# A level of 4 bits, and the share of a scale for 32.
BLOCK_BYTES = 0.5 + 2 / 32


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
    """Bytes that a generator's step has to read: each weight once (the embedding is the projection), each row's cache.

    Of weights of 4 bits, those that have 8 after all are counted as if they had 4.
    """
    entry = sum(math.prod(state.shape) / manifest.text.max_total_tokens for state in manifest.states)
    of_weights = BLOCK_BYTES if manifest.precision == bundle_pb2.PRECISION_INT4_FP16 else ITEM_BYTES
    return of_weights * manifest.provenance.num_parameters + ITEM_BYTES * num_rows * length * entry


def measure(bare, prompt, scale, bandwidth):
    """One result for each number of rows: a decode loop that reads its prompts, and its steps alone."""
    for num_rows in scale.in_flight:
        served = bare.tokens_per_s(num_rows, prompt.tolist(), scale.num_new, scale.seconds, reads=True)
        steps = bare.tokens_per_s(num_rows, prompt.tolist(), scale.num_new, scale.seconds, reads=False) / num_rows
        result = {
            "system": "weft, bare loop" + (", graphs" if bare.device.captures else ""),
            "in_flight": num_rows,
            "tokens_per_s": round(served, 1),
            "step_us": round(1e6 / steps, 1),
        }
        if bare.encoder is None:
            moved = bytes_per_step(bare.manifest, num_rows, len(prompt) + scale.num_new / 2)
            result["share_of_bandwidth"] = round(moved * steps / bandwidth, 3)
        yield result
