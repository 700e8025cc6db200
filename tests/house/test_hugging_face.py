"""docs/hugging-face.md lists the kinds that are converted, and no other."""

import re
from importlib import import_module
from pathlib import Path

from weft_export.converters.converter import Converter
from weft_export.converters.registry import all_converters

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hugging-face.md").read_text()


def test_the_page_lists_every_kind_and_no_other():
    """Each row's model_type and classes are those of the registry."""
    stated = set()
    for kind, classes in re.findall(r"^\|[^|]*\| (`[^|]+) \| (`[^|]+) \|$", PAGE, re.MULTILINE):
        (model_type,) = re.findall(r"^`([\w-]+)`", kind)
        stated |= {(model_type, name) for name in re.findall(r"`(\w+(?:Model\w*|For\w+|ColBERT))`", classes)}

    assert {(each.model_type, name) for each in all_converters() for name in each.architectures} == stated


def test_the_registry_has_every_converter():
    """Whatever a module of that folder converts is found by its model_type."""
    files = sorted((ROOT / "export/weft_export/converters").glob("*.py"))
    modules = [import_module(f"weft_export.converters.{file.stem}") for file in files]
    written = [each for module in modules for each in getattr(module, "CONVERTERS", ())]

    found = list(all_converters())
    assert sorted(map(id, written)) == sorted(map(id, found))
    assert [] == [each for module in modules for each in vars(module).values() if _is_lost(each, found)]


def _is_lost(each, found):
    return isinstance(each, Converter) and not any(each is one for one in found)
