"""Pages of browsers that say no origin, or have this machine's address: what the HTTP port tells them."""

import json
import ssl

import pytest

from http_calls import CLASSIFY, ask, asked, connected, counted, rejected, response, served
from intercepted import AUTHORITY, TOKENS, run


def named(host):
    """A request to a host, as bytes. To none: by HTTP/1.0."""
    data = asked(version="1.1" if host else "1.0")
    return data.replace(b"host: localhost\r\n", b"host: %b\r\n" % host.encode() if host else b"")


@pytest.mark.parametrize(
    ("host", "may"),
    [
        ("localhost", True),
        ("LocalHost:18000", True),
        ("127.0.0.1:8000", True),
        ("127.0.0.5", True),
        ("[::1]:8000", True),
        ("[::1]", True),
        ("", True),
        (":8000", False),
        ("evil.example:8000", False),
        ("localhost.evil.example", False),
        ("evil.localhost", False),
        ("evil.example:x", False),
        ("127.0.0.6", False),
        ("[::2]:8000", False),
    ],
)
def test_a_server_of_this_machine_is_asked_by_its_names(host, may):
    """It is not by another name, which a page may have given to this address. That is refused, and runs nothing."""

    async def scenario():
        async with served(host="127.0.0.5") as server:
            # It listens at 127.0.0.5, and so may be named.
            async with connected(server, host="127.0.0.5") as (reader, writer):
                writer.write(named(host))
                status, _, body = await response(reader)
            assert (200 if may else 421) == status
            if not may:
                assert "HOST_REFUSED" == json.loads(body)["details"][0]["debug"]["reason"]
                assert ({"HOST_REFUSED": 1}, {"PERMISSION_DENIED": 1}) == (rejected(server), counted(server))

    run(scenario())


def test_a_server_at_localhost_is_one_of_this_machine():
    """A name that stands for it is as good as its address."""

    async def scenario():
        async with served(host="localhost") as server:
            statuses = [(await ask(server, named(host)))[0] for host in ("localhost", "evil.example")]
            assert [200, 421] == statuses

    run(scenario())


@pytest.mark.parametrize("settings", [{"tokens": TOKENS}, {"host": "0.0.0.0"}])
def test_other_servers_are_asked_by_any_name(tmp_path, settings):
    """Those who ask for a token, and those of a network, whose names are not known here."""

    async def scenario():
        async with served(tmp_path, **settings) as server:
            data = asked(b"{}", CLASSIFY, "authorization: Bearer token-of-the-caller")
            assert 200 == (await ask(server, data.replace(b"localhost", b"models.example:8000")))[0]

    run(scenario())


@pytest.mark.parametrize(
    ("site", "origins", "status"),
    [
        ("cross-site", "", 403),
        ("same-site", "", 403),
        ("same-origin", "", 200),
        ("none", "", 200),
        ("cross-site", "https://app.example.com", 403),
        ("cross-site", "*", 200),
    ],
)
def test_who_says_no_origin_says_whether_it_is_another_site(site, origins, status):
    """As with a link or a picture of another page: it is refused as one that says its origin."""

    async def scenario():
        settings = {"cors_origins": origins} if origins else {}
        async with served(**settings) as server:
            assert status == (await ask(server, asked(b"{}", CLASSIFY, f"sec-fetch-site: {site}")))[0]
            assert ({"ORIGIN_REFUSED": 1} if status == 403 else {}) == rejected(server)

    run(scenario())


def test_a_page_that_may_call_is_of_another_site():
    """Its origin says who it is."""

    async def scenario():
        async with served(cors_origins="https://app.example.com") as server:
            headers = ("origin: https://app.example.com", "sec-fetch-site: cross-site")
            assert 200 == (await ask(server, asked(b"{}", CLASSIFY, *headers)))[0]

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "host", "origin", "may"),
    [
        ({}, "localhost:8000", "http://localhost:8000", True),
        ({}, "[::1]:8000", "http://[::1]:8000", True),
        ({}, "localhost:8000", "http://localhost:8001", False),
        ({}, "localhost:8000", "http://evil.example", False),
        ({}, "localhost:8000", "null", False),
        ({}, "localhost:8000", "localhost:8000", False),
        ({"host": "0.0.0.0"}, "10.0.0.5:8000", "http://10.0.0.5:8000", True),
        ({"host": "0.0.0.0"}, "[fe80::1]:8000", "http://[fe80::1]:8000", True),
        # As of a container, which listens to all of its addresses.
        ({"host": "0.0.0.0"}, "localhost:8000", "http://localhost:8000", True),
        ({"host": "0.0.0.0"}, "localhost:8000", "http://localhost:8001", False),
        ({"host": "0.0.0.0"}, "evil.localhost:8000", "http://evil.localhost:8000", False),
        # It may be a page's own name, to which the page gave this address.
        ({"host": "0.0.0.0"}, "evil.example:8000", "http://evil.example:8000", False),
        ({"host": "0.0.0.0", "tokens": TOKENS}, "models.example", "https://models.example", True),
        ({"tokens": TOKENS}, "models.example", "https://evil.example", False),
    ],
)
def test_the_server_s_own_page_may_call(settings, host, origin, may, tmp_path):
    """/docs sends what it tries out, where no other page can have its origin."""

    async def scenario():
        async with served(tmp_path, **settings) as server:
            data = asked(b"{}", CLASSIFY, f"origin: {origin}", "authorization: Bearer token-of-the-caller")
            status, _, body = await ask(server, data.replace(b"localhost\r\n", host.encode() + b"\r\n"))
            assert (200 if may else 403) == status
            assert may or "ORIGIN_REFUSED" == json.loads(body)["details"][0]["debug"]["reason"]

    run(scenario())


@pytest.mark.parametrize(("origin", "may"), [("https://localhost", True), ("http://localhost", False)])
def test_a_page_without_tls_is_no_page_of_a_server_with_tls(origin, may, tmp_path):
    """Somebody on the way can have made it."""

    async def scenario():
        async with served(tmp_path, tls=True) as server:
            data = asked(b"{}", CLASSIFY, f"origin: {origin}")
            trusted = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
            assert (200 if may else 403) == (await ask(server, data, ssl=trusted, server_hostname="localhost"))[0]

    run(scenario())
