"""What one file of this folder says about one kind of checkpoint: its sizes, and where each weight comes from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.sources import Names
from weft_export.options import DEFAULT_OPTIONS, ExportOptions, too_long

# A cache takes memory for each of its tokens, so the context of a bundle is chosen. These are taken unless one is.
DEFAULT_TOKENS = 2048
DEFAULT_SOURCE_TOKENS = 512
# As in transformers' pipeline.
DEFAULT_LABEL_TEXT = "This is a photo of {}."


@dataclass(frozen=True)
class HfCheckpoint:
    """A Hugging Face directory before it is converted."""

    directory: Path
    fields: Fields
    generation: Generation
    tensors: frozenset[str]
    """The names of the tensors in its files."""
    options: ExportOptions = DEFAULT_OPTIONS

    def max_tokens(self, longest: int | None, default: int = DEFAULT_TOKENS) -> int:
        """Return the context of the bundle; longest is the most that the model takes, if there is a most.

        Raises:
            CheckpointError: more were chosen than the model takes.
        """
        if self.options.truncate and longest is not None:
            default = longest
        return self._chosen("max_tokens", self.options.max_tokens, longest, default)

    def max_source_tokens(self, longest: int | None, default: int = DEFAULT_SOURCE_TOKENS) -> int:
        """Return how long a source may be, likewise."""
        return self._chosen("max_source_tokens", self.options.max_source_tokens, longest, default)

    def _chosen(self, name: str, chosen: int | None, longest: int | None, default: int) -> int:
        if chosen is None:
            return default if longest is None else min(default, longest)
        if longest is not None and chosen > longest:
            raise too_long(name, chosen, longest)
        return chosen


@dataclass(frozen=True)
class Converter:
    """One kind of checkpoint.

    model_type: as config.json names it.
    architectures: the classes that this is for; a config that names none means the first.
    family: the key of ours in weft_export.families.registry.FAMILIES.
    sizes: makes the family's config.
    names: makes the table of names, from the family's config.
    computed_names: more of them, which follow from more than the family's config.
    takes_labels: the checkpoint has no labels, and they are chosen.
    prefix: what all their names begin with, where they are saved with it. Some files lack it.
    spellings: patterns of other names that files have, and what the table calls them, one after the other.
    ignored: patterns of names that hold nothing to convert: masks, tables that follow from the config.
    bias: our name of the logits' bias, where banned tokens are written down. Empty: the family has none.
    nested: the object of config.json that says about writing what the top does not.
    fixed: what is so about writing, whatever generation_config.json says.
    pools: of an embedder, whether how it pools may be chosen.
    follows_settings: whether its class in transformers writes by that file at all, or else by config.json.
    is_for: of a class that becomes several families, which configs are of this one.
    """

    model_type: str
    architectures: tuple[str, ...]
    family: str
    sizes: Callable[[HfCheckpoint], Any]
    names: Callable[[Any], Names]
    prefix: str = ""
    computed_names: Callable[[Any, HfCheckpoint], Names] | None = None
    spellings: tuple[tuple[str, str], ...] = ()
    takes_labels: bool = False
    ignored: tuple[str, ...] = ()
    bias: str = ""
    nested: str = ""
    fixed: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _: {}
    follows_settings: bool = True
    is_for: Callable[[Mapping[str, Any]], bool] = lambda _: True
    pools: bool = True
