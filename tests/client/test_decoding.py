"""Decoding: each setting stands in its field of the wire, what comes back is what was sent, and nothing is guessed."""

import json
from collections import UserDict
from dataclasses import replace

import pytest
from grpc import StatusCode

import weft
from fakes import Failure
from weft._decoding_message import decoding_message, read_decoding
from weft_proto.v1 import common_pb2 as common

IDS = common.TokenIds
SET = common.TokenSet
# A Decoding and its message.
EACH = [
    ({"strategy": weft.Beams()}, {"beams": common.Beams()}),
    (
        {"strategy": weft.Beams(4, 0.5, weft.EarlyStopping.NEVER), "num_outputs": 3},
        {
            "beams": common.Beams(num_beams=4, length_penalty=0.5, early_stopping=common.EARLY_STOPPING_NEVER),
            "num_outputs": 3,
        },
    ),
    ({"strategy": weft.Alternatives(), "num_outputs": 5}, {"alternatives": common.Alternatives(), "num_outputs": 5}),
    (
        {"strategy": weft.Sampling(1.5, 3, 0.5, 7, 0.25, 0.75, 0.125, 0.0625)},
        {
            "sampling": common.Sampling(
                temperature=1.5,
                top_k=3,
                top_p=0.5,
                seed=7,
                min_p=0.25,
                typical_p=0.75,
                epsilon_cutoff=0.125,
                eta_cutoff=0.0625,
            )
        },
    ),
    (
        {
            "repetition_penalty": 1.25,
            "encoder_repetition_penalty": 0.5,
            "presence_penalty": 0.0,
            "frequency_penalty": -0.5,
            "no_repeat_ngram_size": 0,
            "encoder_no_repeat_ngram_size": 3,
        },
        {
            "penalties": common.Penalties(
                repetition=1.25,
                encoder_repetition=0.5,
                presence=0.0,
                frequency=-0.5,
                no_repeat_ngram_size=0,
                encoder_no_repeat_ngram_size=3,
            )
        },
    ),
    (
        {"bias": (weft.PhraseBias((1, 2), -3.0), weft.PhraseBias((9,), 0.5))},
        {
            "bias": [
                common.PhraseBias(token_ids=IDS(ids=[1, 2]), bias=-3.0),
                common.PhraseBias(token_ids=IDS(ids=[9]), bias=0.5),
            ]
        },
    ),
    (
        {"banned": ("no", (1, 2))},
        {"banned": [common.Phrase(text="no"), common.Phrase(token_ids=IDS(ids=[1, 2]))]},
    ),
    ({"suppressed": (1, 2), "suppressed_first": ()}, {"suppressed": SET(ids=[1, 2]), "suppressed_first": SET()}),
    ({"forced_first_id": 0, "forced_last_id": 2}, {"forced_first_id": 0, "forced_last_id": 2}),
    ({"length_decay": weft.LengthDecay(0, 1.5)}, {"length_decay": common.LengthDecay(start=0, factor=1.5)}),
    ({"stop_token_ids": (7,)}, {"stop_token_ids": SET(ids=[7])}),
    ({"prefix": "Once"}, {"prefix": common.Phrase(text="Once")}),
    ({"prefix": (4, 5)}, {"prefix": common.Phrase(token_ids=IDS(ids=[4, 5]))}),
    ({"json_schema": "{}"}, {"constraint": common.Constraint(json_schema="{}")}),
    ({"regex": r"\d+"}, {"constraint": common.Constraint(regex=r"\d+")}),
    ({"lark": 'start: "a"'}, {"constraint": common.Constraint(lark='start: "a"')}),
    ({"choices": ("a", "b")}, {"constraint": common.Constraint(choice=common.Choice(texts=["a", "b"]))}),
]


