"""What is said of an ONNX file that others made: all that a bundle states and the file does not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft_export.checkpoints.bounds import check_spec, check_value
from weft_export.checkpoints.files import check_name
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import LIMITS
from weft_proto.tasks import TASKS, Task
from weft_proto.v1 import bundle_pb2, common_pb2


@dataclass(frozen=True)
class OnnxModel:
    """A classifier, a tagger or an embedder that is not one of our modules.

    embedding says how vectors are made; how many numbers they have, the graph says.
    is_bgr is whether the graph takes the channels of a picture as blue, green, red.
    files holds the tokenizer or the golden image, by the names that text and golden give them.
    """

    task: common_pb2.Task.ValueType
    description: str
    labels: tuple[str, ...]
    golden: bundle_pb2.Golden
    text: bundle_pb2.TextSpec | None = None
    image: bundle_pb2.ImageSpec | None = None
    embedding: bundle_pb2.EmbeddingSpec | None = None
    is_bgr: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise CheckpointError when something is beyond its limit."""
        try:
            check_value("the description", self.description, LIMITS["BundleManifest"]["description"])
            check_value("labels", self.labels, LIMITS["BundleManifest"]["labels"])
            check_value("the golden text", self.golden.text, LIMITS["Golden"]["text"])
            for key, spec in (("text", self.text), ("image", self.image)):
                if spec is not None:
                    check_spec(key, spec)
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        if self.row.embeds:
            if self.labels:
                raise CheckpointError("labels are of a model that classifies or tags; one that embeds has none")
        elif len(self.labels) == 0 or len(set(self.labels)) != len(self.labels):
            raise CheckpointError("labels must be distinct, and there must be one at least")
        for name in self.files:
            check_name(name)

    @property
    def row(self) -> Task:
        """What is true of all models of its task."""
        return TASKS[self.task]

    @property
    def text_spec(self) -> bundle_pb2.TextSpec:
        """What is true of its texts, of a model that reads some."""
        assert self.text is not None, "this model reads no texts. This is a bug."
        return self.text

    @property
    def image_spec(self) -> bundle_pb2.ImageSpec:
        """What is true of its pictures, of a model that takes some."""
        assert self.image is not None, "this model takes no pictures. This is a bug."
        return self.image

    @property
    def embedding_spec(self) -> bundle_pb2.EmbeddingSpec:
        """What is true of its vectors, of a model that embeds."""
        assert self.embedding is not None, "this model makes no vectors. This is a bug."
        return self.embedding

    @property
    def role(self) -> bundle_pb2.GraphRole.ValueType:
        """What its graph computes."""
        return _GRAPHS[self.task][0]

    @property
    def file_name(self) -> str:
        """The name of its graph's file in a bundle."""
        return _GRAPHS[self.task][1]


_GRAPHS = {
    common_pb2.TASK_CLASSIFY_IMAGE: (bundle_pb2.GRAPH_ROLE_CLASSIFIER, "classifier.onnx"),
    common_pb2.TASK_CLASSIFY_TEXT: (bundle_pb2.GRAPH_ROLE_CLASSIFIER, "classifier.onnx"),
    common_pb2.TASK_TAG: (bundle_pb2.GRAPH_ROLE_TAGGER, "tagger.onnx"),
    common_pb2.TASK_EMBED_TEXT: (bundle_pb2.GRAPH_ROLE_EMBEDDER, "embedder.onnx"),
    common_pb2.TASK_EMBED_IMAGE: (bundle_pb2.GRAPH_ROLE_IMAGE_EMBEDDER, "image_embedder.onnx"),
}
