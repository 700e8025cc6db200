"""What a request may ask for that changes scores or tokens: its ranges, its contradictions, a model's own defaults."""

import math
import re

import pytest

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import BundleError, InvalidRequest
from weft_server.logits_processors.phrases import Suppressed
from weft_server.models.model import DecodingLimits
from weft_server.requests.decoding_config import resolve_decoding, verify_default
from weft_server.requests.phrase_reader import PhraseReader
from weft_server.requests.processors_config import RequestBounds, rules_of

WIDTHS = DecodingLimits(max_beams=8, max_outputs=8, num_candidates=16)
VOCAB, END, MAX_NEW = 50, 2, 8
NAN = float("nan")


def manifest(task=common_pb2.TASK_TRANSLATE, *, forced_end_id=None, **default):
    """A manifest of a model with these defaults, which reads and writes the same tokens."""
    text = bundle_pb2.TextSpec(
        max_total_tokens=16,
        max_new_tokens=MAX_NEW,
        source_vocab_size=VOCAB,
        target_vocab_size=VOCAB,
        end_ids=[END],
        forced_end_id=forced_end_id,
    )
    decoding = common_pb2.Decoding(max_new_tokens=MAX_NEW, **default)
    return bundle_pb2.BundleManifest(task=task, text=text, decoding=decoding)


def resolved(model=None, **asked):
    """A request's decoding."""
    return resolve_decoding(common_pb2.Decoding(**asked), model or manifest(), WIDTHS, 0)


def penalties(**each):
    """A request with penalties."""
    return {"penalties": common_pb2.Penalties(**each)}


def ids(*tokens):
    """A set of tokens."""
    return common_pb2.TokenSet(ids=tokens)


def phrase(*tokens):
    """A phrase of tokens."""
    return common_pb2.Phrase(token_ids=common_pb2.TokenIds(ids=tokens))


def bias(value, *tokens):
    """A request with a bias."""
    return {"bias": [common_pb2.PhraseBias(token_ids=common_pb2.TokenIds(ids=tokens), bias=value)]}


def decay(start, factor):
    """A request with a decay of length."""
    return {"length_decay": common_pb2.LengthDecay(start=start, factor=factor)}


def kinds(decoding):
    """The rules of a decoding, by name."""
    return [type(rule).__name__ for rule in decoding.rules]


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("penalties.repetition", penalties(repetition=0.09)),
        ("penalties.repetition", penalties(repetition=10.1)),
        ("penalties.repetition", penalties(repetition=NAN)),
        ("penalties.repetition", penalties(repetition=0)),
        ("penalties.encoder_repetition", penalties(encoder_repetition=-1)),
        ("penalties.presence", penalties(presence=-10.1)),
        ("penalties.presence", penalties(presence=NAN)),
        ("penalties.frequency", penalties(frequency=math.inf)),
        ("penalties.no_repeat_ngram_size", penalties(no_repeat_ngram_size=33)),
        ("penalties.encoder_no_repeat_ngram_size", penalties(encoder_no_repeat_ngram_size=33)),
        ("bias[0].bias", bias(100.5, 1)),
        ("bias[0].bias", bias(NAN, 1)),
        ("bias[0].token_ids", bias(1)),
        ("bias[0].token_ids", bias(1, *range(33))),
        ("bias[0].token_ids.ids[1]", bias(1, 3, VOCAB)),
        ("bias", {"bias": bias(1, 3)["bias"] * 1025}),
        ("banned", {"banned": [phrase(3)] * 1025}),
        ("banned[0].token_ids", {"banned": [common_pb2.Phrase()]}),
        ("banned[1].token_ids.ids[0]", {"banned": [phrase(3), phrase(VOCAB)]}),
        ("banned[0].text", {"banned": [common_pb2.Phrase(text="")]}),
        ("banned[0].text", {"banned": [common_pb2.Phrase(text="é" * 129)]}),
        ("suppressed.ids", {"suppressed": ids(*[3] * 1025)}),
        ("suppressed.ids[1]", {"suppressed": ids(3, VOCAB)}),
        ("suppressed_first.ids[0]", {"suppressed_first": ids(VOCAB)}),
        ("stop_token_ids.ids[0]", {"stop_token_ids": ids(VOCAB)}),
        ("forced_first_id", {"forced_first_id": VOCAB}),
        ("forced_last_id", {"forced_last_id": VOCAB}),
        ("length_decay.start", decay(MAX_NEW + 1, 1.5)),
        ("length_decay.factor", decay(0, 0.4)),
        ("length_decay.factor", decay(0, NAN)),
        ("prefix.token_ids", {"prefix": common_pb2.Phrase()}),
        ("prefix.token_ids.ids[0]", {"prefix": phrase(VOCAB)}),
    ],
    ids=str,
)
def test_what_is_outside_its_range_is_refused_by_name(field, asked):
    """Nothing is clamped."""
    with pytest.raises(InvalidRequest) as refused:
        resolved(**asked)
    assert f"decoding.{field}" == refused.value.field


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"sampling": {"temperature": 10.1}}, "10.1; for 0 ask for greedy"),
        ({"sampling": {"min_p": 1.0000001}}, "1.0000001"),
        (penalties(repetition=10.1), "10.1"),
        (penalties(no_repeat_ngram_size=16_777_217), "16777217"),
    ],
    ids=str,
)
def test_a_refused_number_is_told_as_it_was_sent(asked, given):
    """In as few digits as tell it from its neighbours of 32 bits; a whole number has no point."""
    with pytest.raises(InvalidRequest, match=rf", not {re.escape(given)}$"):
        resolved(**asked)


