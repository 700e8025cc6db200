"""Bundles that keep the contract, one for each task, still open to a change that breaks it."""

import hashlib
from pathlib import Path

import onnx
import pytest
from google.protobuf import json_format
from onnx import TensorProto, helper

from weft_proto.v1 import bundle_pb2 as pb
from weft_proto.v1 import common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.errors import BundleError

DTYPES = {
    "f": (pb.DATA_TYPE_FLOAT32, TensorProto.FLOAT),
    "i": (pb.DATA_TYPE_INT32, TensorProto.INT32),
    "l": (pb.DATA_TYPE_INT64, TensorProto.INT64),
    "b": (pb.DATA_TYPE_INT8, TensorProto.INT8),
    "h": (pb.DATA_TYPE_FLOAT16, TensorProto.FLOAT16),
}
KINDS = {data_type: kind for kind, (data_type, _) in DTYPES.items()}

TEXT_IN = {"input_ids": ("l", ["batch", "seq"]), "lengths": ("i", ["batch"])}
IMAGE_IN = {"pixel_values": ("f", ["batch", 1, 8, 8])}
CACHE = ("f", ["batch", 2, 16, 4])
MEMORY = ("f", ["batch", 2, 12, 4])
DECODER_IN = {
    "input_ids": ("l", ["batch", "seq"]),
    "past_lengths": ("i", ["batch"]),
    "lengths": ("i", ["batch"]),
    "total_length": ("i", [1]),
}
DECODER_OUT = {
    "topk_logits": ("f", ["batch", 5]),
    "topk_ids": ("l", ["batch", 5]),
    "logsumexp": ("f", ["batch"]),
    "logits": ("f", ["batch", 20]),
}
CACHE_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_KV_CACHE,
    past="past_key_values.0.key",
    present="present.0.key",
    data_type=pb.DATA_TYPE_FLOAT32,
    shape=[2, 16, 4],
    length_axis=1,
)
MEMORY_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_MEMORY,
    past="memory.0.key",
    present="present_memory.0.key",
    data_type=pb.DATA_TYPE_FLOAT32,
    shape=[2, 12, 4],
    length_axis=1,
    encoder_output="memory_out.0.key",
)

PAGED_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_PAGED_CACHE,
    past="past_key_values.0.key",
    present="present.0.key",
    data_type=pb.DATA_TYPE_FLOAT16,
    shape=[16, 2, 4],
)
RECURRENT_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_RECURRENT,
    past="past_recurrent.0",
    present="present_recurrent.0",
    data_type=pb.DATA_TYPE_FLOAT32,
    shape=[6],
    encoder_output="recurrent_out.0",
)
READ_ONLY_STATE = pb.StateTensor(
    kind=pb.STATE_KIND_MEMORY,
    past="memory.0",
    data_type=pb.DATA_TYPE_FLOAT32,
    shape=[12, 4],
    encoder_output="memory_out.0",
)


def _model(inputs: dict, outputs: dict) -> onnx.ModelProto:
    """A graph with the given ports and one externally stored weight. It is verified, never run."""
    weight = TensorProto(name="weight", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.data", "offset": "0", "length": "16"}.items():
        weight.external_data.add(key=key, value=value)
    values = [
        [helper.make_tensor_value_info(name, DTYPES[kind][1], shape) for name, (kind, shape) in ports.items()]
        for ports in (inputs, outputs)
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["weight"], ["unused"])], "graph", *values, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


