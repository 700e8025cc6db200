"""What a multilingual model is given for a language: ids before or behind the source, and at the answer's start."""

import re
from collections.abc import Iterable

from tokenizers import Tokenizer

from weft_export.converters.text.language_tags import language_tags
from weft_export.converters.text.settings import Settings
from weft_proto.v1 import bundle_pb2

# The tokens of languages, by class. A model's own list is longer than any table here.
_TOKENS = {
    "MBartTokenizer": re.compile(r"[a-z]{2}_[A-Z]{2}"),
    "MBart50Tokenizer": re.compile(r"[a-z]{2}_[A-Z]{2}"),
    "NllbTokenizer": re.compile(r"[a-z]{3}_[A-Z][a-z]{3}"),
}


def languages_of(name: str, settings: Settings, tokenizer: Tokenizer, vocab_size: int) -> list[bundle_pb2.Language]:
    """Return what a model of a class of tokenizers is given for each language. Most classes have none."""
    pattern = _TOKENS.get(name)
    if pattern is None:
        return []
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    codes = {each.content: id_ for id_, each in added if pattern.fullmatch(each.content) and id_ < vocab_size}
    # mBART of 25 languages, and the first NLLB, have the language behind the end of the source.
    behind = name == "MBartTokenizer" or settings.flag("legacy_behaviour", default=False)
    return tagged(codes.items(), behind=behind)


def tagged(codes: Iterable[tuple[str, int]], *, behind: bool = False) -> list[bundle_pb2.Language]:
    """Return the languages of codes and their ids: the source has its id on one side, and an answer begins with it."""
    codes = list(codes)
    return [
        bundle_pb2.Language(
            tag=tag,
            code=code,
            source_before=[] if behind else [id_],
            source_after=[id_] if behind else [],
            target_prefix=[id_],
        )
        for tag, (code, id_) in zip(language_tags([code for code, _ in codes]), codes, strict=True)
    ]
