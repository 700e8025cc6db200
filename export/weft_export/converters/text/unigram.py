"""Unigram pieces of SentencePiece (Kudo, 2018): the tokenizers of T5, XLM-RoBERTa, mBART, Pegasus, ALBERT, DeBERTa."""

from collections.abc import Callable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.processors import PostProcessor

from weft_export.converters.text.byte_level import bos_and_eos
from weft_export.converters.text.kind import Additional, Joint, TokenizerKind, framed, template
from weft_export.converters.text.pieces import FAIRSEQ_NAMES, SPACE
from weft_export.converters.text.settings import MAX_IDS, Names, Token, TokenizerSettings, text_of
from weft_export.converters.text.vocabulary import Scores, Vocabulary
from weft_export.errors import CheckpointError

MAX_EXTRA_IDS = 10_000
"""The most sentinels that T5 and Pegasus may have; T5 has 100."""


def _tokenizer(vocabulary: Vocabulary, unk_id: int) -> Tokenizer:
    if not 0 <= unk_id < len(vocabulary.scores):
        raise CheckpointError(f"the unknown piece has the id {unk_id}, but there are {len(vocabulary.scores)} pieces")
    return Tokenizer(models.Unigram(vocabulary.scores, unk_id=unk_id, byte_fallback=False))


def _precompiled(vocabulary: Vocabulary) -> list[Normalizer]:
    return [normalizers.Precompiled(vocabulary.charsmap)] if vocabulary.charsmap else []


_ONE_SPACE = normalizers.Replace(Regex(" {2,}"), " ")


