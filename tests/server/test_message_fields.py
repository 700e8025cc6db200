"""Laws of counting fields on the wire: what would be too many objects is refused before one of them is made."""

import os
import tracemalloc
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given
from hypothesis import strategies as st

from bounded import Bounded
from intercepted import methods
from on_the_wire import inside, path, places, shortest, sized, times, varint
from weft_proto.v1 import (
    caption_pb2,
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    tokenization_pb2,
    translation_pb2,
)
from weft_server.admission.message_fields import MAX_FIELDS, MAX_TIMES, MAX_UNKNOWN, FieldLimit, check_fields, fields_of
from weft_server.admission.message_limits import FIELD_LIMITS, check_of
from weft_server.errors import InvalidRequest
from weft_server.transport.handlers import Parser

MEBIBYTE = 1 << 20
REQUESTS = {
    kind.full_name: kind
    for kind in (
        *methods().values(),
        health_pb2.HealthCheckRequest.DESCRIPTOR,
        reflection_pb2.ServerReflectionRequest.DESCRIPTOR,
    )
}
GENERATE = check_of(generation_pb2.GenerateRequest.FromString)
DECODING = generation_pb2.GenerateRequest.DESCRIPTOR.fields_by_name["decoding"]


def check(kind, data):
    """Count the fields of a message of that kind."""
    check_fields(data, fields_of(kind, FIELD_LIMITS))


def refusal(call, *arguments):
    """(reason, field) of the InvalidRequest that a call raises, or None."""
    try:
        call(*arguments)
    except InvalidRequest as error:
        return error.reason, error.field
    return None


@pytest.mark.parametrize("number", [1, 127, 128, 129, 16_383, 16_384])
def test_numbers_and_lengths_take_as_many_bytes_as_they_do(number):
    """Fields behind them, and inside, are counted as protobuf reads them."""
    decoding = common_pb2.Decoding(max_new_tokens=number, stop=["x" * number, "y"])
    request = generation_pb2.GenerateRequest(text="x" * number, decoding=decoding, request_id="z")
    fields = fields_of(generation_pb2.GenerateRequest.DESCRIPTOR, FIELD_LIMITS)
    assert 3 + 3 == check_fields(request.SerializeToString(), fields)


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_each_field_may_come_as_often_as_its_bound(name):
    """One more is refused by its name, wherever in a request it stands. A new field is tried here too."""
    for around, field in places(REQUESTS[name]):
        most, reason = FIELD_LIMITS[field.full_name] if field.is_repeated else FieldLimit(MAX_TIMES)
        where = path(*around, field)
        assert refusal(check, REQUESTS[name], inside(around, times(field, most))) is None, where
        over = inside(around, times(field, most + 1))
        assert (reason, where) == refusal(check, REQUESTS[name], over)
        if most < MAX_FIELDS // 2:
            assert refusal(check, REQUESTS[name], inside(around, shortest(field) * most)) is None, where
            over = inside(around, shortest(field) * (most + 1))
            assert (reason, where) == refusal(check, REQUESTS[name], over)


def test_a_refusal_names_the_message_that_it_is_about():
    """By its place among its like."""
    ids = common_pb2.TokenIds(ids=[5])
    good = [common_pb2.Phrase(token_ids=ids)] * 7
    data = common_pb2.Decoding(banned=good).SerializeToString() + sized(11, shortest(ids_field()) * 5)
    with pytest.raises(InvalidRequest, match=r"^decoding\.banned\[7\]\.token_ids comes more than 4 times$"):
        GENERATE(inside([DECODING], data))


def ids_field():
    """Phrase.token_ids."""
    return common_pb2.Phrase.DESCRIPTOR.fields_by_name["token_ids"]


def test_fields_that_nobody_knows_are_few():
    """A newer client may send some. Their kind does not matter, nor that a number is one that we know otherwise."""
    for around in ((), (DECODING,)):
        for unknown in (varint(99 << 3) + b"\1", sized(99, b"x"), varint(99 << 3 | 5) + bytes(4), b"\x9a\6\0"):
            assert refusal(GENERATE, inside(around, unknown * MAX_UNKNOWN)) is None
            where = ".".join([*(field.name for field in around), "99"])
            assert ("INVALID_FIELD", where) == refusal(GENERATE, inside(around, unknown * (MAX_UNKNOWN + 1)))
    bias = common_pb2.Decoding.DESCRIPTOR.fields_by_name["bias"]
    as_a_number = varint(bias.number << 3) + b"\0"
    assert ("INVALID_FIELD", f"decoding.{bias.number}") == refusal(GENERATE, inside([DECODING], as_a_number * 65))


