"""Each method by gRPC and by HTTP, through the real process: the same answer, refusal, counts and line of the log."""

import http.client
import json
import socket
import struct
from base64 import b64decode
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2
from jsonschema import Draft202012Validator

from process import ServerProcess
from weft_proto.v1.methods import METHODS, SERVICES

pytestmark = pytest.mark.e2e
CHECKPOINTS = Path(__file__).parents[2] / "export" / "checkpoints"
ENVELOPE = struct.Struct(">BI")
COUNTED = ("requests", "rejected", "cancelled", "finished", "prompt_tokens", "generated_tokens", "wasted_tokens")
COUNTERS = {f"weft_{name}_total" for name in COUNTED}
# Methods of which no model of the demo is one.
WITHOUT_MODEL = {"Extract", "FillMask", "Embed"}
FORMS = ("json", "proto")


def _example(model, kind):
    return min((CHECKPOINTS / model / "examples").glob(f"*.{kind}")).read_bytes()


def _asked():
    """A request for each method, but for the streaming twins. The demo has no model for some: they are refused."""
    scores = {"decoding": {"max_new_tokens": 6}, "return_scores": True}
    return {
        "Translate": {"text": "we are eating bread", "explain": {}, **scores},
        "Caption": {"image": {"data": _example("scenes", "png")}, **scores},
        "Answer": {"image": {"data": _example("scenes-answers", "png")}, "text": "what is red?", **scores},
        "Transcribe": {"audio": {"data": _example("commands", "wav")}, **scores},
        "Generate": {"text": "Return a list of", "num_top_tokens": 2, **scores},
        "Classify": {"text": "Open a TCP connection.", "model": {"name": "topics"}, "explain": {}},
        "Tag": {"text": "Maria Silva sent 25 euros to Lisbon on Monday. 🙂"},
        "Extract": {"question": "who?", "context": "Maria."},
        "FillMask": {"text": "a [MASK]"},
        "Score": {"model": {"name": "en-es"}, "text": "we are", "target_text": "estamos"},
        "Embed": {"inputs": [{"text": "a"}]},
        "Tokenize": {"text": "bread", "model": {"name": "en-es"}},
        "Detokenize": {"token_ids": [5, 6], "model": {"name": "en-es"}},
        "ListModels": {},
        "GetModel": {"model": {"name": "digits"}},
    }


@pytest.fixture(scope="module")
def server(demo_repository):
    """A server with both ports."""
    with ServerProcess(demo_repository, access_log="all", api_port=0) as server:
        server.wait_for("ready")
        server.api = server.wait_for("listening")["api"]
        yield server


def request_of(method, *, wrong):
    """A request of a method. A wrong one names a model that there is not."""
    fields = _asked()[method.name.removeprefix("Stream")]
    inner = METHODS[method.name.removeprefix("Stream")].request(**fields)
    known = inner.DESCRIPTOR.fields_by_name
    if wrong and "model" in known:
        inner.model.name = "nothing"
    if "request_id" in known:
        inner.request_id = "same"
    return method.request(request=inner) if method.streams else inner


def by_grpc(server, method, request):
    """(code, reason, responses)."""
    kind = "unary_stream" if method.streams else "unary_unary"
    with grpc.insecure_channel(server.target) as channel:
        ask = getattr(channel, kind)(method.path, method.request.SerializeToString, method.response.FromString)
        try:
            answer = ask(request, timeout=60)
            return "OK", "", list(answer) if method.streams else [answer]
        except grpc.RpcError as error:
            details = dict(error.trailing_metadata())["grpc-status-details-bin"]
            return error.code().name, _reason(status_pb2.Status.FromString(details).details[0].value), []


def by_http(server, method, request, form):
    """The same by the Connect protocol."""
    is_json = form == "json"
    data = json_format.MessageToJson(request).encode() if is_json else request.SerializeToString()
    kind = f"application/{'connect+' if method.streams else ''}{form}"
    connection = http.client.HTTPConnection(server.api, timeout=60)
    body = ENVELOPE.pack(0, len(data)) + data if method.streams else data
    connection.request("POST", method.path, body, {"content-type": kind, "connect-timeout-ms": "60000"})
    answer = connection.getresponse()
    read = answer.read()
    connection.close()

    def parsed(data):
        return json_format.Parse(data, method.response()) if is_json else method.response.FromString(data)

    if not method.streams:
        return ("OK", "", [parsed(read)]) if answer.status == 200 else (*_error(json.loads(read)), [])
    responses = []
    while read:
        flags, size = ENVELOPE.unpack_from(read)
        message, read = read[ENVELOPE.size : ENVELOPE.size + size], read[ENVELOPE.size + size :]
        if flags == 2:
            end = json.loads(message)
            return (*_error(end["error"]), responses) if "error" in end else ("OK", "", responses)
        responses.append(parsed(message))
    raise AssertionError("a stream without an end")


def _error(error):
    value = error["details"][0]["value"]
    return error["code"].upper(), _reason(b64decode(value + "=" * (-len(value) % 4)))


def _reason(value):
    return error_details_pb2.ErrorInfo.FromString(value).reason


