"""whisper.cpp, within this process by pywhispercpp: a recording after another in each model."""

import queue
from importlib.metadata import version

from adapter import HUGE_PAGES, System, serve
from batches import answered
from ggml_whisper import ggml_file
from pywhispercpp.model import Model
from recordings import batches_of, words_of


class WhisperCpp(System):
    """`workers` models of `threads` threads each. On a CPU its convolutions want F16, so it has no fp32."""

    def version(self):
        """Name and version of what is measured."""
        return f"whisper.cpp by pywhispercpp {version('pywhispercpp')}"

    def settings(self, workload, precision, in_flight, num_cpus):
        """All processors for one recording, or one for each; with and without flash attention."""
        if precision == "fp32":
            return []
        shares = [(num_cpus, 1), (1, num_cpus)] if in_flight > 1 else [(1, num_cpus)]
        plain = [
            {"type": kind, "flash": flash, "workers": workers, "threads": threads}
            for kind in ("Q8_0", "F16")
            for flash in (True, False)
            for workers, threads in shares
        ]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        """Write its files."""
        for kind in ("Q8_0", "F16"):
            ggml_file(folder, kind)

    def load(self, folder, workload, precision, setting):
        """Open a model for each worker."""
        given = {"use_gpu": False, "flash_attn": setting["flash"]}
        self.models = queue.SimpleQueue()
        for _ in range(setting["workers"]):
            path, threads = str(ggml_file(folder, setting["type"])), setting["threads"]
            self.models.put(Model(path, n_threads=threads, context_params=given, redirect_whispercpp_logs_to=None))
        self.folder, self.setting = folder, setting

    def convert(self, requests):
        """Samples, the longest recording first."""
        return batches_of(self.folder, requests)

    def run(self, batches, in_flight):
        """A recording at a time in each model."""
        return answered(batches, self.setting["workers"], self._text)

    def _text(self, batch):
        (samples,) = batch
        model = self.models.get()
        try:
            # Greedy, and no second try at another temperature.
            segments = model.transcribe(
                samples,
                language="en",
                no_context=True,
                no_timestamps=True,
                single_segment=True,
                temperature=0.0,
                temperature_inc=0.0,
                greedy={"best_of": 1},
                print_progress=False,
            )
        finally:
            self.models.put(model)
        return [words_of(" ".join(segment.text for segment in segments))]


if __name__ == "__main__":
    serve(WhisperCpp())
