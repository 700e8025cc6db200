"""What a client takes as its target, and what it says of the rest, before anything of gRPC sees it."""

import asyncio
import contextlib
import socket
import threading

import pytest

import weft

GOOD = [
    "localhost:7070",
    "weft.example:1",
    "weft_under.score-1:65535",
    "[::1]:7070",
    "dns:weft:7070",
    "dns:///weft:7070",
    "dns:///[::1]:7070",
    "dns://8.8.8.8/weft.example:7070",
    "ipv4:127.0.0.1:7070",
    "ipv4:127.0.0.1:7070,127.0.0.1:7071",
    "ipv6:[::1]:7070,[::1]:7071",
    "ipv6:[fe80::1%1]:7070",
    "unix:weft.sock",
    "unix:/run/weft.sock",
    "unix:///run/weft.sock",
    "unix-abstract:weft",
    "xds:///weft",
]
BAD = {
    "": "must name a server",
    "localhost": "needs a port: localhost:7070",
    "dns:///weft": "needs a port: dns:///weft:7070",
    "dns:///": "must name a server",
    "dns:///:7070": "must name a server",
    ":7070": "must name a server",
    "ipv4:127.0.0.1": "needs a port: 127.0.0.1:7070",
    "ipv4:127.0.0.1:7070,": "must name a server",
    "ipv4:": "must name a server",
    "ipv4:localhost:7070": "'localhost' is no IPv4 address; dns: takes names",
    "ipv4:127.0.0.1:7070,weft:7070": "'weft' is no IPv4 address",
    "ipv4:[::1]:7070": "'[::1]' is no IPv4 address",
    "ipv6:127.0.0.1:7070": "'127.0.0.1' is no IPv6 address in brackets",
    "ipv6:[weft]:7070": "'[weft]' is no IPv6 address in brackets",
    "unix:": "must name a server",
    "127.0.0.1:99999": "port must be 1..65535, not 99999",
    "localhost:0": "port must be 1..65535, not 0",
    "localhost:grpc": "port must be 1..65535, not grpc",
    "localhost:": "port must be 1..65535",
    "localhost:-1": "port must be 1..65535, not -1",
    "localhost:7070/path": "port must be 1..65535, not 7070/path",
    "localhost:\u0667\u0660": "port must be 1..65535",
    "::1": "in brackets: [::1]:7070",
    "::1:7070": "in brackets",
    "[::1]": "needs a port: [::1]:7070",
    "http://localhost:7070": "host:port, without http://",
    "https://weft.example": "host:port, without https://",
    "grpc://localhost:7070": "host:port, without grpc://",
    "local host:7070": "must name a server",
    "local\nhost:7070": "must name a server",
    "a:1,b:2": "port must be 1..65535, not 1,b:2",
    5: "must be a str such as 'localhost:7070', not int",
    None: "must be a str",
    b"localhost:7070": "must be a str",
}


@pytest.mark.parametrize("target", GOOD)
def test_what_names_a_server_is_taken(target):
    """Host and port, or a target of gRPC's naming schemes."""
    weft.Client(target).close()


@pytest.mark.parametrize("target", BAD)
def test_what_names_none_is_refused_with_what_is_expected(target):
    """An InvalidRequest that says it, sync and asyncio; nothing is guessed, no port and no scheme."""
    with pytest.raises(weft.InvalidRequest) as caught:
        weft.Client(target)
    assert BAD[target] in caught.value.message
    assert caught.value.message.startswith("target: ")

    async def run():
        weft.AsyncClient(target)

    with pytest.raises(weft.InvalidRequest):
        asyncio.run(run())


@pytest.mark.parametrize("metadata", [[("a", "b")], "a", {5: "a"}, {b"a": "b"}, {"a": 5}, {"a-bin": "b"}, {"": "b"}])
def test_metadata_is_a_mapping_of_text(metadata):
    """Everything else is refused when the client is made."""
    with pytest.raises(weft.InvalidRequest, match=r"^metadata: "):
        weft.Client(metadata=metadata)


def test_the_command_says_it_in_a_line(weft_command):
    """Exit code 2, and what to type."""
    code, out, err = weft_command("models", "--target", "localhost")
    assert (2, "", "weft: target: needs a port: localhost:7070\n") == (code, out, err)


def test_credentials_are_grpcs():
    """What is no grpc.ChannelCredentials is refused when the client is made."""
    with pytest.raises(weft.InvalidRequest, match=r"^credentials: must be grpc.ChannelCredentials, not str"):
        weft.Client(credentials="token")


def test_a_port_that_speaks_another_protocol_is_named_once():
    """As the server's own port for HTTP does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            for _ in range(5):
                # The client may have closed what it had.
                with contextlib.suppress(OSError):
                    taken, _ = listener.accept()
                    with taken:
                        taken.recv(100)
                        taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        port = listener.getsockname()[1]
        with weft.Client(f"127.0.0.1:{port}") as client, pytest.raises(weft.Unavailable) as caught:
            client.list_models(timeout=60)
    assert 1 == caught.value.message.count(str(port))
