"""One tree: each status becomes its exception with its details, and nothing of gRPC reaches the caller."""

import asyncio
import math
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
from grpc import StatusCode

import weft
from fakes import Failure
from waiting import until
from weft._status import error_of

TABLE = [
    (Failure(StatusCode.INVALID_ARGUMENT, "INPUT_TOO_LONG", "too long", field="text"), weft.InvalidRequest),
    (Failure(StatusCode.OUT_OF_RANGE, "TOKEN_OUT_OF_RANGE"), weft.InvalidRequest),
    (Failure(StatusCode.NOT_FOUND, "MODEL_NOT_FOUND", "no model 'x'"), weft.NotFound),
    (Failure(StatusCode.FAILED_PRECONDITION, "CANNOT_EXPLAIN"), weft.FailedPrecondition),
    (Failure(StatusCode.UNIMPLEMENTED, "UNSUPPORTED"), weft.Unsupported),
    (Failure(StatusCode.UNAUTHENTICATED), weft.AccessDenied),
    (Failure(StatusCode.PERMISSION_DENIED), weft.AccessDenied),
    (Failure(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", retry_after=0.25), weft.Overloaded),
    (Failure(StatusCode.DEADLINE_EXCEEDED, "DEADLINE"), weft.DeadlineExceeded),
    (Failure(StatusCode.CANCELLED), weft.Cancelled),
    (Failure(StatusCode.ABORTED), weft.Cancelled),
    (Failure(StatusCode.INTERNAL, "BUG", "internal error ab12", error_id="ab12"), weft.InternalError),
    (Failure(StatusCode.UNKNOWN), weft.InternalError),
    (Failure(StatusCode.DATA_LOSS), weft.InternalError),
]


def unary(target):
    """Fail in a blocking call."""
    with weft.Client(target) as client:
        client.translate("a")


def stream(target):
    """Fail in a blocking stream."""
    with weft.Client(target) as client:
        list(client.stream_translate("a"))


def unary_async(target):
    """Fail in an awaited call."""

    async def run():
        async with weft.AsyncClient(target) as client:
            await client.translate("a")

    asyncio.run(run())


def stream_async(target):
    """Fail in an asyncio stream."""

    async def run():
        async with weft.AsyncClient(target) as client:
            async for _ in client.stream_translate("a"):
                pass

    asyncio.run(run())


@pytest.mark.parametrize("call", [unary, stream, unary_async, stream_async])
@pytest.mark.parametrize(("failure", "kind"), TABLE, ids=[failure.code.name for failure, _ in TABLE])
def test_each_status_is_its_exception(server, call, failure, kind):
    """The exception's class follows from the status; reason, fields, pause and bug id come from the details."""
    server.servicer.script.append(failure)
    with pytest.raises(weft.Error) as caught:
        call(server.target)

    error = caught.value
    assert kind is type(error)
    assert failure.reason == error.reason
    assert failure.message in error.message
    assert failure.retry_after == error.retry_after
    assert failure.error_id == error.id
    assert ((weft.FieldViolation(failure.field, failure.message),) if failure.field else ()) == error.field_violations
    assert 1 == len(server.servicer.seen)


def test_details_that_cannot_be_read_are_left_out(client, server):
    """Garbage where the details should be changes nothing about which exception it is."""
    server.servicer.script.append(Failure(StatusCode.NOT_FOUND, message="no model", details=b"\xff\xff"))
    with pytest.raises(weft.NotFound, match="no model") as caught:
        client.translate("a")

    assert ("", ()) == (caught.value.reason, caught.value.field_violations)


def test_unavailable_is_said_when_the_retries_are_used_up(client, server):
    """Five attempts, then Unavailable with the server's own words."""
    server.servicer.script.extend([Failure(StatusCode.UNAVAILABLE, "DRAINING", "draining", retry_after=1.5)] * 5)
    with pytest.raises(weft.Unavailable, match=r"^draining$") as caught:
        client.translate("a")

    assert 1.5 == caught.value.retry_after
    assert 5 == len(server.servicer.seen)


@pytest.mark.parametrize("target", ["127.0.0.1:1", "localhost:1"])
def test_without_a_server_the_error_names_the_target_once(target):
    """Where nobody listens, the error says where that was; of several addresses also which was the last."""
    with weft.Client(target) as client, pytest.raises(weft.Unavailable) as caught:
        client.translate("a")
    assert f"{target}: Failed to connect to remote host: Connection refused" == caught.value.message
    several = "ipv4:127.0.0.1:1,127.0.0.1:2"
    with weft.Client(several) as client, pytest.raises(weft.Unavailable, match=rf"^{several}: ipv4:127.0.0.1:[12]: "):
        client.translate("a")


def test_an_answer_later_than_the_timeout_is_too_late(client, server):
    """A call's own timeout, or else the client's, ends it; sync and asyncio."""
    server.servicer.script.extend([60.0] * 3)
    with pytest.raises(weft.DeadlineExceeded, match="no answer came within the timeout"):
        client.translate("a", timeout=0.1)
    with weft.Client(server.target, timeout=0.1) as hasty, pytest.raises(weft.DeadlineExceeded):
        hasty.translate("a")

    async def run():
        async with weft.AsyncClient(server.target) as aclient:
            await aclient.translate("a", timeout=0.1)

    with pytest.raises(weft.DeadlineExceeded):
        asyncio.run(run())


def test_a_message_too_large_is_no_overload(client):
    """A large message, which gRPC refuses with the status of an overload, is told to be the request's fault."""
    with pytest.raises(weft.InvalidRequest, match="larger than max") as caught:
        client.caption(bytes(5 * 1024 * 1024))

    assert "MESSAGE_TOO_LARGE" == caught.value.reason


LOCAL = [
    (lambda c: c.translate("\udc80"), "INVALID_FIELD", "text"),
    (lambda c: c.translate(b"bytes"), "INVALID_FIELD", "text"),
    (lambda c: c.translate(7), "INVALID_FIELD", "text"),
    (lambda c: c.generate([-1]), "INVALID_FIELD", "token_ids.ids"),
    (lambda c: c.generate([2**32]), "INVALID_FIELD", "token_ids.ids"),
    (lambda c: c.generate(["a"]), "INVALID_FIELD", "token_ids.ids"),
    (lambda c: c.stream_generate("a", model_version=-1), "INVALID_FIELD", "model.version"),
    (lambda c: c.generate("a", model="\ud800"), "INVALID_FIELD", "model.name"),
    (lambda c: c.generate("a", decoding=weft.Decoding(max_new_tokens=-1)), "INVALID_FIELD", "decoding.max_new_tokens"),
    (lambda c: c.generate("a", decoding=weft.Decoding(max_new_tokens=1.5)), "INVALID_FIELD", "decoding.max_new_tokens"),
    (lambda c: c.generate("a", decoding=weft.Decoding(stop="ab")), "INVALID_FIELD", "decoding.stop"),
    (
        lambda c: c.generate("a", decoding=weft.Decoding(strategy=weft.Sampling(seed=-1))),
        "INVALID_FIELD",
        "decoding.sampling.seed",
    ),
    (lambda c: c.caption("no/such/file.png"), "BAD_IMAGE", "image"),
    (lambda c: c.caption("."), "BAD_IMAGE", "image"),
    (lambda c: c.caption("\0"), "BAD_IMAGE", "image"),
    (lambda c: c.caption(None), "BAD_IMAGE", "image"),
    (lambda c: c.classify(), "WRONG_INPUT_KIND", None),
    (lambda c: c.classify("a", image=b"b"), "WRONG_INPUT_KIND", None),
    (lambda c: c.embed(), "WRONG_INPUT_KIND", None),
    (lambda c: c.embed("a", images=b"b"), "WRONG_INPUT_KIND", None),
    (lambda c: c.embed(7), "INVALID_FIELD", "texts"),
    (lambda c: c.embed(["a", 7]), "INVALID_FIELD", "inputs[1].text"),
    (lambda c: c.embed(["a", "\ud800"]), "INVALID_FIELD", "inputs[1].text"),
    (lambda c: c.embed([[5, -1]]), "INVALID_FIELD", "inputs[0].token_ids.ids"),
    (lambda c: c.embed(images=[b"1", "no/such.png"]), "BAD_IMAGE", "inputs[1].image"),
    (lambda c: c.embed("a", dimensions=-1), "INVALID_FIELD", "dimensions"),
    (lambda c: c.generate(), "WRONG_INPUT_KIND", None),
    (lambda c: c.generate("a", messages=[]), "WRONG_INPUT_KIND", None),
    (lambda c: c.generate(messages="a"), "INVALID_FIELD", "messages"),
    (lambda c: c.generate(messages={"role": "user", "content": "a"}), "INVALID_FIELD", "messages"),
    (lambda c: c.generate(messages=7), "INVALID_FIELD", "messages"),
    (lambda c: c.generate(messages=[{"role": "user"}]), "INVALID_FIELD", "messages[0]"),
    (lambda c: c.generate(messages=[{"role": "user", "content": "a", "name": "b"}]), "INVALID_FIELD", "messages[0]"),
    (lambda c: c.generate(messages=[{"role": "user", "content": 7}]), "INVALID_FIELD", "messages[0].content"),
    (lambda c: c.generate(messages=[{"role": "\ud800", "content": ""}]), "INVALID_FIELD", "messages[0].role"),
    (lambda c: c.get_model("\ud800"), "INVALID_FIELD", "model.name"),
    (lambda c: c.health("\ud800"), "INVALID_FIELD", "value"),
    (lambda c: c.translate("a", timeout=0), "INVALID_FIELD", None),
    (lambda c: c.translate("a", timeout=math.nan), "INVALID_FIELD", None),
]


def test_half_a_character_is_said_in_words(client):
    """Python's own words name a codec."""
    with pytest.raises(weft.InvalidRequest, match=r"text: is no text in Unicode: '.udc80' at place 1"):
        client.translate("a\udc80")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.translate("a", adapter=5), "model.adapter: must be a text, not int"),
        (lambda c: c.classify("a", top_k=-1), "top_k: must be a whole number from 0 to 4294967295, not -1"),
        (lambda c: c.embed("a", dimensions=1.5), "dimensions: must be a whole number from 0 to 4294967295, not 1.5"),
        (lambda c: c.generate([1, -5]), "token_ids.ids: must each be a whole number from 0 to 4294967295, not -5"),
        (
            lambda c: c.detokenize(["a"], model="m"),
            "token_ids: must each be a whole number from 0 to 4294967295, not str",
        ),
        (lambda c: c.tokenize("a", model="m", count_only="yes"), "count_only: must be True or False, not str"),
        (lambda c: c.classify(image=b"1", labels=["a", 7]), "labels: must each be a text, not int"),
        (lambda c: c.classify(image=b"1", labels=[b"\xff"]), "labels: must each be a text, not bytes"),
        (
            lambda c: c.generate("a", decoding=weft.Decoding(strategy=weft.Sampling(temperature="hot"))),
            "decoding.sampling.temperature: must be a number, not str",
        ),
        (lambda c: c.caption("\0"), r"image: '\x00' is not the path of a file"),
        (lambda c: c.caption(""), "image: is an empty path"),
        (lambda c: c.caption(5), "image: must be bytes or the path of a file, not int"),
        (lambda c: c.score(Path("no"), "a"), "source: cannot read no: No such file or directory"),
    ],
)
def test_what_cannot_be_sent_is_said_in_words(client, call, said):
    """Those of protobuf and of Python are for other readers."""
    with pytest.raises(weft.InvalidRequest) as caught:
        call(client)

    assert said == caught.value.message


