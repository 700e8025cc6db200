"""The table of a Decoding's numbers is what the contract, the SDK and the server say of them."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import decoding_fields
import weft
from weft_proto.decoding import BIAS, DECAY_FACTOR, LENGTH_PENALTY, PENALTIES, SAMPLING
from weft_proto.v1 import common_pb2
from weft_server.sampling import sampler

CONTRACT = (Path(__file__).parents[2] / "proto/weft_proto/v1/common.proto").read_text()
MESSAGES = {"sampling": "Sampling", "penalties": "Penalties", "beams": "Beams"} | {
    "length_decay": "LengthDecay",
    "bias": "PhraseBias",
}


def interval(field):
    """A field's range as the contract writes it."""
    begin, end = "(" if field.without == "minimum" else "[", ")" if field.without == "maximum" else "]"
    return f"{begin}{field.minimum:g}, {field.maximum:g}{end}"


@pytest.mark.parametrize(
    "field", [*SAMPLING, *PENALTIES, LENGTH_PENALTY, DECAY_FACTOR, BIAS], ids=lambda each: each.path
)
def test_the_contract_says_what_the_table_says(field):
    """The comment of each field has its range and its default."""
    message = re.search(rf"message {MESSAGES[field.path.split('.')[0]]} {{\n(.*?)\n}}", CONTRACT, re.DOTALL)[1]
    comment = re.search(rf"((?:  //[^\n]*\n)+)  (?:optional )?\w+ {field.field} = ", message)[1]

    if field.maximum is not None:
        assert interval(field) in comment
    if field.default is not None:
        default = re.search(r"default:? (\d+)|(\d+) \(the default\)|else (\d+)", comment)
        assert field.default == float(next(filter(None, default.groups())))


def test_the_sdk_s_numbers_are_fresh():
    """Their lines in the SDK are what `make sync` writes: in the contract's order, for callers give them by place."""
    assert decoding_fields.page() == decoding_fields.PAGE.read_text("utf-8")


def test_each_number_of_a_message_stands_in_the_table():
    """None is left out, and the SDK and the server have each by its name."""
    assert {each.name for each in common_pb2.Sampling.DESCRIPTOR.fields} == {each.field for each in SAMPLING}
    assert {each.name for each in common_pb2.Penalties.DESCRIPTOR.fields} == {each.field for each in PENALTIES}
    for sampling in (weft.Sampling, sampler.Sampling):
        assert {each.name for each in fields(sampling)} == {each.name for each in SAMPLING}
    assert {each.name for each in PENALTIES} < {each.name for each in fields(weft.Decoding)}
