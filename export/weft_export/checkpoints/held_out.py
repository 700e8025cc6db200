"""Held-out examples: requests that a model was not trained on, with the answers that it ought to give.

A file has a line of JSON for each example: {"input": ..., "reference": ...}. input is a text, or a picture's
or recording's file in base64.
A model of several languages also wants "source_language" and "target_language", as a request names them. One that
answers, or extracts answers, wants "question".

reference is what a request for it should get. There are nine cases:

1. A translator or captioner, or a model that answers: the text that it writes.
2. A transcriber: what is said. source_language is what is spoken, if the model knows several languages.
3. A generator: the text that goes on after a prompt.
4. A classifier: a label.
5. A classifier of several labels at once: a list of all that are right, each once. It may be empty.
6. A tagger: the spans [[kind, start, end], ...], in characters of the input.
7. A model that extracts answers: where the answer stands, [start, end], in characters of the input.
8. A model that fills masks: a list with a token for each mask of the input, as the vocabulary writes it or as a text.
9. A model that embeds: the name of what it is about. Inputs of one name ought to be near each other.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_export.checkpoints.framing import asked_ids, frame_of, joined
from weft_export.checkpoints.tokenizer import encode, encode_source, read_tokenizer
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_MASKS
from weft_proto.questions import encoder_asks
from weft_proto.tasks import TASKS

HeldOut = Iterable[tuple[str | bytes, Any] | tuple[bytes, Any, str]]
"""Inputs, a text or the bytes of a picture's file, and references; of a picture also what is asked, if it is."""


@dataclass(frozen=True)
class Example:
    """What the model takes, and what it ought to answer.

    source is pixel_values [C, H, W], input_features [mels, frames], or token ids [seq] of text. prefix_ids is what a
    decoder is fed behind its start token. context says which ids are those of the text that an answer is taken from;
    then reference is its first and its last token, counted there. Of masks, reference holds token ids. asked_ids is a
    question that an encoder reads behind a picture.
    """

    source: Tensor
    reference: Any
    text: str = ""
    prefix_ids: tuple[int, ...] = ()
    context: range = range(0)
    asked_ids: tuple[int, ...] = ()


def read_held_out(path: Path, checkpoint: Checkpoint) -> list[Example]:
    """Read the examples of a file.

    Raises:
        CheckpointError: it is not readable or empty, or a line is no example for this model.
    """
    try:
        with path.open(encoding="utf-8") as file:
            lines = list(file)  # not splitlines, which ends a line at characters that JSON leaves as they are
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    tokenizer = None
    if TASKS[checkpoint.task].takes_text:
        tokenizer = read_tokenizer(checkpoint, checkpoint.text_spec.source_tokenizer)
    examples = []
    for number, line in enumerate(lines, start=1):
        try:
            examples.append(_example(json.loads(line), checkpoint, tokenizer))
        except (ValueError, TypeError, KeyError, OSError, OverflowError, RecursionError) as error:
            raise CheckpointError(f"{path}, line {number}: {_reason(error)}") from error
    if not examples:
        raise CheckpointError(f"{path} has no examples")
    return examples


def write_held_out(directory: Path, examples: HeldOut) -> None:
    """Write examples into a checkpoint's directory."""
    lines = []
    for given, reference, *questions in examples:
        text = base64.b64encode(given).decode() if isinstance(given, bytes) else given
        asked = dict.fromkeys(["question"] if questions else [], *questions)
        lines.append(json.dumps({"input": text, **asked, "reference": reference}, ensure_ascii=False) + "\n")
    (directory / HELD_OUT_FILE).write_text("".join(lines), encoding="utf-8")


def _example(line: Any, checkpoint: Checkpoint, tokenizer: Tokenizer | None) -> Example:
    if not isinstance(line, dict):
        raise TypeError('it is no object with "input" and "reference"')
    given = line["input"]
    if TASKS[checkpoint.task].takes_context:
        assert tokenizer is not None, "texts are read without a tokenizer. This is a bug."
        return _extracted(line, checkpoint, tokenizer)
    reference = _reference(line["reference"], checkpoint)
    try:
        frame = frame_of(checkpoint, *(_said(line, key) for key in ("source_language", "target_language", "question")))
        asks_encoder = checkpoint.text is not None and encoder_asks(checkpoint.text)
        asked = tuple(asked_ids(checkpoint, _said(line, "question"))) if asks_encoder else ()
    except CheckpointError as error:
        raise ValueError(str(error)) from error
    if tokenizer is None:
        try:
            source = checkpoint.read_media("the input", base64.b64decode(given, validate=True))
        except binascii.Error as error:
            raise ValueError(f"the input is not base64: {error}") from error
        except CheckpointError as error:
            raise ValueError(str(error)) from error
        return Example(source, reference, prefix_ids=frame.prefix, asked_ids=asked)
    if not isinstance(given, str):
        raise TypeError("the input is not a text")
    try:
        ids = encode_source(checkpoint, tokenizer, given, frame)
    except CheckpointError as error:
        raise ValueError(f"the input {error}") from error
    if TASKS[checkpoint.task].fills_masks:
        reference = _fillings(reference, ids, checkpoint, tokenizer)
    return Example(torch.tensor(ids), reference, given, frame.prefix)


