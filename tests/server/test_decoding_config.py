"""What a bundle may give a request that asks for nothing. What a request may ask for: see test_completion."""

import pytest

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import BundleError, InvalidRequest
from weft_server.models.model import DecodingLimits
from weft_server.requests.decoding_config import resolve_decoding, shown_default, verify_default
from weft_server.sequence import Beams, EarlyStopping

WIDTHS = DecodingLimits(max_beams=8, max_outputs=8, num_candidates=16)
TEXT = bundle_pb2.TextSpec(max_total_tokens=16, max_new_tokens=8)


def manifest(**sampling):
    """A manifest whose default draws tokens."""
    decoding = common_pb2.Decoding(max_new_tokens=8, sampling=common_pb2.Sampling(**sampling))
    return bundle_pb2.BundleManifest(text=TEXT, decoding=decoding)


def test_a_default_that_a_request_may_ask_for_is_taken():
    """Numbers in their ranges raise nothing."""
    verify_default(manifest(temperature=0.7, top_p=0.9), WIDTHS)


@pytest.mark.parametrize(
    ("sampling", "refusal"),
    [
        ({"temperature": float("nan")}, "decoding.sampling.temperature must be above 0"),
        ({"top_p": -1}, "decoding.sampling.top_p must be above 0"),
        ({"min_p": 1.5}, r"decoding.sampling.min_p must be 0..1"),
        ({"typical_p": 0}, "decoding.sampling.typical_p must be above 0 and at most 1, not 0"),
        ({"epsilon_cutoff": 1}, "decoding.sampling.epsilon_cutoff must be at least 0 and below 1, not 1"),
        ({"eta_cutoff": -0.5}, "decoding.sampling.eta_cutoff must be at least 0 and below 1, not -0.5"),
    ],
)
def test_a_default_that_no_request_may_ask_for_is_refused(sampling, refusal):
    """A request that asks for nothing is never the first to meet it."""
    with pytest.raises(BundleError, match=refusal):
        verify_default(manifest(**sampling), WIDTHS)


def test_a_constraint_is_no_default():
    """It is a request's own, whatever it asks for."""
    default = manifest(temperature=0.7)
    default.decoding.constraint.regex = "a"
    with pytest.raises(BundleError, match=r"^decoding\.constraint cannot be a model's default$"):
        verify_default(default, WIDTHS)


def test_a_least_length_may_be_a_models_default():
    """An empty request resolves to it. It gives way to what a request says: to a least length, and to fewer tokens."""
    decoding = common_pb2.Decoding(max_new_tokens=8, min_new_tokens=5)
    default = bundle_pb2.BundleManifest(text=TEXT, decoding=decoding)

    def resolved(**asked):
        found = resolve_decoding(common_pb2.Decoding(**asked), default, WIDTHS, 0)
        return found.max_new_tokens, found.min_new_tokens

    verify_default(default, WIDTHS)
    assert (8, 5) == resolved()
    assert (8, 0) == resolved(min_new_tokens=0)
    assert (6, 5) == resolved(max_new_tokens=6)
    assert (3, 3) == resolved(max_new_tokens=3)
    with pytest.raises(InvalidRequest, match=r"decoding\.min_new_tokens must be at most max_new_tokens, 3, not 4"):
        resolved(max_new_tokens=3, min_new_tokens=4)


def resolved(default, **asked):
    """What a request resolves to beside a model's default, both given as fields of a Decoding."""
    manifest = bundle_pb2.BundleManifest(text=TEXT, decoding=common_pb2.Decoding(max_new_tokens=8, **default))
    verify_default(manifest, WIDTHS)
    return resolve_decoding(common_pb2.Decoding(**asked), manifest, WIDTHS, 0)


SEARCHES = {"beams": {"num_beams": 6, "length_penalty": 0.5, "early_stopping": 2}, "num_outputs": 3}


def test_a_search_is_merged_with_the_models_own_field_by_field():
    """What a request leaves unset is the model's; its number of outputs gives way to fewer beams."""
    own = Beams(6, 0.5, EarlyStopping.FULL)
    assert (own, 3) == (resolved(SEARCHES).beams, resolved(SEARCHES).num_outputs)
    asked = resolved(SEARCHES, beams={"length_penalty": 0.0})
    assert (Beams(6, 0.0, EarlyStopping.FULL), 3) == (asked.beams, asked.num_outputs)
    asked = resolved(SEARCHES, beams={"num_beams": 2, "early_stopping": 3})
    assert (Beams(2, 0.5, EarlyStopping.NEVER), 2) == (asked.beams, asked.num_outputs)
    assert (own, 6) == ((asked := resolved(SEARCHES, num_outputs=6)).beams, asked.num_outputs)
    with pytest.raises(InvalidRequest, match=r"num_outputs must be 1..2, as decoding\.beams\.num_beams says, not 3"):
        resolved(SEARCHES, beams={"num_beams": 2}, num_outputs=3)


