"""From the messages of the wire to the dataclasses of `_types`."""

from enum import StrEnum
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration

from weft._types import (
    Alignment,
    Caption,
    Classification,
    Completion,
    Decoding,
    FinishReason,
    Generation,
    Greedy,
    LabelScore,
    Limits,
    Model,
    ModelState,
    ResolvedModel,
    Sampling,
    Task,
    Timings,
    Translation,
    Usage,
)
from weft_proto.v1 import caption_pb2, classification_pb2, common_pb2, generation_pb2, model_pb2, translation_pb2

Name = TypeVar("Name", bound=StrEnum)


def _name(kind: type[Name], enum: Any, prefix: str, number: int) -> Name:
    """Give the enum's word for `number`: `unspecified` for one that a newer server invented."""
    try:
        return kind(enum.Name(number).removeprefix(prefix).lower())
    except ValueError:
        return kind("unspecified")


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _usage(message: common_pb2.Usage) -> Usage:
    return Usage(message.input_tokens, message.output_tokens)


def _timings(message: common_pb2.Timings) -> Timings:
    return Timings(_seconds(message.queue), _seconds(message.prefill), _seconds(message.decode))


def _resolved(message: common_pb2.ResolvedModel) -> ResolvedModel:
    return ResolvedModel(message.name, message.version)


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _decoding(message: common_pb2.Decoding) -> Decoding:
    strategy: Greedy | Sampling | None = None
    match message.WhichOneof("strategy"):
        case "greedy":
            strategy = Greedy()
        case "sampling":
            strategy = Sampling(*(_optional(message.sampling, f) for f in ("temperature", "top_k", "top_p", "seed")))
    return Decoding(
        _optional(message, "max_new_tokens"), _optional(message, "min_new_tokens"), tuple(message.stop), strategy
    )


def _alignment(message: common_pb2.Alignment) -> Alignment:
    width = len(message.source_tokens) or message.grid_rows * message.grid_columns
    weights = tuple(message.weights)
    return Alignment(
        tuple(message.target_tokens),
        tuple(message.source_tokens),
        message.grid_rows,
        message.grid_columns,
        tuple(weights[row * width : (row + 1) * width] for row in range(len(message.target_tokens))),
    )


Answer = TypeVar("Answer", bound=Completion)


def _completion(kind: type[Answer], message: common_pb2.Completion, **more: Any) -> Answer:
    return kind(
        text=message.text,
        token_ids=tuple(message.token_ids),
        token_log_probs=tuple(message.token_log_probs),
        finish_reason=_name(FinishReason, common_pb2.FinishReason, "FINISH_REASON_", message.finish_reason),
        decoding=_decoding(message.decoding),
        usage=_usage(message.usage),
        timings=_timings(message.timings),
        model=_resolved(message.model),
        request_id=message.request_id,
        **more,
    )


def translation(message: translation_pb2.TranslateResponse) -> Translation:
    """Read a translation."""
    alignment = _alignment(message.alignment) if message.HasField("alignment") else None
    return _completion(Translation, message.completion, alignment=alignment)


def caption(message: caption_pb2.CaptionResponse) -> Caption:
    """Read a caption."""
    alignment = _alignment(message.alignment) if message.HasField("alignment") else None
    return _completion(Caption, message.completion, alignment=alignment)


def generation(message: generation_pb2.GenerateResponse) -> Generation:
    """Read a continuation."""
    return _completion(Generation, message.completion)


def classification(message: classification_pb2.ClassifyResponse) -> Classification:
    """Read labels and their scores."""
    return Classification(
        labels=tuple(LabelScore(each.label, each.index, each.score) for each in message.labels),
        usage=_usage(message.usage),
        timings=_timings(message.timings),
        model=_resolved(message.model),
        request_id=message.request_id,
    )


def model(message: model_pb2.Model) -> Model:
    """Read what a server says of a model."""
    limits = message.limits
    return Model(
        name=message.name,
        version=message.version,
        task=_name(Task, common_pb2.Task, "TASK_", message.task),
        state=_name(ModelState, model_pb2.ModelState, "MODEL_STATE_", message.state),
        error=message.error,
        family=message.family,
        description=message.description,
        limits=Limits(*(getattr(limits, field) for field in Limits.__dataclass_fields__)),
        labels=tuple(message.labels),
        source_languages=tuple(message.source_languages),
        target_languages=tuple(message.target_languages),
        decoding=_decoding(message.decoding) if message.HasField("decoding") else None,
        vocab_size=message.vocab_size,
        can_explain=message.can_explain,
    )
