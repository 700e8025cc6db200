"""Tokens that a directory adds beside a vocab.json: transformers' own class finds them before SentencePiece reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken

from weft_export.converters.text.settings import TokenizerSettings
from weft_export.errors import CheckpointError


@dataclass(frozen=True)
class Added:
    """What is added to a vocabulary.

    Attributes:
        tokens: those that have an embedding.
        ids: the ids of those that are new.
        without_embedding: those that have none.
        notes: what a user should hear of them.
    """

    tokens: tuple[AddedToken, ...]
    ids: Mapping[str, int]
    without_embedding: tuple[str, ...]
    notes: tuple[str, ...]


def added_beside(
    path: Path, pieces: Mapping[str, int], settings: TokenizerSettings, vocab_size: int, *, apart: bool = False
) -> Added:
    """Return the added tokens of a directory whose pieces have these ids.

    apart: whether `path` is not vocab.json, whose ids the files state. What goes against `path` is then left out.

    Raises:
        CheckpointError: one has an id that `path` gives to another token, or another id than there.
    """
    by_id = {id_: token for token, id_ in pieces.items()}
    tokens, ids, without = [], {}, []
    for id_, token in settings.added.items():
        text = token.content
        if pieces.get(text, id_) != id_ or by_id.get(id_, text) != text:
            if apart:
                continue
            known = f"the id {pieces[text]}" if text in pieces else f"{by_id[id_]!r:.40} with this id"
            raise CheckpointError(
                f"{settings.where}: the added token {text!r:.40} has the id {id_}; {path} has {known}"
            )
        if id_ >= vocab_size:
            without.append(text)
            continue
        if text not in pieces:
            ids[text] = id_
        # Their class looks in the text as it is, whatever `normalized` says.
        flags = {"lstrip": token.lstrip, "rstrip": token.rstrip, "single_word": token.single_word}
        tokens.append(AddedToken(text, normalized=False, **flags))
    single = [token.content for token in tokens if token.single_word]
    notes = [
        f"the added token {text!r:.40} is a single_word: transformers finds it between spaces alone, and here it is"
        " found between marks too"
        for text in single
    ]
    if without:
        notes.append(without_embedding(without))
    return Added(tuple(tokens), ids, tuple(without), tuple(notes))


def without_embedding(tokens: list[str]) -> str:
    """Return the note that added tokens are not read as such."""
    listed = ", ".join(token[:40] for token in tokens[:5])
    return f"{len(tokens)} added tokens have no embedding, and are read as plain text: {listed}"
