"""BCP-47 tags for what models call their languages: `fra_Latn`, `fr_XX`, `__fr__` and `>>fra<<` are all fr."""

import re
from collections import Counter
from collections.abc import Sequence

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
