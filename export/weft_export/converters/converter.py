"""What one file of this folder says about one kind of checkpoint: its sizes, and where each weight comes from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.converters.sources import Names

# A cache takes memory for each of its tokens, so the context of a bundle is chosen. These are taken unless one is.
DEFAULT_TOKENS = 2048
DEFAULT_SOURCE_TOKENS = 512
# As in transformers' pipeline.
DEFAULT_LABEL_TEXT = "This is a photo of {}."


@dataclass(frozen=True)
class Choices:
    """What the exporter chooses and no checkpoint says.

    max_tokens: the context: prompt and answer of a generator, the answer of a model with a source, else the text.
    max_source_tokens: of a source that is translated.
    golden: what a server tries before it is ready: see with_golden. Of a checkpoint of ours it can be chosen too.
    labels: of a model that compares pictures with texts.
    label_text: the text of a label, which takes the place of {}; DEFAULT_LABEL_TEXT unless there is one.
    description: one sentence for people.
    pairs: of a classifier of texts with several labels, that it judges two texts. One of one label always does.
    truncate: of a classifier or tagger of texts, or an embedder: cut a text that is too long where the library of the
        checkpoint cuts it. Unless max_tokens is chosen, it is as long as that library takes it.
    pooling: of a body of texts, how it becomes an embedder: cls, mean, last or max; vectors then have the length 1.
    """

    max_tokens: int | None = None
    max_source_tokens: int | None = None
    golden: str | None = None
    description: str | None = None
    labels: tuple[str, ...] = ()
    label_text: str | None = None
    pooling: str | None = None
    pairs: bool = False
    truncate: bool = False


@dataclass(frozen=True)
class HfCheckpoint:
    """A Hugging Face directory before it is converted."""

    directory: Path
    fields: Fields
    generation: Generation
    tensors: frozenset[str]
    """The names of the tensors in its files."""
    choices: Choices = field(default_factory=Choices)

    def max_tokens(self, longest: int | None, default: int = DEFAULT_TOKENS) -> int:
        """Return the context of the bundle; longest is the most that the model takes, if there is a most.

        Raises:
            CheckpointError: more were chosen than the model takes.
        """
        if self.choices.truncate and longest is not None:
            default = longest
        return self._chosen("max_tokens", self.choices.max_tokens, longest, default)

    def max_source_tokens(self, longest: int | None, default: int = DEFAULT_SOURCE_TOKENS) -> int:
        """Return how long a source may be, likewise."""
        return self._chosen("max_source_tokens", self.choices.max_source_tokens, longest, default)

    def _chosen(self, name: str, chosen: int | None, longest: int | None, default: int) -> int:
        if chosen is None:
            return default if longest is None else min(default, longest)
        if longest is not None and chosen > longest:
            raise self.fields.wrong(name, f"cannot be {chosen}: the model takes {longest} tokens")
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
    ignored: patterns of names that hold nothing to convert: masks, tables that follow from the config.
    bias: our name of the logits' bias, where banned tokens are written down. Empty: the family has none.
    nested: the object of config.json that says about writing what the top does not.
    fixed: what is so about writing, whatever generation_config.json says.
    """

    model_type: str
    architectures: tuple[str, ...]
    family: str
    sizes: Callable[[HfCheckpoint], Any]
    names: Callable[[Any], Names]
    prefix: str = ""
    computed_names: Callable[[Any, HfCheckpoint], Names] | None = None
    takes_labels: bool = False
    ignored: tuple[str, ...] = ()
    bias: str = ""
    nested: str = ""
    fixed: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _: {}
