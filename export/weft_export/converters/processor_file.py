"""Where a directory says how pictures or recordings become numbers: processor_config.json, or preprocessor_config.json.

transformers 5 saves the first for a processor with a tokenizer, and the second for one of pictures or sounds alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_export.converters.keys import NEUTRAL, USED, Table, check_keys
from weft_export.converters.text.json_file import read_object, read_object_if_there
from weft_export.errors import CheckpointError

if TYPE_CHECKING:
    # It loads torch, and the reading of pictures' options does not.
    from weft_export.converters.converter import HfCheckpoint

FILE, PROCESSOR_FILE = "preprocessor_config.json", "processor_config.json"
PROCESSOR_KEYS: Table = {
    "image_processor": USED,
    "feature_extractor": USED,
    "processor_class": NEUTRAL,
    "auto_map": NEUTRAL,
    "chat_template": NEUTRAL,
    "image_seq_length": NEUTRAL,
}


def read_processor(hf: HfCheckpoint, part: str) -> dict[str, Any]:
    """Return what says how the input is made: of the first file its part, if it has one, or else the second file.

    Raises:
        CheckpointError: a file is missing or is no object.
    """
    given = read_object_if_there(hf.directory / PROCESSOR_FILE)
    hf.fields.note(*check_keys(PROCESSOR_FILE, given, PROCESSOR_KEYS))
    if part not in given:
        return read_object(hf.directory / FILE)
    nested = given[part]
    if not isinstance(nested, dict):
        raise CheckpointError(f"{PROCESSOR_FILE}: {part} is not a JSON object")
    return nested
