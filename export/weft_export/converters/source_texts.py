"""How a text is read whose answer is no text: by classifiers, taggers, embedders, and who extracts answers."""

from typing import Any

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.lengths import truncation_side
from weft_export.converters.pairs import separator_of, takes_pairs
from weft_export.converters.prompts import OF_EMBEDDERS, read_prompts
from weft_export.converters.sentence_files import with_lower_case
from weft_export.converters.text.side import TextSide
from weft_export.errors import CheckpointError
from weft_export.layers.pooling import NONE
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2


def put_source(
    text: bundle_pb2.TextSpec,
    hf: HfCheckpoint,
    sizes: Any,
    task: common_pb2.Task.ValueType,
    side: TextSide,
    files: dict[str, bytes],
) -> None:
    """Put how a text is read: how long it may be, and what stands before it. A tokenizer of `files` may change."""
    row = TASKS[task]
    text.max_source_tokens = sizes.max_tokens
    text.truncation_side = truncation_side(hf, side)
    judges = task == common_pb2.TASK_CLASSIFY_TEXT and takes_pairs(sizes, hf)  # it is a cross-encoder
    if task == common_pb2.TASK_EMBED_TEXT or judges:
        files[side.source_tokenizer] = with_lower_case(hf.directory, files[side.source_tokenizer])
        if getattr(sizes, "pooling", None) == NONE:
            from weft_export.converters.late_interaction import put_sides  # noqa: PLC0415 - late: for ColBERTs alone

            put_sides(text, hf, sizes, side, files)
        else:
            read_prompts(hf.directory, () if judges else OF_EMBEDDERS).put(text)
    if row.fills_masks:
        if side.mask_id is None:
            raise CheckpointError("it fills masks, and its tokenizer has no mask_token that the model knows")
        text.mask_id = side.mask_id
    if row.takes_context or judges:
        _put_separator(text, side, is_needed=row.takes_context or hf.options.pairs)


def _put_separator(text: bundle_pb2.TextSpec, side: TextSide, *, is_needed: bool) -> None:
    separator = separator_of(side)
    if separator is not None:
        text.separator_id = separator
    elif is_needed:
        raise CheckpointError("it takes two texts, and its tokenizer puts no token between them")
