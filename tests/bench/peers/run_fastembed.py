"""fastembed: texts to vectors by ONNX Runtime, in its own batches."""

import fastembed
from adapter import serve
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from onnx_embedder import OnnxEmbedder

WIDTH = 384


class FastEmbed(OnnxEmbedder):
    """A session on all threads. Processes of its own would be begun anew for each call."""

    def version(self):
        """Name and version of what is measured."""
        return f"fastembed {fastembed.__version__}"

    def load(self, folder, workload, precision, setting):
        """Name the file as a model of the library's, and open it."""
        kind, source = setting["kind"], ModelSource(hf="nowhere")
        file = {"model_file": f"onnx/{kind}.onnx"}
        TextEmbedding.add_custom_model(kind, PoolingType.MEAN, normalization=True, sources=source, dim=WIDTH, **file)
        path = str(self.form(folder, kind))
        self.model = TextEmbedding(kind, threads=setting["threads"], specific_model_path=path)
        self.batch = setting["batch"]

    def embed(self, texts):
        """All vectors."""
        return list(self.model.embed(texts, batch_size=self.batch))


if __name__ == "__main__":
    serve(FastEmbed())
