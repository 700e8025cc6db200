"""The tokenizer inside a GGUF file, as tokenizer.json and tokenizer_config.json of a Hugging Face directory.

The file has the pieces, and names how texts are cut (tokenizer.ggml.pre). It does not say how: llama.cpp knows.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from weft_export.converters.fields import Fields
from weft_export.converters.gguf.header import Header
from weft_export.converters.text.byte_level import bos_and_eos, cut_as_qwen, cut_by
from weft_export.converters.text.fast import JSON_FILE, made
from weft_export.converters.text.kind import TokenizerKind
from weft_export.converters.text.kinds import AS_IT_IS
from weft_export.converters.text.pieces import GEMMA, LLAMA, SPACE
from weft_export.converters.text.settings import CONFIG, TokenizerSettings
from weft_export.converters.text.vocabulary import Merges, Vocabulary, merges_of
from weft_export.errors import CheckpointError

_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
# What says nothing that a text or an answer depends on.
_UNUSED = (
    *(f"ggml.{each}_token_id" for each in ("seperator", "cls", "mask", "prefix", "suffix", "middle")),
    *(f"ggml.fim_{each}_token_id" for each in ("pre", "suf", "mid", "pad", "rep", "sep")),
    "ggml.token_type_count",
    "huggingface.json",
)
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# How Llama 3 and Mistral Nemo cut a text into words, as their own tokenizer.json state it.
_LLAMA3_WORDS = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _by_gpt2() -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _by_digits() -> PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _by_gpt2()])


# Values of tokenizer.ggml.pre. Of the second group, a word that is a piece is taken whole, whatever the merges say, and
# a text begins with a token unless the file says otherwise.
_CUTS: Mapping[str, Callable[[], PreTokenizer]] = {
    **dict.fromkeys(("gpt-2", "phi-2", "olmo"), _by_gpt2),
    **dict.fromkeys(("smollm", "starcoder"), _by_digits),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), cut_as_qwen),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), lambda: cut_by(Regex(_LLAMA3_WORDS))),
    "tekken": lambda: cut_by(Regex(_TEKKEN_WORDS)),
}
_WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3", "tekken")


def write_tokenizer(header: Header, architecture: str, directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Write the two files of a tokenizer; return what generation_config.json says of special tokens, and notes.

    Raises:
        CheckpointError: the tokenizer is of a kind that is not read, or its parts do not fit each other.
    """
    said = {
        key.removeprefix("tokenizer."): value for key, value in header.values.items() if key.startswith("tokenizer.")
    }
    fields = Fields(said, f"{header.paths[0]}: tokenizer")
    fields.skip(*_UNUSED)
    for key, harmless in (("ggml.remove_extra_whitespaces", False), ("ggml.add_sep_token", False)):
        fields.only(key, harmless)
    tokens = _strings(fields, "ggml.tokens")
    kind = fields.word("ggml.model")
    named = {name: _token(fields, tokens, f"ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    pre = fields.word("ggml.pre", "")
    options = {
        "add_bos_token": fields.flag("ggml.add_bos_token", default=kind == "llama" or pre in _WHOLE_WORDS),
        "add_eos_token": fields.flag("ggml.add_eos_token", default=False),
        "add_prefix_space": fields.flag("ggml.add_space_prefix", default=kind == "llama"),
    }
    settings = TokenizerSettings(directory, options, named, None, {}, has_json=False)
    tokenizer = made(header.paths[0], lambda: _assembled(fields, tokens, settings, (kind, pre), architecture))
    (directory / JSON_FILE).write_text(tokenizer.to_str(), encoding="utf-8")
    config = {"tokenizer_class": AS_IT_IS, **named, "chat_template": fields.raw("chat_template")}
    (directory / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    more = [key for key in said if key.startswith(("chat_template.", "chat_templates"))]
    fields.skip(*more)
    notes = (
        [f"of several chat templates only the default one is taken; the others are {', '.join(more)}"] if more else []
    )
    generation = _generation(fields, len(tokens))
    fields.check_all_read()
    return generation, notes


def _assembled(
    fields: Fields, tokens: list[str], settings: TokenizerSettings, kinds: tuple[str, str], architecture: str
) -> Tokenizer:
    kind, pre = kinds
    if kind == "llama":
        fields.skip("ggml.merges")
        of_kind = GEMMA if architecture.startswith("gemma") else LLAMA
        tokens = [_respelled(token) for token in tokens] if of_kind is GEMMA else tokens
        tokenizer = _of_pieces(of_kind, tokens, settings)
        if architecture == "phi3":
            _put_before(tokenizer)
    elif kind == "gpt2":
        tokenizer = _of_bytes(fields, tokens, pre)
    else:
        raise fields.wrong("ggml.model", "is not read; llama and gpt2 are")
    fields.skip("ggml.scores")
    tokenizer.add_tokens(list(_added(fields, tokens)))
    tokenizer.post_processor = bos_and_eos(tokenizer, settings, settings.named)
    return tokenizer


def _of_pieces(kind: TokenizerKind, tokens: list[str], settings: TokenizerSettings) -> Tokenizer:
    """Return SentencePiece's BPE. Its pieces lie in the order in which they were learned, which the scores repeat."""
    ids = {token: id_ for id_, token in enumerate(tokens)}
    return kind.assemble(Vocabulary(ids, [], merges_of(ids)), settings, {**kind.names, **_given(settings.named)})


def _of_bytes(fields: Fields, tokens: list[str], pre: str) -> Tokenizer:
    """Return byte-level BPE."""
    if pre not in _CUTS:
        raise fields.wrong("ggml.pre", f"is not read; known are {', '.join(sorted(_CUTS))}")
    merges: Merges = []
    for merge in _strings(fields, "ggml.merges"):
        left, _, right = merge.partition(" ")
        merges.append((left, right))
    ids = {token: id_ for id_, token in enumerate(tokens)}
    model = models.BPE(ids, merges, fuse_unk=False, ignore_merges=pre in _WHOLE_WORDS)
    tokenizer = Tokenizer(model)
    if pre in {"qwen2", "deepseek-r1-qwen"}:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _CUTS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _respelled(token: str) -> str:
    """Return a piece of several spaces as a text has them: the file has them as they are, and all others with ▁."""
    return SPACE * len(token) if token and not token.strip(" ") else token


def _put_before(tokenizer: Tokenizer) -> None:
    """Put a space before each part of a text, as Phi 3's own tokenizer does."""
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.pre_tokenizer = None


def _added(fields: Fields, tokens: list[str]) -> Iterator[AddedToken]:
    """Yield the tokens that are found whole in a text."""
    kinds = fields.raw("ggml.token_type") or [_NORMAL] * len(tokens)
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise fields.wrong("ggml.token_type", f"must have an entry for each of {len(tokens)} tokens")
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (_CONTROL, _USER_DEFINED) and token:
            yield AddedToken(token, normalized=False, special=kind == _CONTROL)


def _generation(fields: Fields, num_tokens: int) -> dict[str, Any]:
    """An answer ends with each token that the file says ends a text, a turn or a message."""
    ends = [fields.raw(f"ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    ends = list(dict.fromkeys(end for end in ends if end is not None))
    for end in ends:
        if type(end) is not int or not 0 <= end < num_tokens:
            raise fields.wrong("ggml.eot_token_id", f"must be the id of one of {num_tokens} tokens")
    return {
        "bos_token_id": fields.raw("ggml.bos_token_id"),
        "eos_token_id": ends,
        "pad_token_id": fields.raw("ggml.padding_token_id"),
    }


def _given(named: Mapping[str, Any]) -> dict[str, Any]:
    return {name: token for name, token in named.items() if token is not None}


def _token(fields: Fields, tokens: list[str], key: str) -> str | None:
    id_ = fields.raw(key)
    if id_ is None:
        return None
    if type(id_) is not int or not 0 <= id_ < len(tokens):
        raise fields.wrong(key, f"must be the id of one of {len(tokens)} tokens")
    return tokens[id_]


def _strings(fields: Fields, key: str) -> list[str]:
    value = fields.raw(key)
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise CheckpointError(f"{fields.place} has no list of strings {key}")
    return value
