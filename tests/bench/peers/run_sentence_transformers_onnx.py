"""sentence-transformers on ONNX Runtime."""

import onnxruntime
import sentence_transformers
from adapter import serve
from onnx_embedder import OnnxEmbedder
from sentence_transformers import SentenceTransformer


class SentenceTransformersOnnx(OnnxEmbedder):
    """One session on all threads."""

    def version(self):
        """Name and version of what is measured."""
        return f"sentence-transformers {sentence_transformers.__version__}, ONNX Runtime {onnxruntime.__version__}"

    def load(self, folder, workload, precision, setting):
        """Open one of the files."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = setting["threads"]
        kind = setting["kind"]
        given = {"file_name": f"onnx/{kind}.onnx", "provider": "CPUExecutionProvider", "session_options": options}
        path = str(self.form(folder, kind))
        self.model = SentenceTransformer(path, backend="onnx", local_files_only=True, model_kwargs=given)
        self.batch = setting["batch"]

    def embed(self, texts):
        """All vectors."""
        return self.model.encode(texts, batch_size=self.batch, show_progress_bar=False)


if __name__ == "__main__":
    serve(SentenceTransformersOnnx())
