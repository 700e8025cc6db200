"""How SentencePiece itself reads and writes a text, for models that transformers runs with the library itself.

transformers has no tokenizers JSON of Marian's and M2M100's models. So nothing here follows another JSON: it follows
what the library does.
"""

import unicodedata
from collections.abc import Iterable
from functools import cache

from tokenizers import Regex, decoders, normalizers
from tokenizers.decoders import Decoder
from tokenizers.normalizers import Normalizer

from weft_export.converters.text.pieces import SPACE
from weft_export.converters.text.spm_model import NORMAL, USER_DEFINED, SpmModel

MARK = "\ufdd0"
"""Stands where a text needs a mark that is none of its own: Unicode has reserved this one for such uses."""


# In these expressions ^ and $ would be the ends of a line.
# A run begins where no such character stands before it. Otherwise each character of a long run would begin a search of
# the rest of it.
_ENDS = rf"\A[ {SPACE}]+\z|\A +|(?<![ {SPACE}])[ {SPACE}]+\z"


def matchable(model: SpmModel) -> dict[str, float]:
    """Return the pieces that a text can have, with their scores."""
    return {piece.text: piece.score for piece in model.pieces if piece.kind in (NORMAL, USER_DEFINED)}


def normalizer_of(model: SpmModel, *, marks_unknown: bool = False) -> Normalizer:
    """Return what a model does to a text before it looks for pieces.

    Args:
        model: the model.
        marks_unknown: whether MARK is put around each run of characters that no piece has.
    """
    steps = _rules(model.charsmap) if model.charsmap else []
    if model.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(_ENDS), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if marks_unknown:
        unknown = f"[^{_class_of([*matchable(model), ' ', SPACE])}]"
        # Two places without width: where such a run begins, and where it ends.
        edges = f"(?<!{unknown})(?={unknown})|(?<={unknown})(?!{unknown})"
        steps.append(normalizers.Replace(Regex(edges), MARK))
    if model.add_dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])


def _rules(charsmap: bytes) -> list[Normalizer]:
    """The compiled rules. Where they compose a letter and its mark, NFC does that before.

    The tokenizers library applies rules to single characters, and to a letter with marks of less than six bytes; so it
    misses most of Vietnamese, Japanese and Korean that comes in parts. MARK keeps NFC from what SentencePiece does not:
    from giving marks another order, and from joining a whole Korean syllable and a part.
    """
    rules = normalizers.Precompiled(charsmap)
    if rules.normalize_str("e\u0301") != "\u00e9":
        return [rules]
    ordered = f"[{_marks()}]"
    between = rf"(?<={ordered})(?={ordered})|(?<=[\x{{AC00}}-\x{{D7A3}}])(?=[\x{{11A8}}-\x{{11C2}}])"
    apart = normalizers.Replace(Regex(between), MARK)
    # One round for each mark: no letter has more than three that compose.
    return [*[apart, normalizers.NFC(), normalizers.Replace(MARK, "")] * 3, rules]


@cache
def _marks() -> str:
    """The marks that Unicode orders, as a class of a regular expression has them."""
    return _class_of(char for char in map(chr, range(0x110000)) if unicodedata.combining(char))


def decoder() -> Decoder:
    """Return what makes a text of pieces: without the spaces at its ends, as transformers gives it."""
    return decoders.Sequence(
        [
            decoders.Replace(MARK, ""),
            decoders.Replace(SPACE, " "),
            decoders.Fuse(),
            # Not with Strip, which panics when nothing is left.
            decoders.Replace(Regex(r"\A +|(?<! ) +\z"), ""),
        ]
    )


def splits_at_spaces(pieces: Iterable[str]) -> bool:
    """Whether each piece lies in one word, so that a text may be cut before every space."""
    return not any(SPACE in piece[1:] for piece in pieces)


def _class_of(pieces: Iterable[str]) -> str:
    """The characters of pieces, as a class of a regular expression has them. Those in a row are one range."""
    codes = sorted({ord(char) for char in "".join(pieces)})
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in ranges)
