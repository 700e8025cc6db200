"""OpenVINO GenAI: its own continuous batching, over the models of its own exporter."""

import itertools
import time

import numpy as np
import openvino
import openvino_genai
from adapter import HUGE_PAGES, Done, System, serve
from openvino_weights import openvino_folder

# Names of its folders, each with what its exporter is told.
_BUILDS = {
    "fp32": {"fp32": ("--weight-format", "fp32")},
    "int8": {"int8": ("--weight-format", "int8")},
    "int4": {
        f"int4-{size}": ("--weight-format", "int4", "--sym", "--ratio", "1.0", "--group-size", str(size))
        for size in (128, 32)
    },
}
_WITHOUT_WORDS = ("--disable-convert-tokenizer",)


class OpenVinoGenai(System):
    """One pipeline on all processors. It rounds activations in groups as they come, unless it is told otherwise."""

    def version(self):
        return f"OpenVINO GenAI {openvino_genai.__version__.partition('-')[0]}"

    def settings(self, workload, precision, in_flight, num_cpus):
        """Each build; computing in float32 or bfloat16; keys and values as they are or in 8 bits."""
        if precision == "fp32":
            plain = [{"build": "fp32", "type": "f32", "cache": "f32"}]
        else:
            builds = [(build, kind) for build in _BUILDS[precision] for kind in ("f32", "bf16")]
            plain = [{"build": build, "type": kind, "cache": "u8"} for build, kind in builds]
        plain = [each | {"threads": num_cpus, "max_num_seqs": in_flight} for each in plain]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        for build, options in _BUILDS[precision].items():
            openvino_folder(folder, build, options + _WITHOUT_WORDS)

    def load(self, folder, workload, precision, setting):
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.max_num_seqs = setting["max_num_seqs"]
        scheduling.cache_size = 1  # GB
        # Prompts are random; and a run that repeats them would find them answered.
        scheduling.enable_prefix_caching = False
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            folder / f"openvino-{setting['build']}",
            scheduling,
            "CPU",
            {
                "INFERENCE_NUM_THREADS": setting["threads"],
                "INFERENCE_PRECISION_HINT": setting["type"],
                "KV_CACHE_PRECISION": setting["cache"],
            },
        )

    def convert(self, requests):
        return [(openvino.Tensor(np.array([request["ids"]], np.int64)), _asked(request)) for request in requests]

    def run(self, converted, in_flight):
        """Keep in_flight of them in the pipeline, whose step gives each one token or reads prompts."""
        done, running, waiting = [None] * len(converted), {}, iter(enumerate(converted))
        while True:
            for index, (ids, asked) in itertools.islice(waiting, in_flight - len(running)):
                running[index] = time.perf_counter(), self.pipeline.add_request(index, ids, asked)
            if not running:
                return done
            self.pipeline.step()
            for index, (started, handle) in list(running.items()):
                if handle.get_status() == openvino_genai.GenerationStatus.FINISHED:
                    (output,) = handle.read_all()
                    done[index] = Done(time.perf_counter() - started, list(output.generated_ids))
                    del running[index]


def _asked(request):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = request["num_new"]
    config.ignore_eos = True
    config.do_sample = False
    return config


if __name__ == "__main__":
    serve(OpenVinoGenai())
