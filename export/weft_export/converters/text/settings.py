"""What the small files beside a tokenizer say of it: tokenizer_config.json, special_tokens_map.json, added_tokens.json.

The order in which one file overrules another is that of transformers 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from weft_export.converters.keys import NEUTRAL, USED, Noted, Only, Table
from weft_export.converters.text.json_file import check_ids, read_object, read_object_if_there
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import LIMITS

CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# Options with the names of tokens. Where there is a tokenizer.json, transformers does not read them.
_FRAMES = ("add_bos_token", "add_eos_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
MAX_IDS = int(LIMITS["TextSpec"]["source_vocab_size"].maximum or 0)

Token = str | AddedToken
Names = Mapping[str, Token | None]
"""Special tokens by their names, such as `eos_token`."""
# What each key of a tokenizer_config.json is to a bundle: those that transformers 5.23 reads, and older ones.
_USED_OPTIONS = """
tokenizer_class model_max_length max_len added_tokens_decoder chat_template model_input_names
extra_special_tokens additional_special_tokens model_specific_special_tokens
add_bos_token add_eos_token add_prefix_space trim_offsets legacy legacy_behaviour
do_lower_case strip_accents tokenize_chinese_chars keep_accents split_by_punct
source_lang target_lang separate_vocabs language_codes extra_ids offset mask_token_sent unk_id
clean_up_tokenization_spaces clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output truncation_side
padding_side
"""
# How a batch is filled up and cut, which a server does in its own way; names of files; what the class does not ask.
_NEUTRAL_OPTIONS = """
padding pad_to_multiple_of pad_token_type_id truncation truncation_strategy
max_length stride return_token_type_ids return_attention_mask
name_or_path tokenizer_file vocab_file merges_file special_tokens_map_file files_loaded is_local local_files_only
source_spm target_spm spm_file backend use_fast verbose processor_class auto_map image_processor_class
transformers_version tokenizer_type
src_lang tgt_lang language task predict_timestamps num_madeup_words vocab_type remove_space
do_basic_tokenize never_split use_default_system_prompt spaces_between_special_tokens
response_template response_schema chat_control_tokens
token_type_ids_pattern token_type_ids_include_special_tokens special_tokens_pattern
"""
OPTION_KEYS: Table = {
    **dict.fromkeys(_USED_OPTIONS.split(), USED),
    **dict.fromkeys(_NEUTRAL_OPTIONS.split(), NEUTRAL),
    "split_special_tokens": Only((False,)),
    # What a class is called with besides its keys: of CamemBERT, the vocabulary.
    "init_inputs": Only(),
    # They may ask for pieces that are drawn at random.
    "sp_model_kwargs": Only(),
    "errors": Noted(("replace",), "bytes that are no UTF-8 are written as U+FFFD"),
    "normalize": Noted((False,), "what a Whisper writes is not normalised"),
}
CLEANS = "clean_up_tokenization_spaces"
"""Whether spaces before marks are taken out of what is written: `Yes .` becomes `Yes.`."""
CLEANS_BPE = f"{CLEANS}_for_bpe_even_though_it_will_corrupt_output"


@dataclass(frozen=True)
class TokenizerSettings:
    """What a directory says of a tokenizer beside its vocabulary.

    Attributes:
        where: the directory.
        options: tokenizer_config.json as it is.
        named: special tokens by their names, such as eos_token. None: the model has none.
        extra: further special tokens in the place of a class's own: extra_special_tokens, and those that
            tokenizer_config.json calls additional_special_tokens. None where the files do not say.
        added: tokens beside the vocabulary, by their ids.
        has_json: whether there is a tokenizer.json.
        padding: the pad_token that its section on padding names, where nothing else does.
        additional: additional_special_tokens otherwise, as special_tokens_map.json alone may say it. A class decides
            how they go with its own. None where the files do not say.
        texts: further special tokens as a class finds them that runs SentencePiece itself: by their text alone, and
            not at all where a list of tokenizer_config.json has them as objects without a type.
        notes: what a user should hear of special_tokens_map.json.
    """

    where: Path
    options: Mapping[str, Any]
    named: Mapping[str, Token | None]
    extra: tuple[Token, ...] | None
    added: Mapping[int, AddedToken]
    has_json: bool
    padding: Mapping[str, Token] = field(default_factory=dict)
    additional: tuple[Token, ...] | None = None
    texts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def further(self) -> tuple[Token, ...]:
        """Further special tokens, for a class that has none of its own."""
        return self.additional or () if self.extra is None else self.extra

    def flag(self, name: str, *, default: bool) -> bool:
        """Return an option that is true or false; null means the default. CheckpointError for any other value."""
        value = self.options.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(f"{name} is {value!r:.40}, not true or false")
        return default if value is None else value

    def number(self, name: str, *, default: int, most: int) -> int:
        """Return an option that counts. CheckpointError for what is no number from 0 to `most`."""
        value = self.options.get(name, default)
        if type(value) is not int or not 0 <= value <= most:
            raise self.wrong(f"{name} is {value!r:.40}, not a number from 0 to {most}")
        return value

    def text(self, name: str) -> str | None:
        """Return an option that is a string, or None. Anything else is a CheckpointError."""
        value = self.options.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(f"{name} is {value!r:.40}, not a string")
        return value

    def wrong(self, complaint: str) -> CheckpointError:
        """Return the error that something is wrong with tokenizer_config.json."""
        return CheckpointError(f"{self.where / CONFIG}: {complaint}")


def read_settings(directory: Path, tokenizer_json: Mapping[str, Any] | None) -> TokenizerSettings:
    """Read the small files of a directory. Any of them may be missing.

    Args:
        directory: where they are.
        tokenizer_json: what tokenizer.json holds, if there is one.

    Raises:
        CheckpointError: a file cannot be read, or does not say what it must.
    """
    options = read_object_if_there(directory / CONFIG)
    unread = _FRAMES if tokenizer_json is not None else ()
    said = {name: value for name, value in options.items() if name not in unread and not _is_no_token(name, value)}
    special: dict[str, Any] = {}
    extra_key = "extra_special_tokens"
    if "additional_special_tokens" in said and not said.get("extra_special_tokens"):
        extra_key = "additional_special_tokens"
        said["extra_special_tokens"] = said.pop(extra_key)
    listed = _pop_named(said)
    if "added_tokens_decoder" in options:
        added = _added_tokens(directory / CONFIG, options["added_tokens_decoder"])
    else:
        special = read_object_if_there(directory / SPECIAL)
        said |= {name: value for name, value in special.items() if name != "extra_special_tokens"}
        if "extra_special_tokens" in special:
            more = special["extra_special_tokens"]
            extra_key = "extra_special_tokens" if extra_key not in options else f"{extra_key} or extra_special_tokens"
            before = said.get("extra_special_tokens") or []
            # What is no list is refused below.
            is_wrong = isinstance(more, list) and not isinstance(before, list)
            said["extra_special_tokens"] = before if is_wrong else _behind(before, more)
            listed |= _pop_named(said)
        added = _loose_tokens(directory, said, tokenizer_json)
    by_text = {str(token): token for token in added.values()}
    named = {
        name: _token(directory / (SPECIAL if name in special else CONFIG), name, said[name]) for name in _named(said)
    }
    extra = said.get("extra_special_tokens")
    if "extra_special_tokens" in said:
        extra = extra or []  # null, too, stands in the place of a class's own
    # Tokens of one model have names. What the file calls so counts where nothing else names such a token.
    own = said.get("model_specific_special_tokens") if set(named) <= set(NAMES) else None
    if listed:
        named |= _own_tokens(directory, extra_key, listed)
    elif isinstance(own, dict):
        named |= _own_tokens(directory, "model_specific_special_tokens", own)
    return TokenizerSettings(
        where=directory,
        options=options,
        named={name: by_text.get(str(token), token) for name, token in named.items()},
        extra=_some_tokens(directory, extra_key, extra),
        added=dict(sorted(added.items())),
        has_json=tokenizer_json is not None,
        padding=_padding(tokenizer_json),
        additional=_some_tokens(directory, "additional_special_tokens", said.get("additional_special_tokens")),
        texts=_texts(said.get("additional_special_tokens") if extra is None else extra),
        notes=_of_special(special),
    )


def _padding(tokenizer_json: Mapping[str, Any] | None) -> dict[str, Token]:
    section = (tokenizer_json or {}).get("padding")
    token = section.get("pad_token") if isinstance(section, dict) else None
    return {"pad_token": token} if isinstance(token, str) else {}


def _is_own(name: str) -> bool:
    """Whether a key may name a token that only some models have, such as image_token."""
    return name.endswith("_token") and name not in (*NAMES, *_FRAMES)


def _of_special(special: Mapping[str, Any]) -> tuple[str, ...]:
    """Tell what special_tokens_map.json has besides tokens: to transformers, options of the class, and null is one."""
    more = [name for name in special if name not in (*NAMES, *_LISTS) and not _is_own(name)]
    return (f"{SPECIAL} has keys that are no tokens, and that are not followed: {', '.join(more[:8])}",) if more else ()


def _is_no_token(name: str, value: Any) -> bool:
    """Whether an object of tokenizer_config.json is no token, although its key ends so: one that has no type."""
    is_named = name in NAMES or not name.endswith("_token")
    return not is_named and isinstance(value, dict) and not _has_type(value)


def _has_type(value: Mapping[str, Any]) -> bool:
    return value.get("__type") == "AddedToken"


def _pop_named(said: dict[str, Any]) -> dict[str, Any]:
    """Take out the extra_special_tokens that are no list, but have names."""
    return said.pop("extra_special_tokens") if isinstance(said.get("extra_special_tokens"), dict) else {}


def _behind(before: Any, more: Any) -> Any:
    """The extra_special_tokens of special_tokens_map.json behind those before: there an object is a token as it is."""
    if not isinstance(more, list):
        return more
    tokens = ({"special": True, **each, "__type": "AddedToken"} if isinstance(each, dict) else each for each in more)
    return [*before, *tokens]


def _texts(values: Any) -> tuple[str, ...]:
    listed = values if isinstance(values, list) else []
    return tuple(_content(each) for each in listed if not isinstance(each, dict) or _has_type(each))


def _named(said: Mapping[str, Any]) -> list[str]:
    """The names of special tokens: the usual ones, and those that only some models have, such as image_token."""
    own = [name for name, value in said.items() if name.endswith("_token") and isinstance(value, str | dict)]
    return [*(name for name in NAMES if name in said), *(name for name in own if name not in NAMES)]


def _own_tokens(directory: Path, key: str, own: Mapping[str, Any]) -> dict[str, Token | None]:
    """Read tokens that a file lists by names that only some models have. A class may have no second of the others."""
    if again := [name for name in NAMES if name in own]:
        raise CheckpointError(f"{directory}: {key} names {again[0]}, which is a key of its own")
    return {name: _token(directory / CONFIG, name, value) for name, value in own.items()}


def _extra_list(said: Mapping[str, Any]) -> list[Any]:
    extra = said.get("extra_special_tokens") or []
    return list(extra) if isinstance(extra, list) else []


def _added_tokens(path: Path, decoder: Any) -> dict[int, AddedToken]:
    if not isinstance(decoder, dict):
        raise CheckpointError(f"{path}: added_tokens_decoder is not an object")
    where = f"{path}: added_tokens_decoder"
    ids = check_ids(where, {key: int(key) if key.isdecimal() else key for key in decoder}, MAX_IDS)
    return {ids[key]: _added_token(path, "added_tokens_decoder", value) for key, value in decoder.items()}


def _loose_tokens(
    directory: Path, said: Mapping[str, Any], tokenizer_json: Mapping[str, Any] | None
) -> dict[int, AddedToken]:
    """Tokens of added_tokens.json, which older directories have, and those of tokenizer.json."""
    path = directory / ADDED
    special = {_content(said[name]) for name in NAMES if said.get(name)}
    special |= {_content(token) for token in _extra_list(said)}
    added = {}
    for token, id_ in check_ids(path, read_object_if_there(path), MAX_IDS).items():
        is_special = token in special
        added[id_] = AddedToken(token, normalized=not is_special, special=is_special)
    where = directory / "tokenizer.json"
    listed = (tokenizer_json or {}).get("added_tokens") or []
    for entry in listed if isinstance(listed, list) else [listed]:
        fields = dict(entry) if isinstance(entry, dict) else {}
        id_ = fields.pop("id", None)
        check_ids(where, {str(fields.get("content")): id_}, MAX_IDS)
        added[id_] = _added_token(where, "added_tokens", fields)
    return added


def _content(token: Any) -> str:
    return str(token.get("content")) if isinstance(token, dict) else str(token)


def _token(path: Path, key: str, value: Any) -> Token | None:
    if value is None or isinstance(value, str):
        return value
    return _added_token(path, key, value | {"special": True} if isinstance(value, dict) else value)


def _some_tokens(directory: Path, key: str, values: Any) -> tuple[Token, ...] | None:
    if values is not None and not isinstance(values, list):
        raise CheckpointError(f"{directory / CONFIG}: {key} is no list")
    return None if values is None else tuple(_some_token(directory / CONFIG, key, value) for value in values)


def _some_token(path: Path, key: str, value: Any) -> Token:
    # Unlike one with a name, such a token is special only where it says so itself.
    token = _added_token(path, key, value) if isinstance(value, dict) else _token(path, key, value)
    if not token:
        raise CheckpointError(f"{path}: {key} has an empty token")
    return token


def _added_token(path: Path, key: str, value: Any) -> AddedToken:
    fields = {"content", "single_word", "lstrip", "rstrip", "normalized", "special"}
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise CheckpointError(f"{path}: {key} is {value!r:.60}, which is no token: it has no content")
    flags = {name: bool(flag) for name, flag in value.items() if name in fields - {"content"}}
    return AddedToken(value["content"], **flags)


def length_said(options: Mapping[str, Any]) -> Any:
    """Return the longest text as tokenizer_config.json has it, by its present name or the older one."""
    return options.get("model_max_length", options.get("max_len"))


def read_tokenizer_json(directory: Path) -> dict[str, Any] | None:
    """Read tokenizer.json as JSON, or None where there is none. Otherwise as read_object."""
    path = directory / "tokenizer.json"
    return read_object(path) if path.exists() else None


def text_of(names: Names, name: str) -> str | None:
    """Return a special token as text, or None where there is none."""
    token = names.get(name)
    return None if token is None else str(token)
