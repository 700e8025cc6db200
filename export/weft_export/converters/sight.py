"""Pictures in the prompts of a checkpoint of others: which token stands for one, and how many places it takes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenizers import Tokenizer

from weft_export.checkpoints.tokenizer import tokenizer_of
from weft_export.converters.converter import DEFAULT_TOKENS, HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.processor_keys import PROCESSOR_FILE, read_processor
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_TILES
from weft_proto.chat.prompt import PromptTemplate
from weft_proto.tiling import most_places, most_tiles, tiling_fault
from weft_proto.v1 import bundle_pb2

# Of the configs and processors of transformers.
_IMAGE_IDS = {
    "florence2": 51289,
    "gemma3": 262144,
    "paligemma": 256000,
    "llava": 32000,
    "llava_onevision": 151646,
    "idefics3": 128257,
    "smolvlm": 128257,
    "qwen2_vl": 151655,
    "qwen2_5_vl": 151655,
    "qwen3_vl": 151655,
    "qwen3_vl_moe": 151655,
}
_IMAGE_TOKENS = {
    "gemma3": "<image_soft_token>",
    "qwen2_vl": "<|image_pad|>",
    "qwen2_5_vl": "<|image_pad|>",
    "qwen3_vl": "<|image_pad|>",
    "qwen3_vl_moe": "<|image_pad|>",
}
_IMAGE_TOKEN = "<image>"  # noqa: S105 - of all others
_NAMED_BY_TOKENIZER = ("blip-2", "florence2", "gemma3", "paligemma")
# Of Idefics3Processor.
_SPLIT_PLACES = 169
_ASPECT_RATIO = "anyres_max_9"
_GRIDS = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
_CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
# Positions of decoders, where nothing says how many there are.
LONGEST = {
    "llama": 2048,
    "mistral": 131072,
    "qwen2": 32768,
    "gemma": 8192,
    "gemma2": 8192,
    "gemma3_text": 131072,
    "qwen3_vl_text": 128000,
    "qwen3_vl_moe_text": 128000,
}
# A bound of the tokens that texts around a tile are.
_WORDS_OF_TILE = 4
_TOKENIZER_CONFIG = "tokenizer_config.json"
_WORDS = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "global_image_token": "<global-img>",
}
# Tokens that a tokenizer gets by Idefics3Processor, if it does not have them.
_ADDED = ("<fake_token_around_image>", "<end_of_utterance>")
GOLDEN_QUESTION = "What is to be seen here?"


def put_image_id(
    text: bundle_pb2.TextSpec, hf: HfCheckpoint, sight: Any, files: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Say in `text` which token a chat's template writes for a picture. Return notes: it may write none.

    Raises:
        CheckpointError: config, processor and tokenizer contradict each other, or the model: transformers fails then.
    """
    fields, given = hf.fields, read_object_if_there(hf.directory / PROCESSOR_FILE)
    tokenizer = tokenizer_of(text.source_tokenizer, files[text.source_tokenizer])
    text.image_id, token = image_token(hf, tokenizer)
    _CHECKS[getattr(sight, "tiled", "")](given, sight)
    for each in _ADDED if fields.word("model_type") == "idefics3" else ():
        if tokenizer.token_to_id(each) is None:
            raise CheckpointError(f"the tokenizer has no {each}, which Idefics3Processor would add")
    if fields.word("model_type") == "smolvlm":
        _check_words(hf)
    if text.HasField("chat") and PromptTemplate(text.chat, files[text.chat.template]).shows_pictures(token):
        return ()
    return (f"no chat template has a place for a picture, which is {token}: no request can hold pictures",)


def image_token(hf: HfCheckpoint, tokenizer: Tokenizer) -> tuple[int, str]:
    """Return the id of the token that stands for a place of a picture, and the token.

    Raises:
        CheckpointError: config, processor and tokenizer contradict each other: transformers fails then.
    """
    fields, given = hf.fields, read_object_if_there(hf.directory / PROCESSOR_FILE)
    index, named = fields.raw("image_token_index"), fields.raw("image_token_id")
    if None not in (index, named) and index != named:
        raise fields.wrong("image_token_id", f"differs from image_token_index, {index!r:.40}")
    field = "image_token_id" if index is None else "image_token_index"
    image_id = fields.whole(field, _IMAGE_IDS.get(fields.word("model_type")))
    usual = _IMAGE_TOKENS.get(fields.word("model_type"), _IMAGE_TOKEN)
    token = given.get("image_token") or usual
    if fields.word("model_type") in _NAMED_BY_TOKENIZER:
        from weft_export.converters.picture_prompts import named_token  # noqa: PLC0415 - late: for these models

        token = named_token(hf, "image_token", usual)
    known = tokenizer.token_to_id(str(token))
    if known != image_id:
        raise CheckpointError(
            f"{PROCESSOR_FILE}: image_token is {token!r:.60}, whose id in the tokenizer is {known}, and config.json"
            f" has {field} {image_id}"
        )
    return image_id, str(token)


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


