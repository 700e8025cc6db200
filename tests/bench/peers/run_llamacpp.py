"""llama.cpp: its server's own continuous batching, in process and without HTTP."""

import re
import threading
import time
from importlib.metadata import version

import xllamacpp
from adapter import HUGE_PAGES, Done, System, serve
from gguf_weights import TYPES, gguf_file


class LlamaCpp(System):
    """A slot for each request in flight, each of which a thread of this process waits for."""

    def version(self):
        return f"llama.cpp (xllamacpp {version('xllamacpp')})"

    def settings(self, workload, precision, in_flight, num_cpus):
        """With its flash attention, or without."""
        same = {"type": TYPES[precision].name, "threads": num_cpus, "slots": in_flight}
        plain = [same | {"flash": flash} for flash in (True, False)]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        gguf_file(folder, precision)

    def load(self, folder, workload, precision, setting):
        params = xllamacpp.CommonParams()
        params.model.path = str(gguf_file(folder, precision))
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setting["threads"]
        params.n_parallel = setting["slots"]
        params.n_ctx = setting["slots"] * (workload.max_input + workload.max_new)
        params.kv_unified = False  # keys and values of each sequence lie apart
        flash = xllamacpp.llama_flash_attn_type
        params.flash_attn_type = (
            flash.LLAMA_FLASH_ATTN_TYPE_ENABLED if setting["flash"] else flash.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        # Prompts are random; and a run that repeats them would find them answered.
        params.cache_prompt = False
        params.cache_ram_mib = 0
        params.ctx_shift = False
        params.fit_params = False
        params.ui = False
        params.verbosity = -1
        self.server = xllamacpp.Server(params)

    def convert(self, requests):
        return [
            {
                "prompt": request["ids"],
                "n_predict": request["num_new"],
                "ignore_eos": True,
                "temperature": 0.0,
                "samplers": ["temperature"],
                "cache_prompt": False,
            }
            for request in requests
        ]

    def run(self, converted, in_flight):
        """As many threads as may be in flight, each with one request at a time."""
        done, waiting, lock = [None] * len(converted), iter(enumerate(converted)), threading.Lock()

        def work():
            while True:
                with lock:
                    index, asked = next(waiting, (None, None))
                if asked is None:
                    return
                started = time.perf_counter()
                answer = self.server.handle_completions(asked)
                done[index] = time.perf_counter() - started, answer["choices"][0]["text"]

        threads = [threading.Thread(target=work) for _ in range(in_flight)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return done

    def answers(self, ran):
        """Its answers are text, and a word says its id."""
        return [Done(seconds, [int(number) for number in re.findall(r"<(\d+)>", text)]) for seconds, text in ran]


if __name__ == "__main__":
    serve(LlamaCpp())
