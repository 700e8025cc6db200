"""A tokenizer of one class, put together of a directory's files as transformers 5 puts it together."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import PostProcessor

from weft_export.checkpoints.tokenizer import check_tokenizer, tried
from weft_export.converters.text import vocabulary as vocabularies
from weft_export.converters.text.byte_level import bos_and_eos
from weft_export.converters.text.charsmap import check_charsmaps
from weft_export.converters.text.json_file import check_ids
from weft_export.converters.text.kind import Names, TokenizerKind
from weft_export.converters.text.settings import MAX_IDS, NAMES, Token, TokenizerSettings
from weft_export.converters.text.spm_model import read_spm_model
from weft_export.converters.text.vocabulary import Vocabulary
from weft_export.errors import CheckpointError

JSON_FILE = "tokenizer.json"
Made = TypeVar("Made")


def as_it_is(settings: TokenizerSettings, content: Mapping[str, Any]) -> Tokenizer:
    """Make a tokenizer of tokenizer.json, with the tokens that other files add to it.

    Raises:
        CheckpointError: it is no tokenizer.
    """
    path = settings.where / JSON_FILE
    check_charsmaps(path, content.get("normalizer"))
    model = content.get("model")
    if isinstance(model, dict) and isinstance(model.get("vocab"), dict):
        check_ids(path, model["vocab"], MAX_IDS)
    parts = dict(content) | {"truncation": None, "padding": None}
    tokenizer = made(path, lambda: Tokenizer.from_str(json.dumps(parts)))
    add_tokens(tokenizer, settings, settings.named, settings.further)
    check_tokenizer(path, tokenizer)
    return tokenizer


def of_kind(
    kind: TokenizerKind, settings: TokenizerSettings, content: Mapping[str, Any] | None, names: Names
) -> Tokenizer:
    """Make a tokenizer of a class from tokenizer.json's pieces, or from the older files.

    Raises:
        CheckpointError: a file is missing, or is not as the class needs it.
    """
    vocabulary = _vocabulary(kind, settings, content, names)
    tokenizer = made(settings.where, lambda: kind.assemble(vocabulary, settings, names))
    extra = settings.extra
    if extra is None:
        extra = kind.further(vocabulary.symbols if _has_model(kind, content) else settings.additional, settings)
    add_tokens(tokenizer, settings, names, extra)
    if kind.is_plain:
        special = [str(token) for token in (*names.values(), *extra) if token is not None]
        tokenizer.add_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.post_processor = made(
        settings.where, lambda: _post_processor(kind, tokenizer, vocabulary, settings, names)
    )
    check_tokenizer(settings.where, tokenizer)
    return tokenizer


def names_of(kind: TokenizerKind, settings: TokenizerSettings) -> dict[str, Token | None]:
    """Return the special tokens of a tokenizer by their names: the class's own unless the files say otherwise."""
    names = dict(settings.padding) | dict(kind.names) | dict(settings.named)
    mask = names.get("mask_token")
    if kind.mask_takes_space and isinstance(mask, str):
        names["mask_token"] = AddedToken(mask, lstrip=True, special=True, normalized=kind.mask_is_normalised)
    return names


def add_tokens(tokenizer: Tokenizer, settings: TokenizerSettings, names: Names, extra: tuple[Token, ...]) -> None:
    """Add the tokens that the files and the class name. Those that have no id yet get the next ones, in this order.

    Several names may have one text, such as cls_token and bos_token. The last of them says how it is found.
    """
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    known |= {token.content for token in settings.added.values()}
    usual = (names.get(name) for name in NAMES)
    own = (token for name, token in names.items() if name not in NAMES)
    wanted: list[Token] = []
    for token in (*usual, *own, *extra):
        # A string and an object of the same text are two, as they are in transformers.
        if token is not None and str(token) not in known and token not in wanted:
            wanted.append(token)
    made_of = (AddedToken(each, special=True) if isinstance(each, str) else each for each in wanted)
    tokens = [*settings.added.values(), *made_of]
    special = {str(token) for token in names.values() if token is not None}
    # What tokenizer.json calls special stays so, whatever another file says.
    special |= {each.content for each in tokenizer.get_added_tokens_decoder().values() if each.special}
    for token in tokens:
        token.special = token.special or str(token) in special
    tokenizer.add_tokens(tokens)


def made(where: Path, make: Callable[[], Made]) -> Made:
    """Return what `make` does. What the tokenizers library refuses, a panic included, is a CheckpointError."""
    return tried(f"{where} does not make a tokenizer", make)


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
