"""onnxruntime-genai: static batches of its Generator, from the models of its own builder.

Its Engine batches continuously on CUDA only (the paged attention that it needs has no CPU kernel); on a CPU it makes
static batches too, of requests that come one by one.
"""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime_genai as og
from adapter import HUGE_PAGES, HUGGING_FACE, System, serve
from batches import answered, sorted_batches

# Names of its folders, each with what the builder is told. int8 is the weights' in blocks; activations are rounded
# to int8 too, block by block, at accuracy level 4.
_BUILDS = {
    "fp32": {"fp32": ["prune_lm_head=true"]},
    "int8": {
        f"int8-{size}": ["prune_lm_head=true", f"block_size={size}", "accuracy_level=4", "op_types_to_quantize=MatMul"]
        for size in (128, 32)
    },
}
_BUILDS["int8-weights"] = _BUILDS["int8"]
# It refuses larger ones.
MAX_BATCH = 32


class Genai(System):
    """`workers` threads share a model and run a Generator each."""

    def version(self):
        """Name and version of what is measured."""
        return f"onnxruntime-genai {og.__version__}"

    def settings(self, workload, precision, in_flight, num_cpus):
        """One Generator on all threads, or one for each; each block size."""
        shares = [(1, num_cpus), (num_cpus, 1)] if in_flight >= num_cpus else [(1, num_cpus), (1, 1)]
        plain = [
            {"build": build, "workers": workers, "threads": threads, "batch": min(in_flight // workers, MAX_BATCH)}
            for build in _BUILDS[precision]
            for workers, threads in shares
        ]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        """Build its models from the Hugging Face folder."""
        source = folder / HUGGING_FACE
        for build, options in _BUILDS[precision].items():
            done, fresh = folder / f"genai-{build}", folder / f"genai-{build}.fresh"
            if done.is_dir():
                continue
            shutil.rmtree(fresh, ignore_errors=True)
            command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", fresh]
            command += ["-p", precision.removesuffix("-weights"), "-e", "cpu", "-c", folder / "genai-cache"]
            command += ["--extra_options", *options]
            subprocess.run(command, check=True, stdout=sys.stderr, env=os.environ | {"HF_HUB_OFFLINE": "1"})
            fresh.rename(done)

    def load(self, folder, workload, precision, setting):
        """Open one of its models."""
        config = og.Config(str(folder / f"genai-{setting['build']}"))
        session = {"intra_op_num_threads": setting["threads"]}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self.setting, self.model = setting, og.Model(config)

    def convert(self, requests):
        """Batches of (index, request), all of one prompt length and one num_new, and their prompts."""
        batches = sorted_batches(requests, self.setting["batch"])
        return [(rows, self._inputs([request for _, request in rows])) for rows in batches]

    def run(self, batches, in_flight):
        """Answer batch by batch."""
        assert self.setting["batch"] * self.setting["workers"] <= in_flight
        return answered(batches, self.setting["workers"], self._generate)

    def _inputs(self, requests):
        (num_new,) = {request["num_new"] for request in requests}
        return np.array([request["ids"] for request in requests], np.int32), num_new

    def _generate(self, inputs):
        """The new tokens of one batch."""
        prompts, num_new = inputs
        num_rows, length = prompts.shape
        params = og.GeneratorParams(self.model)
        total = length + num_new
        params.set_search_options(max_length=total, min_length=total, batch_size=num_rows, do_sample=False)
        generator = og.Generator(self.model, params)
        generator.append_tokens(prompts)
        while not generator.is_done():
            generator.generate_next_token()
        return [generator.get_sequence(row)[length:].tolist() for row in range(num_rows)]


if __name__ == "__main__":
    serve(Genai())
