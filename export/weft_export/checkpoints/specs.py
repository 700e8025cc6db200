"""Whether what a checkpoint says about its text, chat, image and labels fits its model's sizes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_export.checkpoints.bounds import check_spec, check_value
from weft_export.errors import CheckpointError
from weft_export.families.writer import KV_CACHE, State
from weft_proto.bundle_rules import (
    EXTRACT_LABELS,
    LIMITS,
    MAX_GRID,
    MAX_IMAGE_SIDE,
    MAX_TEMPLATE_BYTES,
    label_text_fault,
)
from weft_proto.chat.faults import NoTemplate
from weft_proto.chat.prompt import PromptTemplate
from weft_proto.ctc import ctc_fault
from weft_proto.languages import check_languages
from weft_proto.prompts import prompts_fault
from weft_proto.questions import encoder_asks, picture_places, question_fault
from weft_proto.resizing import resizing_fault
from weft_proto.sight import stretch_fault
from weft_proto.sound import audio_fault
from weft_proto.tasks import TASKS
from weft_proto.tiling import most_places, tiling_fault
from weft_proto.token_vectors import sides_fault
from weft_proto.v1 import bundle_pb2, common_pb2


class Demand(NamedTuple):
    """What an exporter wants of a checkpoint for a task.

    Attributes:
        metrics: what held-out answers may be scored by. It is the first one unless config.json names another.
        sizes: pairs of fields that must be equal: one of TextSpec, and one of the family's config.
    """

    metrics: tuple[str, ...]
    sizes: tuple[tuple[str, str], ...] = ()


_READS_TEXT = (("source_vocab_size", "vocab_size"), ("max_source_tokens", "max_tokens"))
DEMANDS = {
    common_pb2.TASK_TRANSLATE: Demand(
        metrics=("exact_match", "token_accuracy"),
        sizes=(
            ("source_vocab_size", "source_vocab_size"),
            ("target_vocab_size", "target_vocab_size"),
            ("max_source_tokens", "max_source_tokens"),
            ("max_total_tokens", "max_target_tokens"),
        ),
    ),
    common_pb2.TASK_CAPTION: Demand(
        metrics=("exact_match", "token_accuracy"),
        sizes=(("target_vocab_size", "target_vocab_size"), ("max_total_tokens", "max_target_tokens")),
    ),
    common_pb2.TASK_ANSWER: Demand(
        metrics=("exact_match", "token_accuracy"),
        sizes=(("target_vocab_size", "target_vocab_size"), ("max_total_tokens", "max_target_tokens")),
    ),
    common_pb2.TASK_TRANSCRIBE: Demand(
        metrics=("token_accuracy", "exact_match"),
        sizes=(("target_vocab_size", "target_vocab_size"), ("max_total_tokens", "max_target_tokens")),
    ),
    common_pb2.TASK_TRANSCRIBE_CTC: Demand(metrics=()),
    common_pb2.TASK_GENERATE: Demand(
        metrics=("token_accuracy", "exact_match"),
        sizes=(
            ("source_vocab_size", "vocab_size"),
            ("target_vocab_size", "vocab_size"),
            ("max_total_tokens", "max_tokens"),
        ),
    ),
    common_pb2.TASK_CLASSIFY_TEXT: Demand(metrics=("accuracy",), sizes=_READS_TEXT),
    common_pb2.TASK_CLASSIFY_IMAGE: Demand(metrics=("accuracy",)),
    common_pb2.TASK_TAG: Demand(metrics=("span_f1",), sizes=_READS_TEXT),
    common_pb2.TASK_EXTRACT: Demand(metrics=("answer_match",), sizes=_READS_TEXT),
    common_pb2.TASK_FILL_MASK: Demand(metrics=("mask_accuracy",), sizes=_READS_TEXT),
    common_pb2.TASK_EMBED_TEXT: Demand(metrics=("nearest",), sizes=_READS_TEXT),
    common_pb2.TASK_EMBED_IMAGE: Demand(metrics=("nearest",)),
    common_pb2.TASK_MATCH: Demand(metrics=()),
}


def check_text(task: common_pb2.Task.ValueType, config: Any, text: bundle_pb2.TextSpec | None) -> None:
    """Raise ValueError when text does not fit the task and the sizes in config."""
    row = TASKS[task]
    if not row.has_text:
        _require(text is None, "an image classifier has no 'text'")
        return
    if text is None:
        raise ValueError("'text' is missing")
    for field, size in DEMANDS[task].sizes:
        _require_equal(f"text.{field}", getattr(text, field), f"model.{size}", getattr(config, size))
    has_source = bool(text.source_tokenizer)
    _require(has_source == row.reads_text, "text.source_tokenizer must be set for text input only")
    vocabularies = {"source_vocab_size": row.reads_text, "target_vocab_size": row.writes_text}
    for size, task_has_it in vocabularies.items():
        _require(not task_has_it or text.pad_id < getattr(text, size), f"text.pad_id is outside text.{size}")
    check_spec("text", text)
    _require(not row.takes_prompt or not text.max_source_tokens, "text.max_source_tokens is for a source")
    _require(not text.prefixes or row.takes_prefix, "text.prefixes are for translate only")
    prefixes = list(text.prefixes)
    _require(len(set(prefixes)) == len(prefixes) and all(prefixes), "text.prefixes must be distinct and not empty")
    has_rows = getattr(config, "tokens", None) is not None
    fault = prompts_fault(text, row) or sides_fault(text, row, has_rows=has_rows)
    _require(fault is None, str(fault))
    _require(row.takes_prompt or not text.HasField("chat"), "text.chat is for generate only")
    _require(not text.HasField("chat") or bool(text.chat.template), "text.chat.template is missing")
    divided = text.HasField("separator_id")
    _require(row.takes_pair or not divided, "text.separator_id is for models that take two texts only")
    _require(divided or not row.takes_context, "text.separator_id is missing")
    fits = not text.HasField("separator_id") or text.separator_id < text.source_vocab_size
    _require(fits, "text.separator_id is outside text.source_vocab_size")
    has_mask = text.HasField("mask_id")
    _require(has_mask == row.fills_masks, "text.mask_id is for models that fill masks, and needed there")
    _require(not row.fills_masks or text.mask_id < text.source_vocab_size, "text.mask_id is outside the vocabulary")
    has_target = bool(text.target_tokenizer)
    _require(has_target == row.writes_text, "text.target_tokenizer must be set for text output only")
    if row.writes_text:
        _check_target(text, has_start=row.has_start)
    check_languages(text, row)


def named_in(text: bundle_pb2.TextSpec) -> list[str]:
    """Return the files that text names. A name is empty where it names none."""
    return [text.source_tokenizer, text.target_tokenizer, text.chat.template]


def _check_target(text: bundle_pb2.TextSpec, *, has_start: bool) -> None:
    _require(1 <= text.max_new_tokens <= text.max_total_tokens, "text.max_new_tokens must be in [1, max_total_tokens]")
    _require(len(text.end_ids) > 0, "text.end_ids is empty")
    room = has_start or text.max_total_tokens > 1
    _require(room, "text.max_total_tokens is 1, which leaves a prompt no new token")
    _require(text.HasField("start_id") == has_start, "text.start_id must be set for models with a source only")
    for token_id in (*text.end_ids, text.start_id):
        _require(token_id < text.target_vocab_size, f"token id {token_id} is outside text.target_vocab_size")


def check_image(task: common_pb2.Task.ValueType, config: Any, image: bundle_pb2.ImageSpec | None) -> None:
    """Raise ValueError when image does not fit the task and the sizes in config."""
    sight = getattr(config, "sight", None)
    if not TASKS[task].takes_image and sight is None:
        _require(image is None, "this family takes no 'image'")
        return
    if image is None:
        raise ValueError("'image' is missing")
    config = sight or config
    rows, columns = config.grid
    _require_equal("image.channels", image.channels, "model.channels", config.channels)
    _require_equal("image.height", image.height, "model.image_height", config.image_height)
    _require_equal("image.width", image.width, "model.image_width", config.image_width)
    _require_equal("image.grid_rows", image.grid_rows, "the model's grid, down", rows)
    _require_equal("image.grid_columns", image.grid_columns, "the model's grid, across", columns)
    # Of a memory: a classifier's class tokens are its own affair.
    _require_equal(
        "image.num_class_tokens", image.num_class_tokens, "the memory's", getattr(config, "num_class_tokens", 0)
    )
    _require(image.channels in (1, 3), "image.channels must be 1 or 3")
    _require(max(image.height, image.width) <= MAX_IMAGE_SIDE, f"image sides must be at most {MAX_IMAGE_SIDE}")
    _require(image.resample != bundle_pb2.RESAMPLE_UNSPECIFIED, "image.resample is missing")
    _require(
        len(image.mean) == len(image.std) == image.channels, "image.mean and image.std need one value for each channel"
    )
    check_spec("image", image)
    _require(image.HasField("tiling") == hasattr(config, "tiled"), "image.tiling is for models that read tiles")
    reads_cells = getattr(config, "tiled", "") == "max_pixels"
    _require(bool(image.tiling.max_pixels) == reads_cells, "image.tiling.max_pixels is for models that read cells")
    if reads_cells and (places := most_places(image)) > config.max_places:
        raise ValueError(
            f"image.tiling gives a picture up to {places} places, over model.max_places: {config.max_places}"
        )
    fault = resizing_fault(image) or (tiling_fault(image) if image.HasField("tiling") else None)
    _require(fault is None, str(fault))
    _require(
        rows * columns <= MAX_GRID, f"the model's grid has {rows * columns} places; at most {MAX_GRID} are allowed"
    )


def check_sight(text: bundle_pb2.TextSpec | None, sight: Any) -> None:
    """Raise ValueError unless text names the token of a picture where a model sees, and nowhere else."""
    named = text is not None and text.HasField("image_id")
    _require(named == (sight is not None), "text.image_id is for models whose prompts hold pictures, and needed there")
    fits = text is None or text.image_id < max(1, text.source_vocab_size)
    _require(fits, "text.image_id is outside text.source_vocab_size")


def check_bidirectional(
    text: bundle_pb2.TextSpec,
    image: bundle_pb2.ImageSpec | None,
    bidirectional: bundle_pb2.Bidirectional.ValueType,
) -> None:
    """Raise ValueError unless text says which stretches a model reads in both directions, and none is too long."""
    _require_equal("text.bidirectional", text.bidirectional, "the model's", bidirectional)
    fault = stretch_fault(bundle_pb2.BundleManifest(text=text, image=image))
    _require(fault is None, str(fault))


def check_question(
    task: common_pb2.Task.ValueType,
    text: bundle_pb2.TextSpec | None,
    image: bundle_pb2.ImageSpec | None,
    states: Sequence[State],
    sizes: Any,
) -> None:
    """Raise ValueError when the room in a model's states does not fit its pictures and questions.

    sizes: the config of a family whose encoder reads questions. None: it does not.
    """
    asks = text is not None and encoder_asks(text)
    _require(asks == (sizes is not None), "text.question is for models whose encoder reads it, and needed there")
    if text is not None and sizes is not None:
        for field in ("max_source_tokens", "source_vocab_size"):
            _require_equal(f"text.{field}", getattr(text, field), f"model.{field}", getattr(sizes, field))
    if TASKS[task].takes_question and text is not None and image is not None:
        begun = any(state.kind == KV_CACHE and state.encoded for state in states)
        fault = question_fault(text, picture_places(image) if begun else 0)
        _require(fault is None, str(fault))


def check_audio(
    task: common_pb2.Task.ValueType,
    config: Any,
    audio: bundle_pb2.AudioSpec | None,
    text: bundle_pb2.TextSpec | None,
) -> None:
    """Raise ValueError when audio does not fit the task, its text and the sizes in config."""
    if not TASKS[task].takes_audio:
        _require(audio is None, "this family takes no 'audio'")
        return
    if audio is not None and TASKS[task].labels_frames:
        _check_moments(config, audio)
        return
    if audio is None or text is None:
        raise ValueError("'audio' is missing")
    sizes = ("hop_size", "min_samples") if hasattr(config, "min_samples") else ("num_mels",)
    for field in (*sizes, "num_frames", "num_positions"):
        _require_equal(f"audio.{field}", getattr(audio, field), f"model.{field}", getattr(config, field))
    check_spec("audio", audio)
    fault = audio_fault(audio, text)
    _require(fault is None, str(fault))


def _check_moments(config: Any, audio: bundle_pb2.AudioSpec) -> None:
    for field in ("hop_size", "num_frames"):
        _require_equal(f"audio.{field}", getattr(audio, field), f"model.{field}", getattr(config, field))
    _require_equal("audio.ctc.min_samples", audio.ctc.min_samples, "the model's", config.min_samples)
    check_spec("audio", audio)
    fault = ctc_fault(audio, config.num_labels)
    _require(fault is None, str(fault))


def check_labels(task: common_pb2.Task.ValueType, config: Any, labels: tuple[str, ...]) -> None:
    """Raise ValueError when labels do not fit the task and the sizes in config."""
    if TASKS[task].labels_frames:
        _require_equal("the number of labels", len(labels), "model.num_labels", config.num_labels)
        check_value("labels", labels, LIMITS["BundleManifest"]["labels"])
        return
    if not TASKS[task].has_labels:
        _require(not labels, "only a classifier has labels")
        return
    _require_equal("the number of labels", len(labels), "model.num_labels", config.num_labels)
    _require(len(set(labels)) == len(labels), "labels are not distinct")
    expected = not TASKS[task].takes_context or labels == EXTRACT_LABELS
    _require(expected, f"labels must be {' and '.join(EXTRACT_LABELS)}")
    check_value("labels", labels, LIMITS["BundleManifest"]["labels"])


def check_matching(task: common_pb2.Task.ValueType, label_text: str, labels: Sequence[str]) -> None:
    """Raise ValueError when the text of a label, or the golden request's labels, do not fit the task."""
    if not TASKS[task].matches:
        _require(not label_text and not labels, "only a model that matches has 'label_text', and labels in 'golden'")
        return
    fault = label_text_fault(label_text)
    _require(fault is None, f"label_text {fault}")
    check_value("golden.labels", tuple(labels), LIMITS["Golden"]["labels"])
    _require(len(labels) > 1, "golden.labels are fewer than two")
    _require(len(set(labels)) == len(labels) and all(labels), "golden.labels must be distinct and not empty")


def check_metric(known: Sequence[str], metric: str | None, unscored: str | None) -> None:
    """Raise ValueError when held-out answers are not scored by metric, or by none: unscored is of what kind then."""
    _require(metric is None or unscored is None, f"'metric' is not for {unscored}: nothing scores its answers")
    _require(metric is None or metric in known, f"the metric {metric!r} is not one of {', '.join(known)}")


def _require(condition: bool, complaint: str) -> None:  # noqa: FBT001 - reads as a sentence at each use
    if not condition:
        raise ValueError(complaint)


def _require_equal(what: str, value: int, other: str, expected: int) -> None:
    _require(value == expected, f"{what} ({value}) differs from {other} ({expected})")


def check_template(spec: bundle_pb2.ChatSpec, content: bytes) -> None:
    """Raise CheckpointError unless a file is a template that a server reads, and that takes one plain message."""
    if len(content) > MAX_TEMPLATE_BYTES:
        size = f"has {len(content)} bytes; a chat's template has at most {MAX_TEMPLATE_BYTES}"
        raise CheckpointError(f"{spec.template} {size}")
    try:
        PromptTemplate(spec, content)
    except NoTemplate as error:
        raise CheckpointError(str(error)) from error
