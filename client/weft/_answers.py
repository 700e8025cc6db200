"""From the messages of the wire to the dataclasses of `_types`."""

from enum import StrEnum
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration

from weft import _questions
from weft._decoding_message import read_decoding
from weft._fields import optional
from weft._model import Limits, Model, ModelState, Prompt, TruncationSide
from weft._recordings import Segment, Transcription, Word
from weft._types import (
    Alignment,
    Caption,
    Classification,
    Completion,
    Embeddings,
    ExtractedAnswer,
    Extraction,
    FilledMask,
    FilledMasks,
    Filling,
    FinishReason,
    Generation,
    LabelScore,
    LabelScoring,
    Output,
    ResolvedModel,
    Score,
    Span,
    Tagging,
    Task,
    Timings,
    TokenLabel,
    TopToken,
    Translation,
    Usage,
)
from weft_proto.v1 import (
    answer_pb2,
    caption_pb2,
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    model_pb2,
    score_pb2,
    transcription_pb2,
    translation_pb2,
)

Name = TypeVar("Name", bound=StrEnum)


def _name(kind: type[Name], enum: Any, prefix: str, number: int) -> Name:
    """Give the enum's word for `number`: `unspecified` for one that a newer server invented."""
    try:
        return kind(enum.Name(number).removeprefix(prefix).lower())
    except ValueError:
        return kind("unspecified")


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _alignment(message: common_pb2.Alignment) -> Alignment:
    width = len(message.source_tokens) or message.grid_rows * message.grid_columns or message.num_columns
    weights = tuple(message.weights)
    return Alignment(
        tuple(message.target_tokens),
        tuple(message.source_tokens),
        message.grid_rows,
        message.grid_columns,
        tuple(weights[row * width : (row + 1) * width] for row in range(len(message.target_tokens))),
        tuple(message.source_mass),
        optional(message, "layer"),
        optional(message, "head"),
        message.column_s,
        message.num_columns,
        _region(message.image_region) if message.HasField("image_region") else (0.0, 0.0, 1.0, 1.0),
    )


def _region(message: common_pb2.Region) -> tuple[float, float, float, float]:
    return message.left, message.top, message.right, message.bottom


def _explanation(message: Any) -> Alignment | None:
    return _alignment(message.alignment) if message.HasField("alignment") else None


Answer = TypeVar("Answer", bound=Completion)


def _completion(kind: type[Answer], response: Any, **more: Any) -> Answer:
    message: common_pb2.Completion = response.completion
    return kind(
        decoding=read_decoding(message.decoding),
        alignment=_explanation(response),
        others=tuple(Output(**_output(each)) for each in message.others),
        prompt_log_probs=tuple(message.prompt_log_probs),
        **_output(message),
        **_facts(message),
        **more,
    )


def _output(message: common_pb2.Completion | common_pb2.Output) -> dict[str, Any]:
    """Read what each of several answers says of itself."""
    return {
        "text": message.text,
        "token_ids": tuple(message.token_ids),
        "tokens": tuple(message.tokens),
        "token_log_probs": tuple(message.token_log_probs),
        "finish_reason": _name(FinishReason, common_pb2.FinishReason, "FINISH_REASON_", message.finish_reason),
        "score": optional(message, "score"),
        "top_tokens": tuple(_top_tokens(each) for each in message.top_tokens),
    }


def _top_tokens(message: common_pb2.TopTokens) -> tuple[TopToken, ...]:
    return tuple(map(TopToken, message.token_ids, message.tokens, message.log_probs))


def _facts(message: Any) -> dict[str, Any]:
    """Read what every answer says of itself."""
    return {
        "usage": Usage(**_fields(message.usage, Usage)),
        "timings": Timings(*(_seconds(getattr(message.timings, field)) for field in ("queue", "prefill", "decode"))),
        "model": ResolvedModel(**_fields(message.model, ResolvedModel)),
        "request_id": message.request_id,
    }


def translation(message: translation_pb2.TranslateResponse) -> Translation:
    """Read a translation."""
    return _completion(Translation, message)


def answer(message: answer_pb2.AnswerResponse) -> _questions.Answer:
    """Read an answer to a question."""
    return _completion(_questions.Answer, message)


def caption(message: caption_pb2.CaptionResponse) -> Caption:
    """Read a caption."""
    return _completion(Caption, message)


def transcription(message: transcription_pb2.TranscribeResponse) -> Transcription:
    """Read a transcription."""
    segments = tuple(Segment(**_fields(each, Segment)) for each in message.segments)
    return _completion(
        Transcription,
        message,
        segments=segments,
        duration_s=message.duration_s,
        language=message.language,
        language_probability=optional(message, "language_probability"),
        words=tuple(Word(**_fields(each, Word)) for each in message.words),
    )


