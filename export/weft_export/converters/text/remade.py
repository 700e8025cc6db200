"""A tokenizer of one class, made anew of its pieces as transformers 5 makes it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import PostProcessor

from weft_export.checkpoints.tokenizer import check_tokenizer
from weft_export.converters.text import vocabulary as vocabularies
from weft_export.converters.text.byte_level import bos_and_eos
from weft_export.converters.text.fast import JSON_FILE, add_tokens, made
from weft_export.converters.text.kind import TokenizerKind
from weft_export.converters.text.settings import Names, Token, TokenizerSettings
from weft_export.converters.text.spm_model import read_spm_model
from weft_export.converters.text.vocabulary import Vocabulary
from weft_export.errors import CheckpointError


def of_kind(
    kind: TokenizerKind, settings: TokenizerSettings, content: Mapping[str, Any] | None, names: Names
) -> Tokenizer:
    """Make a tokenizer of a class from tokenizer.json's pieces, or from the older files.

    Raises:
        CheckpointError: a file is missing, or is not as the class needs it.
    """
    pieces = _vocabulary(kind, settings, content, names) if kind.has_file else Vocabulary(ids={}, scores=[], merges=[])
    tokenizer = made(settings.where, lambda: kind.assemble(pieces, settings, names))
    extra = settings.extra
    if extra is None:
        extra = kind.further(pieces.symbols if _has_model(kind, content) else settings.additional, settings)
    add_tokens(tokenizer, settings, names, extra)
    if kind.is_plain:
        special = [str(token) for token in (*names.values(), *extra) if token is not None]
        tokenizer.add_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.post_processor = made(settings.where, lambda: _post_processor(kind, tokenizer, pieces, settings, names))
    check_tokenizer(settings.where, tokenizer)
    return tokenizer


def names_of(kind: TokenizerKind, settings: TokenizerSettings) -> dict[str, Token | None]:
    """Return the special tokens of a tokenizer by their names: the class's own unless the files say otherwise."""
    found = {name: _like(kind.names.get(name), token) for name, token in settings.named.items()}
    names = dict(settings.padding) | dict(kind.names) | found
    mask = names.get("mask_token")
    if kind.mask_takes_space and isinstance(mask, str):
        names["mask_token"] = AddedToken(mask, lstrip=True, special=True, normalized=kind.mask_is_normalised)
    return names


def _like(own: Token | None, token: Token | None) -> Token | None:
    """Return a token of a file. A class whose own one takes the spaces around it makes such a one of a text, too."""
    if not (isinstance(token, str) and isinstance(own, AddedToken) and own.rstrip):
        return token
    return AddedToken(token, lstrip=own.lstrip, rstrip=own.rstrip, normalized=own.normalized, special=own.special)


def _has_model(kind: TokenizerKind, content: Mapping[str, Any] | None) -> bool:
    """Whether its pieces are those of a SentencePiece model."""
    return content is None and bool(kind.model_file)


def _vocabulary(
    kind: TokenizerKind, settings: TokenizerSettings, content: Mapping[str, Any] | None, names: Names
) -> Vocabulary:
    where = settings.where
    if content is not None:
        vocabulary = vocabularies.of_json(where / JSON_FILE, content)
    elif _has_model(kind, content):
        found = vocabularies.of_spm(read_spm_model(_there(where, kind.model_file)))
        vocabulary = _reordered(found, kind, settings, names)
    elif kind.algorithm == "WordPiece":
        vocabulary = vocabularies.of_lines(_there(where, "vocab.txt"))
    else:
        vocabulary = vocabularies.of_merges(_there(where, "vocab.json"), _there(where, "merges.txt"))
    if bool(vocabulary.scores) != (kind.algorithm == "Unigram"):
        raise CheckpointError(f"{where}: the tokenizer's class needs {kind.algorithm} pieces, and the file has others")
    return vocabulary


def _reordered(found: Vocabulary, kind: TokenizerKind, settings: TokenizerSettings, names: Names) -> Vocabulary:
    scores = found.scores or [(piece, 0.0) for piece in found.ids]
    scores = kind.reorder(scores, settings, names)
    ids = {piece: index for index, (piece, _) in enumerate(scores)}
    return replace(found, ids=ids, scores=scores if found.scores else [])


def _there(where: Path, name: str) -> Path:
    if not (where / name).exists():
        raise CheckpointError(f"{where} has neither {JSON_FILE} nor {name}: its texts cannot be read")
    return where / name


def _post_processor(
    kind: TokenizerKind, tokenizer: Tokenizer, vocabulary: Vocabulary, settings: TokenizerSettings, names: Names
) -> PostProcessor | None:
    if kind.frame is not None:
        return kind.frame(tokenizer, vocabulary, settings, names)
    # Where there is a tokenizer.json, transformers does not read add_bos_token and add_eos_token.
    return vocabulary.post_processor if settings.has_json else bos_and_eos(tokenizer, settings, names)
