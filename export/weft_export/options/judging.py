"""What is wrong with the options of an export, said before torch is loaded, which takes seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_export.checkpoints.files import check_regular
from weft_export.checkpoints.formats import check_adaptable, check_format, is_foreign, is_gguf
from weft_export.console.utf8 import utf8
from weft_export.errors import ExportError
from weft_export.options.table import ExportOptions
from weft_export.preconditions import PRECISIONS, check_labels, check_precision, products
from weft_export.wrapping.labels import read_labels

if TYPE_CHECKING:
    from weft_export.converters.converter import Choices

# What Choices has, and a checkpoint of ours says itself.
_CHOSEN = (
    "max_tokens",
    "max_source_tokens",
    "golden",
    "description",
    "labels",
    "label_text",
    "pooling",
    "pairs",
    "truncate",
)


@dataclass(frozen=True)
class Judged:
    """Options in which nothing is wrong, as far as that is known without the weights.

    labels: those of the file that was named.
    """

    options: ExportOptions
    labels: tuple[str, ...]

    def choices(self) -> "Choices":
        """Return what is chosen for a Hugging Face directory. Loads torch."""
        from weft_export.converters.converter import Choices  # noqa: PLC0415 - late: torch takes seconds to import

        chosen = {name: getattr(self.options, name) for name in _CHOSEN}
        return Choices(**chosen | {"labels": self.labels})

    def arguments(self) -> dict[str, Any]:
        """Return what export_checkpoint takes beside the two directories and its callbacks. Loads torch."""
        from weft_export.export import adaptable  # noqa: PLC0415 - late: torch takes seconds to import

        options = self.options
        return {
            "precision": options.precision.value,
            "held_out": options.held_out,
            "mixed_runs": options.mixed_runs,
            "explains": not options.no_explain,
            "scores": not options.no_score,
            "adapters": None if options.adapters is None else adaptable(options.adapters, options.adapted),
            "paged": options.paged,
            "choices": self.choices(),
        }

    def key(self) -> Mapping[str, str]:
        """Return the options by name, for a digest: of a file that one names, its content counts, and not its path."""
        return {field.name: _content(getattr(self.options, field.name)) for field in fields(ExportOptions)}


def judge(checkpoint: Path, options: ExportOptions, *, of_each: bool = False) -> Judged:
    """Return the options of an export of this directory, if nothing is wrong with them.

    of_each: what is asked is said of each precision, and not done in one.

    Raises:
        ExportError: There are four cases:
            1. The directory is of another format, for which there may be another command.
            2. Options contradict each other.
            3. One names a file that cannot be read, or holds a text that is no UTF-8.
            4. One is for a Hugging Face directory, and this is a checkpoint of ours.
    """
    for name in ("golden", "description", "label_text"):
        if (text := getattr(options, name)) is not None:
            utf8(f"--{name.replace('_', '-')}", text)
    if options.adapted is not None and options.adapters is None:
        raise ExportError("--adapted says which products take adapters: it needs --adapters RANK")
    products(options.adapted)
    has_adapters = options.adapters is not None
    if not of_each:
        more: dict[str, Any] = {"mixed_runs": options.mixed_runs, "adapters": has_adapters, "paged": options.paged}
        check_precision(PRECISIONS[options.precision], held_out=options.held_out, **more)
    if options.held_out is not None:
        check_regular(options.held_out)
    labels = () if options.labels is None else read_labels(options.labels)
    check_labels(labels, adapters=has_adapters)
    check_format(checkpoint)
    if has_adapters:
        check_adaptable(checkpoint)
    # Of a golden request, the reading of the checkpoint says what it may be.
    chosen = [f"--{name.replace('_', '-')}" for name in _CHOSEN if name != "golden" and getattr(options, name)]
    if chosen and not (is_foreign(checkpoint) or is_gguf(checkpoint)):
        raise ExportError(
            f"{', '.join(chosen)}: config.json of {checkpoint} says that itself, as of a checkpoint of Weft"
        )
    return Judged(options, labels)


def _content(value: object) -> str:
    """Return what an option comes to. A text may name a file, as of the golden request."""
    if isinstance(value, Path | str) and value:
        try:
            return sha256(Path(value).read_bytes()).hexdigest()
        except (OSError, ValueError):
            return str(value)
    return str(value)
