"""What costly requests cost a plain stream in the same lane: its gaps between tokens, alone and beside them.

`python tests/bench/costly.py [CALLERS]` takes a minute. It needs build/models.
"""

import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

# Run as a script: what the tests share lies above.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import grpc
import numpy as np
from machine import machine

from process import ServerProcess
from weft_proto.v1 import common_pb2, generation_pb2, generation_pb2_grpc
from worst_processors import worst_decoding

MODELS = Path(__file__).parents[2] / "build" / "models"
VOCAB, NUM_NEW, PROMPT = 1536, 200, "def read(path):"
CUTS = {"temperature": 10, "top_k": 1500, "top_p": 0.99, "min_p": 1e-6, "typical_p": 0.99}
LATE = {"epsilon_cutoff": 1e-9, "eta_cutoff": 1e-9}
STREAMS = 10
KINDS = "nobody", "ordinary draws", "costly draws", "costly draws, 8 outputs", "ordinary beams", "costly beams"


def costly(kind):
    """A request with every list at its limit: drawn with all cuts, or by a search of eight beams.

    The ordinary ones beside them have a repetition penalty and a stop string.
    """
    model = common_pb2.ModelSelector(name="pydocs")
    if "ordinary" in kind:
        decoding = common_pb2.Decoding(penalties={"repetition": 1.2}, stop=["\x01"], max_new_tokens=NUM_NEW)
        decoding.min_new_tokens = NUM_NEW
        if "beams" in kind:
            decoding.beams.num_beams = 8
        else:
            decoding.sampling.seed = 1
        return generation_pb2.GenerateRequest(model=model, text=PROMPT, decoding=decoding)
    decoding = worst_decoding(np.random.default_rng(1), VOCAB)
    for name in ("encoder_repetition", "encoder_no_repeat_ngram_size"):
        decoding.penalties.ClearField(name)
    decoding.max_new_tokens = NUM_NEW
    decoding.min_new_tokens = NUM_NEW
    decoding.stop.extend(["\x01\x02", "\x02\x03", "\x03\x04", "\x04\x05"])
    if "beams" in kind:
        decoding.stop_token_ids.ids[:] = list(range(100, 155))
        decoding.beams.num_beams = 8
        decoding.num_outputs = 8
    else:
        decoding.sampling.CopyFrom(common_pb2.Sampling(seed=1, **CUTS, **LATE))
        decoding.num_outputs = 8 if "outputs" in kind else 1
    return generation_pb2.GenerateRequest(model=model, text=PROMPT, decoding=decoding, num_top_tokens=20)


def call(target, data, ended):
    """Ask again and again, as one caller."""
    with grpc.insecure_channel(target) as channel:
        ask = channel.unary_unary("/weft.v1.GenerationService/Generate")
        while True:
            ask(data, metadata=(("weft-model", "pydocs"),))
            with ended.get_lock():
                ended.value += 1


def flood(target, data, num_callers, ended, cpu):
    """So many callers, in a process of their own."""
    os.sched_setaffinity(0, {cpu})
    os.nice(10)
    threads = [threading.Thread(target=call, args=(target, data, ended)) for _ in range(num_callers)]
    for thread in threads:
        thread.start()


def gaps(target):
    """Milliseconds between the messages of plain streams, one after the other."""
    found = []
    with grpc.insecure_channel(target) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        model = common_pb2.ModelSelector(name="pydocs")
        decoding = common_pb2.Decoding(greedy={}, max_new_tokens=NUM_NEW, min_new_tokens=NUM_NEW)
        asked = generation_pb2.GenerateRequest(model=model, text=PROMPT, decoding=decoding)
        for _ in range(STREAMS):
            came = [time.monotonic() for _ in stub.StreamGenerate(generation_pb2.StreamGenerateRequest(request=asked))]
            found += np.diff(came).tolist()
    return np.array(found) * 1e3


def measured(kind, num_callers):
    """A row of the table. The server has a processor, and all callers have the other one."""
    server_cpu, client_cpu = sorted(os.sched_getaffinity(0))[:2]
    ended = multiprocessing.Value("i", 0)
    os.sched_setaffinity(0, {server_cpu})
    with ServerProcess(MODELS, lanes=1) as server:
        os.sched_setaffinity(0, {client_cpu})
        server.wait_for("ready")
        flooding = None
        if kind != "nobody":
            data = costly(kind).SerializeToString()
            given = (server.target, data, num_callers, ended, client_cpu)
            flooding = multiprocessing.Process(target=flood, args=given, daemon=True)
            flooding.start()
            time.sleep(2)
        found = gaps(server.target)
        steps = server.metric("weft_decode_batch_size_sum") / max(1, server.metric("weft_decode_batch_size_count"))
        if flooding:
            flooding.kill()
    os.sched_setaffinity(0, {server_cpu, client_cpu})
    return (*np.percentile(found, [50, 99]), steps, ended.value)


def main(num_callers=6):
    """Print a table."""
    print(machine())
    print("\n| beside a plain stream | gap p50, ms | gap p99, ms | rows of a step | answers |\n|---|---|---|---|---|")
    for kind in KINDS:
        middle, most, rows, ended = measured(kind, num_callers)
        print(f"| {kind} | {middle:.2f} | {most:.2f} | {rows:.1f} | {ended} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