@pytest.mark.parametrize(("call", "reason", "field"), LOCAL)
def test_what_cannot_be_sent_is_refused_before_it_is_sent(client, server, call, reason, field):
    """A request that has no form on the wire is an InvalidRequest like one that the server refuses."""
    with pytest.raises(weft.InvalidRequest) as caught:
        call(client)

    assert reason == caught.value.reason
    assert field in (None, *(violation.field for violation in caught.value.field_violations))
    assert [] == server.servicer.seen


def test_an_option_that_does_not_exist_is_a_type_error(client):
    """A misspelt keyword fails as any Python function's does."""
    with pytest.raises(TypeError, match="explian"):
        client.translate("a", explian=True)


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"timeout": -1.0}, {"metadata": {"token": "ä"}}, {"target": ""}])
def test_a_client_refuses_settings_that_cannot_work(settings):
    """No target, no time, and metadata that HTTP can't carry are refused when the client is made."""
    with pytest.raises(weft.InvalidRequest):
        weft.Client(**settings)


def test_no_timeout_is_infinity(server):
    """`math.inf` asks for no deadline at all."""
    with weft.Client(server.target, timeout=math.inf) as client:
        assert "a" == client.translate("a").text


def test_a_client_that_another_thread_closes_says_so(server):
    """Between the look and the call, too."""
    client = weft.Client(server.target)
    client._channel.close()
    for closed in (False, True):
        client._reach.closed = closed
        with pytest.raises(weft.Error if closed else ValueError, match="closed"):
            client.translate("a")