class Draft:
    """A bundle still open to changes. `write` makes it consistent again, so that only the change is wrong."""

    def __init__(self, directory: Path, task: int) -> None:
        self.directory = directory
        self.models: dict[str, onnx.ModelProto] = {}
        self.manifest = pb.BundleManifest(format_version=1, task=task, family="tiny", precision=pb.PRECISION_FP32)
        self.files = {"weights.data": bytes(16)}
        directory.mkdir(parents=True)

    def graph(self, role: int, path: str, inputs: dict, outputs: dict) -> None:
        """Add a graph and say what its ports are."""
        self.models[path] = _model(inputs, outputs)
        graph = self.manifest.graphs.add(role=role, path=path)
        for ports, stated in ((inputs, graph.inputs), (outputs, graph.outputs)):
            for name, (kind, shape) in ports.items():
                stated.add(name=name, data_type=DTYPES[kind][0], shape=map(str, shape))

    def write(self) -> Path:
        """Write all files, and a manifest with their sizes and digests."""
        for path, model in self.models.items():
            self.files[path] = model.SerializeToString()
        del self.manifest.files[:]
        for path, data in self.files.items():
            (self.directory / path).write_bytes(data)
            self.manifest.files.add(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        self.write_manifest()
        return self.directory

    def write_manifest(self) -> None:
        """Write the manifest as it is."""
        (self.directory / "bundle.json").write_text(json_format.MessageToJson(self.manifest))


def _with_text(draft: Draft, **more: object) -> Draft:
    draft.files["tokenizer.json"] = b"{}"
    draft.manifest.text.CopyFrom(pb.TextSpec(source_tokenizer="tokenizer.json", source_vocab_size=20, **more))
    draft.manifest.golden.text = "hello"
    return draft


def _with_image(draft: Draft) -> Draft:
    draft.files["golden.png"] = b"png"
    spec = pb.ImageSpec(channels=1, height=8, width=8, resample=pb.RESAMPLE_BOX, mean=[0.5], std=[0.5])
    spec.grid_rows, spec.grid_columns = 3, 4
    draft.manifest.image.CopyFrom(spec)
    draft.manifest.golden.image_path = "golden.png"
    return draft


def _with_labels(draft: Draft) -> Draft:
    draft.manifest.labels.extend(["good", "bad", "ugly"])
    draft.manifest.golden.probabilities.extend([0.5, 0.25, 0.25])
    return draft


def _with_decoder(draft: Draft, *states: pb.StateTensor, more: dict | None = None) -> Draft:
    draft.manifest.states.extend(states)
    draft.manifest.decoding.max_new_tokens = 8
    draft.manifest.golden.token_ids.extend([3, 4, 2])
    ports = [(state, (KINDS[state.data_type], ["batch", *state.shape])) for state in states]
    inputs = {state.past: port for state, port in ports}
    outputs = {state.present: port for state, port in ports if state.present}
    remembers = any(state.kind == pb.STATE_KIND_MEMORY for state in states)
    lengths = {"memory_lengths": ("i", ["batch"])} if remembers else {}
    inputs = DECODER_IN | lengths | (more or {}) | inputs
    draft.graph(pb.GRAPH_ROLE_DECODER, "decoder.onnx", inputs, DECODER_OUT | outputs)
    return draft


def _with_explain(
    draft: Draft, source: dict, rows: object, columns: object, *, default_layer: int | None, more: dict | None = None
) -> Draft:
    inputs = source | {"layer": ("l", [1]), "head": ("l", [1])}
    outputs = {"weights": ("f", [rows, columns]), "source_mass": ("f", [rows])} | (more or {})
    draft.graph(pb.GRAPH_ROLE_EXPLAIN, "explain.onnx", inputs, outputs)
    draft.manifest.attention.CopyFrom(pb.Attention(heads=[2, 4], default_layer=default_layer))
    return draft


TARGET_IN = {"target_ids": ("l", [1, "target"])}
TARGET = {
    "target_tokenizer": "tokenizer.json",
    "target_vocab_size": 20,
    "end_ids": [2],
    "max_total_tokens": 16,
    "max_new_tokens": 10,
}


def translate(directory: Path) -> Draft:
    """An encoder with a memory, a decoder with a cache, and an EXPLAIN graph."""
    draft = _with_text(Draft(directory, common_pb2.TASK_TRANSLATE), start_id=1, max_source_tokens=12, **TARGET)
    memory_out = {"memory_out.0.key": ("f", ["batch", 2, "seq", 4])}
    draft.graph(pb.GRAPH_ROLE_ENCODER, "encoder.onnx", TEXT_IN, memory_out)
    _with_explain(draft, TEXT_IN | TARGET_IN, "target", "seq", default_layer=1)
    return _with_decoder(draft, CACHE_STATE, MEMORY_STATE)


def translate_with_rnn(directory: Path) -> Draft:
    """A state that the encoder starts, and a memory that steps only read."""
    draft = _with_text(Draft(directory, common_pb2.TASK_TRANSLATE), start_id=1, max_source_tokens=12, **TARGET)
    encoded = {"memory_out.0": ("f", ["batch", "seq", 4]), "recurrent_out.0": ("f", ["batch", 6])}
    draft.graph(pb.GRAPH_ROLE_ENCODER, "encoder.onnx", TEXT_IN, encoded)
    _with_explain(draft, TEXT_IN | TARGET_IN, "target", "seq", default_layer=0)
    draft.manifest.text.prefixes.extend(["translate: ", "summarise: "])
    return _with_decoder(draft, RECURRENT_STATE, READ_ONLY_STATE)


def caption(directory: Path) -> Draft:
    """The same for pictures, with a memory as long as their grid."""
    return _about_pictures(directory, common_pb2.TASK_CAPTION)


def _about_pictures(directory: Path, task: int, **explained: tuple) -> Draft:
    draft = _with_image(Draft(directory, task))
    draft.files["tokenizer.json"] = b"{}"
    draft.manifest.text.CopyFrom(pb.TextSpec(start_id=1, **TARGET))
    memory_out = {"memory_out.0.key": ("f", ["batch", 2, 12, 4])}
    draft.graph(pb.GRAPH_ROLE_ENCODER, "encoder.onnx", IMAGE_IN, memory_out)
    _with_explain(draft, IMAGE_IN | TARGET_IN, "target", 12, default_layer=0, more=explained)
    return _with_decoder(draft, CACHE_STATE, MEMORY_STATE)


def answer(directory: Path) -> Draft:
    """The same with a question, whose EXPLAIN graph also tells what lay on it."""
    draft = _about_pictures(directory, common_pb2.TASK_ANSWER, target_weights=("f", ["target", "target"]))
    asked = pb.TextSpec(source_tokenizer="tokenizer.json", source_vocab_size=20, max_source_tokens=5)
    draft.manifest.text.MergeFrom(asked)
    draft.manifest.golden.question = "hello"
    return draft


def generate(directory: Path) -> Draft:
    """A decoder without an encoder."""
    draft = _with_decoder(_with_text(Draft(directory, common_pb2.TASK_GENERATE), **TARGET), CACHE_STATE)
    one = {"input_ids": ("l", [1, "seq"]), "lengths": ("i", [1])}
    return _with_explain(draft, one | TARGET_IN, "rows", "seq", default_layer=1)


def generate_paged(directory: Path) -> Draft:
    """Two caches in blocks, at fp16."""
    draft = _with_text(Draft(directory, common_pb2.TASK_GENERATE), **TARGET)
    draft.manifest.precision = pb.PRECISION_FP16
    value = pb.StateTensor()
    value.CopyFrom(PAGED_STATE)
    value.past, value.present = "past_key_values.0.value", "present.0.value"
    _with_decoder(draft, PAGED_STATE, value)
    draft.manifest.ClearField("graphs")
    packed = {
        "input_ids": ("l", ["tokens"]),
        "positions": ("l", ["tokens"]),
        "cumulative_lengths": ("i", ["rows_and_one"]),
        "past_lengths": ("i", ["rows"]),
        "block_table": ("i", ["rows", "width"]),
        "slot_mapping": ("i", ["tokens"]),
        "attention_bounds": ("i", [3]),
        "reads_all": ("i", [1]),
    }
    blocks = ("h", ["blocks", 16, 2, 4])
    pasts, presents = (
        {PAGED_STATE.past: blocks, value.past: blocks},
        {PAGED_STATE.present: blocks, value.present: blocks},
    )
    draft.graph(pb.GRAPH_ROLE_DECODER, "decoder.onnx", packed | pasts, DECODER_OUT | presents)
    return draft


def generate_mixed(directory: Path) -> Draft:
    """With a graph that reads a prompt beside rows, and both are told what is read of them."""
    one = ("i", [1])
    draft = _with_text(Draft(directory, common_pb2.TASK_GENERATE), **TARGET)
    _with_decoder(draft, CACHE_STATE, more={"reads_all": one})
    rows = {"input_ids": ("l", ["batch", 1]), "past_lengths": ("i", ["batch"])}
    prompt = {"prompt_ids": ("l", [1, "seq"]), "prompt_past_lengths": one, "prompt_lengths": one}
    lone = ("f", [1, 2, 16, 4])
    states = {CACHE_STATE.past: CACHE, f"prompt.{CACHE_STATE.past}": lone}
    presents = {CACHE_STATE.present: CACHE, f"prompt.{CACHE_STATE.present}": lone}
    inputs = rows | prompt | {"total_length": one, "reads_all": one} | states
    draft.graph(pb.GRAPH_ROLE_MIXED, "mixed.onnx", inputs, DECODER_OUT | presents)
    return draft


def generate_scored(directory: Path) -> Draft:
    """With a graph that scores given answers."""
    draft = _with_decoder(_with_text(Draft(directory, common_pb2.TASK_GENERATE), **TARGET), CACHE_STATE)
    pairs = ("l", ["runs", "size"])
    tops = {"topk_ids": ("l", ["runs", "size", 20]), "topk_log_probs": ("f", ["runs", "size", 20])}
    inputs = {"input_ids": ("l", ["batch", "seq"]), "places": pairs, "scored_ids": pairs}
    draft.graph(pb.GRAPH_ROLE_SCORE, "score.onnx", inputs, {"log_probs": ("f", ["runs", "size"]), **tops})
    return draft


def generate_with_levels(directory: Path) -> Draft:
    """At int8, with one state of int8 and one of float32."""
    draft = _with_text(Draft(directory, common_pb2.TASK_GENERATE), **TARGET)
    draft.manifest.precision = pb.PRECISION_INT8
    levels = pb.StateTensor()
    levels.CopyFrom(CACHE_STATE)
    levels.past, levels.present, levels.data_type = "past_levels", "present_levels", pb.DATA_TYPE_INT8
    return _with_decoder(draft, CACHE_STATE, levels)


def classify_text(directory: Path) -> Draft:
    """A classifier that cannot explain."""
    draft = _with_labels(_with_text(Draft(directory, common_pb2.TASK_CLASSIFY_TEXT), max_source_tokens=12))
    draft.graph(pb.GRAPH_ROLE_CLASSIFIER, "model.onnx", TEXT_IN, {"probabilities": ("f", ["batch", 3])})
    return draft


def tag(directory: Path) -> Draft:
    """At int8, with a measured quality, and probabilities of two tokens."""
    draft = _with_labels(_with_text(Draft(directory, common_pb2.TASK_TAG), max_source_tokens=12))
    draft.manifest.golden.probabilities.extend([0.0, 1.0, 0.0])
    draft.manifest.precision = pb.PRECISION_INT8
    quality = pb.Quality(metric="span_f1", score=1, fp32_score=1, num_examples=9, min_share=0.99)
    draft.manifest.quality.CopyFrom(quality)
    draft.graph(pb.GRAPH_ROLE_TAGGER, "model.onnx", TEXT_IN, {"probabilities": ("f", ["batch", "seq", 3])})
    return _with_explain(draft, TEXT_IN, "seq", "seq", default_layer=None)


def extract(directory: Path) -> Draft:
    """Answers out of a context; logits of two tokens."""
    draft = _with_text(Draft(directory, common_pb2.TASK_EXTRACT), max_source_tokens=12)
    draft.manifest.text.separator_id = 2
    draft.manifest.labels.extend(["start", "end"])
    draft.manifest.scoring = common_pb2.LABEL_SCORING_IDENTITY
    draft.manifest.golden.scores.extend([0.5, -2.0, 3.0, 0.0])
    draft.graph(pb.GRAPH_ROLE_TAGGER, "model.onnx", TEXT_IN, {"probabilities": ("f", ["batch", "seq", 2])})
    return draft


def fill_mask(directory: Path) -> Draft:
    """Three tokens for each of two masks; explained by a summary of its layers."""
    draft = _with_text(Draft(directory, common_pb2.TASK_FILL_MASK), max_source_tokens=12)
    draft.manifest.text.mask_id = 3
    draft.manifest.golden.token_ids.extend([1, 2, 3, 9, 8, 7])
    draft.manifest.golden.scores.extend([-0.5, -1.0, -2.0, -1.0, -1.5, -3.0])
    inputs = TEXT_IN | {"mask_positions": ("l", ["batch", "masks"])}
    draft.graph(pb.GRAPH_ROLE_MASKED_LM, "model.onnx", inputs, {"logits": ("f", ["batch", "masks", 20])})
    return _with_explain(draft, inputs, "masks", "seq", default_layer=None)


def embed_text(directory: Path) -> Draft:
    """An embedder into three dimensions, explained by a summary of its layers."""
    draft = _with_text(Draft(directory, common_pb2.TASK_EMBED_TEXT), max_source_tokens=12)
    spec = pb.EmbeddingSpec(dimensions=3, pooling=pb.POOLING_MEAN, normalized=True)
    draft.manifest.embedding.CopyFrom(spec)
    draft.manifest.golden.embedding.extend([0.6, 0.0, -0.8])
    draft.graph(pb.GRAPH_ROLE_EMBEDDER, "model.onnx", TEXT_IN, {"embedding": ("f", ["batch", 3])})
    return _with_explain(draft, TEXT_IN, 1, "seq", default_layer=None)


def match(directory: Path) -> Draft:
    """Both kinds of inputs into three dimensions; pictures are explained."""
    draft = _with_text(_with_image(Draft(directory, common_pb2.TASK_MATCH)), max_source_tokens=12)
    draft.manifest.golden.ClearField("text")
    draft.manifest.golden.image_path = "golden.png"
    spec = pb.EmbeddingSpec(dimensions=3, pooling=pb.POOLING_FIRST, normalized=True)
    draft.manifest.embedding.CopyFrom(spec)
    draft.manifest.matching.CopyFrom(pb.MatchSpec(scale=10, label_text="a {}"))
    draft.manifest.golden.labels.extend(["good", "bad"])
    draft.manifest.golden.probabilities.extend([0.75, 0.25])
    out = {"embedding": ("f", ["batch", 3])}
    draft.graph(pb.GRAPH_ROLE_EMBEDDER, "texts.onnx", TEXT_IN, out)
    draft.graph(pb.GRAPH_ROLE_IMAGE_EMBEDDER, "pictures.onnx", IMAGE_IN, out)
    return _with_explain(draft, IMAGE_IN, 1, 12, default_layer=None)


def classify_image(directory: Path) -> Draft:
    """A classifier of pictures, explained by a summary of its layers."""
    draft = _with_labels(_with_image(Draft(directory, common_pb2.TASK_CLASSIFY_IMAGE)))
    draft.graph(pb.GRAPH_ROLE_CLASSIFIER, "model.onnx", IMAGE_IN, {"probabilities": ("f", ["batch", 3])})
    return _with_explain(draft, IMAGE_IN, 1, 12, default_layer=None)


MAKERS = [
    translate,
    translate_with_rnn,
    caption,
    answer,
    generate,
    generate_with_levels,
    generate_mixed,
    generate_paged,
    classify_text,
    classify_image,
    tag,
    extract,
    fill_mask,
    embed_text,
    match,
]


def refused(directory: Path) -> str:
    """The one line with which a bundle is refused."""
    with pytest.raises(BundleError) as error:
        load_bundle(directory)
    assert "\n" not in str(error.value)
    return str(error.value)
