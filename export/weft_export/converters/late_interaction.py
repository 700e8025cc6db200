"""Directories of models with a vector for each token ("ColBERT", Khattab and Zaharia 2020), by whoever saved them.

PyLate and sentence-transformers (MultiVectorEncoder) have modules.json. Stanford's own library has artifact.metadata.
"""

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from weft_export.checkpoints.formats import MODULES
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.keys import NEUTRAL, USED, Only, Table, check_keys
from weft_export.converters.prompts import OF_EMBEDDERS, read_prompts
from weft_export.converters.sentence_files import MODEL, PYLATE, PYLATE_KEYS, late_class, modules_of, read_transformer
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.converters.text.side import TextSide
from weft_export.errors import CheckpointError
from weft_export.layers.reach import ALL
from weft_proto.v1 import bundle_pb2

STANFORD = "HF_ColBERT"
"""The class of Stanford's directories."""
METADATA = "artifact.metadata"
QUERY, DOCUMENT = OF_EMBEDDERS
_MEAN = "meanmaxsim"
_FIXED, _LEAST = "fixed", "min"
# Of both libraries, where a file does not say.
_QUERY_TOKENS, _DIMENSIONS = 32, 128
MASK_KEYS: Table = {
    "skiplist_words": USED,
    "skiplist_tasks": Only(([DOCUMENT],)),
    "keep_only_token_ids": Only(),
}
_STANFORD_KEYS: Table = {
    "query_token_id": USED,
    "doc_token_id": USED,
    "query_token": NEUTRAL,
    "doc_token": NEUTRAL,
    "query_maxlen": USED,
    "doc_maxlen": USED,
    "attend_to_mask_tokens": USED,
    "mask_punctuation": USED,
    "similarity": Only(("cosine",)),
    "dim": USED,
    "ncells": NEUTRAL,
    "interaction": Only(("colbert",)),
}


@dataclass(frozen=True)
class LateFiles:
    """What the files say of queries and documents.

    query_tokens, document_tokens: the longest; None: as long as the tokenizer's file says.
    fill_to: how long a query is at least. 0: queries are not filled up.
    fill_token: what it is filled up with; None: the token of masks.
    sees_filling: whether that is attended to.
    skipped: words of one token which have no vector in documents.
    markers: by the kind of a text, the token that stands before it.
    averages: a score is the mean over the tokens of the query.
    """

    query_tokens: int | None
    document_tokens: int | None
    fill_to: int
    fill_token: str | None
    sees_filling: bool
    skipped: tuple[str, ...]
    markers: dict[str, str]
    averages: bool


def is_late(directory: Path, config_classes: Any) -> bool:
    """Whether a directory is of such a model. config_classes: `architectures` of its config.json."""
    if (directory / MODULES).exists():
        return late_class(read_object_if_there(directory / MODEL)) is not None
    return bool(config_classes == [STANFORD])


def read_late(hf: HfCheckpoint) -> LateFiles:
    """Read the files of such a model. Raises CheckpointError for what cannot be followed."""
    return _saved(hf) if (hf.directory / MODULES).exists() else _stanfords(hf)


def _stanfords(hf: HfCheckpoint) -> LateFiles:
    given = read_object_if_there(hf.directory / METADATA)
    # The file has all settings of its training and of its index. Those of a search are none of a model.
    hf.fields.note(
        *check_keys(METADATA, {name: given[name] for name in given if name in _STANFORD_KEYS}, _STANFORD_KEYS)
    )
    word = _typed(METADATA, given, str)
    number = _typed(METADATA, given, int)
    flag = _typed(METADATA, given, bool)
    query_tokens = number("query_maxlen", _QUERY_TOKENS)
    return LateFiles(
        query_tokens=query_tokens,
        document_tokens=number("doc_maxlen", None),
        fill_to=query_tokens,
        fill_token=None,
        sees_filling=flag("attend_to_mask_tokens", False),
        skipped=tuple(string.punctuation) if flag("mask_punctuation", True) else (),
        # A blank behind them, as sentence-transformers has it: BERT's tokenizer drops it.
        markers={
            QUERY: word("query_token_id", "[unused0]") + " ",
            DOCUMENT: word("doc_token_id", "[unused1]") + " ",
        },
        averages=False,
    )