def test_a_closed_client_says_so(server):
    """A call after `close` is an Error, sync and asyncio."""
    client = weft.Client(server.target)
    client.close()
    with pytest.raises(weft.Error, match="closed"):
        client.translate("a")

    async def run():
        aclient = weft.AsyncClient(server.target)
        await aclient.close()
        await aclient.translate("a")

    with pytest.raises(weft.Error, match="closed"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (StatusCode.CANCELLED, "CANCELLED"),
        (StatusCode.UNAVAILABLE, "Stream removed (RST_STREAM (Received RST_STREAM with error code 7))"),
    ],
)
def test_a_call_that_grpc_sheds_is_an_overload(code, words):
    """On the server's side gRPC ends calls that are too many: those that wait unseen, and those of one connection.

    The second happens to a flood on a new connection, which does not know yet how many calls it may have.
    """
    call = SimpleNamespace(code=lambda: code, details=lambda: words, trailing_metadata=tuple)
    error = error_of(call, "localhost:1")
    assert (weft.Overloaded, "SHED", 1.0) == (type(error), error.reason, error.retry_after)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Stream removed (RST_STREAM (Received RST_STREAM with error code 2))", weft.Unavailable),
        ("Something else", weft.InternalError),
    ],
)
def test_a_stream_that_a_proxy_resets_is_unavailable(text, kind):
    """Envoy ends a stream so when the server behind it has gone. gRPC calls it INTERNAL, as if somebody had a bug."""
    call = SimpleNamespace(code=lambda: StatusCode.INTERNAL, details=lambda: text, trailing_metadata=tuple)
    assert kind is type(error_of(call, "localhost:1"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Deadline Exceeded", "(no answer came within the timeout)"),
        ("recvmsg: Socket closed", "(does the server want TLS, or a certificate?)"),
        ("Connection refused", ""),
    ],
)
def test_words_of_grpc_have_a_hint_behind_them(text, hint):
    """Of those that say little. The target stands before them."""
    call = SimpleNamespace(code=lambda: StatusCode.UNKNOWN, details=lambda: text, trailing_metadata=tuple)
    assert f"localhost:1: {text} {hint}".rstrip() == str(error_of(call, "localhost:1"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid: OK", "the server's certificate is not valid yet"),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "the server's certificate has expired"),
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate: OK", "is of no authority that"),
    ],
)
def test_a_certificate_that_is_refused_is_said_in_words(text, said):
    """The words of gRPC name functions of OpenSSL."""
    call = SimpleNamespace(code=lambda: StatusCode.UNAVAILABLE, details=lambda: text, trailing_metadata=tuple)
    error = error_of(call, "localhost:1")
    assert (weft.Unavailable, "TLS") == (type(error), error.reason)
    assert said in str(error)


