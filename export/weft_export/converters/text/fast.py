"""A tokenizer as its tokenizer.json has it, with the tokens that other files of its directory add."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer

from weft_export.checkpoints.tokenizer import check_tokenizer, tried
from weft_export.converters.text.charsmap import check_charsmaps
from weft_export.converters.text.json_file import check_ids
from weft_export.converters.text.settings import MAX_IDS, NAMES, Names, Token, TokenizerSettings

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
    # What one entry calls special stays so, whatever another entry of the same text says.
    special |= {each.content for each in tokens if each.special}
    special |= {each.content for each in tokenizer.get_added_tokens_decoder().values() if each.special}
    for token in tokens:
        token.special = token.special or str(token) in special
    tokenizer.add_tokens(tokens)


def made(where: Path, make: Callable[[], Made]) -> Made:
    """Return what `make` does. What the tokenizers library refuses, a panic included, is a CheckpointError."""
    return tried(f"{where} does not make a tokenizer", make)
