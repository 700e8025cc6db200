"""What sentence-transformers' files beside an ONNX file say of its texts, by the rules that an export follows."""

from pathlib import Path

from weft_export.checkpoints.formats import MODULES
from weft_export.converters.keys import Only, Table, check_keys
from weft_export.converters.prompts import OF_EMBEDDERS, check_pooled, read_prompts
from weft_export.converters.sentence_files import (
    EMBEDDER,
    JUDGE,
    MODEL,
    MODEL_KEYS,
    MODULE_KEYS,
    POOLING_KEYS,
    TRANSFORMER_KEYS,
    check_task,
    is_judge,
    listed_in,
    modules_of,
    read_transformer,
    with_lower_case,
)
from weft_export.converters.text.json_file import read_object, read_object_if_there
from weft_proto.bundle_rules import CONFIG_FILE
from weft_proto.v1 import bundle_pb2

_OF_JUDGES = (
    f"a {JUDGE} judges two texts: this model takes one, and its scores are the softmax over the labels,"
    " whatever activation_fn says. weft export takes a checkpoint with both"
)


# Of an ONNX file, the vector stays as the graph gives it.
_MODEL_KEYS: Table = {
    **MODEL_KEYS,
    "truncate_dim": Only(advice="; without it, a request cuts vectors by its dimensions"),
}


def put_sentence_files(
    directory: Path, text: bundle_pb2.TextSpec, files: dict[str, bytes], pooling: str | None, *, embeds: bool
) -> list[str]:
    """Put what the directory of an embedder or of a cross-encoder does with texts first into a bundle.

    Without modules.json it is nothing. Prompts go into the text's spec, and lower case into its tokenizer, which is
    one of the files.
    pooling: what 1_Pooling says; None where --pooling says it instead.
    embeds: whether the model embeds. One that classifies is a cross-encoder if the files say so.

    Returns:
        notes: what is not followed.

    Raises:
        CheckpointError: a file says what cannot be followed.
    """
    if not (directory / MODULES).is_file() or not (embeds or is_judge(directory)):
        return []
    transformer, prompts = read_transformer(directory), read_prompts(directory, OF_EMBEDDERS if embeds else ())
    check_task(transformer, EMBEDDER if embeds else JUDGE)
    notes = [
        *check_keys(MODEL, read_object_if_there(directory / MODEL), _MODEL_KEYS),
        *check_keys(transformer.place, transformer.given, TRANSFORMER_KEYS),
        *(note for module in listed_in(directory) for note in check_keys(MODULES, module, MODULE_KEYS)),
        *(() if embeds else (_OF_JUDGES,)),
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
