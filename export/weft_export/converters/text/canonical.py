"""Texts in lower case and without punctuation, as SentencePiece reads them: SigLIP's tokenizer (Zhai et al. 2023)."""

from dataclasses import replace

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from weft_export.converters.text.kind import TokenizerKind, framed
from weft_export.converters.text.own_tokens import check_tokens
from weft_export.converters.text.pieces import SPACE
from weft_export.converters.text.settings import Names, TokenizerSettings
from weft_export.converters.text.spm_model import UNIGRAM, read_spm_model
from weft_export.converters.text.spm_text import decoder, matchable, normalizer_of, splits_at_spaces
from weft_export.converters.text.vocabulary import Vocabulary
from weft_export.errors import CheckpointError

_MODEL_FILE = "spiece.model"
_NAMED = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
_PUNCTUATION = r"[!-/:-@\[-`{-~]"
"""That of ASCII."""


def _assemble(_vocabulary: Vocabulary, settings: TokenizerSettings, _names: Names) -> Tokenizer:
    path = settings.where / _MODEL_FILE
    if not path.exists():
        raise CheckpointError(f"{path} is missing: the model's texts cannot be read")
    model = read_spm_model(path)
    if model.algorithm != UNIGRAM:
        raise CheckpointError(f"{path} is a SentencePiece model of another kind than this tokenizer's class has")
    ids = {piece.text: index for index, piece in enumerate(model.pieces)}
    known = {ids[text]: text for text in _NAMED.values() if text in ids}
    if len(known) < len({*_NAMED.values()}):
        missing = " or no ".join(dict.fromkeys(_NAMED.values()))
        raise CheckpointError(f"{path} has no {missing}, and a SiglipTokenizer has: see tokenizer_class")
    check_tokens(settings, _NAMED, {}, known)
    if any(token.normalized for token in settings.added.values()):
        raise settings.wrong("added_tokens_decoder has a normalized token, which is supported for no SiglipTokenizer")
    own = matchable(model)
    scores = [(piece.text, own.get(piece.text, _NEVER)) for piece in model.pieces]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=ids[_NAMED["unk_token"]], byte_fallback=False))
    # transformers does not take its class's default where a file says null.
    lowers = settings.flag("do_lower_case", default=True) and settings.options.get("do_lower_case", True) is not None
    lower = [normalizers.Lowercase()] if lowers else []
    marks = [normalizers.Replace(Regex(_PUNCTUATION), ""), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    # A space comes before the first word, whatever the model says of it.
    read = normalizer_of(replace(model, add_dummy_prefix=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(SPACE, " "), *lower, *marks, read])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never", split=splits_at_spaces(own))
    tokenizer.decoder = decoder()
    return tokenizer


_NEVER = -1e6
"""A score less than that of any other way to read the same characters."""

SIGLIP = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble,
    names={
        name: AddedToken(text, lstrip=True, rstrip=True, normalized=False, special=True)
        for name, text in _NAMED.items()
    },
    frame=framed((), ("eos_token",)),
    has_file=False,
)