def test_all_fields_together_have_a_bound():
    """Each of these has few enough of everything; numbers that are not packed count each."""
    count, rest = divmod(MAX_FIELDS - 1, 18)
    phrases = sized(11, sized(2, b"\x08\5" * 16)) * count
    assert refusal(GENERATE, inside([DECODING], phrases + sized(12, b"\x08\5" * (rest - 1)))) is None
    assert ("MESSAGE_TOO_LARGE", "") == refusal(GENERATE, inside([DECODING], phrases + sized(12, b"\x08\5" * rest)))


def test_packed_numbers_count_as_few_fields():
    """256 as one. So four million of them are in a request, in one list or in many, and no more."""
    embed = check_of(embedding_pb2.EmbedRequest.FromString)
    ids = sized(2, sized(2, sized(1, bytes(256 * 61))))  # three fields and 61
    assert refusal(embed, ids * 256) is None
    more = sized(2, sized(2, sized(1, bytes(256 * 62))))
    assert ("MESSAGE_TOO_LARGE", "") == refusal(embed, ids * 240 + more * 16)


def full_request():
    """As much of everything as the bounds allow."""
    ids = {"ids": range(500, 532)}
    decoding = common_pb2.Decoding(
        stop="abcd", bias=[{"token_ids": ids, "bias": 1}] * 1024, banned=[{"token_ids": ids}] * 1024,
        constraint={"choice": {"texts": map(str, range(1024))}}, prefix={"token_ids": ids},
        suppressed={"ids": range(1024)}, suppressed_first={"ids": range(1024)}, stop_token_ids={"ids": range(1024)},
        penalties={"presence": 1},
    )  # fmt: skip
    return generation_pb2.GenerateRequest(
        model={"name": "m"}, messages={"turns": [{"role": "user", "content": "hi"}] * 1024}, decoding=decoding,
        explain={"layer": 0}, request_id="r",
    )  # fmt: skip


def test_a_request_that_asks_for_all_there_is_passes():
    """The bound of all fields stands above what the others allow."""
    data = full_request().SerializeToString()
    assert refusal(GENERATE, data) is None
    stream = check_of(generation_pb2.StreamGenerateRequest.FromString)
    assert refusal(stream, sized(1, data)) is None


