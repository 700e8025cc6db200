"""Families of other packages, by the entry points `weft.families`. Each is loaded when a checkpoint names it.

For example, in the pyproject.toml of a package with one module:

    [project.entry-points."weft.families"]
    bag_of_words = "bag_of_words:FAMILY"
"""

from importlib.metadata import EntryPoint
from typing import Any

from weft_export.errors import ExportError
from weft_export.families.classifier import Classifier
from weft_export.families.entries import family_entries
from weft_export.families.family import Family
from weft_export.families.writer import Writer
from weft_proto.tasks import TASKS


def plugged_names() -> set[str]:
    """Return the names of the families that other packages bring."""
    return {entry.name for entry in family_entries()}


def plugged_family(name: str, *, is_ours: bool) -> Family | None:
    """Return the family that another package brings under a name, or None if none does.

    Raises:
        ExportError: Weft itself or a second package has the name, or what it names is no family.
    """
    entries = [entry for entry in family_entries() if entry.name == name]
    packages = " and ".join(sorted({_package(entry) for entry in entries}))
    if entries and is_ours:
        raise ExportError(f"the family {name!r} is one of Weft's own, and {packages} brings another: rename that one")
    if len(entries) > 1:
        raise ExportError(f"{packages} bring a family {name!r} each: rename or uninstall one")
    return _loaded(entries[0]) if entries else None


def _loaded(entry: EntryPoint) -> Family:
    what = f"the family {entry.name!r} of {_package(entry)}"
    try:
        family: Any = entry.load()
    except Exception as error:  # it is other people's code
        raise ExportError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(family, Family):
        raise ExportError(f"{what}: {entry.value} must be a Family of weft_export.families.family, not {family!r:.80}")
    if family.task not in TASKS:
        raise ExportError(f"{what}: its task {family.task!r:.40} is none of weft_proto.v1.common_pb2.Task")
    base = Writer if TASKS[family.task].writes_text else Classifier
    if not isinstance(family.model, type) or not issubclass(family.model, base):
        raise ExportError(
            f"{what}: for {TASKS[family.task].name} its model must be a class that derives {base.__name__}"
        )
    return family


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name}" if entry.dist is not None else f"the module {entry.module}"