def _extracted(line: dict[str, Any], checkpoint: Checkpoint, tokenizer: Tokenizer) -> Example:
    """Read a question, the context in which its answer stands, and where that is."""
    question, context, place = line["question"], line["input"], line["reference"]
    if not isinstance(question, str) or not isinstance(context, str):
        raise TypeError("the question or the input is not a text")
    if not (isinstance(place, list) and len(place) == 2 and all(type(each) is int for each in place)):
        raise TypeError("the reference is no place [start, end] of the input")
    start, end = place
    if not 0 <= start < end <= len(context):
        raise ValueError(f"the reference [{start}, {end}] is no place of an input of {len(context)} characters")
    try:
        asked = joined(checkpoint, tokenizer, question, context)
        return Example(torch.tensor(asked.ids), asked.tokens_of(start, end), context, context=asked.context)
    except CheckpointError as error:
        raise ValueError(str(error)) from error


def _fillings(tokens: list[str], ids: list[int], checkpoint: Checkpoint, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of the tokens that stand in the places of a text's masks."""
    num_masks = ids.count(checkpoint.text_spec.mask_id)
    if not 1 <= num_masks <= MAX_MASKS:
        token = tokenizer.id_to_token(checkpoint.text_spec.mask_id)
        raise ValueError(f"the input has {token} {num_masks} times; 1 to {MAX_MASKS} are needed")
    if len(tokens) != num_masks:
        raise ValueError(f"the reference has {len(tokens)} tokens for {num_masks} masks")
    return tuple(_id_of(token, tokenizer) for token in tokens)


def _id_of(token: str, tokenizer: Tokenizer) -> int:
    found: int | None = tokenizer.token_to_id(token)
    if found is not None:
        return found
    ids = encode(tokenizer, token, special=False).ids
    if len(ids) != 1:
        raise ValueError(f"the reference's {token!r:.60} is not one token of the model's vocabulary")
    return int(ids[0])


def _said(line: dict[str, Any], key: str) -> str:
    said = line.get(key, "")
    if not isinstance(said, str):
        raise TypeError(f"{key} is not a text")
    return said


def _reference(value: Any, checkpoint: Checkpoint) -> Any:
    if TASKS[checkpoint.task].labels_tokens:
        if not isinstance(value, list) or not all(isinstance(span, list) and len(span) == 3 for span in value):
            raise TypeError("the reference is no list of spans [kind, start, end]")
        spans = {_span(span) for span in value}
        kinds = {label.partition("-")[2] for label in checkpoint.labels}
        for kind, _, _ in spans:
            if not kind or kind not in kinds:
                raise ValueError(f"the reference's {kind!r} is not a kind of the model's labels")
        return spans
    if TASKS[checkpoint.task].fills_masks or checkpoint.has_several_right:
        return _several(value, checkpoint)
    if not isinstance(value, str):
        raise TypeError("the reference is not a text")
    if checkpoint.labels and value not in checkpoint.labels:
        raise ValueError(f"the reference {value!r} is not a label")
    return value


def _several(value: Any, checkpoint: Checkpoint) -> list[str]:
    """Read all labels that are right, or the tokens that fill masks."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError(f"the reference is no list of {'labels' if checkpoint.labels else 'tokens'}")
    for each in value if checkpoint.labels else ():
        if each not in checkpoint.labels:
            raise ValueError(f"the reference's {each!r} is not a label")
        if value.count(each) > 1:
            raise ValueError(f"the reference has {each!r} twice")
    return value


def _span(value: Sequence[Any]) -> tuple[str, int, int]:
    kind, start, end = value
    return str(kind), int(start), int(end)


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
