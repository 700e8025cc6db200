"""Bytes as they are, and no pieces: the tokenizer of ByT5 (Xue et al. 2022)."""

from tokenizers import AddedToken, Tokenizer, decoders, models

from weft_export.converters.text.kind import Additional, TokenizerKind, framed
from weft_export.converters.text.settings import Names, Token, TokenizerSettings
from weft_export.converters.text.unigram import MAX_EXTRA_IDS
from weft_export.converters.text.vocabulary import Vocabulary

_NAMES = ("pad_token", "eos_token", "unk_token")
_NUM_BYTES = 256


def _assemble(_vocabulary: Vocabulary, settings: TokenizerSettings, names: Names) -> Tokenizer:
    """Make it: three special tokens have the first ids, and a byte the id that is three more than it."""
    first = [str(names.get(name)) for name in _NAMES]
    if len(set(first)) < len(first):
        raise settings.wrong(f"{', '.join(_NAMES)} must be three tokens")
    pieces = [*first, *(f"<0x{byte:02X}>" for byte in range(_NUM_BYTES))]
    ids = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token=first[2], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _further(additional: Additional, settings: TokenizerSettings) -> tuple[Token, ...]:
    """Return its sentinels, or what a file has in their place."""
    count = settings.number("extra_ids", default=125, most=MAX_EXTRA_IDS)
    if additional is None:
        return tuple(f"<extra_id_{index}>" for index in range(count))
    named = {str(token) for token in additional if "extra_id" in str(token)}
    if count and additional and len(named) != count:
        raise settings.wrong(f"extra_ids is {count}, and additional_special_tokens has {len(named)} of them")
    return additional


BYT5 = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble,
    names={
        name: AddedToken(text, lstrip=True, rstrip=True)
        for name, text in zip(_NAMES, ("<pad>", "</s>", "<unk>"), strict=True)
    },
    frame=framed((), ("eos_token",)),
    further=_further,
    has_file=False,
    note="of bytes that are no UTF-8 answers have U+FFFD; transformers leaves them out",
)
