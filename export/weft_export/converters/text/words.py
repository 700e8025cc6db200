"""WordPiece (Schuster and Nakajima, 2012): the tokenizers of BERT and its kin."""

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from weft_export.converters.text.kind import Joint, TokenizerKind, framed
from weft_export.converters.text.settings import Names, TokenizerSettings, text_of
from weft_export.converters.text.vocabulary import Vocabulary


def _assemble(vocabulary: Vocabulary, settings: TokenizerSettings, names: Names) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(dict(vocabulary.ids), unk_token=text_of(names, "unk_token") or "[UNK]"))
    accents = settings.options.get("strip_accents")
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", default=True),
        strip_accents=None if accents is None else settings.flag("strip_accents", default=True),
        lowercase=settings.flag("do_lower_case", default=True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


BERT = TokenizerKind(
    algorithm="WordPiece",
    assemble=_assemble,
    names={
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
    frame=framed(("cls_token",), ("sep_token",), joint=Joint.SEGMENTS),
)
# Its special tokens are looked for in the normalised text, as no other class's are.
MPNET = TokenizerKind(
    algorithm="WordPiece",
    assemble=_assemble,
    names={
        "bos_token": AddedToken("<s>"),
        "eos_token": AddedToken("</s>"),
        "sep_token": AddedToken("</s>"),
        "cls_token": AddedToken("<s>"),
        "unk_token": AddedToken("[UNK]"),
        "pad_token": AddedToken("<pad>"),
        "mask_token": "<mask>",
    },
    frame=framed(("cls_token",), ("sep_token",), joint=Joint.DOUBLED),
    mask_takes_space=True,
)
