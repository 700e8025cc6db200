"""What a bundle may be, beyond what the messages of bundle.proto can say: exporter and server both keep these rules.

bundle.proto states each of them in words. They stand here once, and nothing here needs more than the generated code.
"""

import re
from typing import NamedTuple

from weft_proto.v1 import bundle_pb2, common_pb2

FORMAT_VERSION = 1

# The names of files and directories. A bundle is <repository>/<model>/<version>/bundle.json and the files it lists.
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
VERSION = re.compile(r"[1-9][0-9]{0,8}")
FILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
MANIFEST_FILE = "bundle.json"
# Adapters of a bundle are <repository>/<model>/adapters/<version>/<name>/adapter.json, and the file that it names.
ADAPTERS_DIR = "adapters"
ADAPTER_FILE = "adapter.json"
ADAPTER_NAME = MODEL_NAME
# By it a checkpoint is known, of which a bundle is made.
CONFIG_FILE = "config.json"

# Names of ports.
# The first outputs of a decoder, in their order: what the next token is chosen from.
CANDIDATE_PORTS = ("topk_logits", "topk_ids", "logsumexp", "logits")
# An input of some decoders, int32 [1]. Where it is 0, a run computes the best candidates alone.
READS_ALL = "reads_all"
# Inputs of a SCORE graph behind those of its source and target, and its outputs.
SCORED_PORTS = ("places", "scored_ids")
SCORE_PORTS = ("log_probs", "topk_ids", "topk_log_probs")
# Of how many tokens at most a request may ask for the log-probabilities, at each place. A SCORE graph gives so many.
MAX_TOP_TOKENS = 20
# In a MIXED graph it stands before the name of a state's port when the state is the prompt's.
PROMPT = "prompt."

# What a graph of TASK_EXTRACT says of each token: that an answer starts there, and that it ends there.
EXTRACT_LABELS = ("start", "end")
# An input of a graph of TASK_FILL_MASK: which positions it is asked about, int64 [batch, masks].
MASK_POSITIONS = "mask_positions"
# What an IMAGE_ENCODER makes of a picture, and a DECODER reads in the place of tokens.
FEATURES, POSITION_OFFSETS = "features", "position_offsets"
# Of a text. For each there are logits of the whole vocabulary.
MAX_MASKS = 16

# Inputs of graphs that take adapters: which rows are in which group, and which of them have an adapter, and where.
ADAPTER_PORTS = ("adapter_members", "adapter_rows", "adapter_places")

# What the weights and the floating-point states of a bundle are made of.
FLOAT_TYPE = {
    bundle_pb2.PRECISION_FP32: bundle_pb2.DATA_TYPE_FLOAT32,
    bundle_pb2.PRECISION_FP16: bundle_pb2.DATA_TYPE_FLOAT16,
    bundle_pb2.PRECISION_BF16: bundle_pb2.DATA_TYPE_BFLOAT16,
    bundle_pb2.PRECISION_INT8: bundle_pb2.DATA_TYPE_FLOAT32,
    bundle_pb2.PRECISION_INT4: bundle_pb2.DATA_TYPE_FLOAT32,
    bundle_pb2.PRECISION_INT8_WEIGHTS: bundle_pb2.DATA_TYPE_FLOAT32,
    bundle_pb2.PRECISION_NF4: bundle_pb2.DATA_TYPE_FLOAT32,
    bundle_pb2.PRECISION_INT4_FP16: bundle_pb2.DATA_TYPE_FLOAT16,
}
# Precisions that round weights. Their keys and values may be int8 on a CPU.
ROUNDED = frozenset(
    {
        bundle_pb2.PRECISION_INT8,
        bundle_pb2.PRECISION_INT4,
        bundle_pb2.PRECISION_INT8_WEIGHTS,
        bundle_pb2.PRECISION_NF4,
        bundle_pb2.PRECISION_INT4_FP16,
    }
)
# Precisions for a CPU.
HOST_PRECISIONS = frozenset({bundle_pb2.PRECISION_FP32}) | ROUNDED - {bundle_pb2.PRECISION_INT4_FP16}
# What onnx.TensorProto.DataType calls each element type.
ONNX_NAME = {
    bundle_pb2.DATA_TYPE_FLOAT32: "FLOAT",
    bundle_pb2.DATA_TYPE_FLOAT16: "FLOAT16",
    bundle_pb2.DATA_TYPE_BFLOAT16: "BFLOAT16",
    bundle_pb2.DATA_TYPE_INT32: "INT32",
    bundle_pb2.DATA_TYPE_INT64: "INT64",
    bundle_pb2.DATA_TYPE_INT8: "INT8",
}