def _plain(responses):
    """The text of all deltas, and the other responses without the times that they took."""
    text, others = "", []
    for response in responses:
        if response.DESCRIPTOR.fields_by_name.get("delta") and response.HasField("delta"):
            text += response.delta.text
        else:
            _clear_times(response)
            others.append(response)
    return text, others


def _clear_times(message):
    if "timings" in message.DESCRIPTOR.fields_by_name:
        message.ClearField("timings")
    for field, value in message.ListFields():
        if field.message_type and not field.is_repeated:
            _clear_times(value)


# Of two lines, what depends on the protocol, or on the clock.
OWN_OF_A_LINE = {
    "timestamp", "request_id", "queue_s", "first_token_s", "total_s", "request_bytes", "response_bytes",
}  # fmt: skip


def observed(server, ask):
    """What a call answers, counts and logs."""
    before, known = counts_of(server), len(server.calls())
    code, reason, responses = ask()
    server.wait_until(lambda: known < len(server.calls()), what="the call's line")
    (line,) = server.calls()[known:]
    _check_usage(line, responses)
    line = {key: value for key, value in line.items() if key not in OWN_OF_A_LINE}
    counts = {name: value - before.get(name, 0) for name, value in counts_of(server).items()}
    return (code, reason), _plain(responses), line, {name: value for name, value in counts.items() if value}


def _check_usage(line, responses):
    """Hold a line's tokens to those that the answer says, and its times to their order."""
    last = responses[-1] if responses else None
    last = getattr(last, "final", last)
    completion = getattr(last, "completion", last)
    # A scorer reads the target too, and writes nothing.
    if (usage := getattr(completion, "usage", None)) and line["method"] != "Score":
        assert (usage.input_tokens, usage.output_tokens) == (line["input_tokens"], line["output_tokens"])
    if line["first_token_s"] is not None:
        assert 0 <= line["queue_s"] <= line["first_token_s"] <= line["total_s"]


def counts_of(server):
    """What is counted, by name and labels. To parse a page with so many models whole takes a while."""
    lines = [line.rpartition(" ") for line in server.page().splitlines() if line.partition("{")[0] in COUNTERS]
    return {name: float(value) for name, _, value in lines}


@pytest.mark.parametrize("wrong", [False, True], ids=["well", "wrong"])
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.service in SERVICES])
def test_both_ports_say_the_same(server, name, wrong):
    """To the bit, as JSON and in binary: answers, reasons, counts and log lines."""
    method = METHODS[name]
    request = request_of(method, wrong=wrong)
    expected = observed(server, lambda: by_grpc(server, method, request))

    for form in FORMS:
        assert expected == observed(server, lambda form=form: by_http(server, method, request, form))
    is_answered = name == "ListModels" or not (wrong or name.removeprefix("Stream") in WITHOUT_MODEL)
    assert is_answered == (expected[0] == ("OK", ""))
    assert expected[3]


def test_half_heads_delay_no_call_by_grpc(server):
    """As many connections with half a head as there are places take nobody's place on the other port, nor the last."""
    host, port = server.api.rsplit(":", 1)
    listing = METHODS["ListModels"]
    with ExitStack() as slow:
        for _ in range(900):
            connection = slow.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(b"POST /weft.v1.ModelService/ListModels HTTP/1.1\r\nhost: a\r\nx")
        for _ in range(20):
            assert "OK" == by_grpc(server, listing, listing.request())[0]
        assert "OK" == by_http(server, listing, listing.request(), "json")[0]


def test_the_document_says_what_is_taken_and_told(server):
    """The examples of /openapi.json are answered, where the demo has a model, and the answers fit their schemas."""
    connection = http.client.HTTPConnection(server.api, timeout=60)
    connection.request("GET", "/openapi.json")
    document = json.loads(connection.getresponse().read())
    answered = set()
    for path, verbs in document["paths"].items():
        if "post" not in verbs:
            continue
        ((kind, said),) = verbs["post"]["requestBody"]["content"].items()
        body = json.dumps(said["example"]).encode()
        streams = kind == "application/connect+json"
        connection.request(
            "POST", path, ENVELOPE.pack(0, len(body)) + body if streams else body, {"content-type": kind}
        )
        answer = connection.getresponse()
        read = answer.read()
        if answer.status != 200:
            assert path.rpartition("/")[2] in WITHOUT_MODEL or said["example"]["model"] == "NAME" or "form-data" in kind
            continue
        answered.add(path)
        told = verbs["post"]["responses"]["200"]["content"][kind]["schema"]
        fits = Draft202012Validator(told | {"components": document["components"]})
        for message in _messages(read) if streams else [read]:
            assert [] == [error.message for error in fits.iter_errors(json.loads(message))]
    connection.close()
    assert {method.path for method in METHODS.values() if method.service in SERVICES} - answered == {
        METHODS[name].path for name in WITHOUT_MODEL
    }
    assert {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"} < answered


def _messages(read):
    """The messages in envelopes, but for the end."""
    while read:
        flags, size = ENVELOPE.unpack_from(read)
        message, read = read[ENVELOPE.size : ENVELOPE.size + size], read[ENVELOPE.size + size :]
        if flags != 2:
            yield message
        else:
            assert b"{}" == message
