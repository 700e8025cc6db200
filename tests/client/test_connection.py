"""What the command says of a connection that failed: each reason in words, with the flag that mends it."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from certificates import Authority
from weft._server import Server, why_no_tls, why_tls
from weft.exceptions import Unavailable


@contextlib.contextmanager
def listening(authority, *, mutual=False, name="localhost"):
    """Where a server speaks TLS by that name. A mutual one wants its authority's certificate of its callers."""
    pair = authority.issue(name, hosts=(name,))
    credentials = grpc.ssl_server_credentials(
        [(pair.key, pair.certificate)], authority.certificate if mutual else None, mutual
    )
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    yield f"localhost:{port}"
    server.stop(None).wait()


@pytest.fixture(scope="module")
def authority():
    """Who signs the server's certificate."""
    return Authority()


@pytest.fixture
def ca(authority, tmp_path):
    """The file of its certificate."""
    return authority.write(tmp_path, "ca")[0]


def test_a_server_with_tls_is_known_by_a_caller_without(authority, server):
    """One that speaks plain text is none, and so is one that is not there."""
    with listening(authority) as target:
        assert "the server speaks TLS: --tls, or --ca FILE with its authority" == why_tls(target)
    assert ["", "", "", ""] == [why_tls(each) for each in (server.target, "127.0.0.1:1", "localhost", "unix:/x")]


def test_a_server_that_is_trusted_has_no_fault(authority, ca):
    """Nor has one that nobody listens for: another reason counts."""
    with listening(authority) as target:
        assert "" == why_no_tls(target, ca, None, None)
    assert ["", ""] == [why_no_tls(each, ca, None, None) for each in ("127.0.0.1:1", "localhost")]


def test_a_certificate_that_is_not_trusted_is_said(authority, ca):
    """Whose authority is another's is mended by --ca. A name that differs is not."""
    with listening(authority) as target:
        said = why_no_tls(target, None, None, None)
        assert said.startswith("the server's certificate is not trusted: ")
        assert said.endswith("; --ca FILE names the authority to trust")
    with listening(authority, name="elsewhere.example") as target:
        said = why_no_tls(target, ca, None, None)
        assert (True, False) == ("not valid for 'localhost'" in said, "--ca" in said)


def test_a_caller_who_is_not_known_is_told_of_certificates(authority, ca, tmp_path):
    """Without one, what brings one is said. With a stranger's, that is the reason. With the right one there is none."""
    own = authority.issue("caller", hosts=()).write(tmp_path, "own")
    strangers = Authority().issue("stranger", hosts=()).write(tmp_path, "stranger")
    with listening(authority, mutual=True) as target:
        assert "it may want a certificate: --cert FILE and --key FILE" in why_no_tls(target, ca, None, None)
        assert "it may not trust the authority of --cert" in why_no_tls(target, ca, *strangers)
        assert "" == why_no_tls(target, ca, *own)


def test_a_server_of_plain_text_is_told_from_one_with_tls(server, ca):
    """What to leave out is said."""
    assert "the server does not speak TLS: leave out --tls, --ca, --cert and --key" == why_no_tls(
        server.target, ca, None, None
    )


def test_each_flag_of_tls_alone_makes_the_command_speak_it(server, ca, tmp_path):
    """With none of them it speaks plain text, as this server does."""
    cert, key = Authority().issue("caller", hosts=()).write(tmp_path, "own")
    for flags in ({"tls": True}, {"ca": ca}, {"cert": cert, "key": key}):
        with pytest.raises(Unavailable, match="does not speak TLS"):
            Server(server.target, **flags).look_again()
    Server(server.target).look_again()
