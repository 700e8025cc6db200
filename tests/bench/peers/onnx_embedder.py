"""An embedder as ONNX files, as sentence-transformers writes them: plain, fused, and with products in 8 bits."""

import shutil

from adapter import HUGGING_FACE
from embedding import Embedder
from sentence_transformers import (
    SentenceTransformer,
    export_dynamic_quantized_onnx_model,
    export_optimized_onnx_model,
)

# Two kinds of 8 bits: for processors with products of such numbers, and for those without.
_KINDS = {"fp32": ("model", "model_O3"), "int8": ("model_qint8_avx512_vnni", "model_quint8_avx2")}


class OnnxEmbedder(Embedder):
    """A library that opens a directory with the one file onnx/<kind>.onnx."""

    def kinds(self, precision):
        """Names of files."""
        return _KINDS[precision]

    def form(self, folder, kind):
        """The directory `folder`/onnx-<kind>."""
        done, fresh = folder / f"onnx-{kind}", folder / f"onnx-{kind}.fresh"
        if done.is_dir():
            return done
        shutil.rmtree(fresh, ignore_errors=True)
        exporting = {"export": True, "provider": "CPUExecutionProvider"}
        model = SentenceTransformer(str(folder / HUGGING_FACE), backend="onnx", model_kwargs=exporting)
        model.save_pretrained(str(fresh))
        if kind != "model":
            (fresh / "onnx" / "model.onnx").unlink()
            if kind == "model_O3":
                export_optimized_onnx_model(model, "O3", str(fresh))
            else:
                export_dynamic_quantized_onnx_model(model, kind.rpartition("int8_")[2], str(fresh))
        fresh.rename(done)
        return done
