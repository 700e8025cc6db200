"""`weft bench --http` and servers whose answers are known: what is read of them, and how each failure counts."""

import asyncio
import json
import struct
from base64 import b64encode
from contextlib import asynccontextmanager

import pytest
from google.protobuf import json_format
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo

import weft
from weft._channel import CallSettings
from weft_bench.asking import Asked
from weft_bench.http_caller import http_caller
from weft_bench.http_port import FORMS
from weft_bench.record import Outcome, Record
from weft_bench.workload import Method
from weft_proto.v1 import classification_pb2, common_pb2, generation_pb2

SAID = {
    "usage": {"input_tokens": 7, "output_tokens": 3},
    "timings": {"queue": {"nanos": 1500000}, "decode": {"seconds": 2}},
}
STOP = common_pb2.FINISH_REASON_STOP
GENERATE = Method(weft.Task.GENERATE, streams=False)
STREAM = Method(weft.Task.GENERATE, streams=True)
CLASSIFY = Method(weft.Task.CLASSIFY_TEXT, streams=False)


def answered(*body, status="200 OK", headers=()):
    """A whole answer, whose body is one piece, or chunks."""
    if len(body) == 1:
        framing, framed = f"content-length: {len(body[0])}", body[0]
    else:
        framing, framed = (
            "transfer-encoding: chunked",
            b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*body, b"")),
        )
    return "\r\n".join([f"HTTP/1.1 {status}", framing, *headers, "", ""]).encode() + framed