def test_packed_numbers_count_each_once():
    """However many bytes one takes, and in however many pieces they come."""
    field = common_pb2.Decoding.DESCRIPTOR.fields_by_name["stop_token_ids"]
    most = FIELD_LIMITS["weft.v1.TokenSet.ids"].most
    half = sized(1, varint(300) * (most // 2))
    assert refusal(GENERATE, inside([DECODING, field], half + half)) is None
    over = half + half + sized(1, varint(300) * (most % 2 + 1))
    assert "decoding.stop_token_ids.ids" == refusal(GENERATE, inside([DECODING, field], over))[1]


def test_joined_messages_pass():
    """As bytes, four requests in a row are one, in which the last one's fields hold."""
    one = generation_pb2.GenerateRequest(model={"name": "m"}, text="def", decoding={"max_new_tokens": 3})
    assert refusal(GENERATE, one.SerializeToString() * MAX_TIMES) is None
    assert ("INVALID_FIELD", "model") == refusal(GENERATE, one.SerializeToString() * (MAX_TIMES + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x05abcd",
        b"\x12",
        b"\x92",
        b"\x28",
        b"\x28\xff",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x28" + b"\xff" * 10**6,
        b"\xff" * 10**6,
        b"\x23\x24",
        b"\x5b" * 10**6,
        b"\x0e\0",
        b"\x22\x02\x0a\x05abcde",
        b"\x22\x01\x40\x01",
        b"\x25\0\0\0",
        b"\x21" + bytes(7),
    ],
)
def test_what_is_no_message_is_not_parsed(data):
    """Bytes that end too early, or that go beyond the message around them, numbers without end, and groups."""
    with pytest.raises(DecodeError):
        GENERATE(data)
    parser = Parser(lambda _: pytest.fail("was parsed"), 1 << 24, GENERATE)
    assert ("MALFORMED_REQUEST", "") == refusal(parser.weigh, data)


SMALL = {
    "str": st.text(max_size=5),
    "bytes": st.binary(max_size=300),
    "bool": st.booleans(),
    "int": st.integers(0, 127),
    "float": st.floats(width=32),
}
SCALARS = {1: "int", 2: "int", 3: "int", 4: "int", 5: "float", 6: "float", 7: "bool", 8: "int"}


@st.composite
def messages(draw, kind):
    """A message that keeps to the bounds."""
    made = {}
    for field in kind.fields:
        if not draw(st.booleans()):
            continue
        if field.message_type and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name
            made[field.name] = draw(st.dictionaries(SMALL["str"], messages(entry["value"].message_type), max_size=4))
            continue
        if field.message_type:
            value = messages(field.message_type)
        elif field.cpp_type == field.CPPTYPE_STRING:
            value = SMALL["bytes" if field.type == field.TYPE_BYTES else "str"]
        elif field.cpp_type == field.CPPTYPE_ENUM:
            value = st.sampled_from([each.number for each in field.enum_type.values])
        else:
            value = SMALL[SCALARS[field.cpp_type]]
        made[field.name] = draw(st.lists(value, max_size=4) if field.is_repeated else value)
    return GetMessageClass(kind)(**made)


@given(data=st.data())
def test_any_request_within_the_bounds_passes(data):
    """However its fields are drawn, and if it is joined with others of its kind."""
    kind = REQUESTS[data.draw(st.sampled_from(sorted(REQUESTS)))]
    joined = data.draw(st.lists(messages(kind), min_size=1, max_size=MAX_TIMES))
    check(kind, b"".join(each.SerializeToString() for each in joined))


def num_parts(message):
    """How many texts, messages and numbers a message holds, in it and inside."""
    count = 0
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        count += len(values)
        if field.message_type:
            count += sum(map(num_parts, values))
    return count


@given(data=st.data())
def test_any_bytes_are_a_message_or_refused(data):
    """Nothing but InvalidRequest comes of them. What is made of others has no more parts than were counted."""
    seeds = [
        full_request().SerializeToString()[-4000:],
        sized(4, b"\x1a\0" * 4),
        sized(4, b"\x52\0" * 1000),
        b"\x12\1a",
    ]
    pieces = st.one_of(st.sampled_from(seeds), st.binary(max_size=12))
    body = b"".join(data.draw(st.lists(pieces, max_size=6)))
    parser = Parser(generation_pb2.GenerateRequest.FromString, 1 << 24, GENERATE)
    try:
        parser.weigh(body)
        request = parser.parse(body)
    except InvalidRequest:
        return
    numbers = sum(len(each.ids) for each in (request.token_ids, request.decoding.suppressed))
    assert num_parts(request) - numbers <= MAX_FIELDS


def heavy():
    """What passes and takes the most memory for its bytes, by name: the class, and a function that gives the bytes."""
    ids = sized(2, sized(2, sized(1, bytes(131_073))))
    long = sized(2, sized(2, sized(1, b"\x80\0" * 524_289)))
    return {
        "numbers": (embedding_pb2.EmbedRequest, lambda: ids * 31),
        "numbers of two bytes": (embedding_pb2.EmbedRequest, lambda: long * 7),
        "numbers of one text": (tokenization_pb2.DetokenizeRequest, lambda: sized(2, bytes(131_072))),
        "all there is": (generation_pb2.GenerateRequest, lambda: full_request().SerializeToString()),
        "empty phrases": (caption_pb2.CaptionRequest, lambda: sized(3, sized(11, b"\x12\0" * 4) * 1024)),
        "unknown": (caption_pb2.CaptionRequest, lambda: sized(3, sized(99, b"x" * 200_000) * MAX_UNKNOWN)),
        "a file": (classification_pb2.ClassifyRequest, lambda: sized(4, sized(1, bytes(15 * MEBIBYTE)))),
        "labels": (classification_pb2.ClassifyRequest, lambda: sized(9, b"x" * 15_000) * 1024),
    }


def memory_of_parsing(name):
    """(how many bytes a message has, how many more bytes the process has when it is parsed)."""
    kind, made = heavy()[name]
    data, count = made(), check_of(kind.FromString)
    before = rss_bytes()
    count(data)
    # It holds whatever it took on the way.
    message = kind.FromString(data)
    taken = rss_bytes() - before
    assert message.ListFields()
    return len(data), taken


def rss_bytes():
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("name", heavy())
def test_what_passes_takes_little_memory(name):
    """Packed numbers take the most: four bytes for one, in lists that double."""
    with Bounded(__file__, "memory_of_parsing") as measured:
        num_bytes, taken = measured(name)
    assert taken <= min(16 * num_bytes + 4 * MEBIBYTE, 2 * num_bytes + 64 * MEBIBYTE)


def test_the_bytes_of_what_is_refused_are_not_copied():
    """Numbers are counted in a copy without their first bytes. Far too many bytes are no numbers to count."""
    data = sized(3, sized(1, bytes(15 * MEBIBYTE)))
    tracemalloc.start()
    try:
        assert ("INPUT_TOO_LONG", "token_ids.ids") == refusal(GENERATE, data)
        assert tracemalloc.get_traced_memory()[1] < MEBIBYTE
    finally:
        tracemalloc.stop()


def test_the_check_does_not_look_into_texts_and_files():
    """A byte of them may be anything. So a picture of 15 MiB takes no longer than one of a byte."""
    for content in (b"\xff", b"\x5b", b"\x12\0"):
        data = caption_pb2.CaptionRequest(image={"data": content * 1000}).SerializeToString()
        assert refusal(check, caption_pb2.CaptionRequest.DESCRIPTOR, data) is None
    text = translation_pb2.TranslateRequest(text="\x12\0" * 99_999).SerializeToString()
    assert refusal(check, translation_pb2.TranslateRequest.DESCRIPTOR, text) is None
