"""The console in a real Chromium behind something that stands between: a path of its own, halves, pages of others."""

import json
import struct
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from console_form import console_of, opened, ran
from driven_page import WHY_NOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
BELOW = "/weft"
# What the page sends and hears, that matters.
SENT, HEARD = ("content-type", "authorization"), ("content-type", "content-security-policy")
HALF = json.dumps({"delta": {"text": "half of it"}}).encode()
ALERT = ".answer [role=alert]"


def enveloped(message):
    """A message of Connect's streams."""
    return b"\0" + struct.pack(">I", len(message)) + message


# How a stream ends behind its first half: what comes, whether the connection is cut, and what the page says.
ENDS = {
    "no end": (b"", False, "The answer broke off before its end."),
    "half a message": (enveloped(HALF)[:9], False, "The answer broke off before its end."),
    "cut": (b"", True, "The answer broke off before its end."),
    "no JSON": (enveloped(b"{{{{"), False, "What came is no answer of Weft. Does something stand between?"),
}


class Between(BaseHTTPRequestHandler):
    """Hands calls on. A stream breaks as its server's `breaks` says, and it answers those of `foreign` itself."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        """Hand it on."""
        self._hand_on(None)

    def do_POST(self):
        """Hand it on, or answer as told."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.foreign in self.path:
            self._answer(200, {"content-type": "text/html"}, b"<!doctype html><h1>Please log in</h1>")
        elif self.server.breaks and "/Stream" in self.path:
            self._break(*self.server.breaks[:2])
        else:
            self._hand_on(body)

    def _break(self, more, is_cut):
        self.send_response(200)
        self.send_header("content-type", "application/connect+json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        half = enveloped(HALF)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
        # It is shown before it breaks.
        self.server.shown.wait(10)
        if more:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(more), more))
        if not is_cut:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _hand_on(self, body):
        sent = {name: self.headers[name] for name in SENT if self.headers[name]}
        asked = urllib.request.Request(self.server.behind + self.path.removeprefix(BELOW), body, sent)
        try:
            answer = urllib.request.urlopen(asked)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            heard = {name: answer.headers[name] for name in HEARD if answer.headers[name]}
            self._answer(answer.status, heard, answer.read())

    def _answer(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "content-length": len(body)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def server(demo_repository, tmp_path_factory):
    """Two models."""
    repository, points = tmp_path_factory.mktemp("some"), tmp_path_factory.mktemp("points")
    for name in ("pydocs", "topics"):
        (repository / name).symlink_to(demo_repository / name)
    with console_of(repository, points) as server:
        yield server


@pytest.fixture
def between(server):
    """What stands before them. Its `api` is where, with its path."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as proxy:
        proxy.behind, proxy.breaks, proxy.foreign = f"http://{server.api}", None, "nothing at all"
        proxy.shown, proxy.api = threading.Event(), f"localhost:{proxy.server_port}{BELOW}"
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()


def test_all_of_it_works_below_a_path(between, page):
    """The page's files, its calls, its state, and the code that it gives."""
    opened(page, between, "pydocs", "generate")
    ran(page)
    assert " tuples." == page.text("#said")
    assert f"curl 'http://{between.api}/weft.v1.GenerationService/Generate'" in page.text(".code pre")
    page.see(what="location.hash = '/state'")
    page.until("document.querySelector('table.state')")
    assert [f"http://{between.api}/docs"] == page.see(what="[document.querySelectorAll('.links a')[1].href]")
    assert {"errors": [], "origins": [f"http://{between.api.removesuffix(BELOW)}"]} == page.judge()


@pytest.mark.parametrize("name", ENDS)
def test_half_a_stream_is_told(between, page, name):
    """What came stays, nothing more is waited for, and the next answer is whole."""
    between.breaks = ENDS[name]
    opened(page, between, "pydocs", "generate")
    page.click(on="button.main")
    page.until("document.querySelector('.coming')?.textContent === 'half of it'")
    between.shown.set()
    page.until(f"document.querySelector('{ALERT}')")

    assert ("half of it", f"Something went wrong: {ENDS[name][2]}") == (page.text(".said"), page.text(ALERT))
    assert [] == page.texts(".coming")
    page.until("document.querySelector('.banner').hidden")
    between.breaks = None
    ran(page)
    assert (" tuples.", None) == (page.text("#said"), page.text(ALERT))


@pytest.mark.parametrize(
    ("call", "where"), [("/ListModels", ".banner"), ("/Classify", ALERT)], ids=["the list", "an answer"]
)
def test_a_page_of_somebody_else_is_no_answer(between, page, call, where):
    """As of a proxy that wants a login. The page says so, and goes on once it is the server again."""
    opened(page, between, "topics", "classify")
    between.foreign = call
    page.click(on="button.main")
    page.until(f"document.querySelector('{where}')?.textContent.includes('Does something stand between?')")
    between.foreign = "nothing at all"
    page.until("document.querySelector('.banner').hidden")
    ran(page)
    assert "networking" == page.text("#said")