@pytest.mark.parametrize(("given", "sent"), EACH, ids=[" ".join(given) for given, _ in EACH])
def test_a_setting_stands_in_its_field(given, sent):
    """And comes back from it as it was."""
    message = decoding_message(weft.Decoding(**given))

    assert common.Decoding(**sent) == message
    assert weft.Decoding(**given) == read_decoding(message)


def test_every_field_of_the_contract_has_a_setting():
    """Together the settings above set each field of Decoding and of the messages within, but for those of lengths."""
    whole = common.Decoding()
    for _, sent in EACH:
        whole.MergeFrom(common.Decoding(**sent))
    strategies = {"greedy", "sampling", "beams", "alternatives"}
    seen = {field for _, sent in EACH for field in sent} | strategies

    fields = {field.name for field in common.Decoding.DESCRIPTOR.fields}
    assert {"max_new_tokens", "min_new_tokens", "stop"} == fields - seen
    assert len(whole.penalties.ListFields()) == len(common.Penalties.DESCRIPTOR.fields)
    assert len(common.Sampling.DESCRIPTOR.fields) == len(weft.Sampling.__dataclass_fields__)


def test_a_schema_keeps_the_order_of_its_properties():
    """A dict is sent as JSON: its properties come in the answer as they stand, so they are not sorted."""
    schema = {"type": "object", "properties": UserDict({"b": {"const": "ñ"}, "a": {}})}
    sent = decoding_message(weft.Decoding(json_schema=schema)).constraint.json_schema

    assert ["b", "a"] == list(json.loads(sent)["properties"])
    assert "ñ" in sent


def nested(depth: int) -> dict:
    """A schema of arrays in arrays."""
    schema: dict = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


REFUSED = [
    ({"strategy": weft.Beams}, "decoding.strategy"),
    ({"strategy": weft.Beams(early_stopping=True)}, "decoding.beams.early_stopping"),
    ({"strategy": weft.Beams(num_beams=-1)}, "decoding.beams.num_beams"),
    ({"strategy": weft.Beams(num_beams=2.5)}, "decoding.beams.num_beams"),
    ({"strategy": weft.Sampling(min_p="x")}, "decoding.sampling.min_p"),
    ({"num_outputs": "3"}, "decoding.num_outputs"),
    ({"repetition_penalty": "x"}, "decoding.penalties.repetition"),
    ({"bias": {5: 1.0}}, "decoding.bias"),
    ({"bias": ((5, 1.0),)}, "decoding.bias[0]"),
    ({"bias": (weft.PhraseBias("a", 1.0),)}, "decoding.bias[0]"),
    ({"bias": (weft.PhraseBias((1,), "x"),)}, "decoding.bias[0].bias"),
    ({"banned": "no"}, "decoding.banned"),
    ({"banned": ("no", 5)}, "decoding.banned[1]"),
    ({"banned": ("no", b"no")}, "decoding.banned[1]"),
    ({"suppressed": 5}, "decoding.suppressed"),
    ({"suppressed": (-1,)}, "decoding.suppressed.ids"),
    ({"stop_token_ids": ("a",)}, "decoding.stop_token_ids.ids"),
    ({"length_decay": (1, 2.0)}, "decoding.length_decay"),
    ({"prefix": 5}, "decoding.prefix"),
    ({"prefix": "\ud800"}, "decoding.prefix.text"),
    ({"json_schema": 5}, "decoding.constraint.json_schema"),
    ({"json_schema": {"const": object()}}, "decoding.constraint.json_schema"),
    ({"json_schema": {"const": float("nan")}}, "decoding.constraint.json_schema"),
    ({"json_schema": nested(100_000)}, "decoding.constraint.json_schema"),
    ({"regex": 5}, "decoding.constraint.regex"),
    ({"choices": "ab"}, "decoding.choices"),
    ({"regex": "a", "choices": ("a",)}, "decoding.constraint"),
]


