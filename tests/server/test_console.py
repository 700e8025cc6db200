"""The console at the HTTP port: its files, who may have them, and what the page can do."""

import gzip
import json
import re

import pytest

from http_calls import ask, connected, head, rejected, response, served
from intercepted import AUTHORITY, SERVER, TOKENS, credentials_of, run
from weft_proto.decoding import LENGTH_PENALTY, PENALTIES, SAMPLING
from weft_server.auth.authorization import METRICS_PATH, Authorization
from weft_server.console.console_routes import CALLER_PATH, FACTS_PATH, FOLDER, PAGE, PAGE_PATH, console_routes
from weft_server.openai_api.routes import refuse_path

FILES = sorted(path.name for path in PAGE.iterdir())
PATHS = [PAGE_PATH if name == "index.html" else FOLDER + name for name in FILES]
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data: blob:",
    "media-src": "'self' blob:",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
}
MAX_BYTES = 150_000
# What makes HTML, code or requests of a text.
MAKERS = (
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|createContextualFragment|setHTML|"
    r"eval\(|new Function"
)


def console(grpc_port=7070, metrics=lambda: ("text/plain", b"the metrics"), asks_token=lambda _: False):
    """The routes."""
    return list(console_routes(refuse_path, lambda: grpc_port, metrics, asks_token))


def got(*headers, path=PAGE_PATH, **settings):
    """(status, headers, body) of a request to a server with a console."""
    seen = []

    async def scenario():
        async with served(routes=console(), refuse=refuse_path, **settings) as server:
            seen.extend(await ask(server, head(path, *headers, method="GET")))

    run(scenario())
    return seen


def test_each_file_comes_with_its_type_and_the_strict_policy():
    """Only files of this server run, nothing is framed, and the browser guesses no type."""

    async def scenario():
        async with served(routes=console(), refuse=refuse_path) as server:
            for name, path in zip(FILES, PATHS, strict=True):
                status, headers, body = await ask(server, head(path, method="GET"))
                kind = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
                policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
                assert (200, kind[name.rpartition(".")[2]]) == (status, headers["content-type"].partition(";")[0])
                assert (POLICY, "nosniff", "no-cache", "no-referrer") == (
                    policy,
                    headers["x-content-type-options"],
                    headers["cache-control"],
                    headers["referrer-policy"],
                )
                assert (PAGE / name).read_bytes() == body

    run(scenario())


def test_a_file_that_is_known_is_not_sent_again():
    """By its tag, also among others and as a weak one: 304, without a body or its length. The connection goes on."""

    async def scenario():
        async with served(routes=console(), refuse=refuse_path) as server, connected(server) as (reader, writer):
            seen = []
            _, first, _ = await ask(server, head(method="GET", path=PAGE_PATH))
            tag = first["etag"]
            for known in (tag, f'"other", {tag}', f"W/{tag}", '"other"', tag[1:-1]):
                writer.write(head(PAGE_PATH, f"if-none-match: {known}", method="GET"))
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = re.search(r"content-length: (\d+)", lines)
                body = await reader.readexactly(int(size[1])) if size else b""
                assert f"etag: {tag}" in lines
                seen.append((int(lines.split()[1]), size and len(body)))
            assert [(304, None)] * 3 + [(200, (PAGE / "index.html").stat().st_size)] * 2 == seen

    run(scenario())


def test_a_file_comes_zipped_to_who_takes_it():
    """The same bytes, under a tag of their own: a tag of the plain file does not stand for them."""
    _, plain, body = got()
    _, zipped, small = got("accept-encoding: gzip, deflate, br")

    assert ("gzip", body) == (zipped["content-encoding"], gzip.decompress(small))
    assert ("accept-encoding", "accept-encoding") == (plain["vary"], zipped["vary"])
    assert "content-encoding" not in plain
    assert plain["etag"] != zipped["etag"]
    assert 200 == got("accept-encoding: gzip", f"if-none-match: {plain['etag']}")[0]
    assert "gzip" in zipped["etag"]


