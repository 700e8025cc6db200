"""What a person who has just begun gets wrong: each error says what to do next."""

import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from grpc import StatusCode

from fakes import Failure
from weft._status import error_of

LONG = Failure(
    StatusCode.INVALID_ARGUMENT, "INPUT_TOO_LONG", "text is 99 tokens long; the model takes 64", field="text"
)


@contextmanager
def http_server():
    """Somebody who speaks HTTP/1.1 alone, as the ports of metrics and of calls by HTTP do."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_port_of_http_is_told():
    """The words of gRPC name frames. Behind them stands which port is meant."""
    with http_server() as target, grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/weft.v1.ModelService/ListModels")(b"", timeout=20)
    told = str(error_of(error.value, target))
    assert told.endswith(" (no gRPC is spoken there: a server's port of gRPC is its --port, by default 7070)")


def test_who_does_not_wait_long_is_told_how(weft_command):
    """Somebody listens, and says nothing in time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        code, _, error = weft_command("translate", "a", "--target", target, "--timeout", "0.2")
    assert (1, True) == (code, error.endswith("(no answer came within the timeout). --timeout SECONDS waits longer.\n"))


def test_a_text_that_is_too_long_to_translate_may_be_split(weft_command, server):
    """Where it was not asked for. What else is too long is not split."""
    server.servicer.script.extend([LONG] * 4)
    told = "weft: text is 99 tokens long; the model takes 64"
    assert (2, "", f"{told}; --split takes a longer one\n") == weft_command("translate", "a")
    assert (2, "", f"{told}\n") == weft_command("translate", "a", "--split")
    assert (2, "", f"{told}\n") == weft_command("translate", "a", "--explain", "a.png")
    assert (2, "", f"{told}\n") == weft_command("tag", "a")


def test_a_command_that_is_nearly_right_is_asked_back(weft_command):
    """One mark ends the question."""
    (code, _, error) = weft_command("transalte", "a")
    assert 2 == code
    assert error.endswith("'translate', 'transcribe'? Try --help.\n")


def test_an_option_without_a_default_is_missing(weft_command):
    """Nothing is said of how the program stores that."""
    assert (2, "", "weft: Missing option '--rate'. Try --help.\n") == weft_command("plan", "models/a/1")