def generation(message: generation_pb2.GenerateResponse) -> Generation:
    """Read a continuation."""
    return _completion(Generation, message)


def classification(message: classification_pb2.ClassifyResponse) -> Classification:
    """Read labels and their scores."""
    labels = tuple(LabelScore(**_fields(each, LabelScore)) for each in message.labels)
    scoring = _name(LabelScoring, common_pb2.LabelScoring, "LABEL_SCORING_", message.scoring)
    return Classification(labels, alignment=_explanation(message), scoring=scoring, **_facts(message))


def tagging(message: classification_pb2.TagResponse) -> Tagging:
    """Read the labels of tokens, and their spans."""
    tokens = tuple(TokenLabel(**_fields(each, TokenLabel)) for each in message.tokens)
    spans = tuple(Span(**_fields(each, Span)) for each in message.spans)
    return Tagging(tokens, spans, alignment=_explanation(message), **_facts(message))


def extraction(message: classification_pb2.ExtractResponse) -> Extraction:
    """Read the answers to a question."""
    answers = tuple(ExtractedAnswer(**_fields(each, ExtractedAnswer)) for each in message.answers)
    return Extraction(answers, alignment=_explanation(message), **_facts(message))


def filled_masks(message: classification_pb2.FillMaskResponse) -> FilledMasks:
    """Read what fits in the places of masks."""
    masks = tuple(
        FilledMask(each.start, each.end, tuple(Filling(**_fields(filling, Filling)) for filling in each.fillings))
        for each in message.masks
    )
    return FilledMasks(masks, alignment=_explanation(message), **_facts(message))


def embeddings(message: embedding_pb2.EmbedResponse) -> Embeddings:
    """Read the vectors of all inputs."""
    return Embeddings(
        vectors=tuple(tuple(each.values) for each in message.embeddings),
        input_tokens=tuple(each.input_tokens for each in message.embeddings),
        alignment=_explanation(message),
        **_facts(message),
    )


def score(message: score_pb2.ScoreResponse) -> Score:
    """Read how probable a target is."""
    return Score(
        total=message.total,
        token_ids=tuple(message.token_ids),
        token_log_probs=tuple(message.token_log_probs),
        tokens=tuple(message.tokens),
        top_tokens=tuple(map(_top_tokens, message.top_tokens)),
        **_facts(message),
    )


def _fields(message: Any, kind: Any) -> dict[str, Any]:
    """Read the fields that have the same name and type on both sides."""
    return {field: getattr(message, field) for field in kind.__dataclass_fields__}


def model(message: model_pb2.Model) -> Model:
    """Read what a server says of a model."""
    return Model(
        name=message.name,
        version=message.version,
        task=_name(Task, common_pb2.Task, "TASK_", message.task),
        state=_name(ModelState, model_pb2.ModelState, "MODEL_STATE_", message.state),
        error=message.error,
        family=message.family,
        description=message.description,
        limits=Limits(**_fields(message.limits, Limits)),
        labels=tuple(message.labels),
        source_languages=tuple(message.source_languages),
        target_languages=tuple(message.target_languages),
        decoding=read_decoding(message.decoding) if message.HasField("decoding") else None,
        vocab_size=message.vocab_size,
        can_explain=message.can_explain,
        attention_heads=tuple(message.attention_heads),
        default_attention_layer=optional(message, "default_attention_layer"),
        prefixes=tuple(message.prefixes),
        takes_messages=message.takes_messages,
        can_score=message.can_score,
        takes_constraints=message.takes_constraints,
        version_labels=tuple(message.version_labels),
        canary_share=message.canary_share,
        precision=message.precision,
        devices=tuple(message.devices),
        dimensions=message.dimensions,
        normalized=message.normalized,
        takes_pairs=message.takes_pairs,
        label_scoring=_name(LabelScoring, common_pb2.LabelScoring, "LABEL_SCORING_", message.label_scoring),
        tells_timestamps=message.tells_timestamps,
        default_language=message.default_language,
        default_to_english=message.default_to_english,
        default_timestamps=message.default_timestamps,
        takes_adapters=message.takes_adapters,
        adapters=tuple(message.adapters),
        takes_labels=message.takes_labels,
        label_text=message.label_text,
        mask_token=message.mask_token,
        prompts=tuple(Prompt(each.name, each.text) for each in message.prompts),
        default_prompt_name=message.default_prompt_name,
        truncation_side=_name(TruncationSide, common_pb2.TruncationSide, "TRUNCATION_SIDE_", message.truncation_side),
    )