@pytest.mark.parametrize(
    "path",
    [FOLDER, "/console", "/console/index.html", "/console/../app", "/console/..%2fconfig", "//console/main.js",
     "/console/__init__", "/index.html", "/console/%2e%2e/app", "/console/main.js/"],
)  # fmt: skip
def test_nothing_else_is_served(path):
    """Paths are compared as they are: no file is looked for."""
    assert 404 == got(path=path)[0]


def test_strangers_have_the_page_and_hear_nothing_of_the_server(tmp_path):
    """A browser sends no token for a page. What the page asks for the server is asked with one."""

    async def scenario():
        async with served(tmp_path, tokens=TOKENS, routes=console(), refuse=refuse_path) as server:
            for path in PATHS:
                status, _, body = await ask(server, head(path, method="GET"))
                assert (200, (PAGE / (path.rpartition("/")[2] or "index.html")).read_bytes()) == (status, body)
            assert 401 == (await ask(server, head(FACTS_PATH, method="GET")))[0]
            known = head(FACTS_PATH, "authorization: Bearer token-of-the-caller", method="GET")
            assert 200 == (await ask(server, known))[0]

    run(scenario())


@pytest.mark.parametrize("more", [(), ("content-length: 1",)], ids=["plain", "body"])
def test_the_metrics_are_for_the_role_metrics(more, tmp_path):
    """Whoever lacks it is refused and counted as for any call, before a body is judged."""

    async def scenario():
        async with served(tmp_path, tokens=TOKENS, routes=console(), refuse=refuse_path) as server:
            seen = []
            for token in ("", "token-of-nobody", "token-of-the-caller", "token-of-the-scraper"):
                sent = [f"authorization: Bearer {token}"] if token else []
                data = head(METRICS_PATH, *sent, *more, method="GET")
                status, headers, body = await ask(server, data)
                seen.append((status, headers["content-type"] == "text/plain" and body))
            last = (413, False) if more else (200, b"the metrics")
            assert [(401, False), (401, False), (403, False), last] == seen
            refused = {"TOKEN_MISSING": 1, "TOKEN_UNKNOWN": 1, "ROLE_MISSING": 1} | (
                {"MESSAGE_TOO_LARGE": 1} if more else {}
            )
            assert refused == rejected(server)

    run(scenario())


@pytest.mark.parametrize(
    ("tokens", "certificate", "sent", "expected"),
    [
        ("", None, (), False),
        (TOKENS, None, (), True),
        # Somebody else sends one for the page. What it is worth is told where it is used.
        (TOKENS, None, ("authorization: Bearer token-of-nobody",), False),
        (TOKENS, "signed.example.com", (), False),
        (TOKENS, "stranger.example.com", (), True),
        # It lacks the role, and has told who calls.
        (TOKENS, "reader", (), False),
        ("", "stranger.example.com", (), False),
    ],
)
def test_a_page_learns_that_it_needs_a_token_without_being_refused(tokens, certificate, sent, expected, tmp_path):
    """Nobody is counted who has done nothing wrong."""
    shown = {"subjectAltName": [("DNS", certificate)]} if certificate else None
    settings = {}
    if tokens:
        settings["tokens"] = tmp_path / "of-callers"
        settings["tokens"].write_text(tokens)
        settings["tokens"].chmod(0o600)
    if certificate:
        settings["tls_cert"], settings["tls_key"] = SERVER.write(tmp_path)
        settings["tls_client_ca"] = tmp_path / "ca.crt"
        settings["tls_client_ca"].write_bytes(AUTHORITY.certificate)
    access = Authorization(credentials_of(**settings))

    async def scenario():
        routes = console(asks_token=lambda _: access.asks_token(shown))
        async with served(tmp_path, tokens=tokens, routes=routes, refuse=refuse_path) as server:
            status, headers, body = await ask(server, head(CALLER_PATH, *sent, method="GET"))
            assert (200, "no-cache", {"asksToken": expected}) == (status, headers["cache-control"], json.loads(body))
            assert {} == rejected(server)

    run(scenario())


