"""Where a directory says how pictures or recordings become numbers: processor_config.json, or preprocessor_config.json.

transformers 5 saves the first for a processor with a tokenizer, and the second for one of pictures or sounds alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_export.converters.keys import check_keys
from weft_export.converters.processor_keys import PROCESSOR_KEYS
from weft_export.converters.text.json_file import read_object, read_object_if_there
from weft_export.errors import CheckpointError

if TYPE_CHECKING:
    # It loads torch, and the reading of pictures' options does not.
    from weft_export.converters.converter import HfCheckpoint

FILE, PROCESSOR_FILE = "preprocessor_config.json", "processor_config.json"


def read_processor(hf: HfCheckpoint, *parts: str) -> tuple[str, dict[str, Any]]:
    """Return what says how the input is made, and before it how an error names its place.

    Of the first file it is the first of the parts that is there, or else it is the second file.

    Raises:
        CheckpointError: a file is missing or is no object.
    """
    given = read_object_if_there(hf.directory / PROCESSOR_FILE)
    hf.fields.note(*check_keys(PROCESSOR_FILE, given, PROCESSOR_KEYS))
    part = next((each for each in parts if each in given), None)
    if part is None or given[part] is None:
        return FILE, read_object(hf.directory / FILE)
    nested, place = given[part], f"{PROCESSOR_FILE}: {part}"
    if not isinstance(nested, dict):
        raise CheckpointError(f"{place} is not a JSON object")
    return place, nested