@pytest.mark.parametrize(
    "asked",
    [
        penalties(repetition=0.1, encoder_repetition=10, presence=-10, frequency=10),
        penalties(no_repeat_ngram_size=32, encoder_no_repeat_ngram_size=32),
        bias(-100, *range(32)),
        {"bias": bias(100, VOCAB - 1)["bias"] * 1024, "banned": [phrase(3)] * 1024},
        {"suppressed": ids(*[3] * 1024), "stop_token_ids": ids(VOCAB - 1)},
        {"forced_first_id": VOCAB - 1, "forced_last_id": 0},
        decay(MAX_NEW, 0.5),
        {"prefix": phrase(*[5] * MAX_NEW)},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_the_ends_of_all_ranges_are_taken(asked):
    """They are what the contract says. The answer tells them."""
    changes = resolved(**asked).changes
    assert common_pb2.Decoding(**asked) == changes


@pytest.mark.parametrize(
    ("asked", "first", "second"),
    [
        ({"prefix": phrase(*[5] * 4), "max_new_tokens": 3}, "decoding.prefix", "decoding.max_new_tokens, 3"),
        ({"prefix": phrase(5), "forced_first_id": 6, "max_new_tokens": 1}, "decoding.prefix", "max_new_tokens, 1"),
        ({"prefix": phrase(5, 9), "stop_token_ids": ids(9)}, "decoding.prefix", "decoding.stop_token_ids"),
        ({"forced_first_id": 9, "stop_token_ids": ids(9)}, "decoding.forced_first_id", "decoding.stop_token_ids"),
        ({"prefix": phrase(5, END)}, "decoding.prefix", "ends an answer"),
        (
            {"beams": common_pb2.Beams(num_beams=6), "stop_token_ids": ids(*range(10, 20))},
            "decoding.beams.num_beams",
            "must be 1..5 with 10 decoding.stop_token_ids, not 6",
        ),
    ],
)
def test_a_contradiction_names_both_fields(asked, first, second):
    """An answer cannot be both."""
    with pytest.raises(InvalidRequest, match=second) as refused:
        resolved(**asked)
    assert first == refused.value.field


@pytest.mark.parametrize("name", ["encoder_repetition", "encoder_no_repeat_ngram_size"])
def test_penalties_on_the_source_need_a_source_of_the_same_tokens(name):
    """A prompt is none, and other tokens cannot be found in the answer."""
    other = manifest()
    other.text.source_vocab_size = VOCAB + 1
    for model in (manifest(common_pb2.TASK_GENERATE), manifest(common_pb2.TASK_CAPTION), other):
        with pytest.raises(InvalidRequest, match=rf"decoding\.penalties\.{name} needs a model that"):
            resolved(model, **penalties(**{name: 2}))


def test_rules_come_in_the_order_of_the_contract():
    """It is transformers' order."""
    found = resolved(
        **penalties(
            repetition=2, encoder_repetition=2, presence=1, no_repeat_ngram_size=2, encoder_no_repeat_ngram_size=2
        ),
        **bias(1, 3),
        **decay(1, 2),
        banned=[phrase(3)],
        min_new_tokens=2,
        suppressed=ids(4),
        suppressed_first=ids(5),
    )
    assert [
        "SequenceBias",
        "SourceRepetitionPenalty",
        "RepetitionPenalty",
        "PresencePenalty",
        "NoRepeat",
        "NoSourceRepeat",
        "Banned",
        "Suppressed",
        "LengthDecay",
        "Suppressed",
        "Suppressed",
    ] == kinds(found)


def test_what_changes_nothing_is_no_rule():
    """A row without rules costs less. Tokens that end an answer are kept out of its beginning by a rule."""
    assert [] == kinds(resolved(**penalties(repetition=1, encoder_repetition=1, presence=0, no_repeat_ngram_size=0)))
    assert [] == kinds(resolved(min_new_tokens=2))
    assert [] == kinds(resolved(stop_token_ids=ids(3)))
    assert ["Suppressed"] == kinds(resolved(stop_token_ids=ids(3), min_new_tokens=2))


def test_a_models_own_rules_are_overridden_field_by_field():
    """Also those of the penalties. An empty set takes the place of the model's."""
    own = manifest(
        **penalties(repetition=2, presence=1),
        banned=[phrase(3)],
        suppressed=ids(4),
        stop_token_ids=ids(5),
        forced_first_id=6,
        **decay(1, 2),
    )

    kept = resolved(own)
    changed = resolved(
        own, **penalties(repetition=3), banned=[phrase(7), phrase(8)], suppressed=ids(), stop_token_ids=ids(9)
    )

    assert (2, 1) == (kept.changes.penalties.repetition, kept.changes.penalties.presence)
    assert (frozenset([5]), (6,)) == (kept.stop_ids, kept.forced_ids)
    assert (3, 1) == (changed.changes.penalties.repetition, changed.changes.penalties.presence)
    assert [phrase(7), phrase(8)] == list(changed.changes.banned)
    assert ["RepetitionPenalty", "PresencePenalty", "Banned", "LengthDecay"] == kinds(changed)
    assert (frozenset([9]), (6,)) == (changed.stop_ids, changed.forced_ids)


def test_a_models_own_lengths_are_cut_to_those_of_a_request():
    """A request that asks for a shorter answer, or has a long prompt, has not asked for them. What is told is valid."""
    own = manifest(common_pb2.TASK_GENERATE, **decay(6, 1.5), prefix=phrase(7, 8, 9), forced_first_id=6)
    verify_default(own, WIDTHS)

    short = resolved(own, max_new_tokens=3)
    behind_long = resolve_decoding(common_pb2.Decoding(), own, WIDTHS, 16 - 3)
    for found in (short, behind_long):
        assert (3, (6, 7, 8)) == (found.max_new_tokens, found.forced_ids)
        assert (3, phrase(7, 8)) == (found.changes.length_decay.start, found.changes.prefix)
        assert found.forced_ids == resolved(own, max_new_tokens=3, prefix=found.changes.prefix).forced_ids
    assert ((6,), False) == ((one := resolved(own, max_new_tokens=1)).forced_ids, one.changes.HasField("prefix"))
    assert (6, phrase(7, 8, 9)) == ((long := resolved(own).changes).length_decay.start, long.prefix)
    with pytest.raises(InvalidRequest, match=r"decoding\.length_decay\.start must be 0\.\.3, not 4"):
        resolved(own, max_new_tokens=3, **decay(4, 1.5))


def test_a_search_scores_no_prefix_and_nothing_before_it():
    """Without a prefix a forced first token counts as the model's choice."""
    first = {"forced_first_id": 6}
    assert (1, 0) == (len((one := resolved(**first)).forced_ids), one.num_unscored)
    assert (2, 2) == (len((one := resolved(prefix=phrase(7, 8))).forced_ids), one.num_unscored)
    assert (3, 3) == (len((one := resolved(**first, prefix=phrase(7, 8))).forced_ids), one.num_unscored)


def test_a_models_own_phrases_are_tokens():
    """A text would be read for every request."""
    with pytest.raises(BundleError, match=r"decoding\.banned\[0\]\.text must be token_ids"):
        verify_default(manifest(banned=[common_pb2.Phrase(text="no")]), WIDTHS)


def test_forced_tokens_stand_where_they_are_forced():
    """A first one before a prefix. Of an answer of one token, the last one counts. A bundle's end is a default."""
    assert ((6, 7, 8), None) == _forced(resolved(forced_first_id=6, prefix=phrase(7, 8)))
    assert ((), 3) == _forced(resolved(forced_first_id=6, forced_last_id=3, max_new_tokens=1))
    assert ((6,), 3) == _forced(resolved(forced_first_id=6, forced_last_id=3, max_new_tokens=2))
    assert ((), END) == _forced(resolved(manifest(forced_end_id=END)))
    assert ((), 5) == _forced(resolved(manifest(forced_end_id=END), forced_last_id=5))


def _forced(decoding):
    return decoding.forced_ids, decoding.forced_last_id


@pytest.mark.parametrize("text", ["x" * 256, "é" * 128, "x"])
def test_a_phrase_has_as_many_bytes_as_it_may(text):
    """Of UTF-8: one more is refused, and so is none. Then it is looked whether there is a tokenizer."""
    reader = PhraseReader(None, 9)
    with pytest.raises(InvalidRequest, match="must be token_ids here"):
        reader.banned([common_pb2.Phrase(text=text)])
    for wrong in ("x" * 257, "é" * 129, ""):
        with pytest.raises(InvalidRequest, match=r"decoding\.banned\[0\]\.text must be 1\.\.256 bytes of UTF-8, not"):
            reader.banned([common_pb2.Phrase(text=wrong)])


def test_what_a_kind_of_model_rules_stands_behind_the_request_s_own_rules():
    """So it has the last word. With it, a least length is a rule too."""
    last = Suppressed([7])
    bounds = RequestBounds((END,), 3, MAX_NEW, 0, has_source=True)
    rules = rules_of(common_pb2.Decoding(**bias(1.0, 4)), PhraseReader(None, VOCAB), bounds, last=last)
    assert ["SequenceBias", "Suppressed", "Suppressed"] == [type(rule).__name__ for rule in rules]
    assert last is rules[-1]
    assert () == rules_of(common_pb2.Decoding(), PhraseReader(None, VOCAB), bounds)
