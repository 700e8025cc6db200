"""What a model is given for a language: exporter and server ask the same file, and refuse the same manifests."""

import re
from dataclasses import replace

import pytest
from tiny import tiny_caption, tiny_generate, tiny_translate

from drafts import caption, generate, refused, translate
from weft_export.errors import CheckpointError
from weft_proto.languages import Frame, LanguageError, Languages
from weft_proto.v1 import bundle_pb2

Language = bundle_pb2.Language
# Of a multilingual model: the source's language stands around it, and the answer begins with its own.
TEXT = bundle_pb2.TextSpec(
    source_languages=["en", "pt", "zh-Hant"],
    target_languages=["pt", "de"],
    prefix_ids=[7, 8],
    languages=[
        Language(tag="en", source_before=[10], source_after=[11, 12]),
        Language(tag="pt", source_before=[20], target_before=[21], target_prefix=[22]),
    ],
)


def test_a_frame_has_what_both_languages_say():
    """Before a source what the target asks for, then what it asks for itself; the model's prefix, then the target's."""
    languages = Languages(TEXT)

    assert Frame((21, 10), (11, 12), (7, 8, 22)) == languages.frame("en", "pt")
    assert Frame((21, 20), (), (7, 8, 22)) == languages.frame("pt", "pt")
    assert Frame((), (), (7, 8)) == languages.frame("zh-Hant", "de")
    assert Frame((), (), (7, 8)) == languages.plain
    assert (3, 4) == (languages.longest_prefix, languages.most_added)


def test_a_tag_is_found_in_any_case():
    """BCP-47 has no case."""
    languages = Languages(TEXT)
    assert languages.frame("en", "pt") == languages.frame("EN", "Pt")
    assert languages.frame("zh-Hant", "de") == languages.frame("ZH-hant", "DE")


def test_the_only_language_needs_no_name():
    """And what the model is given for it is given."""
    languages = Languages(
        bundle_pb2.TextSpec(
            source_languages=["en"], target_languages=["de"], languages=[Language(tag="de", target_before=[5])]
        )
    )
    assert Frame((5,)) == languages.frame("", "") == languages.frame("en", "de")


MANY = bundle_pb2.TextSpec(source_languages=["af", "am", *(f"x-{index}" for index in range(10))])


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        (TEXT, ("", "pt"), "source_language is required: one of en, pt, zh-Hant"),
        (TEXT, ("en", ""), "target_language is required: one of pt, de"),
        (TEXT, ("en", "pt-BR"), "target_language must be one of pt, de, not 'pt-BR'; the nearest is pt"),
        (
            TEXT,
            ("zh_hans", "pt"),
            "source_language must be one of en, pt, zh-Hant, not 'zh_hans'; the nearest is zh-Hant",
        ),
        (TEXT, ("eng", "pt"), "source_language must be one of en, pt, zh-Hant, not 'eng'"),
        (bundle_pb2.TextSpec(), ("en", ""), "source_language must be empty: this model takes no language"),
        (bundle_pb2.TextSpec(), ("", "en"), "target_language must be empty: this model takes no language"),
        (MANY, ("", ""), f"source_language is required: one of {', '.join(MANY.source_languages[:10])}, 2 more"),
    ],
)
def test_a_language_that_is_not_listed_is_refused(text, asked, expected):
    """It is never guessed: the sentence names some that are, and those that begin alike."""
    with pytest.raises(LanguageError) as error:
        Languages(text).frame(*asked)
    assert expected == f"{error.value.field} {error.value}"


def french(**given):
    """A change that adds a source and target language, of which a model is given `given`."""

    def change(text):
        text.source_languages.append("fr")
        text.target_languages.append("FR")
        text.languages.add(tag="fr", **given)

    return change


def target_only(text):
    """A language of which there are no sources."""
    text.target_languages.append("fr")
    text.languages.add(tag="fr", source_after=[5])


def source_only(text):
    """A language that nothing is translated into."""
    text.source_languages.append("fr")
    text.languages.add(tag="fr", target_prefix=[5])