def _split_at_spaces(tokenizer: Tokenizer, scheme: str = "always") -> Tokenizer:
    metaspace = pre_tokenizers.Metaspace(SPACE, scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    tokenizer.decoder = decoders.Metaspace(SPACE, scheme)
    return tokenizer


def _mark_spaces(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always", split=True)
    tokenizer.decoder = decoders.Metaspace(SPACE, "always", split=True)
    return tokenizer


def _assemble_t5(vocabulary: Vocabulary, _settings: TokenizerSettings, _names: Names) -> Tokenizer:
    tokenizer = _tokenizer(vocabulary, unk_id=2)
    for rules in _precompiled(vocabulary):
        tokenizer.normalizer = rules
    return _split_at_spaces(tokenizer)


def _assemble_xlmr(vocabulary: Vocabulary, settings: TokenizerSettings, _names: Names) -> Tokenizer:
    tokenizer = _tokenizer(vocabulary, unk_id=3)
    for rules in _precompiled(vocabulary):
        tokenizer.normalizer = rules
    return _split_at_spaces(tokenizer, _scheme(settings))


def _assemble_camembert(vocabulary: Vocabulary, settings: TokenizerSettings, names: Names) -> Tokenizer:
    tokenizer = _tokenizer(vocabulary, vocabulary.ids.get(text_of(names, "unk_token") or "", 0))
    for rules in _precompiled(vocabulary):
        tokenizer.normalizer = rules
    return _split_at_spaces(tokenizer, _scheme(settings))


def _assemble_mbart(vocabulary: Vocabulary, _settings: TokenizerSettings, _names: Names) -> Tokenizer:
    return _split_at_spaces(_tokenizer(vocabulary, unk_id=3))


def _assemble_mbart50(vocabulary: Vocabulary, _settings: TokenizerSettings, _names: Names) -> Tokenizer:
    tokenizer = _tokenizer(vocabulary, unk_id=3)
    tokenizer.normalizer = normalizers.Sequence([*_precompiled(vocabulary), _ONE_SPACE])
    return _mark_spaces(tokenizer)


def _assemble_pegasus(vocabulary: Vocabulary, _settings: TokenizerSettings, names: Names) -> Tokenizer:
    tokenizer = _tokenizer(vocabulary, _place(vocabulary, text_of(names, "unk_token"), other=0))
    first = _precompiled(vocabulary) or [normalizers.Replace(Regex(r"\n"), " ")]
    tokenizer.normalizer = normalizers.Sequence([*first, _ONE_SPACE])
    return _mark_spaces(tokenizer)


def _assemble_albert(vocabulary: Vocabulary, settings: TokenizerSettings, _names: Names) -> Tokenizer:
    tokenizer = _tokenizer(vocabulary, unk_id=1)
    steps: list[Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not _is_on(settings, "keep_accents", default=False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if _is_on(settings, "do_lower_case", default=True):
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence([*steps, *_precompiled(vocabulary)])
    return _split_at_spaces(tokenizer, _scheme(settings))


def _assemble_deberta(vocabulary: Vocabulary, settings: TokenizerSettings, names: Names) -> Tokenizer:
    # transformers saves the model file's own number beside the pieces.
    other = vocabulary.unk_id
    if other is None or settings.has_json:
        other = settings.number("unk_id", default=1, most=MAX_IDS)
    tokenizer = _tokenizer(vocabulary, _place(vocabulary, text_of(names, "unk_token"), other=other))
    steps: list[Normalizer] = [normalizers.Lowercase()] if settings.flag("do_lower_case", default=False) else []
    # The compiled rules of the model file are not used: transformers 5 does not use them either.
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(), normalizers.Strip(left=False)]
    tokenizer.normalizer = normalizers.Sequence(steps)
    marks = settings.flag("split_by_punct", default=False)
    scheme = "always" if _is_on(settings, "add_prefix_space", default=True) else "first"
    punctuation = [pre_tokenizers.Punctuation(behavior="isolated")] if marks else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*punctuation, pre_tokenizers.Metaspace(SPACE, scheme)])
    tokenizer.decoder = decoders.Metaspace(SPACE, scheme)
    return tokenizer


def _scheme(settings: TokenizerSettings) -> str:
    return "always" if _is_on(settings, "add_prefix_space", default=True) else "never"


def _is_on(settings: TokenizerSettings, name: str, *, default: bool) -> bool:
    """Return an option as these classes of transformers read it: null is no, not the default."""
    return settings.flag(name, default=default and name not in settings.options)


def _place(vocabulary: Vocabulary, token: str | None, other: int) -> int:
    """Where a special piece stands, which has the score 0."""
    piece = (token or "", 0.0)
    return vocabulary.scores.index(piece) if piece in vocabulary.scores else other


def _reorder_t5(scores: Scores, settings: TokenizerSettings, _names: Names) -> Scores:
    return [*scores, *((token, 0.0) for token in reversed(_sentinels(settings)))]


def _sentinels(settings: TokenizerSettings) -> list[str]:
    return [f"<extra_id_{i}>" for i in range(settings.number("extra_ids", default=100, most=MAX_EXTRA_IDS))]


def _further_t5(additional: Additional, settings: TokenizerSettings) -> tuple[Token, ...]:
    return (*(additional or ()), *_sentinels(settings))


def _reorder_fairseq(
    codes: tuple[str, ...], begin: str = "bos_token"
) -> Callable[[Scores, TokenizerSettings, Names], Scores]:
    """Fairseq's order: four special tokens, the pieces behind the model's own three, languages and the mask."""

    def reorder(scores: Scores, _settings: TokenizerSettings, names: Names) -> Scores:
        first = [str(names[name]) for name in (begin, "pad_token", "eos_token", "unk_token")]
        last = [*codes, str(names["mask_token"])]
        return [*((token, 0.0) for token in first), *scores[3:], *((token, 0.0) for token in last)]

    return reorder


def _reorder_camembert(scores: Scores, _settings: TokenizerSettings, names: Names) -> Scores:
    """Fairseq's own pieces first, of which two stand for nothing, and SentencePiece's behind them."""
    first = [_UNUSED[0], str(names["pad_token"]), _UNUSED[1], str(names["unk_token"])]
    mask = (str(names["mask_token"]), 0.0)
    return [*((token, 0.0) for token in first), (_UNUSED[2], -100.0), *scores[1:], mask]


def _reorder_pegasus(scores: Scores, settings: TokenizerSettings, names: Names) -> Scores:
    if text_of(names, "mask_token") == "":
        raise settings.wrong("mask_token is an empty string")
    mask, sentence = str(settings.named.get("mask_token") or "<mask_1>"), _sentence_mask(settings) or "<mask_2>"
    masks = [mask] if sentence == mask else [mask, sentence]
    first = [(str(token), 0.0) for token in (names["pad_token"], names["eos_token"], *masks)]
    return [*first, *((token, -100.0) for token in _unknowns(settings)), *scores[2:]]


def _unknowns(settings: TokenizerSettings) -> list[str]:
    return [f"<unk_{i}>" for i in range(2, settings.number("offset", default=103, most=MAX_EXTRA_IDS))]


def _further_pegasus(_additional: Additional, settings: TokenizerSettings) -> tuple[Token, ...]:
    return (_sentence_mask(settings) or "<mask_1>", *_unknowns(settings))


def _sentence_mask(settings: TokenizerSettings) -> str | None:
    if (mask := settings.text("mask_token_sent")) == "":
        raise settings.wrong("mask_token_sent is an empty string")
    return mask


def _frame_albert(
    tokenizer: Tokenizer, vocabulary: Vocabulary, settings: TokenizerSettings, names: Names
) -> PostProcessor:
    # Where transformers builds a post-processor, either option replaces [CLS] and [SEP], whatever it says.
    if not settings.has_json and {"add_bos_token", "add_eos_token"} & settings.options.keys():
        return bos_and_eos(tokenizer, settings, names)
    joint = Joint.SEGMENTS
    return vocabulary.post_processor or template(
        tokenizer, settings, names, ("cls_token",), ("sep_token",), joint=joint
    )


_UNUSED = ("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED")
_CLS_NAMES: Names = {
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "sep_token": "[SEP]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
T5 = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble_t5,
    names={"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    frame=framed((), ("eos_token",)),
    model_file="spiece.model",
    reorder=_reorder_t5,
    further=_further_t5,
)
XLMR = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble_xlmr,
    names=FAIRSEQ_NAMES,
    frame=framed(("bos_token",), ("eos_token",), joint=Joint.DOUBLED),
    model_file="sentencepiece.bpe.model",
    reorder=_reorder_fairseq(()),
)
CAMEMBERT = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble_camembert,
    names=FAIRSEQ_NAMES,
    frame=framed(("bos_token",), ("eos_token",), joint=Joint.DOUBLED),
    model_file="sentencepiece.bpe.model",
    reorder=_reorder_camembert,
    further=lambda additional, _: _UNUSED if additional is None else additional,
    mask_takes_space=True,
)
# The languages that mBART knows without saying so in its files, in the order of their ids.
_MBART = """
ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO
ru_RU si_LK tr_TR vi_VN zh_CN
"""
_MBART_50_MORE = """
af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN
th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
MBART = tuple(_MBART.split())
MBART_50 = (*MBART, *_MBART_50_MORE.split())

MBART_KIND = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble_mbart,
    names=FAIRSEQ_NAMES,
    frame=framed((), ("eos_token",)),
    model_file="sentencepiece.bpe.model",
    reorder=_reorder_fairseq(MBART),
    further=lambda additional, _: (*MBART, *(additional or ())),
    mask_takes_space=True,
)
MBART50_KIND = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble_mbart50,
    names={name: token for name, token in FAIRSEQ_NAMES.items() if name != "bos_token"},
    frame=framed((), ("eos_token",)),
    model_file="sentencepiece.bpe.model",
    reorder=_reorder_fairseq(MBART_50, begin="cls_token"),
    further=lambda additional, _: (*(additional or ()), *MBART_50),
    mask_takes_space=True,
)
PEGASUS = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble_pegasus,
    names={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask_2>"},
    frame=framed((), ("eos_token",)),
    model_file="spiece.model",
    reorder=_reorder_pegasus,
    further=_further_pegasus,
)
ALBERT = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble_albert,
    names={**_CLS_NAMES, "unk_token": "<unk>", "pad_token": "<pad>"},
    frame=_frame_albert,
    model_file="spiece.model",
)
DEBERTA = TokenizerKind(
    algorithm="Unigram",
    assemble=_assemble_deberta,
    names={**_CLS_NAMES, "unk_token": "[UNK]", "pad_token": "[PAD]"},
    frame=framed(("cls_token",), ("sep_token",), joint=Joint.SEGMENTS),
    model_file="spm.model",
)