def test_closing_the_client_cancels_what_waits(server):
    """A call that waits while its asyncio client is closed ends as Cancelled."""
    server.servicer.script.append(60.0)

    async def run():
        client = weft.AsyncClient(server.target)
        waiting = asyncio.create_task(client.translate("a"))
        await until(lambda: server.servicer.seen)
        await client.close()
        await waiting

    with pytest.raises(weft.Cancelled):
        asyncio.run(run())


def test_an_asyncio_client_needs_its_loop():
    """An AsyncClient made where no loop runs would belong to none: it says so at once."""
    with pytest.raises(weft.Error, match="running event loop"):
        weft.AsyncClient("localhost:1")


def test_errors_travel_between_processes():
    """An exception keeps its attributes through pickle, so that a pool can hand it on."""
    error = pickle.loads(pickle.dumps(weft.Overloaded("full", reason="QUEUE_FULL", retry_after=0.5)))

    assert (weft.Overloaded, "full", "QUEUE_FULL", 0.5) == (type(error), error.message, error.reason, error.retry_after)


def test_an_error_says_its_message_however_it_was_made():
    """By position or by name: both are what its text is."""
    assert ["too long"] * 2 == [str(weft.Error("too long")), str(weft.Error(message="too long"))]


def test_a_closed_asyncio_client_says_so_of_every_kind_of_call(server):
    """A verb, a stream, and what is asked of the server itself: none reaches gRPC, which has words of its own."""

    async def run():
        client = weft.AsyncClient(server.target)
        await client.close()
        calls = (lambda: client.translate("a"), client.health, client.list_models)
        for call in calls:
            with pytest.raises(weft.Error, match=r"^the client is closed: make another one$") as closed:
                await call()
            assert "CLIENT_CLOSED" == closed.value.reason
        with pytest.raises(weft.Error, match=r"^the client is closed: make another one$"):
            client.stream_translate("a")

    asyncio.run(run())
