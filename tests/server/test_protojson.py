"""Protojson by plans: each message is read and written as protobuf's own library does, and nothing more is taken."""

import base64
import json
import math
import struct
from decimal import Decimal

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from few import few_of
from weft_proto.v1.methods import METHODS
from weft_server.api import protojson

# Each kind of field is in one of the few.
REQUESTS = few_of([*dict.fromkeys(each.request for each in METHODS.values())],
                  [METHODS[name].request for name in ("StreamCaption", "Classify")])  # fmt: skip
RESPONSES = few_of([*dict.fromkeys(each.response for each in METHODS.values())],
                   [METHODS[name].response for name in ("StreamTranscribe", "GetModel", "Score")])  # fmt: skip
EXAMPLES = 40
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
# Other values than most fields take, and other forms of those that they do.
ODD = st.one_of(
    st.sampled_from(
        [None, "", [], {}, "NaN", "-Infinity", 1.0, 1.5, -1, 2**63, 1e39, 1e400, True, "7", "Zg", "_-8=", 2]
    ),
    st.sampled_from(["\ud800", "HIGH", 10**400, math.nan, [None], [[]], {"a": 1}, "MODE_WIDE", 3.4028235e38, 1.7e308]),
)


def scalars(field):
    """Values of a field that is no message."""
    if field.enum_type:
        return st.sampled_from([*field.enum_type.values_by_number])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=5)
    return {
        FieldDescriptor.CPPTYPE_STRING: TEXT,
        FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
        FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
        FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
        FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
        FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
        FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
        FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    }[field.cpp_type]


@st.composite
def messages(draw, kind):
    """A message of a kind, with some of its fields."""
    message = kind()
    fill(draw, message)
    return message


def fill(draw, message):
    """Set some fields."""
    fields = list(message.DESCRIPTOR.fields)
    if message.DESCRIPTOR.full_name == "google.protobuf.Duration":
        message.FromNanoseconds(draw(st.integers(0, 10**13)))
        return
    for field in (
        draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda each: each.number)) if fields else ()
    ):
        for _ in range(draw(st.integers(1, 2)) if field.is_repeated else 1):
            place = getattr(message, field.name)
            if field.message_type:
                inner = place.add() if field.is_repeated else place
                inner.SetInParent()
                fill(draw, inner)
            elif field.is_repeated:
                place.append(draw(scalars(field)))
            else:
                setattr(message, field.name, draw(scalars(field)))


def places(value, found):
    """Each object and list within a value, with its keys."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found.append((value, key))
        places(each, found)
    return found


def read(parse):
    """The bytes of what is read, or None if it is refused."""
    try:
        return parse().SerializeToString(deterministic=True)
    except (json_format.ParseError, ValueError, RecursionError):
        return None


def agree(kind, data):
    """Whether the plan says of some JSON what json_format says, or leaves it to that."""
    try:
        message = protojson.parse(kind, data)
    except (protojson.NotPlain, ValueError, RecursionError):  # what the codec catches
        return True
    return message.SerializeToString(deterministic=True) == read(lambda: json_format.Parse(data, kind()))


@pytest.mark.parametrize("kind", [*RESPONSES, *REQUESTS])
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_message_is_written_as_protobuf_writes_it(kind, data):
    """With the same fields in the same order, whatever fields a message has that calls take and give."""
    message = data.draw(messages(kind))
    expected = json_format.MessageToJson(message, indent=None, ensure_ascii=False)
    assert json.loads(expected, object_pairs_hook=list) == json.loads(
        protojson.to_json(message), object_pairs_hook=list
    )


@pytest.mark.parametrize("kind", REQUESTS)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_request_is_read_as_protobuf_reads_it(kind, data):
    """Any message, with the names of fields in either spelling. What is left to json_format has a number as text."""
    message = data.draw(messages(kind))
    for names in (False, True):
        sent = json_format.MessageToJson(message, preserving_proto_field_name=names).encode()
        assert agree(kind, sent)


@pytest.mark.parametrize("kind", REQUESTS)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_nothing_is_taken_that_protobuf_refuses(kind, data):
    """One value is another, or under another name, or twice: the plan says the same, or leaves it to json_format."""
    sent = json_format.MessageToDict(data.draw(messages(kind)), preserving_proto_field_name=data.draw(st.booleans()))
    found = places(sent, [])
    if found:
        inner, key = data.draw(st.sampled_from(found))
        if isinstance(inner, dict) and data.draw(st.booleans()):
            inner[data.draw(st.sampled_from([*fields_in(kind.DESCRIPTOR), "unknown"]))] = inner[key]
        else:
            inner[key] = data.draw(ODD)
    text = json.dumps(sent)
    if data.draw(st.booleans()):
        text = text.replace("{", '{"text": "a", ', 1)
    assert agree(kind, text.encode())


def fields_in(descriptor):
    """All names of fields that stand somewhere in a message."""
    names = {name for field in descriptor.fields for name in (field.name, field.json_name)}
    inner = [fields_in(field.message_type) for field in descriptor.fields if field.message_type]
    return sorted(names.union(*inner))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Classify", '{"model": {"name": "a"}, "tokenIds": {"ids": [1, 2]}, "topK": 3}'),
        ("Generate", '{"text": "\\u00e9", "decoding": {"max_new_tokens": 4, "sampling": {"temperature": 0.5}}}'),
        ("Caption", '{"image": {"data": "aGFsbG8="}}'),
        ("Detokenize", '{"token_ids": [1, 2], "side": "SIDE_INPUT"}'),
    ],
)
def test_a_usual_request_is_read_by_its_plan(name, text):
    """It is not left to json_format, which would give the same."""
    kind = METHODS[name].request
    expected = json_format.Parse(text, kind())
    assert expected == protojson.parse(kind, text.encode())


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_the_shortest_number_that_is_it(value):
    """Read as a float32 again, it is the same."""
    written = protojson._float(value)
    assert value == struct.unpack("f", struct.pack("f", written))[0]
    assert _num_digits(written) <= _num_digits(value)


def _num_digits(value):
    """How many digits a number is written with, without zeros at its end."""
    return len(f"{Decimal(repr(value)).normalize():e}".partition("e")[0])


def test_bytes_are_read_in_both_alphabets():
    """Base64 with the letters of addresses is left to json_format."""
    kind, data = METHODS["Caption"].request, bytes([251, 255, 254])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert agree(kind, json.dumps({"image": {"data": encode(data).decode()}}).encode())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Classify", '{"text": "a", "tokenIds": {"ids": [1]}}'),
        ("Classify", '{"text": "a", "text": "b"}'),
        ("Classify", '{"topK": 1, "top_k": 2}'),
        ("Classify", '{"topK": true}'),
        ("Classify", '{"topK": "1"}'),
        ("Classify", '{"topK": -1}'),
        ("Classify", '{"threshold": 1e39}'),
        ("Classify", '{"threshold": NaN}'),
        ("Classify", '{"model": []}'),
        ("Classify", '{"labels": ""}'),
        ("Classify", '{"text": null}'),
        ("Classify", '{"txt": "a"}'),
        ("Caption", '{"image": {"data": "_-8AAA=="}}'),
        ("Detokenize", '{"side": 1}'),
        ("Detokenize", '{"side": "SIDE_NONE"}'),
        ("Classify", "[]"),
    ],
)
def test_what_is_not_plain_is_left_to_protobuf(name, text):
    """A oneof or a name twice, values of other kinds or beyond their fields, other forms of what is right."""
    with pytest.raises(protojson.NotPlain):
        protojson.parse(METHODS[name].request, text.encode())