@pytest.mark.parametrize(
    ("given", "field"), REFUSED, ids=[f"{field} {index}" for index, (_, field) in enumerate(REFUSED)]
)
def test_what_cannot_be_meant_is_refused_here(client, server, given, field):
    """By the name that the server has for the field, before anything is sent."""
    with pytest.raises(weft.InvalidRequest) as caught:
        client.generate("a", decoding=weft.Decoding(**given))

    assert (field,) == tuple(each.field for each in caught.value.field_violations)
    assert [] == server.servicer.seen


def test_two_constraints_are_named():
    """The refusal says which of them were given."""
    with pytest.raises(weft.InvalidRequest, match=r"not json_schema and lark$"):
        decoding_message(weft.Decoding(json_schema={}, lark="start: /a/"))


def test_a_word_for_early_stopping_is_enough():
    """As with every enum of the client, its value is the word."""
    message = decoding_message(weft.Decoding(strategy=weft.Beams(early_stopping="full")))
    assert common.EARLY_STOPPING_FULL == message.beams.early_stopping


def test_a_word_of_a_newer_server_stands_for_none():
    """How a search ends that this client does not know is left open."""
    message = common.Decoding(beams=common.Beams(num_beams=2, early_stopping=9))
    assert weft.Decoding(strategy=weft.Beams(2)) == read_decoding(message)


@pytest.mark.parametrize("verb", ["translate", "caption", "generate"])
def test_outputs_come_out_typed(client, server, verb):
    """The further answers of one request, each with its score, and the most probable tokens of each step."""
    decoding = weft.Decoding(strategy=weft.Beams(3), num_outputs=2)
    asked = b"12" if verb == "caption" else "a b"
    answer = getattr(client, verb)(asked, decoding=decoding, num_top_tokens=2, return_scores=True)

    assert 2 == server.servicer.seen[0].request.num_top_tokens
    assert -0.25 == answer.score
    (other,) = answer.others
    assert isinstance(other, weft.Output)
    assert (" ".join(answer.tokens[::-1]), -0.5) == (other.text, other.score)
    assert answer.tokens[::-1] == other.tokens
    assert len(answer.token_ids) == len(answer.top_tokens) == len(other.top_tokens)
    assert (
        weft.TopToken(id=0, token=answer.tokens[0], log_prob=-0.5),
        weft.TopToken(id=1, token="1", log_prob=-1.5),
    ) == answer.top_tokens[0]


def test_a_prompts_scores_and_its_cache(client, server):
    """`return_prompt_scores` and `cache_salt` go with the request, `prompt_log_probs` and `cached_tokens` come back."""
    answer = client.generate("a b c", return_prompt_scores=True, cache_salt="tenant")

    assert (-1.0, -1.0) == answer.prompt_log_probs
    assert weft.Usage(3, 3, cached_tokens=2) == answer.usage
    assert weft.Usage(3, 3) == replace(client.translate("a b c", cache_salt="tenant").usage, cached_tokens=0)
    assert ["tenant", "tenant"] == [seen.request.cache_salt for seen in server.servicer.seen]
    plain = client.generate("a")
    assert ((), None, (), ()) == (plain.others, plain.score, plain.top_tokens, plain.prompt_log_probs)


def test_an_option_belongs_to_its_verb(client):
    """A caption has no cache and no prompt: what its message does not have is no option of it."""
    for option in ("cache_salt", "return_prompt_scores"):
        with pytest.raises(TypeError, match=f"unknown option '{option}'"):
            client.caption(b"1", **{option: "x"})


def test_a_refused_constraint_says_why(client, server):
    """The server's own words and its reason arrive."""
    said = "decoding.constraint.regex: unclosed group"
    server.servicer.script.append(Failure(StatusCode.INVALID_ARGUMENT, "CONSTRAINT_REFUSED", said))
    with pytest.raises(weft.InvalidRequest, match="unclosed group") as caught:
        client.generate("a", decoding=weft.Decoding(regex="("))
    assert "CONSTRAINT_REFUSED" == caught.value.reason