def long_prefix(text):
    """One id more than the cache has room for behind a prefix."""
    french(target_prefix=[5, 6])(text)
    text.prefix_ids.append(5)
    text.max_new_tokens = text.max_total_tokens - 2


REFUSED = [
    (
        translate,
        tiny_translate,
        lambda text: text.source_languages.append(""),
        "text.source_languages has '', which is no",
    ),
    (
        translate,
        tiny_translate,
        lambda text: text.target_languages.append("pt_BR"),
        "has 'pt_BR', which is no BCP-47 tag",
    ),
    (
        translate,
        tiny_translate,
        lambda text: text.target_languages.extend(["no", "NO"]),
        "target_languages has 'NO' twice",
    ),
    (generate, tiny_generate, french(), "text.languages are for translate"),
    (caption, tiny_caption, french(), "text.languages are for translate"),
    (generate, tiny_generate, lambda text: text.prefix_ids.append(5), "text.prefix_ids are for translate and caption"),
    (generate, tiny_generate, lambda text: setattr(text, "forced_end_id", 1), "forced_end_id is for translate and cap"),
    (
        translate,
        tiny_translate,
        lambda text: setattr(text, "forced_end_id", 0),
        "forced_end_id 0 is not one of text.end_",
    ),
    (
        caption,
        tiny_caption,
        lambda text: text.prefix_ids.append(99),
        "text.prefix_ids has the id 99, and text.target_vocab",
    ),
    (translate, tiny_translate, lambda text: text.languages.add(tag="fr"), "text.languages: 'fr' is neither a source"),
    (translate, tiny_translate, lambda text: text.languages.add(tag="_"), "text.languages has '_', which is no BCP-47"),
    (translate, tiny_translate, target_only, "text.languages: 'fr' has a source_after and is no source language"),
    (translate, tiny_translate, source_only, "text.languages: 'fr' has a target_prefix and is no target language"),
    (
        translate,
        tiny_translate,
        french(source_before=[99]),
        "'fr': its source_before has the id 99, and text.source_vocab",
    ),
    (
        translate,
        tiny_translate,
        french(source_after=[99]),
        "'fr': its source_after has the id 99, and text.source_vocab_",
    ),
    (
        translate,
        tiny_translate,
        french(target_before=[99]),
        "'fr': its target_before has the id 99, and text.source_voc",
    ),
    (
        translate,
        tiny_translate,
        french(target_prefix=[99]),
        "'fr': its target_prefix has the id 99, and text.target_voc",
    ),
    (
        translate,
        tiny_translate,
        french(target_prefix=[5] * 9),
        "text.languages[0].target_prefix has 9 entries; at most 8",
    ),
    (translate, tiny_translate, french(code="x" * 65), "text.languages[0].code has 65 characters; at most 64"),
    (translate, tiny_translate, long_prefix, "a prefix of 3 ids and text.max_new_tokens"),
]


@pytest.mark.parametrize(("make", "make_tiny", "change", "sentence"), REFUSED, ids=[row[-1] for row in REFUSED])
def test_exporter_and_server_refuse_the_same(tmp_path, make, make_tiny, change, sentence):
    """In the same words: a checkpoint is never made of it, and a bundle with it is never loaded."""
    draft = make(tmp_path / "tiny" / "1")
    change(draft.manifest.text)
    assert sentence in refused(draft.write())

    checkpoint = make_tiny()
    change(checkpoint.text)
    with pytest.raises(CheckpointError, match=re.escape(sentence)):
        replace(checkpoint)


def test_what_languages_add_leaves_room_for_a_source(tmp_path):
    """Of a source of at most 12 tokens, eleven may be added ones."""
    draft = translate(tmp_path / "tiny" / "1")
    french(source_before=[5] * 4, source_after=[5] * 4, target_before=[5] * 4)(draft.manifest.text)
    draft.manifest.text.max_source_tokens = 12
    assert "languages add 12 ids to a source, and text.max_source_tokens is 12" == refused(draft.write())
