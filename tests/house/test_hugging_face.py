"""docs/hugging-face.md lists the kinds that are converted, and no other."""

import re
from pathlib import Path

from weft_export.converters.registry import CONVERTERS

PAGE = (Path(__file__).parents[2] / "docs" / "hugging-face.md").read_text()


def test_the_page_lists_every_kind_and_no_other():
    """Each row's model_type and classes are those of the registry."""
    stated = set()
    for kind, classes in re.findall(r"^\|[^|]*\| (`[^|]+) \| (`[^|]+) \|$", PAGE, re.MULTILINE):
        (model_type,) = re.findall(r"^`([\w-]+)`", kind)
        stated |= {(model_type, name) for name in re.findall(r"`(\w+(?:Model\w*|For\w+))`", classes)}

    assert {(each.model_type, name) for each in CONVERTERS for name in each.architectures} == stated
