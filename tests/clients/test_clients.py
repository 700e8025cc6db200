"""Clients of others against a real server: each file of docs/other-languages.md prints what the page shows."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent

import pytest

from held import Held
from weft_proto.v1.methods import METHODS, SERVICES

pytestmark = [pytest.mark.e2e, pytest.mark.long]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "other-languages.md").read_text()
HOME = ROOT / "build" / "clients"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

node = pytest.mark.skipif(
    not (shutil.which("node") and (HOME / "node_modules").exists()), reason="needs Node 20 and `make test-clients`"
)
browser = pytest.mark.skipif(not CHROMIUM, reason="needs chromium or google-chrome")


def shown(name):
    """(the file, what it prints) as the page has them."""
    source, printed = re.search(
        rf"`{re.escape(name)}`.*?^```\w+\n(.*?)^```\n((?:\n|    [^\n]*\n)*)", PAGE, re.MULTILINE | re.DOTALL
    ).groups()
    assert "localhost:8000" in source
    return source, dedent(printed).strip("\n")


class Pages(BaseHTTPRequestHandler):
    """Serves one page at every path. `page` gives it."""

    def __init__(self, page, *args):
        self._page = page
        super().__init__(*args)

    def do_GET(self):
        """Answer with the page."""
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self._page().encode())

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def origin():
    """Where pages of another origin are served: its address, and `page`, which a test sets."""
    told = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, lambda: told["page"])) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        told["at"] = f"http://localhost:{served.server_port}"
        yield told
        served.shutdown()


@pytest.fixture(scope="module")
def server(demo_repository, tiny_repository, tmp_path_factory, origin):
    """The demo models, and one that embeds. Pages of `origin` may call."""
    repository = tmp_path_factory.mktemp("all")
    for model in (*demo_repository.iterdir(), tiny_repository / "tiny-embed"):
        (repository / model.name).symlink_to(model)
    points = tmp_path_factory.mktemp("points")
    with Held(repository, points, api_port=0, cors_origins=origin["at"], max_restarts=100) as server:
        server.wait_for("ready")
        server.api = server.wait_for("listening")["api"].replace("127.0.0.1", "localhost")
        yield server


def begun(server, name, *arguments):
    """A process that runs a file of the page, with the server's address."""
    HOME.joinpath(name).write_text(shown(name)[0].replace("localhost:8000", server.api))
    program = HOME / ".venv" / "bin" / "python" if name.endswith(".py") else "node"
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return subprocess.Popen(
        [program, name, *arguments],
        cwd=HOME,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def printed(server, name, *arguments):
    """What a file of the page prints."""
    with begun(server, name, *arguments) as process:
        out, error = process.communicate()
    assert 0 == process.returncode, error
    return out.strip("\n")


def looked(url, what):
    """What `browser.mjs` sees of a page, whom the page asked, and what went wrong in it."""
    shutil.copy(Path(__file__).with_name("browser.mjs"), HOME)
    done = subprocess.run(
        ["node", "browser.mjs", CHROMIUM, url, what], cwd=HOME, check=False, capture_output=True, text=True
    )
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


@node
def test_openai_for_node(server):
    """A chat and a stream."""
    assert shown("openai.mjs")[1] == printed(server, "openai.mjs")


@node
def test_openai_for_node_hears_that_a_stream_has_failed(server):
    """It raises an error with a code. The half that came is not taken for the whole."""
    server.say("pydocs.decode", "hold 3")
    with begun(server, "openai.mjs") as process:
        server.wait_until(lambda: server.is_held("pydocs.decode"), what="a step")
        server.say("pydocs.decode", "raise")
        out, error = process.communicate()
    server.free("pydocs.decode")

    assert (0, "") == (process.returncode, error)
    assert out.endswith(" ... and then it failed: step_failed\n")
    assert " return" in out


@node
def test_openai_for_node_embeds(server):
    """It asks for base64, and gets as many numbers as the model gives."""
    assert "2 24" == printed(server, "embeddings.mjs", "tiny-embed")


@pytest.mark.parametrize("name", ["chain.py", "lite.py"])
@pytest.mark.skipif(not (HOME / ".venv").exists(), reason="needs `make test-clients`")
def test_libraries_over_openai_s_client(server, name):
    """LangChain and LiteLLM: a chat, a stream, an error."""
    assert shown(name)[1] == printed(server, name)


@node
def test_connect_for_node(server):
    """A unary call with a deadline, a stream, and the details of an error, without generated code."""
    descriptors = ROOT / "deploy" / "envoy" / "descriptors.py"
    subprocess.run([sys.executable, descriptors, "weft.pb"], cwd=HOME, check=True)

    assert shown("connect.mjs")[1] == printed(server, "connect.mjs")


@node
@browser
def test_a_page_streams_what_a_model_says_of_its_drawing(server, origin):
    """From another origin, which the settings name."""
    source, _ = shown("caption.html")
    (expected,) = re.findall(r"`http://localhost:8080/caption.html` then says: (.*)\.$", PAGE, re.MULTILINE)
    origin["page"] = source.replace("localhost:8000", server.api)
    looks = looked(f"{origin['at']}/caption.html", "caption")

    assert (expected, []) == (looks["seen"], looks["errors"])
    assert {origin["at"], f"http://{server.api}"} == set(looks["requested"])


@node
@browser
def test_the_server_s_own_page_sends_each_call(server):
    """Each example is answered, or the models for it are named. The page asks this server alone."""
    looks = looked(f"http://{server.api}/docs", "calls")

    assert ([], [f"http://{server.api}"]) == (looks["errors"], looks["requested"])
    assert {method.path for method in METHODS.values() if method.service in SERVICES} < set(looks["seen"])
    assert {200, 400, 404} == {status for status, _ in looks["seen"].values()}
    assert all("there is no model" in said for status, said in looks["seen"].values() if status == 404)
    assert all("file is required" in said for status, said in looks["seen"].values() if status == 400)
    assert "estamos comiendo pan" in looks["seen"][METHODS["StreamTranslate"].path][1]