# What a graph may be made of.
OPERATOR_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
# EPContext names a file with a compiled engine for an execution provider to load.
REFUSED_OPERATORS = frozenset({"EPContext"})
# What external data may say of a tensor: the file, and where in it.
EXTERNAL_DATA_KEYS = frozenset({"location", "offset", "length"})

# By how much the probabilities of a golden answer may differ.
GOLDEN_TOLERANCE = {
    bundle_pb2.PRECISION_FP32: 1e-3,
    bundle_pb2.PRECISION_FP16: 1e-2,
    bundle_pb2.PRECISION_BF16: 3e-2,
    **dict.fromkeys(ROUNDED, 1e-2),
}
# By how much the vector of a golden answer may differ, as a share of its length.
EMBEDDING_TOLERANCE = {
    bundle_pb2.PRECISION_FP32: 1e-3,
    bundle_pb2.PRECISION_FP16: 2e-2,
    bundle_pb2.PRECISION_BF16: 1e-1,
    **dict.fromkeys(ROUNDED, 1e-1),
    bundle_pb2.PRECISION_INT4_FP16: 2e-2,
}
# By how much the weights of a row of an explanation may miss a sum of 1. They are float32 at any precision.
EXPLAIN_SUM_TOLERANCE = 1e-5
# Outputs of an EXPLAIN graph of TASK_ANSWER: what lay on target_ids, float32 [rows, target], or on a question's ids.
TARGET_WEIGHTS, QUESTION_WEIGHTS = "target_weights", "question_weights"

# What a request may be. The last two are what a server takes unless its settings say otherwise.
PICTURE_FORMATS = ("PNG", "JPEG", "WEBP")
# No tokenizer makes fewer tokens than one for so many characters of sensible text, so a longer text is refused unread.
MAX_CHARS_PER_TOKEN = 32
# Of a text that is cut to what the model takes.
MAX_CUT_CHARS = 131_072
MAX_IMAGE_BYTES = 8_388_608
MAX_IMAGE_PIXELS = 16_777_216

MAX_MANIFEST_BYTES = 8_388_608
MAX_ADAPTER_BYTES = 1_048_576
MAX_ADAPTED_LAYERS = 4096
# Of all lists and objects of a manifest together.
MAX_MANIFEST_ENTRIES = 400_000
# Of a file that is read as a whole: a graph without its weights, a tokenizer, the golden image.
MAX_READ_BYTES = 67_108_864
# Of a chat's template.
MAX_TEMPLATE_BYTES = 65_536
MAX_LABELS = 65_536
# Of layers that attend, and of the heads of one.
MAX_LAYERS = 1024
MAX_HEADS = 1024
# Pixels.
MAX_IMAGE_SIDE = 4096
# Of the places of a picture that attention is shown on.
MAX_GRID = 65_536
# That a picture of a prompt is cut into, and grids of them.
MAX_TILES = 256
TILE_TEXTS = ("before_tile", "behind_row", "behind_tiles", "before_whole", "behind_whole")
"""Fields of a TilingSpec: what stands around tiles in a prompt."""
# Of a golden answer: labels, times tokens for a tagger.
MAX_PROBABILITIES = 262_144
# Of a request to a model that matches, and of its labels, and of the text that they are put into.
MAX_MATCHED_LABELS = 1024
MAX_LABEL_CHARS = 1024
# Of a vector.
MAX_DIMENSIONS = 16_384
# Of one slot of one state.
MAX_STATE_ELEMENTS = 2**32

