"""All that a Hugging Face directory says of texts, as a bundle holds it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from weft_export.converters.text.chat import TEMPLATE_FILE, read_chat
from weft_export.converters.text.fast import JSON_FILE, as_it_is, made, names_of, of_kind
from weft_export.converters.text.kind import Names, text_of
from weft_export.converters.text.kinds import KINDS, class_of
from weft_export.converters.text.languages import languages_of
from weft_export.converters.text.settings import Settings, read_settings, read_tokenizer_json
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_READ_BYTES
from weft_proto.v1 import bundle_pb2

_WITH_ID = ("bos_token", "eos_token", "pad_token", "unk_token")
MAX_LENGTH = 10**9
"""From this model_max_length on, a file says that it does not know. transformers writes 10^30 then."""


@dataclass(frozen=True)
class TextSide:
    """What a directory says of texts.

    Attributes:
        files: what a bundle holds of it, by file name: tokenizers as Hugging Face tokenizers JSON, a chat template.
        source_tokenizer: the file that encodes sources or prompts.
        target_tokenizer: the file that decodes answers; the same one but for models with a vocabulary on each side.
        bos_id: the token that a text begins with; None, as below, where the model has none.
        eos_id: the token that a text ends with.
        pad_id: the token that fills up a batch.
        unk_id: the token for what no other stands for.
        max_length: how many tokens the model's tokenizer says it takes; None where it does not say.
        chat: how messages become a prompt; None where the directory has no template.
        languages: what the model is given for each of its languages.
        source_languages: BCP-47 tags of what it translates from.
        target_languages: BCP-47 tags of what it translates into.
        notes: what a user should hear of it, a sentence each.
    """

    files: Mapping[str, bytes]
    source_tokenizer: str
    target_tokenizer: str
    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    unk_id: int | None
    max_length: int | None = None
    chat: bundle_pb2.ChatSpec | None = None
    languages: tuple[bundle_pb2.Language, ...] = ()
    source_languages: tuple[str, ...] = ()
    target_languages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_text_side(directory: Path, config: Mapping[str, Any], vocab_size: int) -> TextSide:
    """Read the tokenizer files of a Hugging Face directory.

    Args:
        directory: where they are.
        config: config.json. Its model_type tells which class of tokenizers is usual.
        vocab_size: how many tokens the model's embedding has.

    Raises:
        CheckpointError: a file is missing or wrong, or its tokens do not fit the embedding.
    """
    content = read_tokenizer_json(directory)
    settings = read_settings(directory, content)
    name = class_of(config, settings.options, content)
    notes: list[str] = []
    if name in KINDS:
        names: Names = names_of(KINDS[name], settings)
        tokenizer = of_kind(KINDS[name], settings, content, names)
    elif content is None:
        raise CheckpointError(f"{directory} has no {JSON_FILE}, and no tokenizer of a kind that can be made into one")
    else:
        names = settings.named
        tokenizer = as_it_is(settings, content)
    languages = languages_of(name, settings, tokenizer, vocab_size)
    tags = tuple(language.tag for language in languages)
    file = fitted(settings, tokenizer, vocab_size, notes)
    files = {JSON_FILE: file}
    chat = read_chat(settings, names)
    if chat is not None:
        files[TEMPLATE_FILE] = chat[0]
    ids = [_id(settings, tokenizer, names, each, vocab_size) for each in _WITH_ID]
    return TextSide(
        files=files,
        source_tokenizer=JSON_FILE,
        target_tokenizer=JSON_FILE,
        bos_id=ids[0],
        eos_id=ids[1],
        pad_id=ids[2],
        unk_id=ids[3],
        max_length=_max_length(settings),
        chat=None if chat is None else chat[1],
        languages=tuple(languages),
        source_languages=tags,
        target_languages=tags,
        notes=tuple(notes),
    )


def fitted(settings: Settings, tokenizer: Tokenizer, vocab_size: int, notes: list[str]) -> bytes:
    """Return a tokenizer as JSON, without the added tokens that have no embedding.

    Raises:
        CheckpointError: a piece of its vocabulary has none, or the file would be larger than a server reads.
    """
    content = json.loads(tokenizer.to_str())
    without = [token["content"] for token in content["added_tokens"] if token["id"] >= vocab_size]
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    highest = max(pieces, key=lambda piece: pieces[piece], default="")
    if pieces and pieces[highest] >= vocab_size:
        raise CheckpointError(
            f"{settings.where}: the tokenizer has the piece {highest!r:.60} with the id {pieces[highest]}, but the"
            f" model's embedding has {vocab_size} tokens"
        )
    if without:
        content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < vocab_size]
        notes.append(
            f"{len(without)} added tokens have no embedding and are read as plain text: {', '.join(without[:5])}"
        )
    content["truncation"] = content["padding"] = None
    file = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    if len(file) > MAX_READ_BYTES:
        raise CheckpointError(f"{settings.where}: the tokenizer takes {len(file)} bytes; {MAX_READ_BYTES} are allowed")
    checked = made(settings.where, lambda: Tokenizer.from_buffer(file))
    framing = made(settings.where, lambda: checked.encode("").ids)
    if max(framing, default=0) >= vocab_size:
        raise CheckpointError(f"{settings.where}: a special token that frames every text has no embedding")
    return file


def _id(settings: Settings, tokenizer: Tokenizer, names: Names, name: str, vocab_size: int) -> int | None:
    token = text_of(names, name)
    id_: int | None = None if token is None else tokenizer.token_to_id(token)
    if id_ is not None and id_ >= vocab_size:
        raise CheckpointError(f"{settings.where}: the {name} {token!r:.60} has the id {id_}, which has no embedding")
    return id_


def _max_length(settings: Settings) -> int | None:
    length = settings.options.get("model_max_length")
    return int(length) if isinstance(length, int | float) and 0 < length < MAX_LENGTH else None
