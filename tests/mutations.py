"""Inputs that are nearly right: what fuzzing draws, and how much of it."""

import copy
import json
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

# Unset in CI: each test tries the same few examples there, so that none fails by chance. `make fuzz` sets it.
FACTOR = int(os.environ.get("FUZZ_FACTOR", "0"))
ODD_NUMBERS = [0, -1, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, -(2**63), 10**30]
ODD_FLOATS = [0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf")]
ODD_TEXTS = ["", " ", "a", "\0", "\ud800", "../../etc/passwd", "/", "é" * 3, "x" * 10_000, "{{", "%s", "null", "\u200b"]
DEEP = json.loads("[" * 300 + "]" * 300)
ODD = st.one_of(
    st.sampled_from([None, True, False, *ODD_NUMBERS, *ODD_FLOATS, *ODD_TEXTS, [], {}, [[]], DEEP, [0] * 1000]),
    st.integers(-5, 300),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(-3, 300), max_size=5),
).map(copy.deepcopy)  # a list that is put in may be changed afterwards


def budget(examples):
    """How many examples a test tries: these in CI, and FACTOR times as many others in `make fuzz`."""
    common = {"deadline": None, "print_blob": True, "suppress_health_check": list(HealthCheck)}
    if not FACTOR:
        return settings(max_examples=examples, derandomize=True, database=None, **common)
    return settings(
        max_examples=examples * FACTOR, database=DirectoryBasedExampleDatabase(".hypothesis/fuzz"), **common
    )


@st.composite
def mutated_bytes(draw, seeds, most=8):
    """One of `seeds` with a few bytes changed, put in, cut out or repeated."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, most))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from([1, 1, 2, 4, 8, 64, 4096]))
        match draw(st.sampled_from(["set", "flip", "put in", "cut out", "repeat", "end"])):
            case "set":
                data[start : start + length] = draw(st.binary(min_size=length, max_size=length))
            case "flip" if start < len(data):
                data[start] ^= 1 << draw(st.integers(0, 7))
            case "put in":
                data[start:start] = draw(st.binary(max_size=length))
            case "cut out":
                del data[start : start + length]
            case "repeat":
                data[start:start] = data[start : start + length] * draw(st.integers(1, 50))
            case "end" if start:
                del data[start:]
    return bytes(data)


@st.composite
def mutated_json(draw, documents, most=4):
    """One of `documents` with a few values replaced, left out, moved or put in."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, most))):
        places = list(_places(document))
        if not places:
            return document
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["odd", "odd", "near", "left out", "moved", "added"])):
            case "odd":
                holder[key] = draw(ODD)
            case "near":
                holder[key] = draw(_near(holder[key]))
            case "left out":
                del holder[key]
            case "moved":
                other, place = draw(st.sampled_from(places))
                value = copy.deepcopy(holder[key])
                if isinstance(other, dict) or place < len(other):
                    other[place] = value
            case "added" if isinstance(holder, dict):
                holder[draw(st.text(max_size=5))] = draw(ODD)
            case "added":
                holder.insert(key, draw(ODD))
    return document


def _near(value):
    """Another value of the same kind."""
    match value:
        case bool():
            return st.just(not value)
        case int():
            return st.integers(-3, 3).map(lambda step: value + step)
        case float():
            return st.sampled_from([-value, value / 2, value * 3])
        case str():
            return st.one_of(st.just(value[:-1]), st.text(max_size=3).map(lambda more: value + more))
        case list():
            return st.just([*value, *value[-1:]])
    return ODD


def _places(value):
    """Each place in a document: what holds it, and its key. Of a long list only the ends."""
    if isinstance(value, dict):
        keys = list(value)
        keys = keys if len(keys) < 100 else keys[:5] + keys[-5:]
    elif isinstance(value, list):
        count = len(value)
        keys = list(range(count)) if count < 30 else [0, 1, count - 1]
    else:
        return
    for key in keys:
        yield value, key
        yield from _places(value[key])


_ODD_OF = {
    "int": st.one_of(st.sampled_from(ODD_NUMBERS), st.integers(-3, 300)),
    "float": st.one_of(st.sampled_from(ODD_FLOATS), st.floats(width=32)),
    "str": st.one_of(st.sampled_from([text for text in ODD_TEXTS if text.isprintable()]), st.text(max_size=20)),
    "bool": st.booleans(),
    "bytes": st.binary(max_size=50),
}


@st.composite
def mutated_message(draw, seeds, most=4):
    """One of `seeds`, messages of protobuf, with a few fields set, cleared, repeated or left out."""
    message = copy.deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, most))):
        fields = list(_fields(message))
        if not fields:
            return message
        inside, field = draw(st.sampled_from(fields))
        value = getattr(inside, field.name)
        match draw(st.sampled_from(["set", "set", "set", "clear", "repeat"])):
            case "clear":
                inside.ClearField(field.name)
            case "repeat" if field.is_repeated and len(value):
                value.extend([value[draw(st.integers(0, len(value) - 1))]] * draw(st.sampled_from([1, 1, 30])))
            case _ if field.message_type is not None:
                if not field.is_repeated:
                    value.SetInParent()
                elif len(value):
                    del value[draw(st.integers(0, len(value) - 1))]
            case _:
                _set(draw, inside, field)
    return message


def _fields(message):
    """Each field of a message that may be set, with its message, and likewise inside of it."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for inner in value if field.is_repeated else [value]:
                yield from _fields(inner)


def _set(draw, message, field):
    """Set a number, a text or bytes to another value. One that the field cannot hold leaves it as it is."""
    kind = type(field.default_value).__name__ if not field.is_repeated else _KINDS[field.cpp_type]
    odd = draw(_ODD_OF[kind])
    try:
        if not field.is_repeated:
            setattr(message, field.name, odd)
        elif values := getattr(message, field.name):
            values[draw(st.integers(0, len(values) - 1))] = odd
        else:
            values.append(odd)
    except (TypeError, ValueError):
        return


_KINDS = {1: "int", 2: "int", 3: "int", 4: "int", 5: "float", 6: "float", 7: "bool", 8: "int", 9: "str"}
