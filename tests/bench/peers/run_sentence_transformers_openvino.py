"""sentence-transformers on OpenVINO."""

import shutil

import openvino
import sentence_transformers
from adapter import HUGGING_FACE, serve
from embedding import Embedder
from openvino_weights import MODEL, calibrated
from sentence_transformers import SentenceTransformer


class SentenceTransformersOpenVino(Embedder):
    """One model on all threads. Below fp32: weights and activations in 8 bits, calibrated, and bfloat16."""

    def version(self):
        """Name and version of what is measured."""
        versions = sentence_transformers.__version__, openvino.__version__.partition("-")[0]
        return "sentence-transformers {}, OpenVINO {}".format(*versions)

    def kinds(self, precision):
        """Names of types."""
        return ("f32",) if precision == "fp32" else ("int8", "bf16")

    def form(self, folder, kind):
        """The directory `folder`/openvino-f32 or -int8."""
        name = "int8" if kind == "int8" else "f32"
        done, fresh = folder / f"openvino-{name}", folder / f"openvino-{name}.fresh"
        if done.is_dir():
            return done
        shutil.rmtree(fresh, ignore_errors=True)
        exporting = {"export": True}
        model = SentenceTransformer(str(folder / HUGGING_FACE), backend="openvino", model_kwargs=exporting)
        model.save_pretrained(str(fresh))
        if name == "int8":
            path = fresh / "openvino" / MODEL
            tokenizer, plain = model.tokenizer, openvino.Core().read_model(path)
            rounded = calibrated(
                plain, folder.name, lambda request: dict(tokenizer(request["texts"], return_tensors="np"))
            )
            openvino.save_model(rounded, fresh / "openvino" / "int8.xml", compress_to_fp16=False)
            for suffix in (".xml", ".bin"):
                (fresh / "openvino" / f"int8{suffix}").replace(path.with_suffix(suffix))
        fresh.rename(done)
        return done

    def load(self, folder, workload, precision, setting):
        """Open one of them."""
        hint = "bf16" if setting["kind"] == "bf16" else "f32"
        hints = {"INFERENCE_NUM_THREADS": str(setting["threads"]), "INFERENCE_PRECISION_HINT": hint}
        path = str(self.form(folder, setting["kind"]))
        given = {"ov_config": hints}
        self.model = SentenceTransformer(path, backend="openvino", local_files_only=True, model_kwargs=given)
        self.batch = setting["batch"]

    def embed(self, texts):
        """All vectors."""
        return self.model.encode(texts, batch_size=self.batch, show_progress_bar=False)


if __name__ == "__main__":
    serve(SentenceTransformersOpenVino())
