"""The pieces of a tokenizer, out of whichever file of a directory has them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import PostProcessor

from weft_export.checkpoints.files import read_file
from weft_export.converters.text.charsmap import charsmap_of, check_charsmaps
from weft_export.converters.text.json_file import check_ids, read_ids
from weft_export.converters.text.settings import MAX_IDS
from weft_export.converters.text.spm_model import CONTROL, UNIGRAM, USER_DEFINED, SpmModel
from weft_export.errors import CheckpointError

Scores = list[tuple[str, float]]
Merges = list[tuple[str, str]]


@dataclass(frozen=True)
class Vocabulary:
    """The pieces of a tokenizer and what belongs to them.

    Attributes:
        ids: the id of each piece.
        scores: of a unigram model, all pieces in the order of their ids; else empty.
        merges: of a BPE model, the pairs that become one piece, the first ones first; else empty.
        unk_id: the piece for what no other piece matches, where a SentencePiece model says it.
        charsmap: SentencePiece's compiled rules of normalisation; empty for none.
        symbols: pieces of a SentencePiece model that are never split.
        post_processor: what tokenizer.json puts around a text.
    """

    ids: Mapping[str, int]
    scores: Scores
    merges: Merges
    unk_id: int | None = None
    charsmap: bytes = b""
    symbols: tuple[AddedToken, ...] = ()
    post_processor: PostProcessor | None = None


def of_json(path: Path, content: Mapping[str, Any]) -> Vocabulary:
    """Take the pieces out of a tokenizers JSON. CheckpointError when they are not as they must be."""
    check_charsmaps(path, content.get("normalizer"))
    model = content.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not vocab:
        raise CheckpointError(f"{path} has no vocabulary")
    scores: Scores = []
    if isinstance(vocab, list):
        try:
            scores = [(str(piece), float(score)) for piece, score in vocab]
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{path}: the vocabulary is not a list of pieces and scores: {error}") from error
    return Vocabulary(
        ids=_numbered(scores) if scores else check_ids(path, vocab, MAX_IDS),
        scores=scores,
        merges=_merges(path, model.get("merges") or []),
        charsmap=_charsmap(path, content.get("normalizer")),
        post_processor=_post_processor(path, content.get("post_processor")),
    )


def of_lines(path: Path) -> Vocabulary:
    """Read a vocab.txt: a piece on each line, whose number is its id."""
    try:
        lines = read_file(path).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error}") from error
    return Vocabulary(ids={line.rstrip(): index for index, line in enumerate(lines)}, scores=[], merges=[])


def of_merges(vocab: Path, merges: Path) -> Vocabulary:
    """Read a byte-level vocabulary: vocab.json has the ids, merges.txt the pairs."""
    try:
        lines = read_file(merges).decode().split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{merges} is not UTF-8: {error}") from error
    pairs = [line.rstrip("\r") for line in lines if line.strip() and not line.startswith("#version")]
    return Vocabulary(ids=read_ids(vocab, MAX_IDS), scores=[], merges=_merges(merges, pairs))


def of_spm(model: SpmModel) -> Vocabulary:
    """Take the pieces of a SentencePiece model, in its own order."""
    scores = [(piece.text, piece.score) for piece in model.pieces]
    ids = _numbered(scores)
    symbols = [piece for piece in model.pieces if piece.kind in (CONTROL, USER_DEFINED)]
    is_unigram = model.algorithm == UNIGRAM
    return Vocabulary(
        ids=ids,
        scores=scores if is_unigram else [],
        merges=[] if is_unigram else merges_of(ids),
        unk_id=model.unk_id,
        charsmap=model.charsmap,
        symbols=tuple(AddedToken(each.text, normalized=False, special=each.kind == CONTROL) for each in symbols),
    )


def merges_of(ids: Mapping[str, int]) -> Merges:
    """Return the pairs that make the pieces of a SentencePiece BPE model, which learned low ids first.

    A piece may come of several pairs. The model takes whichever it meets, so all are here.
    """
    found = [
        (id_, at, len(piece) - at, ids[piece[:at]], ids[piece[at:]], piece)
        for piece, id_ in ids.items()
        for at in range(1, len(piece))
        if piece[:at] in ids and piece[at:] in ids
    ]
    # The lengths, and then the ids, only make the order one that never changes.
    return [(piece[:at], piece[at:]) for _, at, _, _, _, piece in sorted(found)]


def _numbered(scores: Scores) -> dict[str, int]:
    return {piece: index for index, (piece, _) in enumerate(scores)}


def _merges(path: Path, pairs: Any) -> Merges:
    split = (
        [pair.split(" ") if isinstance(pair, str) else pair for pair in pairs] if isinstance(pairs, list) else [pairs]
    )
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in split):
        raise CheckpointError(f"{path}: a merge is not a pair of pieces")
    return [(str(left), str(right)) for left, right in split]


def _charsmap(path: Path, normalizer: Any) -> bytes:
    """The first compiled rules in a normalizer; check_charsmaps has been through it."""
    inside = normalizer.get("normalizers") if isinstance(normalizer, dict) else None
    for step in inside if isinstance(inside, list) else [normalizer]:
        if isinstance(step, dict) and step.get("type") == "Precompiled":
            return charsmap_of(path, step)
    return b""


def _post_processor(path: Path, given: Any) -> PostProcessor | None:
    """What tokenizer.json puts around a text, made by the library itself, of a tokenizer without a vocabulary."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "decoder"))
    bare = {"version": "1.0", "added_tokens": [], **parts, "post_processor": given, "model": model}
    try:
        made: PostProcessor | None = Tokenizer.from_str(json.dumps(bare)).post_processor
    except Exception as error:  # tokenizers raises no narrower type
        raise CheckpointError(f"{path}: the post-processor is none: {error}") from error
    return made
