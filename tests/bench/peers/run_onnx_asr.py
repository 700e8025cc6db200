"""onnx-asr: Whisper as optimum writes it, on ONNX Runtime, in batches."""

import json
import shutil
from importlib.metadata import version

import onnx_asr
import onnxruntime
from adapter import HUGE_PAGES, HUGGING_FACE, System, serve
from batches import answered
from onnxruntime.quantization import quantize_dynamic
from recordings import batches_of, words_of

_GRAPHS = ("encoder_model", "decoder_model_merged")


class OnnxAsr(System):
    """`workers` threads share sessions, whose products run on `threads` threads each."""

    def version(self):
        """Name and version of what is measured."""
        return f"onnx-asr {version('onnx-asr')}, ONNX Runtime {onnxruntime.__version__}"

    def settings(self, workload, precision, in_flight, num_cpus):
        """One recording on all processors, and batches."""
        shares = [(num_cpus, 1), (1, num_cpus)] if in_flight > 1 else [(1, num_cpus)]
        plain = [
            {"workers": workers, "threads": threads, "batch": size}
            for workers, threads in shares
            for size in (1, 2, 4, 8)
            if workers * size <= in_flight
        ]
        return [*plain, plain[0] | {"environment": HUGE_PAGES}]

    def prepare(self, folder, precision):
        """Export the graphs, and round them if need be: products by what comes, as it rounds them itself."""
        done, fresh = folder / "onnx-asr", folder / "onnx-asr.fresh"
        if not done.is_dir():
            shutil.rmtree(fresh, ignore_errors=True)
            _export(folder / HUGGING_FACE, fresh)
            fresh.rename(done)
        if precision == "int8":
            for name in _GRAPHS:
                path = done / f"{name}_int8.onnx"
                if not path.is_file():
                    made = path.with_suffix(".fresh")
                    options = {"MatMulConstBOnly": True}
                    quantize_dynamic(done / f"{name}.onnx", made, per_channel=True, extra_options=options)
                    made.rename(path)

    def load(self, folder, workload, precision, setting):
        """Open the graphs."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = setting["threads"]
        kind = "int8" if precision == "int8" else None
        providers = ["CPUExecutionProvider"]
        self.model = onnx_asr.load_model(
            "whisper", folder / "onnx-asr", quantization=kind, sess_options=options, providers=providers
        )
        self.folder, self.setting = folder, setting

    def convert(self, requests):
        """Batches of samples of like lengths."""
        return batches_of(self.folder, requests, self.setting["batch"])

    def run(self, batches, in_flight):
        """Answer batch by batch."""
        return answered(batches, self.setting["workers"], self._texts)

    def _texts(self, batch):
        return [words_of(text) for text in self.model.recognize(batch, language="en")]


def _export(source, folder):
    from optimum.exporters.onnx import main_export  # late: it imports torch, which is not measured

    main_export(str(source), str(folder), task="automatic-speech-recognition-with-past", device="cpu")
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    added = {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    (folder / "vocab.json").write_text(json.dumps(tokenizer["model"]["vocab"]))
    (folder / "added_tokens.json").write_text(json.dumps(added))


if __name__ == "__main__":
    serve(OnnxAsr())
