"""The two forms of a message: what is written for speed is what protobuf's own library writes."""

import asyncio
import json
import threading

from google.protobuf import json_format
from hypothesis import example, given
from hypothesis import strategies as st

from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS
from weft_server.api.codecs import JsonCodec, delta_to_json

STREAMS = [each for each in METHODS.values() if each.streams]


@example('"\\\x00\x1f\x7f\u2028\U0001f600</script>')
@example("")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_delta_is_protojson(text):
    """Of each streaming method, with any text: quotes, controls, other planes, and none. A delta has nothing else."""
    assert ["text"] == [each.name for each in common_pb2.TextDelta.DESCRIPTOR.fields]
    for method in STREAMS:
        message = method.response(delta={"text": text})
        assert json.loads(json_format.MessageToJson(message)) == json.loads(delta_to_json(message))


def test_a_message_of_many_objects_is_read_aside(monkeypatch):
    """However small it is: json_format takes microseconds for each, in which no other request is answered."""
    seen = []
    monkeypatch.setattr(
        JsonCodec, "_parse", lambda *_: seen.append(threading.current_thread() is threading.main_thread())
    )
    codec = JsonCodec(METHODS["Embed"], 1 << 20)
    for count in (1, 2000):
        asyncio.run(codec.parse(json.dumps({"inputs": [{}] * count}).encode()))
    assert [True, False] == seen