def _saved(hf: HfCheckpoint) -> LateFiles:
    given, transformer = read_object_if_there(hf.directory / MODEL), read_transformer(hf.directory)
    is_pylates = late_class(given) == PYLATE
    # As in sentence-transformers: what the first module's file says goes before that, in files of either library.
    of_model = _of_pylate(given) if is_pylates or any(name in given for name in PYLATE_KEYS) else {}
    said = {**of_model, **transformer.given}
    place, number, word = transformer.place, _typed(transformer.place, said, int), _typed(MODEL, given, str)
    query_tokens = number("query_length", None)
    filling = said.get("query_expansion")
    fill_to, sees, token = 0, False, None
    if filling is not None:
        if not isinstance(filling, dict) or filling.get("strategy") not in (_FIXED, _LEAST):
            raise CheckpointError(f"{place}: query_expansion is {filling!r:.80}, which cannot be followed")
        inner = f"{place}: query_expansion"
        fill_to = _typed(inner, filling, int)("length", 0)
        sees = _typed(inner, filling, bool)("attend", False)
        token = _typed(inner, filling, str)("token", None)
        query_tokens = fill_to if filling["strategy"] == _FIXED else query_tokens
    return LateFiles(
        query_tokens=query_tokens,
        document_tokens=number("document_length", None),
        fill_to=fill_to,
        fill_token=token,
        sees_filling=sees,
        skipped=_words(MODEL, given.get("skiplist_words"), tuple(string.punctuation)) if is_pylates else _masked(hf),
        markers={QUERY: word("query_prefix", ""), DOCUMENT: word("document_prefix", "")},
        averages=given.get("similarity_fn_name") == _MEAN,
    )


def _of_pylate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what PyLate says in the model's file, as sentence-transformers says it in that of the first module."""
    number, flag = (_typed(MODEL, given, kind) for kind in (int, bool))
    query_tokens = number("query_length", _QUERY_TOKENS if late_class(given) == PYLATE else None)
    said = {"query_length": query_tokens, "document_length": number("document_length", None)}
    if "query_expansion" in given:
        return {**said, "query_expansion": given["query_expansion"]}
    if not flag("do_query_expansion", True):
        return said
    attends = flag("attend_to_expansion_tokens", flag("attend_to_mask_tokens", False))
    filling = {"strategy": _FIXED, "attend": attends, "length": query_tokens or _QUERY_TOKENS}
    return {**said, "query_length": None, "query_expansion": filling}


def _masked(hf: HfCheckpoint) -> tuple[str, ...]:
    folders = [folder for kind, folder in modules_of(hf.directory) if kind == "MultiVectorMask"]
    mask = read_object_if_there(folders[0] / "config.json") if folders else {}
    hf.fields.note(*check_keys(f"{MODULES}: MultiVectorMask", mask, MASK_KEYS))
    return _words("MultiVectorMask", mask.get("skiplist_words"), ())


def stanford_width(hf: HfCheckpoint) -> int:
    """Return how many numbers a vector of Stanford's directory has."""
    width: int = _typed(METADATA, read_object_if_there(hf.directory / METADATA), int)("dim", _DIMENSIONS)
    return width


def _typed(place: str, given: Mapping[str, Any], kind: type[Any]) -> Callable[[str, Any], Any]:
    """Return what reads a value of a kind, or gives another where there is none. A number is at least 1."""

    def read(name: str, other: Any) -> Any:
        value: Any = given.get(name)
        if value is None:
            return other
        if type(value) is not kind or (kind is int and value < 1):
            raise CheckpointError(f"{place}: {name} is {value!r:.60}, which cannot be followed")
        return value

    return read


def _words(place: str, given: Any, other: tuple[str, ...]) -> tuple[str, ...]:
    if given is None:
        return other
    if not isinstance(given, list) or len(given) > 1024 or not all(isinstance(each, str) for each in given):
        raise CheckpointError(f"{place}: skiplist_words is no list of at most 1,024 words")
    return tuple(given)


