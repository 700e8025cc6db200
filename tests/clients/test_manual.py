"""The manual's site in a real Chromium that reaches nobody else: its search, and how its pages fit."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from driven_page import WHY_NOT, DrivenPage
from manual_site import built

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
# One of each section, and those with pictures.
PAGES = ["", "docs/start/", "docs/concepts/", "docs/console/", "docs/bring-your-own/", "docs/http/", "docs/settings/",
         "docs/errors/", "reference/commands/", "docs/architecture/", "docs/reading-path/", "docs/benchmarks/",
         "CHANGELOG/"]  # fmt: skip
NOBODY = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


class Files(SimpleHTTPRequestHandler):
    """Serves a folder, and says nothing."""

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    """Where the site is served."""
    site = built(tmp_path_factory.mktemp("manual") / "manual")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=site)) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}/"
        served.shutdown()


@pytest.fixture(scope="module")
def page():
    """A browser to which no name is known."""
    with DrivenPage(NOBODY) as page:
        yield page


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits(manual, page, path, width, scheme):
    """A telephone and a desk. Each picture is there, and nobody else is asked."""
    page.open(url=manual + path, width=width, scheme=scheme)
    page.until("[...document.images].every((each) => each.complete)")

    assert width >= page.see(what="document.documentElement.scrollWidth")
    assert [] == page.see(what="[...document.images].filter((each) => !each.naturalWidth).map((each) => each.src)")
    assert {"errors": [], "origins": [manual.rstrip("/")]} == page.judge()


def test_the_search_answers(manual, page):
    """A flag, a reason, a method, and a word of the prose."""
    for word, found in (
        ("max-restarts", "Settings"),
        ("QUEUE_FULL", "What each error means, and what to do"),
        ("StreamTranscribe", "Calls by gRPC"),
        ("telephone", "The console"),
    ):
        page.open(url=manual)
        page.click(on=".md-search__input")
        page.write(on=".md-search__input", text=word)
        page.until(f"[...document.querySelectorAll('.md-search-result h1')].some((e) => e.textContent === '{found}')")
    assert {"errors": [], "origins": [manual.rstrip("/")]} == page.judge()
