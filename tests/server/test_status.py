"""Every exception becomes one gRPC status with machine-readable details."""

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from weft_server import errors
from weft_server.transport import status as statuses

CASES = [
    (errors.InvalidRequest("text", "empty", "EMPTY_INPUT"), "INVALID_ARGUMENT", "EMPTY_INPUT"),
    (errors.InvalidRequest("decoding.max_new_tokens", "too many"), "INVALID_ARGUMENT", "INVALID_FIELD"),
    (errors.ModelNotFound("no model 'x'"), "NOT_FOUND", "MODEL_NOT_FOUND"),
    (errors.Overloaded("QUEUE_FULL", "256 requests wait", 0.25), "RESOURCE_EXHAUSTED", "QUEUE_FULL"),
    (errors.ModelNotReady("loading", 1.0), "UNAVAILABLE", "MODEL_NOT_READY"),
    (errors.Draining(), "UNAVAILABLE", "DRAINING"),
    (errors.LaneFailed("STEP_FAILED", "a step failed"), "INTERNAL", "STEP_FAILED"),
    (errors.ModelFailed(), "UNAVAILABLE", "MODEL_FAILED"),
    (errors.DeadlineExpired(), "DEADLINE_EXCEEDED", "DEADLINE"),
    (errors.CannotExplain("topics"), "FAILED_PRECONDITION", "CANNOT_EXPLAIN"),
    (errors.CannotConstrain("no extra"), "FAILED_PRECONDITION", "CANNOT_CONSTRAIN"),
]


def _details_of(status: statuses.Status) -> dict[str, object]:
    packed = status_pb2.Status.FromString(dict(status.trailing_metadata)["grpc-status-details-bin"])
    assert (status.code.value[0], status.message) == (packed.code, packed.message)
    kinds = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
    found = {}
    for detail in packed.details:
        for kind in kinds:
            if detail.Is(kind.DESCRIPTOR):
                found[kind.__name__] = kind.FromString(detail.value)
    return found


@pytest.mark.parametrize(("error", "code", "reason"), CASES)
def test_each_error_has_one_code_and_reason(error, code, reason):
    """A domain error maps to its status code, and its reason travels in ErrorInfo of domain "weft"."""
    status = statuses.to_status(error)
    info = _details_of(status)["ErrorInfo"]
    assert (code, reason, "weft") == (status.code.name, info.reason, info.domain)
    assert status.error_id is None
    assert {} == dict(info.metadata)


def test_every_error_class_is_in_the_table():
    """No subclass of RequestError lacks a status code, nor does one of theirs: the table has each class itself."""
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    concrete = {kind for kind in classes if issubclass(kind, errors.RequestError)} - {errors.RequestError}

    assert concrete == set(statuses._CODES)


def test_who_takes_the_normal_port_for_the_admin_port_is_told():
    """A method of the admin port is not just unknown."""
    said = statuses.to_status(errors.MethodNotFound("/weft.v1.ModelAdminService/LoadModel")).message
    assert "there is no method '/weft.v1.ModelAdminService/LoadModel' here: it is at the admin port" == said
    assert "there is no method '/a/B' here" == statuses.to_status(errors.MethodNotFound("/a/B")).message


def test_field_violation_names_the_field():
    """An invalid request tells which field is wrong in a BadRequest."""
    status = statuses.to_status(errors.InvalidRequest("image.data", "is no picture", "BAD_IMAGE"))
    (violation,) = _details_of(status)["BadRequest"].field_violations
    assert ("image.data", "image.data is no picture") == (violation.field, violation.description)


def test_retry_hint_is_given_twice_and_agrees():
    """A retry hint is in RetryInfo for people and in the pushback header for gRPC itself."""
    status = statuses.to_status(errors.Overloaded("TOKEN_BUDGET", "65536 tokens wait", 0.25))
    assert 250 == _details_of(status)["RetryInfo"].retry_delay.ToMilliseconds()
    assert "250" == dict(status.trailing_metadata)["grpc-retry-pushback-ms"]


def test_who_drains_hints_but_does_not_hold_back():
    """A draining server names a pause for the same server, and lets gRPC move on to another at its own pace."""
    status = statuses.to_status(errors.Draining())
    assert 1000 == _details_of(status)["RetryInfo"].retry_delay.ToMilliseconds()
    assert "grpc-retry-pushback-ms" not in dict(status.trailing_metadata)


def test_no_hint_no_pushback():
    """Errors that retrying does not mend carry neither RetryInfo nor pushback."""
    status = statuses.to_status(errors.ModelNotReady("its bundle was refused"))
    assert "RetryInfo" not in _details_of(status)
    assert "grpc-retry-pushback-ms" not in dict(status.trailing_metadata)


def test_a_bug_tells_only_an_id():
    """An unknown exception is INTERNAL, and of its text nothing reaches the client but an id to look for in the log."""
    status = statuses.to_status(KeyError("secret path /etc/passwd"))
    assert status.code is grpc.StatusCode.INTERNAL
    assert status.error_id
    assert status.error_id in status.message
    assert status.error_id == _details_of(status)["ErrorInfo"].metadata["error_id"]
    assert b"secret" not in dict(status.trailing_metadata)["grpc-status-details-bin"]


async def _call_that_fails_with(error: Exception) -> grpc.aio.AioRpcError:
    async def fail(_request, context):
        code, message, metadata, *_ = statuses.to_status(error)
        await context.abort(code, message, metadata)

    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(fail)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", {"Fail": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channel.unary_unary("/test.Service/Fail")(b"")
            return raised.value
    finally:
        await server.stop(None)


def test_longest_message_survives_the_wire():
    """A message of the most expensive characters is cut so that status and details reach a real client."""
    import asyncio

    error = asyncio.run(_call_that_fails_with(errors.InvalidRequest("text", "\U0001f600" * 5000)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert ("text " + "\U0001f600" * 5000)[: statuses.MAX_MESSAGE_CHARS] == error.details()
    assert "grpc-status-details-bin" in dict(error.trailing_metadata())
