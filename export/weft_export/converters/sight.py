"""Pictures in the prompts of a checkpoint of others: which token stands for one, and how many places it takes."""

from collections.abc import Mapping
from typing import Any

from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.processor_keys import PROCESSOR_FILE
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.errors import CheckpointError
from weft_proto.chat.prompt import PromptTemplate
from weft_proto.v1 import bundle_pb2

# Of LlavaConfig and LlavaProcessor.
_IMAGE_ID, _IMAGE_TOKEN = 32000, "<image>"
GOLDEN_QUESTION = "What is to be seen here?"


def put_image_id(
    text: bundle_pb2.TextSpec, hf: HfCheckpoint, sight: Any, files: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Say in `text` which token a chat's template writes for a picture. Return notes: it may write none.

    Raises:
        CheckpointError: config, processor and tokenizer contradict each other, or the model: transformers fails then.
    """
    fields, given = hf.fields, read_object_if_there(hf.directory / PROCESSOR_FILE)
    index, named = fields.raw("image_token_index"), fields.raw("image_token_id")
    if None not in (index, named) and index != named:
        raise fields.wrong("image_token_id", f"differs from image_token_index, {index!r:.40}")
    field = "image_token_id" if index is None else "image_token_index"
    text.image_id = fields.whole(field, _IMAGE_ID)
    token = given.get("image_token") or _IMAGE_TOKEN
    known = tokenizer_of(text.source_tokenizer, files[text.source_tokenizer]).token_to_id(str(token))
    if known != text.image_id:
        raise CheckpointError(
            f"{PROCESSOR_FILE}: image_token is {token!r:.60}, whose id in the tokenizer is {known}, and config.json"
            f" has {field} {text.image_id}"
        )
    _check_places(given, sight)
    if text.HasField("chat") and PromptTemplate(text.chat, files[text.chat.template]).shows_pictures(str(token)):
        return ()
    return (f"no chat template has a place for a picture, which is {token}: no request can hold pictures",)


def _check_places(given: Mapping[str, Any], sight: Any) -> None:
    """Hold the processor's number of tokens for a picture to what the model makes of it."""
    side, more = given.get("patch_size"), given.get("num_additional_image_tokens", 0)
    if side is None:
        return  # of before transformers 4.47, when the model itself counted
    strategy = given.get("vision_feature_select_strategy")
    for name, value, least in (("patch_size", side, 1), ("num_additional_image_tokens", more, 0)):
        if type(value) is not int or value < least:
            raise CheckpointError(f"{PROCESSOR_FILE}: {name} is {value!r:.60}, no whole number of {least} or more")
    if strategy not in (None, "default", "full"):
        raise CheckpointError(f"{PROCESSOR_FILE}: vision_feature_select_strategy is {strategy!r:.60}")
    count = (sight.image_height // side) * (sight.image_width // side) + more - (strategy == "default")
    if count != sight.num_places:
        raise CheckpointError(
            f"{PROCESSOR_FILE}: patch_size {side}, num_additional_image_tokens {more} and"
            f" vision_feature_select_strategy {strategy!r} make {count} tokens of a picture, and config.json"
            f" {sight.num_places}"
        )
