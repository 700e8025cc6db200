"""Models whose ids stand in a vocab.json apart from their SentencePiece model: Marian and M2M100."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from weft_export.converters.text.added import Added, added_beside
from weft_export.converters.text.fast import made
from weft_export.converters.text.json_file import read_ids
from weft_export.converters.text.pieces import SPACE
from weft_export.converters.text.settings import Names, TokenizerSettings, text_of
from weft_export.converters.text.spm_model import BPE, UNIGRAM, SpmModel, read_spm_model
from weft_export.converters.text.spm_text import MARK, decoder, matchable, normalizer_of, splits_at_spaces
from weft_export.converters.text.vocabulary import merges_of
from weft_export.errors import CheckpointError

# The languages that an M2M-100 knows without saying so in its files, in the order of their ids.
_M2M_100 = """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig
ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so
sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""
M2M_100 = tuple(_M2M_100.split())
WMT_21 = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")
MARIAN_NAMES: Names = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
M2M_NAMES: Names = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


# A score less than that of any other way to read the same characters.
_NEVER = -1e6


@dataclass(frozen=True)
class Tokens:
    """A tokenizer whose ids are those of a vocab.json.

    Attributes:
        content: tokenizers JSON.
        ids: the id of each token that has an embedding.
        num_unknown: so many pieces of the model are not in vocab.json. Each stands for the unknown token.
        notes: what a user should hear of its added tokens.
    """

    content: dict[str, Any]
    ids: Mapping[str, int]
    num_unknown: int
    notes: tuple[str, ...]