def test_another_strategy_than_the_models_starts_from_its_own_defaults():
    """Nothing of a search is left, nor of how many answers it gives."""
    for asked in ({"greedy": {}}, {"sampling": {"seed": 1}}, {"alternatives": {}}):
        found = resolved(SEARCHES, **asked)
        assert (None, 1) == (found.beams, found.num_outputs)
    assert Beams(4) == resolved({"sampling": {}}, beams={}).beams


def test_sampling_is_merged_with_the_models_own():
    """A seed alone keeps the model's temperature."""
    sampling = resolved({"sampling": {"temperature": 0.5, "top_k": 7}}, sampling={"seed": 3}).sampling
    assert (0.5, 7, 3) == (sampling.temperature, sampling.top_k, sampling.seed)


def test_a_model_is_shown_with_what_an_empty_request_resolves_to():
    """Every setting of its search."""
    text, beams = TEXT, common_pb2.Beams(length_penalty=2)
    decoding = common_pb2.Decoding(max_new_tokens=8, beams=beams)
    shown = shown_default(bundle_pb2.BundleManifest(text=text, decoding=decoding), WIDTHS)
    heuristic = common_pb2.EARLY_STOPPING_HEURISTIC
    assert common_pb2.Beams(num_beams=4, length_penalty=2, early_stopping=heuristic) == shown.beams
    assert 1 == shown.num_outputs


def test_a_model_is_shown_with_the_end_that_it_forces():
    """It comes for every request that names no other."""
    text = bundle_pb2.TextSpec(forced_end_id=2, target_vocab_size=50)
    text.MergeFrom(TEXT)
    manifest = bundle_pb2.BundleManifest(text=text, decoding=common_pb2.Decoding(max_new_tokens=8))
    default = resolve_decoding(common_pb2.Decoding(), manifest, WIDTHS, 0)
    assert (2, 2) == (default.forced_last_id, shown_default(manifest, WIDTHS).forced_last_id)
    text.ClearField("forced_end_id")
    manifest.text.CopyFrom(text)
    assert not shown_default(manifest, WIDTHS).HasField("forced_last_id")


def test_a_default_that_a_lane_cannot_hold_is_refused():
    """The model is refused when it is loaded, not its first request."""
    manifest = bundle_pb2.BundleManifest(text=TEXT, decoding=common_pb2.Decoding(max_new_tokens=8, **SEARCHES))
    with pytest.raises(BundleError, match=r"decoding\.beams\.num_beams must be 1..5, not 6"):
        verify_default(manifest, WIDTHS._replace(max_beams=5))


def test_end_tokens_of_a_request_take_candidates_of_its_beams():
    """One for each of them; a number of beams that nobody sets gives way. More than there are cannot be decided."""
    text = bundle_pb2.TextSpec(max_total_tokens=16, max_new_tokens=8, target_vocab_size=50, end_ids=[2])
    manifest = bundle_pb2.BundleManifest(text=text, decoding=common_pb2.Decoding(max_new_tokens=8))

    def search(num_beams, *stop_ids):
        asked = common_pb2.Decoding(beams={"num_beams": num_beams}, stop_token_ids={"ids": stop_ids})
        return resolve_decoding(asked, manifest, WIDTHS, 0)

    assert search(8, 2).beams
    assert search(8, *range(3, 10)).beams
    with pytest.raises(InvalidRequest, match=r"num_beams must be 1\.\.7 with 8 decoding\.stop_token_ids, not 8"):
        search(8, *range(3, 11))
    assert 4 == search(None, *range(3, 10)).beams.num_beams
    assert 2 == search(None, *range(3, 16)).beams.num_beams
    manifest.decoding.beams.num_beams = 6
    assert 6 == search(None, 3).beams.num_beams
    assert 2 == search(None, *range(3, 16)).beams.num_beams
    with pytest.raises(InvalidRequest, match=r"stop_token_ids has 15 tokens, which leave no candidates"):
        search(None, *range(3, 18))