@dataclass(frozen=True)
class Lengths:
    """How many tokens a query and a document have at most."""

    query: int
    document: int


def lengths_of(hf: HfCheckpoint, late: LateFiles, most: int) -> Lengths:
    """Return how long texts may be, of a body that takes `most`. Who chooses a length chooses that of documents.

    Raises:
        CheckpointError: queries are filled up to more than that.
    """
    said = read_transformer(hf.directory).longest if (hf.directory / MODULES).exists() else None
    document = late.document_tokens or said or most
    document = most if hf.options.max_tokens else min(document, most)
    query = late.query_tokens or document
    if late.fill_to > most:
        raise CheckpointError(f"queries are filled up to {late.fill_to} tokens, and texts have at most {most}")
    return Lengths(min(query, most), document)


def put_sides(text: bundle_pb2.TextSpec, hf: HfCheckpoint, sizes: Any, side: TextSide, files: dict[str, bytes]) -> None:
    """Put prompts, and how queries and documents are read. The tokenizer among `files` learns their markers."""
    late = read_late(hf)
    lengths = lengths_of(hf, late, max(sizes.max_tokens, hf.options.max_tokens or 0))
    if late.fill_to and not late.sees_filling and any(ALL < window < late.fill_to for window in sizes.windows):
        raise CheckpointError(
            f"queries are filled up to {late.fill_to} tokens that nobody attends to, and a layer has a window of"
            f" {min(filter(None, sizes.windows))}: what lies beyond it would see nothing"
        )
    tokenizer = Tokenizer.from_buffer(files[side.source_tokenizer])
    prompts = read_prompts(hf.directory, OF_EMBEDDERS)
    for name, prompt in prompts.texts.items():
        marker = late.markers.get(name, "")
        text.prompts.add(name=name, text=marker + prompt.removeprefix(marker))
    # What has no task is read as a document by sentence-transformers, and as a query by PyLate.
    text.default_prompt_name = DOCUMENT
    for kind, marker in late.markers.items():
        _learn(hf, tokenizer, kind, marker)
    files[side.source_tokenizer] = tokenizer.to_str().encode()
    skipped = _skipped(hf, tokenizer, late.skipped)
    for name in prompts.texts:
        if name != QUERY:
            text.sides.add(prompt_name=name, max_tokens=lengths.document, skipped_ids=skipped)
            continue
        query = text.sides.add(prompt_name=name, max_tokens=lengths.query)
        if late.fill_to:
            query.fill_to, query.sees_filling = late.fill_to, late.sees_filling
            query.fill_id = _filling(tokenizer, late, side)


def _learn(hf: HfCheckpoint, tokenizer: Tokenizer, kind: str, marker: str) -> None:
    """Make one token of a marker, which both libraries put behind the first token of a text."""
    if not marker.strip():
        return
    known = next((each for each in (marker, marker.split(None, 1)[0]) if tokenizer.token_to_id(each) is not None), None)
    if known is None:
        raise CheckpointError(
            f"{hf.directory}: {marker!r:.40}, which stands before a {kind}, is no token of the tokenizer"
        )
    if tokenizer.encode(known, add_special_tokens=False).tokens != [known]:
        tokenizer.add_special_tokens([AddedToken(known, normalized=False, special=True)])


def _skipped(hf: HfCheckpoint, tokenizer: Tokenizer, words: tuple[str, ...]) -> list[int]:
    ids = {word: tokenizer.token_to_id(word) for word in words}
    unknown = [word for word, token in ids.items() if token is None]
    if unknown:
        hf.fields.note(f"no tokens, and so not left out of documents: {' '.join(unknown):.80}")
    return sorted({token for token in ids.values() if token is not None})


def _filling(tokenizer: Tokenizer, late: LateFiles, side: TextSide) -> int:
    found = side.mask_id if late.fill_token is None else tokenizer.token_to_id(late.fill_token)
    if found is None:
        raise CheckpointError("queries are filled up with the token of masks, and the tokenizer has none")
    return found
