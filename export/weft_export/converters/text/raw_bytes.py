"""Bytes as they are, and no pieces: the tokenizer of ByT5 (Xue et al. 2022)."""

from tokenizers import AddedToken, Tokenizer, decoders, models

from weft_export.converters.text.kind import Additional, TokenizerKind, framed
from weft_export.converters.text.own_tokens import check_tokens
from weft_export.converters.text.settings import Names, Token, TokenizerSettings
from weft_export.converters.text.unigram import MAX_EXTRA_IDS
from weft_export.converters.text.vocabulary import Vocabulary

_NAMED = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
"""Its special tokens, in the order of their ids. A byte has the id that is three more than it."""
_NUM_BYTES = 256
_NUM_SENTINELS = 125


def _assemble(_vocabulary: Vocabulary, settings: TokenizerSettings, _names: Names) -> Tokenizer:
    first = len(_NAMED) + _NUM_BYTES
    check_tokens(settings, _NAMED, dict(enumerate(_sentinels(settings), first)), dict(enumerate(_NAMED.values())))
    pieces = [*_NAMED.values(), *(f"<0x{byte:02X}>" for byte in range(_NUM_BYTES))]
    ids = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token=_NAMED["unk_token"], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _sentinels(settings: TokenizerSettings) -> tuple[str, ...]:
    """Return <extra_id_0> and so on. A list of them says how many there are, or else extra_ids does."""
    given = settings.additional if settings.extra is None else settings.extra
    count = settings.number("extra_ids", default=_NUM_SENTINELS, most=MAX_EXTRA_IDS)
    if given and (count == 0 or "extra_ids" not in settings.options):
        count = len(given)
    return tuple(f"<extra_id_{index}>" for index in range(count))


def _further(_: Additional, settings: TokenizerSettings) -> tuple[Token, ...]:
    return _sentinels(settings)


BYT5 = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble,
    names={name: AddedToken(text, lstrip=True, rstrip=True) for name, text in _NAMED.items()},
    frame=framed((), ("eos_token",)),
    further=_further,
    has_file=False,
    note="of bytes that are no UTF-8 answers have U+FFFD; transformers leaves them out",
)
