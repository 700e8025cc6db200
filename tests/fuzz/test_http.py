"""Whatever bytes come to the HTTP port, it answers or ends the connection; nothing is held, and no step takes long."""

import asyncio
import gc
import json
from itertools import pairwise

import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from hypothesis import event, given
from hypothesis import strategies as st

from http_in_memory import Port, Responses, Steps, answers, filled
from mutations import budget, mutated_bytes, mutated_json, mutated_message
from weft_proto.v1.methods import METHODS, SERVICES
from weft_server.api.connection import Connection
from weft_server.api.http_messages import HttpRequest
from weft_server.api.request_body import RequestBody
from weft_server.openai_api.routes import ENDPOINTS

# Of the processor, in one step of the event loop: so long all others wait.
MOST_S = 0.1
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TEXT = {"model": "generate", "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["b"], "n": 1,
        "logit_bias": {"5": 1}, "presence_penalty": 0.5, "user": "u", "stream": False}  # fmt: skip
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "string"}}}}
CHAT = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
# Bodies that are answered, by path.
BODIES = {
    "/v1/chat/completions": [
        TEXT | {"messages": CHAT, "logprobs": True, "top_logprobs": 1} | SCHEMA,
        TEXT | {"messages": CHAT} | STREAMED,
        {"model": "caption", "messages": [{"role": "user", "content": [PICTURE]}]},
        {"model": "answer", "messages": [{"role": "user", "content": [PICTURE, {"type": "text", "text": "a"}]}]},
        {"model": "translate", "messages": CHAT[1:], "source_language": "en", "target_language": "es"},
    ],
    "/v1/completions": [
        TEXT | {"prompt": ["a", "b"], "regex": "a+"},
        TEXT | {"prompt": [[1, 2], [3]], "logprobs": 1},
        TEXT | {"prompt": "a"} | STREAMED,
    ],
    "/v1/embeddings": [{"model": "embed_text", "input": ["a"], "dimensions": 1, "encoding_format": "base64"}],
    "/v1/rerank": [{"model": "m", "query": "a", "documents": ["b"], "top_n": 1, "return_documents": True}],
    "/v1/score": [{"model": "m", "text_1": "a", "text_2": ["b"]}],
    "/tokenize": [{"model": "m", "prompt": "a"}, {"model": "m", "messages": CHAT}],
    "/detokenize": [{"model": "m", "tokens": [1, 2]}],
}
FORMS = [path for path in (each.path for each in ENDPOINTS) if path.startswith("/v1/audio")]
PAGES = ["/v1/models", "/v1/models/a", "/v1/models/%2e%00%ff", "/", "/v1/nothing", "/weft.v1.A/B"]
OURS = [method for method in METHODS.values() if method.service in SERVICES]
SEEDS = {method.name: filled(method.request.DESCRIPTOR, GetMessageClass) for method in OURS}
HEADERS = [
    "connect-timeout-ms: 60000", "connect-timeout-ms: 0", "connect-timeout-ms: x", "connect-protocol-version: 1",
    "content-encoding: gzip", "expect: 100-continue", "connection: close", "connection: upgrade", "upgrade: h2c",
    "x-request-id: \xe9\x7f", "x-request-id: " + "a" * 200, "weft-priority: low", "weft-priority: \xff",
    "weft-model: a", "authorization: Bearer x", "origin: https://app.example.com", "origin: null", "host: evil",
    "content-length: 3", "transfer-encoding: chunked", "transfer-encoding: gzip", "cookie: " + "a" * 9000,
    "access-control-request-method: POST",
]  # fmt: skip


def form(fields, boundary=b"B"):
    """A form of some fields, and a file."""
    parts = [(f'name="{name}"', value) for name, value in fields] + [('name="file"; filename="a.wav"', b"RIFF")]
    said = [b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (boundary, h.encode(), v) for h, v in parts]
    return b"".join(said) + b"--%s--\r\n" % boundary


FORM = form([("model", b"transcribe"), ("temperature", b"0.5"), ("response_format", b"json")])
STREAMED_FORM = form([("model", b"transcribe"), ("stream", b"true")])


def enveloped(message, flags=0):
    """In an envelope, as streams have it."""
    return bytes([flags]) + len(message).to_bytes(4, "big") + message


@st.composite
def bodies(draw, *, wrong):
    """(verb, path, content type, body) of a request. `wrong`: something in the body is changed."""
    kind = draw(st.sampled_from(["json", "proto", "openai", "form", "page"]))
    if kind == "page":
        return draw(st.sampled_from(["GET", "HEAD", "OPTIONS", "POST"])), draw(st.sampled_from(PAGES)), "", b""
    if kind == "form":
        body = draw(st.sampled_from([FORM, STREAMED_FORM]))
        body = draw(st.one_of(mutated_bytes([body]), st.just(_grown(draw, body)))) if wrong else body
        return "POST", draw(st.sampled_from(FORMS)), "multipart/form-data; boundary=B", body
    if kind == "openai":
        path = draw(st.sampled_from(sorted(BODIES)))
        document = draw(mutated_json(BODIES[path]) if wrong else st.sampled_from(BODIES[path]))
        return "POST", path, "application/json", _damaged(draw, json.dumps(document).encode(), wrong=wrong)
    method = draw(st.sampled_from(OURS))
    seed = SEEDS[method.name]
    message = draw(mutated_message([seed])) if wrong and kind == "proto" else seed
    data = message.SerializeToString()
    if kind == "json":
        document = json_format.MessageToDict(message)
        data = json.dumps(draw(mutated_json([document])) if wrong else document).encode()
    data = _damaged(draw, data, wrong=wrong)
    if not method.streams:
        return "POST", method.path, f"application/{kind}", data
    flags = draw(st.sampled_from([0, 0, 0, 1, 2, 255])) if wrong else 0
    return "POST", method.path, f"application/connect+{kind}", enveloped(data, flags)


