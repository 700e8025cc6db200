"""What a multilingual model is given for a language: ids before or behind the source, and at the answer's start.

A language has a tag of BCP-47. Models call it otherwise: `fra_Latn`, `fr_XX`, `__fr__` and `>>fra<<` are all fr.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft_export.converters.text.kinds import M2M_100
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
            f"the files of this {name} have no language's token, as in added_tokens_decoder,"
            " additional_special_tokens or extra_special_tokens, and transformers adds those that it knows."
            " It writes them down:"
            " AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)"
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


# ISO 639-3 to the two letters that BCP-47 wants where there are any; some are the one language that stands for a group.
_TWO_LETTERS = """
aar aa abk ab afr af aka ak amh am ara ar arb ar arg an asm as ava av ave ae aym ay ayr ay aze az azj az bak ba bam bm
bel be ben bn bis bi bod bo bos bs bre br bul bg cat ca ces cs cha ch che ce chu cu chv cv cmn zh cor kw cos co cre cr
cym cy dan da deu de div dv dzo dz ekk et ell el eng en epo eo est et eus eu ewe ee fao fo fas fa fij fj fin fi fra fr
fry fy ful ff fuv ff gaz om gla gd gle ga glg gl glv gv grn gn guj gu hat ht hau ha hbs sh heb he her hz hin hi hmo ho
hrv hr hun hu hye hy ibo ig ido io iii ii iku iu ile ie ina ia ind id ipk ik isl is ita it jav jv jpn ja kal kl kan kn
kas ks kat ka kau kr kaz kk khk mn khm km kik ki kin rw kir ky kmr ku kom kv kon kg kor ko kua kj kur ku lao lo lat la
lav lv lvs lv lim li lin ln lit lt ltz lb lub lu lug lg mah mh mal ml mar mr mkd mk mlg mg mlt mt mon mn mri mi msa ms
mya my nau na nav nv nbl nr nde nd ndo ng nep ne nld nl nno nn nob nb nor no npi ne nya ny oci oc oji oj ori or orm om
ory or oss os pan pa pbt ps pes fa pli pi plt mg pol pl por pt pus ps que qu quy qu roh rm ron ro run rn rus ru sag sg
san sa sin si slk sk slv sl sme se smo sm sna sn snd sd som so sot st spa es sqi sq als sq srd sc srp sr ssw ss sun su
swa sw swe sv swh sw tah ty tam ta tat tt tel te tgk tg tgl tl tha th tir ti ton to tsn tn tso ts tuk tk tur tr twi tw
uig ug ukr uk urd ur uzb uz uzn uz ven ve vie vi vol vo wln wa wol wo xho xh yid yi ydd yi yor yo zha za zho zh zsm ms
zul zu
"""
_WORDS = _TWO_LETTERS.split()
_TWO = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))
# What models call otherwise than any standard.
_OWN = {"ns": "nso"}

_CODE = re.compile(r"([a-z]{2,3})(?:_([A-Z][a-z]{3}))?(?:_([A-Za-z]{2}))?")


def is_code(code: str) -> bool:
    """Whether a model's word for a language is one that language_tags reads."""
    return _CODE.fullmatch(_bare(code)) is not None


def language_tags(codes: Sequence[str]) -> list[str]:
    """Return a tag for each of a model's codes, all of them different.

    A script or region is kept only where the model has the same language with another one: zh-Hans beside zh-Hant.
    """
    full = [_parts(code) for code in codes]
    count = Counter(language for language, _, _ in full)
    short = [
        language if count[language] == 1 else "-".join(filter(None, (language, script, region)))
        for language, script, region in full
    ]
    # Two codes for one language, such as cmn and zho: each keeps its own word.
    twice = {tag for tag, number in Counter(short).items() if number > 1}
    return [_bare(code).replace("_", "-") if tag in twice else tag for code, tag in zip(codes, short, strict=True)]


def _parts(code: str) -> tuple[str, str, str]:
    """The language, script and region of a code; two letters in place of a region that is none, XX, are left out."""
    found = _CODE.fullmatch(_bare(code))
    if found is None:
        return _bare(code), "", ""
    language, script, region = (part or "" for part in found.groups())
    region = region.upper()
    return _OWN.get(language, _TWO.get(language, language)), script, "" if region == "XX" else region


def _bare(code: str) -> str:
    return code.removeprefix(">>").removesuffix("<<").removeprefix("__").removesuffix("__")
