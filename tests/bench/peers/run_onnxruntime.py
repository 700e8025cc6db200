"""Bare ONNX Runtime: the graph of Weft's bundle on batches sorted by length, with nothing around it."""

import json

import numpy as np
import onnxruntime as ort
from adapter import HUGE_PAGES, System, serve
from batches import answered, sorted_batches
from images import pixel_values


class OnnxRuntime(System):
    """`workers` threads share a session, whose products run on `threads` threads each."""

    def version(self):
        """Name and version of what is measured."""
        return f"ONNX Runtime {ort.__version__}"

    def settings(self, workload, precision, in_flight, num_cpus):
        """Batches small enough for the caches of a core, and as large as may be, on one thread or on all."""
        shares = [(workers, threads, spins) for workers, threads, spins in ((num_cpus, 1, False), (1, num_cpus, True))]
        sizes = (1, 2, 4) if workload.shape == "vit" else (4, 2, 8, 16)
        plain = [
            {"workers": workers, "threads": threads, "spins": spins, "batch": size}
            for workers, threads, spins in shares
            for size in sizes
            if size * workers <= in_flight
        ]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        """Nothing: the harness has exported the bundle."""

    def load(self, folder, workload, precision, setting):
        """Open the one graph that the bundle runs for a request."""
        bundle = folder / f"weft-{precision}" / folder.name / "1"
        graphs = json.loads((bundle / "bundle.json").read_text())["graphs"]
        (graph,) = [each["path"] for each in graphs if each["role"] == "GRAPH_ROLE_CLASSIFIER"]
        options = ort.SessionOptions()
        options.intra_op_num_threads = setting["threads"]
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(setting["spins"])))
        # As Weft does; it costs nobody anything.
        apart = ["SkipLayerNormFusion"]
        self.session = ort.InferenceSession(
            str(bundle / graph), options, providers=["CPUExecutionProvider"], disabled_optimizers=apart
        )
        self.folder, self.setting = folder, setting

    def convert(self, requests):
        """Batches of (index, request), and what the session is fed of each."""
        batches = sorted_batches(requests, self.setting["batch"])
        return [(rows, self._feeds([request for _, request in rows])) for rows in batches]

    def run(self, batches, in_flight):
        """Answer batch by batch."""
        assert self.setting["batch"] * self.setting["workers"] <= in_flight
        return answered(batches, self.setting["workers"], self._classify)

    def _feeds(self, requests):
        if "image" in requests[0]:
            return {"pixel_values": pixel_values(self.folder, [request["image"] for request in requests])}
        lengths = np.array([len(request["ids"]) for request in requests], np.int32)
        ids = np.zeros((len(requests), lengths.max()), np.int64)
        for row, request in zip(ids, requests, strict=True):
            row[: len(request["ids"])] = request["ids"]
        return {"input_ids": ids, "lengths": lengths}

    def _classify(self, feeds):
        (probabilities,) = self.session.run(["probabilities"], feeds)
        return probabilities.tolist()


if __name__ == "__main__":
    serve(OnnxRuntime())