_VOCAB = 4_194_304
_TOKENS = 1_048_576
_NAME = 256
_PATH = 255
# Of a language.
_TAG = 64
# Of a layer, whose ports have longer names.
_LAYER = 240


class Limit(NamedTuple):
    """Of a number its range, of a string its length in characters; of a repeated field also how many there may be."""

    maximum: float | None = None
    entries: int | None = None
    minimum: float = 0


_PORTS = Limit(entries=16_384)
# By message and field. Enums are not here, nor is `decoding`, which is held to what a request may ask for.
LIMITS = {
    "BundleManifest": {
        "family": Limit(128),
        "description": Limit(4096),
        "files": Limit(entries=256),
        "graphs": Limit(entries=4),
        "states": Limit(entries=4096),
        "labels": Limit(1024, entries=MAX_LABELS),
    },
    "Attention": {"heads": Limit(MAX_HEADS, entries=MAX_LAYERS), "default_layer": Limit(MAX_LAYERS - 1)},
    "BundleFile": {"path": Limit(_PATH), "sha256": Limit(64), "size_bytes": Limit(274_877_906_944)},
    "Graph": {"path": Limit(_PATH), "inputs": _PORTS, "outputs": _PORTS, "row_multiple": Limit(2)},
    "Port": {"name": Limit(_NAME), "shape": Limit(64, entries=8)},
    "StateTensor": {
        "past": Limit(_NAME),
        "present": Limit(_NAME),
        "shape": Limit(2**30, entries=7),
        "length_axis": Limit(6),
        "encoder_output": Limit(_NAME),
    },
    "TextSpec": {
        "source_tokenizer": Limit(_PATH),
        "target_tokenizer": Limit(_PATH),
        "source_vocab_size": Limit(_VOCAB),
        "target_vocab_size": Limit(_VOCAB),
        "start_id": Limit(_VOCAB - 1),
        "end_ids": Limit(_VOCAB - 1, entries=256),
        "pad_id": Limit(_VOCAB - 1),
        "max_source_tokens": Limit(131_072),
        "max_total_tokens": Limit(_TOKENS),
        "max_new_tokens": Limit(_TOKENS),
        "source_languages": Limit(_TAG, entries=1024),
        "target_languages": Limit(_TAG, entries=1024),
        "prefixes": Limit(1024, entries=256),
        "prefix_ids": Limit(_VOCAB - 1, entries=64),
        "languages": Limit(entries=1024),
        "forced_end_id": Limit(_VOCAB - 1),
        "separator_id": Limit(_VOCAB - 1),
        "mask_id": Limit(_VOCAB - 1),
        "image_id": Limit(_VOCAB - 1),
        "prompts": Limit(entries=256),
        "default_prompt_name": Limit(_NAME),
        "sides": Limit(entries=256),
    },
    "QuestionSpec": {"image_id": Limit(_VOCAB - 1), "forms": Limit(entries=64)},
    "QuestionForm": {"token": Limit(64), "text": Limit(1024)},
    "Prompt": {"name": Limit(_NAME), "text": Limit(1024), "max_tokens": Limit(0)},
    "TextSide": {
        "prompt_name": Limit(_NAME),
        "max_tokens": Limit(131_072, minimum=1),
        "fill_to": Limit(131_072),
        "fill_id": Limit(_VOCAB - 1),
        "skipped_ids": Limit(_VOCAB - 1, entries=1024),
    },
    "Language": {
        "tag": Limit(_TAG),
        "code": Limit(64),
        "source_before": Limit(_VOCAB - 1, entries=8),
        "source_after": Limit(_VOCAB - 1, entries=8),
        "target_before": Limit(_VOCAB - 1, entries=8),
        "target_prefix": Limit(_VOCAB - 1, entries=8),
    },
    "ChatSpec": {
        "template": Limit(_PATH),
        "bos_token": Limit(_NAME),
        "eos_token": Limit(_NAME),
        "pad_token": Limit(_NAME),
        "unk_token": Limit(_NAME),
        "sep_token": Limit(_NAME),
        "cls_token": Limit(_NAME),
        "mask_token": Limit(_NAME),
    },
    "ImageSpec": {
        "channels": Limit(3, minimum=1),
        "height": Limit(MAX_IMAGE_SIDE, minimum=1),
        "width": Limit(MAX_IMAGE_SIDE, minimum=1),
        "mean": Limit(1000, entries=3, minimum=-1000),
        "std": Limit(1000, entries=3, minimum=0.001),
        "grid_rows": Limit(MAX_IMAGE_SIDE),
        "grid_columns": Limit(MAX_IMAGE_SIDE),
        "shortest_edge": Limit(MAX_IMAGE_SIDE),
        "resize_height": Limit(MAX_IMAGE_SIDE),
        "resize_width": Limit(MAX_IMAGE_SIDE),
        "num_class_tokens": Limit(64),
        "padding": Limit(255, entries=3),
    },
    "TilingSpec": {
        "grids": Limit(entries=MAX_TILES),
        "max_tiles": Limit(MAX_TILES, minimum=1),
        "square_padding": Limit(255, entries=3),
        "longest_edge": Limit(MAX_IMAGE_SIDE, minimum=1),
        **dict.fromkeys(TILE_TEXTS, Limit(_NAME)),
        "max_pixels": Limit(MAX_IMAGE_PIXELS, minimum=1),
        "min_pixels": Limit(MAX_IMAGE_PIXELS, minimum=1),
    },
    "TileGrid": {"rows": Limit(MAX_TILES, minimum=1), "columns": Limit(MAX_TILES, minimum=1)},
    "AudioSpec": {
        "sample_rate": Limit(48_000, minimum=4_000),
        "num_mels": Limit(256, minimum=8),
        "fft_size": Limit(4096),
        "hop_size": Limit(4096),
        "num_frames": Limit(6000, minimum=8),
        "num_positions": Limit(6000),
        "languages": Limit(entries=1024),
        "transcribe_id": Limit(_VOCAB - 1),
        "translate_id": Limit(_VOCAB - 1),
        "no_timestamps_id": Limit(_VOCAB - 1),
        "first_timestamp_id": Limit(_VOCAB - 1),
        "timestamp_samples": Limit(192_000),
        "max_first_timestamp": Limit(6000),
        "default_language": Limit(_TAG),
        "min_samples": Limit(4_800),
    },
    "CtcSpec": {
        "blank_id": Limit(MAX_LABELS - 1),
        "word_delimiter": Limit(MAX_LABEL_CHARS),
        "space": Limit(MAX_LABEL_CHARS),
        "min_samples": Limit(4_800),
        "word_start": Limit(16),
    },
    "MelSpec": {
        "num_mels": Limit(256, minimum=8),
        "fft_size": Limit(4096, minimum=32),
        "window_size": Limit(4096, minimum=32),
        "hop_size": Limit(4096, minimum=1),
        "preemphasis": Limit(1),
    },
    "SpokenLanguage": {"tag": Limit(_TAG), "token_id": Limit(_VOCAB - 1)},
    "Golden": {
        "text": Limit(65_536),
        "image_path": Limit(_PATH),
        "audio_path": Limit(_PATH),
        "token_ids": Limit(_VOCAB - 1, entries=4096),
        "probabilities": Limit(1.01, entries=MAX_PROBABILITIES),
        "source_language": Limit(_TAG),
        "target_language": Limit(_TAG),
        "embedding": Limit(1_000_000, entries=MAX_DIMENSIONS, minimum=-1_000_000),
        "scores": Limit(1_000_000, entries=MAX_LABELS, minimum=-1_000_000),
        "labels": Limit(MAX_LABEL_CHARS, entries=MAX_MATCHED_LABELS),
        "question": Limit(65_536),
    },
    "MatchSpec": {
        "scale": Limit(1_000_000, minimum=0.001),
        "bias": Limit(1_000_000, minimum=-1_000_000),
        "label_text": Limit(MAX_LABEL_CHARS),
    },
    "EmbeddingSpec": {"dimensions": Limit(MAX_DIMENSIONS, minimum=1)},
    "TokenVectorSpec": {"unweighted_ids": Limit(_VOCAB - 1, entries=1024)},
    "Parity": {
        "max_abs_error": Limit(1_000_000),
        "tolerance": Limit(1_000_000),
        "num_steps": Limit(_TOKENS),
        "num_requests": Limit(_TOKENS),
    },
    "Quality": {
        "metric": Limit(128),
        "score": Limit(1),
        "fp32_score": Limit(1),
        "num_examples": Limit(1_000_000_000),
        "min_share": Limit(1),
    },
    "Rounding": {
        "num_products": Limit(1_048_576),
        "effect": Limit(1_000_000),
        "plain_effect": Limit(1_000_000),
        "products": Limit(entries=65_536),
    },
    "RoundedProduct": {
        "name": Limit(_NAME),
        "strength": Limit(1),
        "effect": Limit(1_000_000),
        "plain_effect": Limit(1_000_000),
        "bits": Limit(32),
        "block_size": Limit(256),
    },
    "AdapterSpec": {"layers": Limit(entries=MAX_ADAPTED_LAYERS)},
    "AdaptedLayer": {
        "name": Limit(_LAYER),
        "inputs": Limit(_TOKENS, minimum=1),
        "outputs": Limit(_TOKENS, minimum=1),
        "rank": Limit(1024, minimum=1),
    },
    "AdapterManifest": {
        "description": Limit(4096),
        "base_sha256": Limit(64),
        "layers": Limit(entries=MAX_ADAPTED_LAYERS),
    },
    "AdapterLayer": {"name": Limit(_LAYER), "rank": Limit(1024, minimum=1)},
    "Provenance": {
        "weft_version": Limit(128),
        "torch_version": Limit(128),
        "onnx_version": Limit(128),
        "onnxruntime_version": Limit(128),
        "opset": Limit(1000),
        "checkpoint_sha256": Limit(64),
        "num_parameters": Limit(10**15),
    },
}


