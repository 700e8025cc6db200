"""BCP-47 tags for what models call their languages."""

import pytest

from weft_export.converters.text.languages import is_code, language_tags
from weft_export.converters.text.two_files import M2M_100
from weft_export.converters.text.unigram import MBART_50


@pytest.mark.parametrize(
    ("codes", "tags"),
    [
        (["fra_Latn", "eng_Latn", "arb_Arab"], ["fr", "en", "ar"]),
        (["zho_Hans", "zho_Hant", "yue_Hant"], ["zh-Hans", "zh-Hant", "yue"]),
        (["ace_Arab", "ace_Latn", "kas_Deva", "kas_Arab"], ["ace-Arab", "ace-Latn", "ks-Deva", "ks-Arab"]),
        (["twi_Latn", "aka_Latn", "nob_Latn", "nno_Latn"], ["tw", "ak", "nb", "nn"]),
        (["fr_XX", "zh_CN", "pt_XX"], ["fr", "zh", "pt"]),
        (["__fr__", "__ns__", "__ast__"], ["fr", "nso", "ast"]),
        ([">>fra<<", ">>por<<", ">>pt_br<<"], ["fr", "pt", "pt-BR"]),
        ([">>cmn_Hans<<", ">>zho_Hans<<"], ["cmn-Hans", "zho-Hans"]),
        ([">>id<<"], ["id"]),
    ],
)
def test_a_code_has_the_shortest_tag_that_is_its_own(codes, tags):
    """Two letters where there are any; a script or region only where the model has the language twice."""
    assert tags == language_tags(codes)


def test_all_languages_of_known_models_have_tags_of_their_own():
    """Of M2M100's 100 and mBART's 52 languages no two have the same tag."""
    for codes in (M2M_100, MBART_50):
        tags = language_tags(codes)
        assert len(codes) == len(set(tags))
        assert all(tag == tag.split("-")[0] for tag in tags)


def test_a_group_of_languages_is_none():
    """The names of groups, which Marian's models have, are no codes."""
    assert [True, True, False, False] == [is_code(name) for name in ("de", "zho_Hans", "ROMANCE", "mul+eng")]
