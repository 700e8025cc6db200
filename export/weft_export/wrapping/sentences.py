"""What sentence-transformers' files beside an ONNX file say of its texts, by the rules that an export follows."""

from pathlib import Path

from weft_export.converters.keys import check_keys
from weft_export.converters.prompts import OF_EMBEDDERS, read_prompts
from weft_export.converters.sentence_files import (
    EMBEDDER,
    MODEL,
    MODEL_KEYS,
    MODULES,
    POOLING_KEYS,
    TRANSFORMER_KEYS,
    check_task,
    modules_of,
    read_transformer,
)
from weft_export.converters.text.json_file import read_object, read_object_if_there
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import CONFIG_FILE
from weft_proto.v1 import bundle_pb2


def put_sentence_files(directory: Path, text: bundle_pb2.TextSpec) -> list[str]:
    """Put the prompts of an embedder's directory into a manifest. Without modules.json there are none.

    Returns:
        notes: what is not followed, and what a person has to do with texts.

    Raises:
        CheckpointError: a file says what cannot be followed.
    """
    if not (directory / MODULES).is_file():
        return []
    transformer, prompts = read_transformer(directory), read_prompts(directory, OF_EMBEDDERS)
    check_task(transformer, EMBEDDER)
    notes = [
        *check_keys(MODEL, read_object_if_there(directory / MODEL), MODEL_KEYS),
        *check_keys(transformer.place, transformer.given, TRANSFORMER_KEYS),
        *transformer.notes,
    ]
    for folder in (folder for kind, folder in modules_of(directory) if kind == "Pooling"):
        place = folder / CONFIG_FILE
        pooling = read_object(place)
        notes += check_keys(place, pooling, POOLING_KEYS)
        if pooling.get("include_prompt") is False and prompts.say_anything:
            raise CheckpointError(
                f"{place}: include_prompt is false, which cannot be followed: all tokens of a request are pooled"
            )
    prompts.put(text)
    return notes
