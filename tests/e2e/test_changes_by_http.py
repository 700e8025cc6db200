"""The port of calls by HTTP changes models where it has the console, and roles say who may."""

import json
from contextlib import closing
from http.client import HTTPConnection

import pytest

from process import ServerProcess

pytestmark = pytest.mark.e2e

TOKENS = "web call token-of-the-caller\nops call,admin token-of-the-operator\n"


@pytest.fixture
def repository(demo_repository, tmp_path):
    """Two versions of a small model."""
    (tmp_path / "models" / "digits").mkdir(parents=True)
    for version in (1, 2):
        (tmp_path / "models" / "digits" / str(version)).symlink_to(demo_repository / "digits" / "1")
    return tmp_path / "models"


def sent(server, verb, path, token, body=None):
    """The status and the body of an answer."""
    with closing(HTTPConnection(server.wait_for("listening")["api"])) as connection:
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        connection.request(verb, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def changed(server, method, token, **request):
    """The status and the body that a change is answered with."""
    return sent(server, "POST", f"/weft.v1.ModelAdminService/{method}", token, json.dumps(request))


def told(server):
    """Whether the page has the form, and /docs the calls."""
    facts = sent(server, "GET", "/console/facts.json", "token-of-the-operator")[1]
    paths = sent(server, "GET", "/openapi.json", "token-of-the-operator")[1]["paths"]
    return facts["changes"], "/weft.v1.ModelAdminService/LoadModel" in paths


def tokens(tmp_path):
    """A file of them."""
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    path.chmod(0o600)
    return path


def test_the_role_decides(repository, tmp_path):
    """Of two callers, one changes models. Each change is there when it is answered."""
    settings = {"api_port": 0, "console": "true", "admin": "true", "admin_port": 0, "tokens": tokens(tmp_path)}
    with ServerProcess(repository, **settings) as server:
        server.wait_for("ready")
        assert 403 == changed(server, "UnloadModel", "token-of-the-caller", name="digits", version=1)[0]
        assert 401 == changed(server, "UnloadModel", "token-of-nobody", name="digits", version=1)[0]
        status, swapped = changed(server, "SwapModel", "token-of-the-operator", name="digits", version=2)
        assert (200, 2, [1]) == (status, swapped["model"]["version"], swapped["unloaded"])
        assert 400 <= changed(server, "LoadModel", "token-of-the-operator", name="nothing")[0] < 500
        assert (200, {}) == changed(server, "UnloadModel", "token-of-the-operator", name="digits", version=2)
        assert (True, True) == told(server)


@pytest.mark.parametrize(
    ("left_out", "more"),
    [("tokens", {}), ("admin", {}), ("console", {}), ("", {"host": "127.0.0.1", "admin_host": "127.0.0.2"})],
)
def test_elsewhere_nobody_is_answered(repository, tmp_path, left_out, more):
    """Without roles, or where nobody asked for it, or fewer may reach the admin port: the calls are not there."""
    settings = {"api_port": 0, "console": "true", "admin": "true", "admin_port": 0, "tokens": tokens(tmp_path)} | more
    settings.pop(left_out, None)
    with ServerProcess(repository, **settings) as server:
        server.wait_for("ready")
        assert 404 == changed(server, "UnloadModel", "token-of-the-operator", name="digits", version=1)[0]
        if left_out != "console":
            assert (False, False) == told(server)