def marian(settings: TokenizerSettings, names: Names, vocab_size: int, side: str, *, spare: bool) -> Tokens:
    """Make Marian's tokenizer of one side, "source" or "target".

    vocab.json has the pieces of both sides. A piece of the other side is found only where it is a whole run of
    characters that this side's model does not know, as transformers finds it. Where there are `spare` ids, from
    vocab_size on, the pieces that are not in vocab.json have them; else they are never found.
    """
    where = settings.where
    apart = side == "target" and settings.flag("separate_vocabs", default=False)
    path = where / ("target_vocab.json" if apart else "vocab.json")
    pieces = read_ids(path, vocab_size)
    added = added_beside(path, pieces, settings, vocab_size, apart=apart)
    ids = {**pieces, **added.ids}
    further = _further(settings, ids, added, apart=apart)
    model = _model(where / f"{side}.spm", UNIGRAM)
    own = matchable(model)
    unk_id, eos_id = (_id_of(path, ids, names, name) for name in ("unk_token", "eos_token"))
    # A place that no text can have: MARK is only ever put around what is no piece of this side.
    places = {id_: (MARK + token + MARK, 0.0) for token, id_ in ids.items()}
    places |= {ids[token]: (token, score) for token, score in own.items() if token in ids}
    beyond = [(token, score) for token, score in own.items() if token not in ids]
    gaps = (f"{MARK}{id_}{MARK}{MARK}" for id_ in range(vocab_size))
    scores = [places.get(id_, (gap, 0.0)) for id_, gap in enumerate(gaps)]
    special = [str(token) for token in names.values() if token is not None]
    codes = [token for token in pieces if token.startswith(">>") and token.endswith("<<")]
    # Special tokens are found in a text before its model reads, and not by it. A language is never found in one: a
    # request names it. What the model has as well keeps its score.
    for token in (*special, *codes, *further, *(each.content for each in added.tokens)):
        if token in ids and token not in own:
            scores[ids[token]] = (token, _NEVER)
    unigram = models.Unigram([*scores, *beyond] if spare else scores, unk_id=unk_id, byte_fallback=False)
    tokenizer = made(path, lambda: Tokenizer(unigram))
    tokenizer.normalizer = made(path, lambda: normalizer_of(model, marks_unknown=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never", split=splits_at_spaces(own))
    special += further
    added = added if apart else _told(added, names, MARIAN_NAMES, ids, special)
    return _finished(tokenizer, ids, special, (str(names["eos_token"]), eos_id), len(beyond), added)


def m2m_100(settings: TokenizerSettings, names: Names, vocab_size: int, *, spare: bool) -> Tokens:
    """Make M2M100's tokenizer. The tokens of its languages have the ids behind those of vocab.json.

    `spare` is as for marian.
    """
    path = settings.where / "vocab.json"
    ids = dict(read_ids(path, vocab_size))
    unk_token = text_of(names, "unk_token")
    model = _model(settings.where / "sentencepiece.bpe.model", BPE)
    own = matchable(model)
    codes = m2m_codes(settings)
    first = len(ids)
    ids |= {f"__{code}__": first + index for index, code in enumerate(codes)}
    if first + len(codes) > vocab_size:
        raise CheckpointError(
            f"{path}: with its languages it has {first + len(codes)} tokens; the model has {vocab_size}"
        )
    _check_languages(settings, codes)
    added = added_beside(path, ids, settings, vocab_size)
    ids |= added.ids
    _id_of(path, ids, names, "unk_token")
    eos_id = _id_of(path, ids, names, "eos_token")
    beyond = [token for token in own if token not in ids]
    all_ids = ids | ({token: vocab_size + index for index, token in enumerate(beyond)} if spare else {})
    merges = merges_of({piece.text: index for index, piece in enumerate(model.pieces) if piece.text in all_ids})
    bpe = made(path, lambda: models.BPE(all_ids, merges, unk_token=unk_token, fuse_unk=True))
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = made(path, lambda: normalizer_of(model))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never", split=splits_at_spaces(own))
    # A text may name a language, too, where the files list the languages among their special tokens.
    special = [str(token) for token in names.values() if token is not None] + _further(settings, ids, added)
    added = _told(added, names, M2M_NAMES, ids, special)
    return _finished(tokenizer, ids, special, (str(names["eos_token"]), eos_id), len(beyond), added)


def _check_languages(settings: TokenizerSettings, codes: tuple[str, ...]) -> None:
    """Raise CheckpointError where a language is a further special token, and others alone are added with their ids.

    transformers then gives the language another id than the model was trained with.
    """
    listed = {token.content for token in settings.added.values()}
    missing = [token for token in (f"__{code}__" for code in codes) if token in {*settings.texts} - listed]
    if listed and missing:
        raise CheckpointError(
            f"{settings.where}: {missing[0]} is an extra special token, and the files add others without its id:"
            " write it into added_tokens_decoder or added_tokens.json too"
        )


def m2m_codes(settings: TokenizerSettings) -> tuple[str, ...]:
    """Return the languages of an M2M100 checkpoint, which are one of two sets."""
    name = settings.text("language_codes") or "m2m100"
    known = {"m2m100": M2M_100, "wmt21": WMT_21}
    if name not in known:
        raise settings.wrong(f"language_codes is {name!r:.40}; known are m2m100 and wmt21")
    return known[name]


def _model(path: Path, algorithm: int) -> SpmModel:
    if not path.exists():
        raise CheckpointError(f"{path} is missing: the model's texts cannot be read")
    model = read_spm_model(path)
    if model.algorithm != algorithm:
        raise CheckpointError(f"{path} is a SentencePiece model of another kind than this tokenizer's class has")
    return model


def _id_of(path: Path, ids: Mapping[str, int], names: Names, name: str) -> int:
    """The id of a special token that these classes cannot do without."""
    token = text_of(names, name)
    if token is None or token not in ids:
        raise CheckpointError(f"{name} is {token!r:.40}, which has no id in {path}, nor as an added token")
    return ids[token]


def _further(settings: TokenizerSettings, ids: Mapping[str, int], added: Added, *, apart: bool = False) -> list[str]:
    """Return the further special tokens that the files name. CheckpointError for one without an id.

    apart: whether the ids are not those of vocab.json, and have them no more than that.
    """
    further = [token for token in settings.texts if token not in added.without_embedding]
    if apart:
        return [token for token in further if token in ids]
    for token in further:
        if token not in ids:
            raise CheckpointError(
                f"{settings.where}: extra_special_tokens or additional_special_tokens has {token!r:.40}, which has no"
                " id in vocab.json, nor as an added token"
            )
    return further


def _told(added: Added, names: Names, usual: Names, ids: Mapping[str, int], special: list[str]) -> Added:
    """Return what is added, with notes of special tokens that have no id, and of usual ones that are none."""
    notes = [
        f"{name} is {str(token)!r:.40}, which has no id in vocab.json: transformers gives it one behind all others, and"
        " here it is read as plain text"
        for name, token in names.items()
        if token is not None and str(token) not in ids and str(token) not in added.without_embedding
    ]
    # SentencePiece writes nothing for its own <s>, and a mark for <unk>.
    notes += [
        f"{name} is {text_of(names, name)!r:.40}: {token!r} is no special token then, and is written into answers as"
        " it is"
        for name, token in usual.items()
        if token in ids and token not in special
    ]
    return replace(added, notes=(*added.notes, *notes))


def _finished(
    tokenizer: Tokenizer, ids: Mapping[str, int], special: list[str], end: tuple[str, int], beyond: int, added: Added
) -> Tokens:
    """Add the added tokens and the end. `end` is the token that each text ends with, and its id."""
    plain = {token: AddedToken(token, normalized=False) for token in special if token in ids}
    tokens = {**plain, **{token.content: token for token in added.tokens}}
    for token in tokens.values():
        # What no other file names as special is written into an answer, whatever is said of the token itself.
        token.special = token.content in special
    tokenizer.add_tokens([*tokens.values()])
    tokenizer.decoder = decoder()
    tokenizer.post_processor = TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    return Tokens(json.loads(tokenizer.to_str()), ids, beyond, added.notes)
