"""faster-whisper: CTranslate2, a recording after another in each worker."""

import shutil

import ctranslate2
import faster_whisper
from adapter import HUGE_PAGES, HUGGING_FACE, System, serve
from batches import answered
from recordings import batches_of, words_of

_TYPES = {"fp32": ("float32",), "int8": ("int8_float32", "int8_bfloat16")}


class FasterWhisper(System):
    """`workers` of CTranslate2 on `threads` threads each. Whole recordings: none is cut where it is quiet."""

    def version(self):
        """Name and version of what is measured."""
        return f"faster-whisper {faster_whisper.__version__}, CTranslate2 {ctranslate2.__version__}"

    def settings(self, workload, precision, in_flight, num_cpus):
        """All processors for one recording, or one for each."""
        shares = [(num_cpus, 1), (1, num_cpus)] if in_flight > 1 else [(1, num_cpus)]
        kinds = _TYPES[precision]
        plain = [
            {"type": kind, "workers": workers, "threads": threads} for kind in kinds for workers, threads in shares
        ]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        """Convert the weights once; they are rounded when they are loaded."""
        done, fresh = folder / "faster-whisper", folder / "faster-whisper.fresh"
        if not done.is_dir():
            shutil.rmtree(fresh, ignore_errors=True)
            source = folder / HUGGING_FACE
            copied = ["tokenizer.json", "processor_config.json"]
            ctranslate2.converters.TransformersConverter(str(source), copy_files=copied).convert(str(fresh))
            fresh.rename(done)

    def load(self, folder, workload, precision, setting):
        """Open the model."""
        self.model = faster_whisper.WhisperModel(
            str(folder / "faster-whisper"),
            compute_type=setting["type"],
            cpu_threads=setting["threads"],
            num_workers=setting["workers"],
            local_files_only=True,
        )
        self.folder, self.setting = folder, setting

    def convert(self, requests):
        """Samples, the longest recording first."""
        return batches_of(self.folder, requests)

    def run(self, batches, in_flight):
        """A recording at a time in each worker."""
        return answered(batches, self.setting["workers"], self._text)

    def _text(self, batch):
        (samples,) = batch
        # Greedy, and no second try at another temperature.
        segments, _ = self.model.transcribe(
            samples,
            language="en",
            beam_size=1,
            best_of=1,
            temperature=0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return [words_of("".join(segment.text for segment in segments))]


if __name__ == "__main__":
    serve(FasterWhisper())
