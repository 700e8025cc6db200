"""What a multilingual model is given for a language: ids before or behind the source, and at the answer's start."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from weft_export.converters.text.kinds import M2M_100
from weft_export.converters.text.language_tags import is_code, language_tags
from weft_export.converters.text.settings import TokenizerSettings
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2

# The tokens of languages, by class. Which of them a model has, its vocabulary says.
_TOKENS = {
    "MBartTokenizer": re.compile(r"[a-z]{2}_[A-Z]{2}"),
    "MBart50Tokenizer": re.compile(r"[a-z]{2}_[A-Z]{2}"),
    "NllbTokenizer": re.compile(r"[a-z]{3}_[A-Z][a-z]{3}"),
    M2M_100: re.compile(r"__[a-z]{2,3}__"),
}
_OF_MARIAN = re.compile(r">>.+<<")


@dataclass(frozen=True)
class Languages:
    """What a model knows of languages.

    Attributes:
        table: what the model is given for each.
        sources: tags of what it reads.
        targets: tags of what it writes.
    """

    table: tuple[bundle_pb2.Language, ...] = ()
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


def languages_of(name: str, settings: TokenizerSettings, ids: Mapping[str, int]) -> Languages:
    """Return the languages of a class of tokenizers. Most classes have none.

    A source has its language's id on one side, and an answer begins with its own.

    Raises:
        CheckpointError: the class has languages, and its files have none. transformers then adds a list of its own.
    """
    found = _sorted(_TOKENS.get(name), ids)
    if name in _TOKENS and not found:
        raise CheckpointError(
            f"the files of this {name} have no language's token, and transformers adds those that it knows. It writes"
            " them down: AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)"
        )
    # mBART of 25 languages, and the first NLLB, have the language behind the end of the source.
    behind = name == "MBartTokenizer" or settings.flag("legacy_behaviour", default=False)
    tags = language_tags(list(found))
    table = tuple(
        bundle_pb2.Language(
            tag=tag,
            code=token.strip("_"),
            source_before=[] if behind else [id_],
            source_after=[id_] if behind else [],
            target_prefix=[id_],
        )
        for tag, (token, id_) in zip(tags, found.items(), strict=True)
    )
    return Languages(table, tuple(tags), tuple(tags))


def marian_languages(settings: TokenizerSettings, ids: Mapping[str, int]) -> Languages:
    """Return Marian's languages. Of several that it writes, a source begins with the one that is wanted."""
    found = _sorted(_OF_MARIAN, ids)
    tags = language_tags(list(found))
    table = tuple(
        bundle_pb2.Language(tag=tag, code=token, target_before=[id_])
        for tag, (token, id_) in zip(tags, found.items(), strict=True)
    )
    source, target = (settings.text(name) or "" for name in ("source_lang", "target_lang"))
    # A group of languages, such as ROMANCE, has a name of its own there, which is no tag.
    sources = tuple(language_tags([source])) if is_code(source) else ()
    one = tuple(language_tags([target])) if is_code(target) else ()
    return Languages(table, sources, tuple(tags) or one)


def started(
    table: tuple[bundle_pb2.Language, ...], targets: tuple[str, ...], start_id: int | None
) -> tuple[tuple[bundle_pb2.Language, ...], tuple[str, ...]]:
    """Return what is left of a table of languages, and of the targets, in a model that begins with one token.

    An answer's language may be this token itself, as in mBART of 25 languages. Then the model writes this language
    alone, and is not told it again.

    Raises:
        CheckpointError: answers begin with their languages, and the checkpoint says no start.
    """
    written = {each.target_prefix[0]: each.tag for each in table if each.target_prefix}
    if written and start_id is None:
        raise CheckpointError(
            "neither generation_config.json nor config.json says decoder_start_token_id, and an answer of this model"
            " begins with its language: write there the id of the language that it is to write"
        )
    if start_id not in written:
        return table, targets
    untold = tuple(
        bundle_pb2.Language(
            tag=each.tag, code=each.code, source_before=each.source_before, source_after=each.source_after
        )
        for each in table
    )
    return untold, (written[start_id],)


def _sorted(pattern: re.Pattern[str] | None, ids: Mapping[str, int]) -> dict[str, int]:
    """The tokens of languages, in the order of their ids."""
    if pattern is None:
        return {}
    return dict(sorted(((each, id_) for each, id_ in ids.items() if pattern.fullmatch(each)), key=lambda pair: pair[1]))