def _damaged(draw, data, *, wrong):
    """Sometimes changed, or with a part of it very often."""
    match draw(st.sampled_from(["", "", "bytes", "grown"])) if wrong else "":
        case "bytes":
            return draw(mutated_bytes([data]))
        case "grown":
            return _grown(draw, data)
    return data


def _grown(draw, data):
    """With a part of it many times: up to a megabyte."""
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + 200)))
    count = draw(st.sampled_from([1000, 1_000_000])) // max(1, end - start)
    return data[:start] + data[start:end] * count + data[end:]


@st.composite
def requests(draw, *, wrong):
    """A request in bytes."""
    verb, path, kind, body = draw(bodies(wrong=wrong))
    headers = ["host: localhost", f"content-type: {kind}"]
    if wrong:
        headers += draw(st.lists(st.sampled_from(HEADERS), max_size=2))
    version = draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0", "2.0"])) if wrong else "1.1"
    if draw(st.booleans()) or verb != "POST":
        headers += [f"content-length: {len(body)}"] * (verb == "POST")
    else:
        headers.append("transfer-encoding: chunked")
        size = draw(st.sampled_from([1 << 16, 5000, 100]))
        cut = [body[at : at + size] for at in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in cut) + b"0\r\n\r\n"
    head = f"{verb} {path} HTTP/{version}\r\n" + "\r\n".join(headers) + "\r\n\r\n"
    return head.encode("latin-1") + body


def pieces(draw, data):
    """As it comes: in one piece, or cut."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=5)))
    # The system gives no more at once.
    cuts = sorted({0, *cuts, *range(0, len(data), 256 * 1024), len(data)})
    return [data[start:end] for start, end in pairwise(cuts)] or [data]


@pytest.fixture(scope="module")
def runner():
    """One event loop for all."""
    gc.collect()
    # No search for garbage looks through all that was imported.
    gc.freeze()
    with asyncio.Runner() as runner:
        yield runner
    gc.unfreeze()


@pytest.fixture(scope="module")
def port(runner):
    """A port, of which nothing is left in the end."""
    port = Port(answers(GetMessageClass))
    yield port
    gc.collect()
    kinds = (Connection, HttpRequest, RequestBody)
    assert [] == [each for each in gc.get_objects() if isinstance(each, kinds)]


def told(port, runner, parts, *, leaves=False):
    """The statuses of what came back, after each law was held."""
    with Steps() as steps:
        written = port.talk(runner, parts, leaves=leaves)
    assert [] == port.faults
    statuses = Responses(written).statuses
    assert 500 not in statuses
    assert steps.longest[0] < MOST_S, steps.longest
    for status in statuses:
        event(str(status))
    return statuses


@budget(40)
@given(data=st.data())
def test_what_is_right_is_answered(port, runner, data):
    """In whatever pieces it comes. So what is changed in it below is read to the end."""
    request = data.draw(requests(wrong=False))
    statuses = told(port, runner, pieces(data.draw, request))
    (status,) = statuses
    assert 200 == status or request.split()[1].decode() in PAGES, request


@budget(80)
@given(data=st.data())
def test_any_requests(port, runner, data):
    """One or several at once, with changed bodies and headers. Some callers go in the middle."""
    sent = b"".join(data.draw(requests(wrong=True)) for _ in range(data.draw(st.sampled_from([1, 1, 2, 3]))))
    told(port, runner, pieces(data.draw, sent), leaves=data.draw(st.sampled_from([False, False, True])))


@budget(60)
@given(data=st.data())
def test_any_bytes(port, runner, data):
    """Requests with changed bytes anywhere, and bytes that are none."""
    sent = data.draw(requests(wrong=False))
    sent = data.draw(st.one_of(mutated_bytes([sent]), st.binary(max_size=100)))
    told(port, runner, pieces(data.draw, sent), leaves=data.draw(st.booleans()))


def test_a_bug_is_found(runner):
    """A planted one: what is held above would notice it."""

    async def fail(_, __):
        raise KeyError("a bug")

    port = Port(answers(GetMessageClass) | {"Classify": fail})
    request = b"POST /weft.v1.ClassificationService/Classify HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
    written = port.talk(runner, [request + b"content-type: application/json\r\n\r\n{}"])
    assert [500] == Responses(written).statuses
    assert ["bug"] == [fault["event"] for fault in port.faults]
