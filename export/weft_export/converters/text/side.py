"""All that a Hugging Face directory says of texts, as a bundle holds it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from weft_export.checkpoints.formats import WORLD_FILE
from weft_export.checkpoints.tokenizer import encode, tokenizer_of
from weft_export.converters.keys import check_keys
from weft_export.converters.text.chat import TEMPLATE_FILE, read_chat
from weft_export.converters.text.fast import JSON_FILE, as_it_is, made
from weft_export.converters.text.kinds import FILLED_LEFT, M2M_100, MARIAN, SEGMENTED, WHISPER, class_of, kind_of
from weft_export.converters.text.languages import Languages, languages_of, marian_languages
from weft_export.converters.text.settings import (
    CLEANS,
    CLEANS_BPE,
    CONFIG,
    OPTION_KEYS,
    Names,
    TokenizerSettings,
    length_said,
    read_settings,
    read_tokenizer_json,
    text_of,
)
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_READ_BYTES
from weft_proto.v1 import bundle_pb2

SOURCE_FILE, TARGET_FILE = "source_tokenizer.json", "target_tokenizer.json"
_WITH_ID = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token")
# In such texts two ways to cut a text into words differ.
_TRIED = ("a b", " a", "a ", "a  b", "a\nb", "Ab", "é", "12 345", "don't", "a▁b", "ﬁ", "漢字", "a!?", "<s>a")
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
        mask_id: the token that stands where others are asked for.
        num_unknown: so many ids from the embedding's size on stand for unk_id as well, when spare ids were allowed.
        max_length: how many tokens the model's tokenizer says it takes; None where it does not say.
        truncation_side: where transformers cuts a text that is too long, unless it is told otherwise: left or right.
        padding_side: where transformers fills up a short text: left or right.
        has_segments: whether a model with segments is told which token is of the second text (token_type_ids).
        has_mask: whether a model is told which tokens fill up a batch (attention_mask).
        cleans_up: whether transformers takes spaces before marks out of decoded texts, which Weft does not.
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
    mask_id: int | None = None
    num_unknown: int = 0
    max_length: int | None = None
    truncation_side: str = "right"
    padding_side: str = "right"
    has_segments: bool = False
    has_mask: bool = True
    cleans_up: bool = False
    chat: bundle_pb2.ChatSpec | None = None
    languages: tuple[bundle_pb2.Language, ...] = ()
    source_languages: tuple[str, ...] = ()
    target_languages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_text_side(
    directory: Path,
    config: Mapping[str, Any],
    vocab_size: int,
    *,
    spare_ids: bool = False,
    by_processor: bool = False,
) -> TextSide:
    """Read the tokenizer files of a Hugging Face directory.

    Args:
        directory: where they are.
        config: config.json. Its model_type tells which class of tokenizers is usual.
        vocab_size: how many tokens the model's embedding has.
        spare_ids: whether a source may have ids from vocab_size on, because the model gets a row of the embedding for
            each: a copy of unk_id's. Marian's models may need some, for pieces that are not in vocab.json. Without
            them such a piece is read as smaller ones.
        by_processor: whether a processor makes prompts, whose order of chat templates is another.

    Raises:
        CheckpointError: a file is missing or wrong, or its tokens do not fit the embedding.
    """
    content = read_tokenizer_json(directory)
    settings = read_settings(directory, content)
    name = class_of(config, settings.options, content)
    if name == WHISPER and config.get("model_type") != "whisper":
        raise CheckpointError(
            f"{settings.where} has tokenizer_class {name!r}, which puts the marks of a recording around a text: "
            "name the class of this model, or none"
        )
    tokens = _tokens(name, settings, content, vocab_size, spare=spare_ids)
    # A special token that only some models have, such as image_token, has a name of its own.
    options = {name: value for name, value in settings.options.items() if not name.endswith("_token")}
    notes = [*check_keys(CONFIG, options, OPTION_KEYS), *settings.notes, *tokens.notes]
    spare = tokens.num_unknown if spare_ids else 0
    if tokens.num_unknown > spare:
        notes.append(f"{tokens.num_unknown} pieces are not in vocab.json, and are read as smaller ones")
    most = vocab_size + spare
    files = {name: fitted(settings, each, most, notes) for name, each in tokens.contents.items()}
    chat = read_chat(settings, tokens.names, notes, by_processor=by_processor)
    if chat is not None:
        files[TEMPLATE_FILE] = chat[0]
    ids = [_id(tokens, name) for name in _WITH_ID]
    inputs = settings.options.get("model_input_names")
    return TextSide(
        files=files,
        source_tokenizer=next(iter(tokens.contents)),
        target_tokenizer=list(tokens.contents)[-1],
        bos_id=ids[0],
        eos_id=ids[1],
        pad_id=ids[2],
        unk_id=ids[3],
        mask_id=ids[4],
        num_unknown=spare,
        max_length=length_of(length_said(settings.options)),
        truncation_side=_side("truncation", settings, content, "right"),
        padding_side=_side("padding", settings, content, "left" if name in FILLED_LEFT else "right"),
        cleans_up=_cleans_up(settings, tokens),
        has_segments=_has_segments(name, settings),
        has_mask=inputs is None or "attention_mask" in inputs,
        chat=None if chat is None else chat[1],
        languages=tokens.languages.table,
        source_languages=tokens.languages.sources,
        target_languages=tokens.languages.targets,
        notes=tuple(notes),
    )


class _Tokens(NamedTuple):
    """Tokenizers as JSON, by the file of the source and then that of the target; and what their tokens are."""

    contents: Mapping[str, dict[str, Any]]
    ids: Mapping[str, int]
    names: Names
    languages: Languages
    num_unknown: int = 0
    notes: tuple[str, ...] = ()


def _tokens(
    name: str, settings: TokenizerSettings, content: Mapping[str, Any] | None, vocab_size: int, *, spare: bool
) -> _Tokens:
    if name in {MARIAN, M2M_100}:
        return _of_two_files(name, settings, vocab_size, spare=spare)
    kind = kind_of(name)
    if kind is not None:
        from weft_export.converters.text.remade import names_of, of_kind  # noqa: PLC0415 - late: others stay as they are

        names: Names = names_of(kind, settings)
        tokenizer = of_kind(kind, settings, content, names)
        notes = () if content is None else _notes(name, as_it_is(settings, content), tokenizer)
        notes += (kind.note,) if kind.note else ()
    elif content is not None:
        names, notes = {**settings.padding, **settings.named}, ()
        tokenizer = as_it_is(settings, content)
    elif (settings.where / WORLD_FILE).exists():
        raise CheckpointError(
            f"{settings.where} has {WORLD_FILE} and no {JSON_FILE}: code of the checkpoint would read it, which is"
            f" never run. Put that file beside the weights that RWKV's authors released, and give their .pth"
        )
    else:
        raise CheckpointError(
            f"{settings.where} has no {JSON_FILE}, and no other tokenizer of a kind that can be made into one"
        )
    ids = {token: id_ for token, id_ in tokenizer.get_vocab(with_added_tokens=True).items() if id_ < vocab_size}
    languages = languages_of(name, settings, ids)
    return _Tokens({JSON_FILE: json.loads(tokenizer.to_str())}, ids, names, languages, notes=notes)


def _of_two_files(name: str, settings: TokenizerSettings, vocab_size: int, *, spare: bool) -> _Tokens:
    from weft_export.converters.text import two_files  # noqa: PLC0415 - late: for the two classes that have them

    if name == M2M_100:
        names: Names = {**two_files.M2M_NAMES, **settings.named}
        tokens = two_files.m2m_100(settings, names, vocab_size, spare=spare)
        languages = languages_of(name, settings, tokens.ids)
        return _Tokens({JSON_FILE: tokens.content}, tokens.ids, names, languages, tokens.num_unknown, tokens.notes)
    names = {**two_files.MARIAN_NAMES, **settings.named}
    source = two_files.marian(settings, names, vocab_size, "source", spare=spare)
    # An answer is only ever decoded: it has no ids but the model's own.
    target = two_files.marian(settings, names, vocab_size, "target", spare=False)
    contents = {SOURCE_FILE: source.content, TARGET_FILE: target.content}
    languages = marian_languages(settings, source.ids)
    return _Tokens(contents, source.ids, names, languages, source.num_unknown, source.notes)


def _notes(name: str, given: Tokenizer, made_anew: Tokenizer) -> tuple[str, ...]:
    """Say whether tokenizer.json reads a text otherwise than the tokenizer that transformers 5 makes of its pieces."""
    for text in _TRIED:
        if encode(given, text, special=False).ids != encode(made_anew, text, special=False).ids:
            note = (
                f"tokenizer.json reads {text!r} otherwise than transformers 5, which makes a {name} of its pieces;"
                " the bundle reads as transformers does"
            )
            return (note,)
    return ()


def fitted(settings: TokenizerSettings, content: dict[str, Any], vocab_size: int, notes: list[str]) -> bytes:
    """Return a tokenizer as a file, without the added tokens that have no embedding.

    Raises:
        CheckpointError: a piece of its vocabulary has none, or the file would be larger than a server reads.
    """
    vocab = content["model"]["vocab"]
    pieces = vocab if isinstance(vocab, dict) else {piece: id_ for id_, (piece, _) in enumerate(vocab)}
    highest = max(pieces, key=lambda piece: pieces[piece], default="")
    if pieces and pieces[highest] >= vocab_size:
        raise CheckpointError(
            f"{settings.where}: the tokenizer has the piece {highest!r:.60} with the id {pieces[highest]}, but the"
            f" model's embedding has {vocab_size} tokens"
        )
    without = [token["content"] for token in content["added_tokens"] if token["id"] >= vocab_size]
    if without:
        content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < vocab_size]
        from weft_export.converters.text.added import without_embedding  # noqa: PLC0415 - late: few have such tokens

        notes.append(without_embedding(without))
    content["truncation"] = content["padding"] = None
    file = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    if len(file) > MAX_READ_BYTES:
        raise CheckpointError(f"{settings.where}: the tokenizer takes {len(file)} bytes; {MAX_READ_BYTES} are allowed")
    read = tokenizer_of(settings.where, file)
    if max(made(settings.where, lambda: read.encode("").ids), default=0) >= vocab_size:
        raise CheckpointError(f"{settings.where}: a special token that frames every text has no embedding")
    # The library's own Strip panics where nothing is left of a text.
    blank = [[], *([id_] for piece, id_ in pieces.items() if not piece.strip(" ▁Ġ"))]
    made(settings.where, lambda: read.decode_batch(blank))
    return file


def _id(tokens: _Tokens, name: str) -> int | None:
    """The id of a special token; None when it has no embedding."""
    token = text_of(tokens.names, name)
    return None if token is None else tokens.ids.get(token)


def _cleans_up(settings: TokenizerSettings, tokens: _Tokens) -> bool:
    """Whether it is said, and of effect: transformers leaves it out for BPE, unless another key insists."""
    kind = list(tokens.contents.values())[-1]["model"]["type"]
    return settings.flag(CLEANS, default=False) and (kind != "BPE" or settings.options.get(CLEANS_BPE) is True)


def _has_segments(name: str, settings: TokenizerSettings) -> bool:
    said = settings.options.get("model_input_names")
    return name in SEGMENTED if said is None else isinstance(said, list) and "token_type_ids" in said


def _side(what: str, settings: TokenizerSettings, content: Mapping[str, Any] | None, usual: str) -> str:
    """Return where a text is cut or filled up: what tokenizer_config.json says, or else the tokenizer itself."""
    section = (content or {}).get(what)
    said = section.get("direction") if isinstance(section, dict) else None
    return settings.text(f"{what}_side") or (said.lower() if isinstance(said, str) else usual)


def length_of(said: object) -> int | None:
    """Return a number of tokens that a file says, or None where it says none, or that it does not know."""
    if not isinstance(said, int | float) or isinstance(said, bool):
        return None
    return int(said) if 0 < said < MAX_LENGTH else None
