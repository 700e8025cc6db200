"""What sentence-transformers' files beside an ONNX file say of its texts, by the rules that an export follows."""

from pathlib import Path

from weft_export.converters.keys import check_keys
from weft_export.converters.prompts import OF_EMBEDDERS, check_pooled, read_prompts
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
    with_lower_case,
)
from weft_export.converters.text.json_file import read_object, read_object_if_there
from weft_proto.bundle_rules import CONFIG_FILE
from weft_proto.v1 import bundle_pb2


def put_sentence_files(
    directory: Path, text: bundle_pb2.TextSpec, files: dict[str, bytes], pooling: str | None
) -> list[str]:
    """Put what an embedder's directory does with texts first into a bundle. Without modules.json it is nothing.

    Prompts go into the text's spec, and lower case into its tokenizer, which is one of the files.
    pooling: what 1_Pooling says; None where --pooling says it instead.

    Returns:
        notes: what is not followed.

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
    ]
    for folder in (folder for kind, folder in modules_of(directory) if kind == "Pooling"):
        place = folder / CONFIG_FILE
        fields = read_object(place)
        notes += check_keys(place, fields, POOLING_KEYS)
        if pooling is not None:
            check_pooled(place, fields, prompts, is_last=pooling == "last")
    prompts.put(text)
    files[text.source_tokenizer] = with_lower_case(directory, files[text.source_tokenizer])
    return notes