def _check_tiles(given: Mapping[str, Any], sight: Any) -> None:
    """Hold the processor's number of tokens for a tile to what the model makes of it."""
    count, places = given.get("num_image_tokens"), sight.num_places - 1
    if count != places:
        raise CheckpointError(
            f"{PROCESSOR_FILE}: num_image_tokens is {count!r:.60}, and config.json makes {places} places of a tile"
        )
    strategy = given.get("vision_feature_select_strategy")
    if strategy not in (None, "full"):
        raise CheckpointError(f"{PROCESSOR_FILE}: vision_feature_select_strategy is {strategy!r:.60}, and not 'full'")


def with_room(hf: HfCheckpoint, text: Fields, image: bundle_pb2.ImageSpec, usual: str) -> HfCheckpoint:
    """Return options with a context in which the largest picture fits, and as many tokens as usual beside it.

    Unless a context is chosen, or the decoder takes less. usual: the decoder's kind where nothing says it.
    """
    if hf.options.max_tokens is not None:
        return hf
    longest = text.whole_or_null("max_position_embeddings", None) or LONGEST.get(text.word("model_type", usual))
    words = _WORDS_OF_TILE * most_tiles(image) if image.tiling.longest_edge else 0
    chosen = min(longest or DEFAULT_TOKENS, DEFAULT_TOKENS + most_places(image) + words)
    return replace(hf, options=replace(hf.options, max_tokens=chosen))


def _check_words(hf: HfCheckpoint) -> None:
    """Refuse other texts around tiles than the usual: SmolVLMProcessor takes those that its tokenizer names."""
    config = read_object_if_there(hf.directory / _TOKENIZER_CONFIG)
    more = config.get("extra_special_tokens")
    for name, usual in _WORDS.items():
        for place in (config, more if isinstance(more, dict) else {}):
            said = place.get(name, usual)
            said = said.get("content") if isinstance(said, dict) else said
            if said != usual:
                raise CheckpointError(f"{_TOKENIZER_CONFIG}: {name} is {said!r:.60}, and not {usual!r}")


def _check_split(given: Mapping[str, Any], sight: Any) -> None:
    """Hold the processor's number of tokens for a tile to what the model makes of it."""
    count = given.get("image_seq_len", _SPLIT_PLACES)
    if count != sight.num_places:
        raise CheckpointError(
            f"{PROCESSOR_FILE}: image_seq_len is {count!r:.60}, and config.json makes {sight.num_places} places of a"
            " tile"
        )


def _check_nothing(given: Mapping[str, Any], sight: Any) -> None:
    """Of cells, nothing but pixels says how many places a picture takes."""


_CHECKS = {"": _check_places, "grids": _check_tiles, "longest_edge": _check_split, "max_pixels": _check_nothing}


def put_tiling(image: bundle_pb2.ImageSpec, hf: HfCheckpoint) -> None:
    """Say in `image` how pictures become tiles.

    Raises:
        CheckpointError: config and processor contradict each other, or a grid is not one of whole tiles.
    """
    place, given = read_processor(hf, "image_processor")
    processor = read_object_if_there(hf.directory / PROCESSOR_FILE)
    grids, ratio = hf.fields.raw("image_grid_pinpoints"), hf.fields.raw("vision_aspect_ratio")
    grids, ratio = grids or _GRIDS, _ASPECT_RATIO if ratio is None else ratio
    if given.get("image_grid_pinpoints", _GRIDS) != grids:
        raise hf.fields.wrong("image_grid_pinpoints", f"differs from that of {place}")
    if processor.get("vision_aspect_ratio", _ASPECT_RATIO) != ratio:
        raise hf.fields.wrong("vision_aspect_ratio", f"differs from that of {PROCESSOR_FILE}")
    most = str(ratio).removeprefix("anyres_max_")
    if most not in map(str, range(1, MAX_TILES + 1)):
        raise hf.fields.wrong("vision_aspect_ratio", f"must be anyres_max_1 to anyres_max_{MAX_TILES}")
    image.tiling.max_tiles = int(most)
    colour = [int(each * 255) for each in given.get("image_mean") or _CLIP_MEAN]
    if not 0 <= min(colour) <= max(colour) <= 255:
        raise CheckpointError(f"{place}: image_mean is no colour, which pictures are put into")
    image.tiling.square_padding.extend(colour)
    if not isinstance(grids, list) or not 1 <= len(grids) <= MAX_TILES:
        raise hf.fields.wrong("image_grid_pinpoints", f"must have 1 to {MAX_TILES} sizes")
    for sides in grids:
        if not isinstance(sides, list) or len(sides) != 2 or not all(type(each) is int and each > 0 for each in sides):
            raise hf.fields.wrong("image_grid_pinpoints", "must have a height and a width for each size")
        if sides[0] % image.height or sides[1] % image.width or max(sides) > MAX_TILES * image.height:
            raise hf.fields.wrong("image_grid_pinpoints", f"must have sides of 1 to {MAX_TILES} times {image.height}")
        image.tiling.grids.add(rows=sides[0] // image.height, columns=sides[1] // image.width)
    fault = tiling_fault(image)
    if fault is not None:
        raise CheckpointError(f"{place}: {fault}")
