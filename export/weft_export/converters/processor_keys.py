"""The files that say how pictures and recordings become numbers: where they stand, and what each key is to us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_export.converters.keys import NEUTRAL, USED, Only, Table, check_keys
from weft_export.converters.text.json_file import read_object, read_object_if_there
from weft_export.errors import CheckpointError

if TYPE_CHECKING:
    # It loads torch, and the reading of pictures' options does not.
    from weft_export.converters.converter import HfCheckpoint

# transformers 5 saves the second for a processor with a tokenizer, and the first for one of pictures or sounds alone.
FILE, PROCESSOR_FILE = "preprocessor_config.json", "processor_config.json"
SAMPLE_RATE = 16_000
"""Of recordings. Whisper's mel scale ends at 8 kHz whatever the rate is, and ours at half the rate."""

PROCESSOR_KEYS: Table = {
    "image_processor": USED,
    "feature_extractor": USED,
    "audio_processor": USED,
    "processor_class": NEUTRAL,
    "auto_map": NEUTRAL,
    # text/chat.py reads it, of a model whose prompts hold pictures.
    "chat_template": USED,
    "image_seq_length": NEUTRAL,
    # It has files of its own, which count.
    "tokenizer": NEUTRAL,
}
"""Of a processor with a tokenizer."""

SIGHT_KEYS: Table = {
    **PROCESSOR_KEYS,
    "image_token": USED,
    "num_additional_image_tokens": USED,
    "patch_size": USED,
    "vision_feature_select_strategy": USED,
}
"""Of one whose pictures stand among the tokens of a prompt."""

TILE_KEYS: Table = {
    **PROCESSOR_KEYS,
    "image_token": USED,
    "num_image_tokens": USED,
    "vision_aspect_ratio": USED,
    "vision_feature_select_strategy": USED,
    # No request holds a video.
    "video_processor": NEUTRAL,
    "video_token": NEUTRAL,
}
"""Of one that makes tiles of pictures."""

SPLIT_KEYS: Table = {
    **PROCESSOR_KEYS,
    "image_seq_len": USED,
    # No request holds a video.
    "video_processor": NEUTRAL,
}
"""Of one that cuts pictures by their longest edge."""

CELL_KEYS: Table = {
    **PROCESSOR_KEYS,
    # No request holds a video.
    "video_processor": NEUTRAL,
}
"""Of one that reads pictures at a size near their own."""

STRETCH_KEYS: Table = {**PROCESSOR_KEYS, "image_seq_length": USED}
"""Of one whose pictures stand in a prompt in a way of its own: see picture_prompts."""

QUERY_KEYS: Table = {
    **PROCESSOR_KEYS,
    "num_query_tokens": USED,
    # Its class takes the tokenizer's.
    "image_token": NEUTRAL,
}
"""Of one of whose pictures few queries read the whole."""

TASK_KEYS: Table = {
    **PROCESSOR_KEYS,
    # Its class does not read it.
    "num_additional_image_tokens": NEUTRAL,
    # How boxes are made of an answer. Answers are texts here, in which the tokens of places stand.
    "post_processor_config": NEUTRAL,
}
"""Of Florence2Processor."""

_TABLES = {
    "florence2": TASK_KEYS,
    "blip-2": QUERY_KEYS,
    "gemma3": STRETCH_KEYS,
    "paligemma": STRETCH_KEYS,
    "llava": SIGHT_KEYS,
    "llava_onevision": TILE_KEYS,
    "idefics3": SPLIT_KEYS,
    "smolvlm": SPLIT_KEYS,
    "qwen2_vl": CELL_KEYS,
    "qwen2_5_vl": CELL_KEYS,
    "qwen3_vl": CELL_KEYS,
    "qwen3_vl_moe": CELL_KEYS,
}

IMAGE_KEYS: Table = {
    "size": USED,
    "crop_size": USED,
    "crop_pct": USED,
    "default_to_square": USED,
    "do_center_crop": USED,
    "do_normalize": USED,
    "do_rescale": USED,
    "do_resize": USED,
    "image_mean": USED,
    "image_std": USED,
    "resample": USED,
    "rescale_factor": USED,
    "image_processor_type": USED,
    "feature_extractor_type": USED,
    "do_pad": Only((False,)),
    # What has nothing to do with the pixels of one picture.
    "_processor_class": NEUTRAL,
    "_valid_processor_keys": NEUTRAL,
    "data_format": NEUTRAL,
    "device": NEUTRAL,
    "disable_grouping": NEUTRAL,
    "do_convert_rgb": NEUTRAL,
    "do_reduce_labels": NEUTRAL,
    "image_seq_length": NEUTRAL,
    "input_data_format": NEUTRAL,
    "pad_size": NEUTRAL,
    # What do_pan_and_scan would do. That it is true is refused.
    "pan_and_scan_max_num_crops": NEUTRAL,
    "pan_and_scan_min_crop_size": NEUTRAL,
    "pan_and_scan_min_ratio_to_activate": NEUTRAL,
    "processor_class": NEUTRAL,
    "reduce_labels": NEUTRAL,
    "return_tensors": NEUTRAL,
}
"""Of a class of processors of pictures."""

SOUND_KEYS: Table = {
    "feature_size": USED,
    "hop_length": USED,
    "chunk_length": USED,
    "n_fft": USED,
    "feature_extractor_type": Only(("WhisperFeatureExtractor",)),
    "sampling_rate": Only((SAMPLE_RATE,)),
    "padding_value": Only((0, 0.0)),
    "padding_side": Only(("right",)),
    "dither": Only((0, 0.0)),
    # What follows from the others, or changes nothing.
    "mel_filters": NEUTRAL,
    "n_samples": NEUTRAL,
    "nb_max_frames": NEUTRAL,
    "processor_class": NEUTRAL,
    "return_attention_mask": NEUTRAL,
}
"""Of WhisperFeatureExtractor."""


def read_processor(hf: HfCheckpoint, *parts: str) -> tuple[str, dict[str, Any]]:
    """Return what says how the input is made, and before it how an error names its place.

    Of the first file it is the first of the parts that is there, or else it is the second file.

    Raises:
        CheckpointError: a file is missing or is no object.
    """
    given = read_object_if_there(hf.directory / PROCESSOR_FILE)
    table = _TABLES.get(hf.fields.raw("model_type"), PROCESSOR_KEYS)
    hf.fields.note(*check_keys(PROCESSOR_FILE, given, table))
    part = next((each for each in parts if each in given), None)
    if part is None or given[part] is None:
        return FILE, read_object(hf.directory / FILE)
    nested, place = given[part], f"{PROCESSOR_FILE}: {part}"
    if not isinstance(nested, dict):
        raise CheckpointError(f"{place} is not a JSON object")
    return place, nested
