"""Every number, string and list of a manifest has a limit, which bundle.proto states and the server checks first."""

import re
import tracemalloc
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from weft_proto.bundle_rules import (
    LIMITS,
    MAX_GRID,
    MAX_IMAGE_PIXELS,
    MAX_MANIFEST_BYTES,
    MAX_MANIFEST_ENTRIES,
    MAX_READ_BYTES,
)
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle import load
from weft_server.bundle.limits import verify_limits
from weft_server.bundle.load import has_few_entries
from weft_server.errors import BundleError

CONTRACTS = Path(__file__).parents[2] / "proto" / "weft_proto" / "v1"
PROTO = (CONTRACTS / "bundle.proto").read_text()
# What a manifest holds that other contracts have too.
SHARED = {"Prompt": common_pb2.Prompt, "QuestionForm": common_pb2.QuestionForm}
MESSAGES = vars(bundle_pb2) | SHARED
TEXT_OF = {name: (CONTRACTS / "common.proto").read_text() for name in SHARED}
MANUAL = (Path(__file__).parents[2] / "docs/bundle.md").read_text()
# format_version is 1 or refused; decoding is checked as any request's; image.channels is 1 or 3.
CHECKED_OTHERWISE = {"BundleManifest.format_version", "AdapterManifest.format_version"}
NO_WORD_OF_IT = {"ImageSpec.channels", "BundleFile.sha256", "Quality.score", "Quality.fp32_score"}
FIELDS = {
    f"{message}.{field}": (MESSAGES[message].DESCRIPTOR.fields_by_name[field], limit)
    for message, limits in LIMITS.items()
    for field, limit in limits.items()
}


# Of these there is nothing to bound.
UNBOUNDED = {FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_BOOL}


def test_every_field_has_a_limit():
    """Of each message of bundle.proto, and of SHARED, what is a number, a string or repeated stands in the table."""
    expected = {
        f"{name}.{field.name}"
        for name, message in {
            **bundle_pb2.DESCRIPTOR.message_types_by_name,
            **{name: shared.DESCRIPTOR for name, shared in SHARED.items()},
        }.items()
        for field in message.fields
        if field.is_repeated or field.type not in UNBOUNDED
    }

    assert set(FIELDS) == expected - CHECKED_OTHERWISE


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - NO_WORD_OF_IT))
def test_the_contract_states_each_limit(name):
    """The comment over a field has the largest number, the greatest length and the number of entries."""
    message, field = name.split(".")
    body = re.search(rf"^message {message} {{\n(.*?)^}}", TEXT_OF.get(message, PROTO), re.MULTILINE | re.DOTALL).group(
        1
    )
    comment = re.search(rf"((?: *//.*\n)+).*\b{field} = \d+;", body).group(1)
    limit = FIELDS[name][1]
    words = comment.replace(".\n", "\n").replace(". ", " ").replace(", ", " ").replace("]", " ").split()
    numbers = {word.rstrip(".,;:") for word in words}

    assert {f"{number:,}" for number in (limit.maximum, limit.entries) if number is not None} <= numbers


def test_the_contract_states_how_large_files_are():
    """What is read as a whole, and the manifest itself."""
    assert f"bundle.json has at most {MAX_MANIFEST_BYTES:,} bytes" in PROTO
    assert f"lists and objects together at most {MAX_MANIFEST_ENTRIES:,} entries" in PROTO
    assert f"at most {MAX_READ_BYTES:,} bytes" in PROTO


def test_the_manual_states_the_same_limits():
    """The table in docs/bundle.md, row by row."""
    text = LIMITS["TextSpec"]
    expected = [
        MAX_MANIFEST_BYTES,
        MAX_MANIFEST_ENTRIES,
        MAX_READ_BYTES,
        LIMITS["BundleFile"]["size_bytes"].maximum,
        text["source_vocab_size"].maximum,
        text["max_source_tokens"].maximum,
        text["max_total_tokens"].maximum,
        LIMITS["BundleManifest"]["labels"].entries,
        LIMITS["Attention"]["heads"].maximum,
        LIMITS["ImageSpec"]["height"].maximum,
        MAX_GRID,
        MAX_IMAGE_PIXELS,
    ]
    assert [f"{number:,}" for number in expected] == re.findall(r"^ *\| .* \| ([0-9,]+) \|$", MANUAL, re.MULTILINE)


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_at_its_limit_is_taken_and_what_is_beyond_is_refused(name):
    """In one sentence that names the field."""
    field, limit = FIELDS[name]
    message = MESSAGES[name.split(".")[0]]
    number = limit.minimum + (limit.maximum or 0) if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else limit.maximum

    def value(amount):
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            return MESSAGES[field.message_type.name]()
        return "x" * int(amount) if field.type == FieldDescriptor.TYPE_STRING else amount

    def whole(amount, entries=1):
        return message(**{field.name: [value(amount)] * entries if field.is_repeated else value(amount)})

    entries = min(limit.entries or 1, 2)
    if number is not None:
        verify_limits(whole(number if limit.maximum != 1.01 else 1, entries))
        with pytest.raises(BundleError, match=f"^{field.name}"):
            verify_limits(whole(number + 1))
    if limit.entries is not None:
        with pytest.raises(BundleError, match=f"^{field.name} has {limit.entries + 1:,} entries"):
            verify_limits(whole(0, limit.entries + 1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -1e30])
def test_what_is_no_number_is_beyond_every_limit(value):
    """In a list and alone."""
    for message in (bundle_pb2.ImageSpec(std=[1, value]), bundle_pb2.Parity(tolerance=value)):
        with pytest.raises(BundleError, match="it must be from"):
            verify_limits(message)


def test_a_refusal_says_where():
    """Lists within lists by their places."""
    manifest = bundle_pb2.BundleManifest(attention=bundle_pb2.Attention(heads=[4, 2_000_000_000]))
    with pytest.raises(BundleError) as refused:
        verify_limits(manifest)
    assert "attention.heads[1] is 2000000000; it must be from 0 to 1,024" == str(refused.value)


@pytest.mark.parametrize(
    ("text", "is_few"),
    [
        ("[1, 2, 3]", True),
        ("[1, 2, 3, 4]", False),
        ('{"a": [1, 2]}', True),
        ('{"a": [1, 2, 3]}', False),
        ('[[], {"a": {}}]', True),
        ('[[], {"a": {"b": 0}}]', False),
        ('["a,b,c,d"]', True),
        ("7", True),
    ],
)
def test_entries_of_all_lists_and_objects_count_together(text, is_few, monkeypatch):
    """At any depth. A text has none, whatever signs are in it."""
    monkeypatch.setattr(load, "MAX_MANIFEST_ENTRIES", 3)
    assert is_few == has_few_entries(text)


def test_entries_are_counted_before_they_are_made():
    """As many lists as there may be entries pass. Of far more, none becomes a list."""
    assert has_few_entries(f"[{','.join(['[]'] * MAX_MANIFEST_ENTRIES)}]")
    assert not has_few_entries(f"[{','.join(['0'] * (MAX_MANIFEST_ENTRIES + 1))}]")
    many = f"[{'[],' * 2_700_000}[]]"
    tracemalloc.start()
    try:
        assert not has_few_entries(many)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
