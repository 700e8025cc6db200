"""OpenVINO: classifiers on batches sorted by length, with nothing around it."""

import time

import numpy as np
import openvino
from adapter import HUGE_PAGES, Done, System, serve
from batches import sorted_batches
from openvino_weights import MODEL, feeds, int8_classifier, openvino_folder


class OpenVino(System):
    """`workers` batches are in computation at a time, in as many streams, on all processors together.

    Below fp32 there are weights and activations in 8 bits, calibrated, and bfloat16.
    """

    def version(self):
        return f"OpenVINO {openvino.__version__.partition('-')[0]}"

    def settings(self, workload, precision, in_flight, num_cpus):
        types = ("f32",) if precision == "fp32" else ("int8", "bf16")
        sizes = (1, 4) if workload.shape == "vit" else (4, 8)
        plain = [
            {"type": each, "workers": workers, "batch": size}
            for each in types
            for workers in (num_cpus, 1)
            for size in sizes
            if size * workers <= in_flight
        ]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        openvino_folder(folder, "fp32", ("--weight-format", "fp32"))
        if precision == "int8":
            int8_classifier(folder)

    def load(self, folder, workload, precision, setting):
        name = "int8" if setting["type"] == "int8" else "fp32"
        core = openvino.Core()
        self.model = core.read_model(folder / f"openvino-{name}" / MODEL)
        hints = {
            "NUM_STREAMS": setting["workers"],
            "INFERENCE_PRECISION_HINT": "bf16" if setting["type"] == "bf16" else "f32",
        }
        compiled = core.compile_model(self.model, "CPU", hints)
        # Its own way to have several in computation: from two threads of Python, one may wait for ever.
        self.queue = openvino.AsyncInferQueue(compiled, setting["workers"])
        self.folder, self.setting = folder, setting

    def convert(self, requests):
        batches = sorted_batches(requests, self.setting["batch"])
        return [(rows, feeds(self.model, self.folder, [request for _, request in rows])) for rows in batches]

    def run(self, batches, in_flight):
        assert self.setting["batch"] * self.setting["workers"] <= in_flight
        done = {}

        def finished(request, asked):
            rows, started = asked
            seconds = time.perf_counter() - started
            for (index, _), shares in zip(rows, _shares(request.get_output_tensor(0).data), strict=True):
                done[index] = Done(seconds, shares)

        self.queue.set_callback(finished)
        for rows, given in batches:
            self.queue.get_idle_request_id()
            self.queue.start_async(given, (rows, time.perf_counter()))
        self.queue.wait_all()
        return [done[index] for index in range(len(done))]


def _shares(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).tolist()


if __name__ == "__main__":
    serve(OpenVino())
