"""The prompts of a directory of sentence-transformers: texts that stand before others, and which one does by default.

encode() puts the default one before each text, and predict() before the first of two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft_export.checkpoints.formats import MODULES
from weft_export.converters.sentence_files import MODEL
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2

# A SentenceTransformer has prompts of these names, whatever its file says: encode_query() and encode_document() take
# them. A CrossEncoder has none.
OF_EMBEDDERS = ("query", "document")


@dataclass(frozen=True)
class Prompts:
    """Texts by their names, and the name of the one that stands before a text where nothing is asked for."""

    texts: Mapping[str, str]
    default_name: str = ""

    @property
    def say_anything(self) -> bool:
        """Whether any of them changes a text."""
        return any(self.texts.values())

    def put(self, text: bundle_pb2.TextSpec) -> None:
        """Say them in a manifest."""
        for name, prompt in self.texts.items():
            text.prompts.add(name=name, text=prompt)
        text.default_prompt_name = self.default_name


def check_pooled(place: Path, pooling: Mapping[str, object], prompts: Prompts, *, is_last: bool) -> None:
    """Raise CheckpointError for a pooling, whose file is at place, that leaves prompts out."""
    # A prompt stands at the beginning, so the last token is the same.
    if pooling.get("include_prompt") is False and not is_last and prompts.say_anything:
        raise CheckpointError(
            f"{place}: include_prompt is false, which cannot be followed: all tokens of a request are pooled;"
            " --pooling makes an embedder of the body that has its prompts in"
        )


def read_prompts(directory: Path, always: tuple[str, ...] = ()) -> Prompts:
    """Read the prompts of a directory. Without its modules, sentence-transformers does not look at their file.

    always: names that there are even where the file does not say them.

    Raises:
        CheckpointError: they are no texts by name, or the default one is none of them.
    """
    path = directory / MODEL
    given = read_object_if_there(path) if (directory / MODULES).exists() else {}
    said = given.get("prompts")
    if not isinstance(said, dict | None):
        raise CheckpointError(f"{path}: prompts is {said!r:.60}, which is no object of texts")
    # Theirs makes no text of null.
    texts = {**dict.fromkeys(always, ""), **{name: text or "" for name, text in (said or {}).items()}}
    for name, text in texts.items():
        if not isinstance(text, str) or not name:
            raise CheckpointError(f"{path}: prompts has {name!r:.40}: {text!r:.60}, which is no text with a name")
    default = given.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in texts):
        raise CheckpointError(
            f"{path}: default_prompt_name is {default!r:.60}, which is none of prompts: {', '.join(texts) or 'none'}"
        )
    return Prompts(texts, default or "")
