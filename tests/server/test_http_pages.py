"""Pages of browsers that say no origin, or have this machine's address: what the HTTP port tells them."""

import json

import pytest

from http_calls import CLASSIFY, ask, asked, connected, counted, rejected, response, served
from intercepted import TOKENS, run


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