def precision_name(precision: bundle_pb2.Precision.ValueType) -> str:
    """Return what `weft export --precision` calls a precision, such as `int8-weights`."""
    return bundle_pb2.Precision.Name(precision).removeprefix("PRECISION_").lower().replace("_", "-")


def adapter_ports(layer: str) -> tuple[str, str]:
    """Return the names of the inputs of a graph that hold A and B of a layer."""
    return f"adapter.{layer}.a", f"adapter.{layer}.b"


def only_asked(decoding: common_pb2.Decoding) -> str:
    """Return a field that is a request's to ask for, if a model's own Decoding has one, else an empty string."""
    if decoding.HasField("sampling") and decoding.sampling.HasField("seed"):
        return "sampling.seed"
    set_fields = {field.name for field, _ in decoding.ListFields()}
    return next((name for name in ("stop", "prefix", "constraint") if name in set_fields), "")


def is_good_enough(score: float, fp32_score: float, min_share: float) -> bool:
    """Whether a rounded model keeps its share of a score. Exactly the share is enough, however the product rounds."""
    return score >= min_share * fp32_score - 1e-9


def label_text_fault(label_text: str) -> str | None:
    """Say what is wrong with the text that labels are put into, or None."""
    if len(label_text) > MAX_LABEL_CHARS:
        return f"has {len(label_text)} characters; at most {MAX_LABEL_CHARS} are taken"
    count = label_text.count("{}")
    return None if count == 1 else f"must hold {{}} once, where the label stands, and holds it {count} times"