@pytest.mark.parametrize("path", [PAGE_PATH, CALLER_PATH, METRICS_PATH])
@pytest.mark.parametrize(("said", "status"), [("origin: https://evil.example", 403), ("host: evil.example", 421)])
def test_pages_of_others_do_not_have_it(said, status, path):
    """By their origin, or by a name that they gave to this machine."""

    async def scenario():
        async with served(routes=console(), refuse=refuse_path) as server, connected(server) as (reader, writer):
            host = [] if said.startswith("host") else ["host: localhost"]
            writer.write("\r\n".join([f"GET {path} HTTP/1.1", *host, said, "", ""]).encode())
            assert status == (await response(reader))[0]

    run(scenario())


@pytest.mark.parametrize(
    ("host", "tls", "expected"),
    [
        ("127.0.0.1", False, "http://localhost"),
        ("0.0.0.0", True, "https://localhost"),
        ("::1", False, "http://localhost"),
    ],
)
def test_the_log_says_what_to_open(host, tls, expected, tmp_path):
    """In a browser of this machine. The certificate of a test is for that name, too."""

    async def scenario():
        async with served(tmp_path, tls=tls, routes=console(), refuse=refuse_path, host=host) as server:
            assert f"{expected}:{server.port}/" == server.server.url

    run(scenario())


def test_its_settings_are_the_table_of_decoding():
    """Each number that the command has a flag for, with the range, the default and the help of that flag."""
    status, _, body = got(path=FACTS_PATH)
    said = json.loads(body)
    table = {field.path: field for field in (*SAMPLING, *PENALTIES, LENGTH_PENALTY) if field.help}

    assert (200, 7070, list(table)) == (status, said["grpcPort"], [row["path"] for row in said["rows"]])
    for row in said["rows"]:
        field = table[row["path"]]
        assert (field.name, field.help, field.default, field.minimum, field.maximum, field.kind.__name__) == (
            row["name"], row["help"], row["default"], row["least"], row["most"], row["kind"],
        )  # fmt: skip
        assert (field.range if field.maximum is not None else "") == row["range"]


def test_the_page_is_small_and_brings_all_that_it_needs():
    """Less than 150 KB in all. Each file is named by another one, and none names what is not of this server."""
    texts = {name: (PAGE / name).read_text() for name in FILES}
    named = set(re.findall(r'(?:from "\./|"console/)([\w.]+)"', "".join(texts.values()))) - {
        "caller.json",
        "facts.json",
        "metrics",
        "refusals.json",
    }

    assert MAX_BYTES > sum(len(text.encode()) for text in texts.values())
    assert set(FILES) == named | {"index.html"}
    outside = [(name, url) for name, text in texts.items() for url in re.findall(r"https?://[^\s\"'`)]+", text)]
    assert [
        ("calls.js", "https://connectrpc.com/docs/protocol"),
        ("icon.svg", "http://www.w3.org/2000/svg"),
        ("state.js", "https://prometheus.io/docs/instrumenting/exposition_formats/"),
    ] == outside


def test_all_that_the_page_says_stands_in_one_file():
    """Whoever translates it, or looks for a word, needs one. Elsewhere is no text of two words."""
    others = [name for name in FILES if name.endswith(".js") and name != "texts.js"]
    said = re.compile(r"""["'`]([A-Z][a-z]+ [a-z][^"'`]*)["'`]""")
    without = {name: re.sub(r"(?m)(^|\s)//.*$", "", (PAGE / name).read_text()) for name in others}

    assert said.search((PAGE / "texts.js").read_text())
    assert [] == [(name, found) for name, text in without.items() for found in said.findall(text)]


def test_no_text_becomes_html():
    """What callers and models say is set as text: nothing in the page makes HTML, code or a style of it."""
    assert [] == [(name, found) for name in FILES for found in re.findall(MAKERS, (PAGE / name).read_text())]
    assert [] == re.findall(r"<(?:script|style)>|\son\w+=|style=", (PAGE / "index.html").read_text())