def completion(form):
    """(bytes, chunks) of a unary answer and of a stream with two messages of text, in a form."""
    said = {"completion": common_pb2.Completion(finish_reason=STOP, text="ab", **SAID)}
    whole = generation_pb2.GenerateResponse(**said)
    messages = [generation_pb2.StreamGenerateResponse(delta={"text": text}) for text in "ab"]
    messages.append(generation_pb2.StreamGenerateResponse(final=whole))
    if form == "openai":
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        events = [{"choices": [{"text": text, "finish_reason": None}]} for text in "ab"]
        events += [{"choices": [{"text": "", "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
        chunks = [
            *(b"data: %b\n\n" % json.dumps(event).encode() for event in events),
            b": still here\n\n",
            b"data: [DONE]\n\n",
        ]
        return json.dumps({"choices": [{"finish_reason": "stop"}], "usage": usage}).encode(), chunks
    write = json_message if form == "json" else lambda message: message.SerializeToString()
    return write(whole), [*(enveloped(write(message)) for message in messages), enveloped(b"{}", 2)]


def json_message(message):
    """A message as the server writes it."""
    return json_format.MessageToJson(message, indent=None).encode()


def enveloped(message, flags=0):
    """A message in an envelope."""
    return struct.pack(">BI", flags, len(message)) + message


def error(code, reason, message="no", retry_s=0):
    """An error of the Connect protocol."""
    details = [ErrorInfo(reason=reason)]
    if retry_s:
        details.append(RetryInfo(retry_delay={"seconds": retry_s}))
    packed = [
        {"type": each.DESCRIPTOR.full_name, "value": b64encode(each.SerializeToString()).decode().rstrip("=")}
        for each in details
    ]
    return {"code": code, "message": message, "details": packed}


class Last(bytes):
    """An answer behind which the server ends the connection."""


@asynccontextmanager
async def answering(*answers, pieces=None):
    """A server that gives the next answer to each request: host:port, and what it was asked, by connection.

    `pieces`: how many bytes go at a time.
    """
    asked, left = [], list(answers)

    async def serve(reader, writer):
        asked.append([])
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                asked[-1].append((head, await reader.readexactly(length)))
                answer = left.pop(0)
                size = pieces or len(answer) or 1
                for start in range(0, len(answer), size):
                    writer.write(answer[start : start + size])
                    await asyncio.sleep(0)
                if isinstance(answer, Last):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def called(target, form, method, num_calls=1, cancel_after=None, seconds=60.0):
    """The records of calls, one after the other."""
    settings = CallSettings.of(target, seconds, token="secret", priority="low")
    records = []
    async with http_caller(settings, None, method, FORMS[form], "pydocs") as caller:
        for _ in range(num_calls):
            records.append(Record(0.0))
            await caller.call(Asked(b"request", 0), records[-1], cancel_after)
    return records


def measured(*answers, form="proto", method=GENERATE, pieces=None, **more):
    """The records of calls that get these answers."""

    async def scenario():
        async with answering(*answers, pieces=pieces) as (target, _):
            return await called(target, form, method, len(answers), **more)

    return asyncio.run(scenario())


@pytest.mark.parametrize("pieces", [1, None])
@pytest.mark.parametrize("form", FORMS)
def test_an_answer_is_read(form, pieces):
    """Its tokens, its end and the server's times are there, each message has its time, however the bytes come."""
    whole, chunks = completion(form)
    (unary,) = measured(answered(whole), form=form, pieces=pieces)
    (stream,) = measured(answered(*chunks), form=form, method=STREAM, pieces=pieces)

    for record in (unary, stream):
        assert (Outcome.COMPLETED, 7, 3, True) == (
            record.outcome,
            record.input_tokens,
            record.output_tokens,
            record.ends_itself,
        )
        times = (0.0, 0.0) if form == "openai" else (0.0015, 2.0)
        assert times == (record.queue, record.decode)
        assert record.ended >= record.sent
    assert (0, 3) == (len(unary.arrivals), len(stream.arrivals))
    assert sorted(stream.arrivals) == list(stream.arrivals)


@pytest.mark.parametrize("form", ["proto", "json"])
def test_an_answer_without_text_is_read(form):
    """A classifier says tokens and times too, and its answer does not end itself."""
    response = classification_pb2.ClassifyResponse(**SAID)
    data = json_message(response) if form == "json" else response.SerializeToString()
    (record,) = measured(answered(data), form=form, method=CLASSIFY)

    assert (Outcome.COMPLETED, 7, 0.0015, False) == (
        record.outcome,
        record.input_tokens,
        record.queue,
        record.ends_itself,
    )


def test_a_request_says_what_a_call_of_grpc_says():
    """Method, model, who calls, class and deadline stand in its head, and its body is as long as it says."""

    async def scenario():
        async with answering(answered(completion("proto")[0])) as (target, asked):
            await called(target, "proto", GENERATE)
            return target, asked[-1][0]

    target, (head, body) = asyncio.run(scenario())
    line, *headers = head.decode().rstrip().split("\r\n")
    assert "POST /weft.v1.GenerationService/Generate HTTP/1.1" == line
    assert {
        f"host: {target}",
        "content-type: application/proto",
        "authorization: Bearer secret",
        "weft-priority: low",
        "weft-model: pydocs",
        "connect-timeout-ms: 60000",
        "content-length: 7",
    } == set(headers)
    assert b"request" == body


def test_a_connection_is_used_again_while_it_stays():
    """Requests one after the other share one. After one that the server ends, the next has another."""
    answer = completion("proto")[0]

    async def scenario():
        last = answered(answer, headers=["connection: close"])
        async with answering(answered(answer), last, answered(answer)) as (target, asked):
            records = await called(target, "proto", GENERATE, 3)
            return [record.outcome for record in records], [len(each) for each in asked]

    assert ([Outcome.COMPLETED] * 3, [2, 1]) == asyncio.run(scenario())


KINDS = {
    "RESOURCE_EXHAUSTED": weft.Overloaded,
    "CANCELLED": weft.Cancelled,
    "UNAVAILABLE": weft.Unavailable,
    "UNIMPLEMENTED": weft.Unsupported,
    "INTERNAL": weft.InternalError,
}
FULL = error("resource_exhausted", "QUEUE_FULL", "full", 2)
OPENAI_FULL = json.dumps({"error": {"message": "full", "type": "rate_limit_error", "code": "queue_full"}}).encode()
WHOLE, CHUNKS = completion("proto")
# What comes, and how it counts.
FAILURES = {
    "refused": (GENERATE, answered(json.dumps(FULL).encode(), status="429 No"), "RESOURCE_EXHAUSTED"),
    "refused in a stream": (
        STREAM,
        answered(CHUNKS[0], enveloped(json.dumps({"error": FULL}).encode(), 2)),
        "RESOURCE_EXHAUSTED",
    ),
    "cancelled": (GENERATE, answered(json.dumps(error("canceled", "")).encode(), status="499 No"), "CANCELLED"),
    "a proxy's page": (GENERATE, answered(b"<html>", status="502 No"), "UNAVAILABLE"),
    "a proxy's page for a stream": (STREAM, answered(b"<html>", status="404 No"), "UNIMPLEMENTED"),
    "a stream that was cut off": (STREAM, answered(*CHUNKS[:-1]), "UNAVAILABLE"),
    "a stream without its final message": (STREAM, answered(CHUNKS[0], CHUNKS[-1]), "INTERNAL"),
    "an answer that cannot be read": (GENERATE, answered(b"\xff\xff"), "INTERNAL"),
    "no answer": (GENERATE, Last(), "UNAVAILABLE"),
    "half an answer": (STREAM, Last(answered(*CHUNKS)[:60]), "UNAVAILABLE"),
    "HTTP/2": (GENERATE, b"\0\0\6\4\0\0\0\0\0\0\5\0\0@\0", "UNAVAILABLE"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_counts_by_status_and_reason(name):
    """In the words of gRPC, with the kind of error and the wait that they mean. The next request goes its way."""
    method, answer, status = FAILURES[name]
    failed, other = measured(answer, answered(*CHUNKS) if method.streams else answered(WHOLE), method=method)
    reason, retry_after = ("QUEUE_FULL", 2.0) if status == "RESOURCE_EXHAUSTED" else ("", None)

    assert (Outcome.FAILED, status, reason) == (failed.outcome, failed.status, failed.error.reason)
    assert (KINDS[status], retry_after) == (type(failed.error), failed.error.retry_after)
    assert failed.ended >= failed.sent
    assert Outcome.COMPLETED is other.outcome


@pytest.mark.parametrize("began", [False, True])
def test_an_error_of_openai_counts_by_the_same_words(began):
    """Whether the stream had begun or not."""
    answer = answered(b"data: %b\n\n" % OPENAI_FULL) if began else answered(OPENAI_FULL, status="429 No")
    (failed,) = measured(answer, form="openai", method=STREAM)

    assert (Outcome.FAILED, "RESOURCE_EXHAUSTED", "QUEUE_FULL") == (failed.outcome, failed.status, failed.error.reason)


@pytest.mark.parametrize("form", ["json", "openai"])
def test_json_of_another_shape_is_an_answer_that_cannot_be_read(form):
    """It is counted, and not the end of the load."""
    (failed,) = measured(answered(b"[]"), form=form)

    assert ("INTERNAL", True) == (failed.status, "cannot be read" in failed.error.message)


def test_a_server_that_says_nothing_costs_the_timeout():
    """Its connection is not used again."""

    async def scenario():
        async with answering(b"", answered(WHOLE)) as (target, asked):
            return await called(target, "proto", GENERATE, 2, seconds=0.2), len(asked)

    (failed, other), num_connections = asyncio.run(scenario())
    assert ("DEADLINE_EXCEEDED", weft.DeadlineExceeded) == (failed.status, type(failed.error))
    assert (Outcome.COMPLETED, 2) == (other.outcome, num_connections)


@pytest.mark.parametrize(("method", "cancel_after"), [(STREAM, 2), (GENERATE, 0.01)])
def test_who_cancels_ends_the_connection(method, cancel_after):
    """A stream after so many messages, a unary call after so many seconds. It is no failure."""
    (record,) = measured(answered(*CHUNKS)[:-20] if method.streams else b"", method=method, cancel_after=cancel_after)

    assert (Outcome.CANCELLED, None) == (record.outcome, record.error)
    assert (2 if method.streams else 0) == len(record.arrivals)
