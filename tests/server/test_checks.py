"""What keeps a server from starting is said all at once, by `weft serve` and by `weft serve --check`."""

import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from certificates import Authority
from process import ServerProcess
from weft_server.checks import bundles, settings
from weft_server.checks.finding import ERROR, OK, WARNING, Finding, show
from weft_server.checks.listening import (
    look_at_admin_port,
    look_at_all_ports,
    look_at_api_port,
    look_at_grpc_port,
    look_at_host,
    look_at_http_port,
)
from weft_server.checks.settings import look_at_credentials
from weft_server.config import read_config, try_config
from weft_server.loading.memory_check import MemoryNeed


def serve(*arguments, **environment):
    """How `weft serve` ends with these flags and variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")} | environment
    command = [sys.executable, "-m", "weft_server", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def taken():
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_everything_is_said_at_once(tmp_path, taken, check):
    """A number out of range, an empty repository, a port that is taken and a device that other settings do not fit."""
    flags = [tmp_path, "--slots", "0", "--port", taken, "--device=cuda"]
    ended = serve(*check, *flags, WEFT_HTTP_PORT="x", WEFT_LANES="3")

    assert (1, "") == (ended.returncode, ended.stdout)
    lines = ended.stderr.splitlines()
    assert [
        "--http-port (WEFT_HTTP_PORT)",
        "--lanes (WEFT_LANES)",
        "--port (WEFT_PORT)",
        "--repository (WEFT_REPOSITORY)",
        "--slots (WEFT_SLOTS)",
    ] == sorted(re.fullmatch(r"weft serve: (--\S+ \(\w+\)): .+", line)[1] for line in lines)


@pytest.fixture
def two_models(tiny_repository, tmp_path):
    """A repository of two bundles, which a test may change."""
    for name in ("tiny-generate", "tiny-tags"):
        shutil.copytree(tiny_repository / name, tmp_path / "models" / name)
    return tmp_path / "models"


def check(repository, *flags, **environment):
    """`weft serve --check` on free ports."""
    return serve("--check", repository, "--port=0", "--http-port=0", *flags, **environment)


def test_a_check_of_what_can_be_served(two_models):
    """It says what there is, and ok. Nothing is loaded: no line of a log."""
    ended = check(two_models)

    assert (0, "") == (ended.returncode, ended.stderr)
    assert "ok" == ended.stdout.splitlines()[-1].partition(",")[0]
    assert ["tiny-generate", "tiny-tags"] == re.findall(
        r"^ok       bundle: (.*) version 1: ", ended.stdout, re.MULTILINE
    )
    assert {"ok"} == set(re.findall(r"^\w+", ended.stdout, re.MULTILINE))


def test_a_check_finds_each_bundle_that_would_be_refused(two_models):
    """A changed file and a manifest that is none, a line each. What stands beside the bundles is no error."""
    (two_models / "notes.txt").touch()
    (two_models / "tiny-generate/1/decoder.onnx").write_bytes(b"other")
    (two_models / "tiny-tags/1/bundle.json").write_text("{")
    ended = check(two_models)

    assert (1, "") == (ended.returncode, ended.stdout)
    first, second = ended.stderr.splitlines()
    assert "tiny-generate/1: decoder.onnx has 5 bytes; the manifest says" in first
    assert "tiny-tags/1: bundle.json is not a BundleManifest in JSON" in second


def test_warnings_do_not_fail_a_check(two_models):
    """More threads than CPUs, a variable that is nearly a setting, and a file that is no model."""
    (two_models / "notes.txt").touch()
    ended = check(two_models, "--threads=200", WEFT_SLOT="3", COLUMNS="200")

    assert (0, "") == (ended.returncode, ended.stderr)
    assert 3 == len(re.findall(r"^warning", ended.stdout, re.MULTILINE))
    assert "notes.txt is not a directory of versions" in ended.stdout
    assert "WEFT_SLOT is no setting, and is not read\n         -> WEFT_SLOTS is one" in ended.stdout
    assert "ok, warnings: 3" == ended.stdout.splitlines()[-1]


def test_labels_of_versions_that_are_not_there_are_a_warning(tmp_path):
    """They would be left out without a word, and another version would answer."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    for stated, states in (('{"stable": 1}', [OK]), ('{"stable": 7}', [WARNING, OK])):
        (tmp_path / "m" / "labels.json").write_text(stated)
        found = list(settings.look_at_repository(read_config(repository=str(tmp_path))))
        assert states == [finding.state for finding in found]


def test_a_server_logs_what_is_odd(tmp_path):
    """The same warnings, in the log of a start."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    with ServerProcess(tmp_path, lanes=256, slots=256) as server:
        assert "more threads than CPUs" in server.wait_for("settings")["odd"]


def test_variables_of_others_are_no_mistake(monkeypatch):
    """Kubernetes sets variables for a Service called weft, and the client has some."""
    for name in ("WEFT_PORT_7070_TCP_ADDR", "WEFT_SERVICE_HOST", "WEFT_TARGET", "WEFT_TOKEN", "WEFTSLOTS"):
        monkeypatch.setenv(name, "x")
    assert [] == list(settings.look_at_names(read_config(repository="m")))


def config(**changed):
    """Settings whose ports are free."""
    return read_config(**{"repository": "m", "port": 0, "http_port": 0} | changed)


@pytest.mark.parametrize(
    ("look", "changed", "state", "says"),
    [
        (look_at_host, {"host": "no-such-host.invalid"}, ERROR, r"--host \(WEFT_HOST\): 'no-such-.*' is not known: "),
        (look_at_host, {"host": "a" * 300}, ERROR, r"--host \(WEFT_HOST\): 'a+' is no name of a host"),
        (look_at_host, {"host": "192.0.2.1"}, ERROR, r"--host \(WEFT_HOST\): 192.0.2.1 is no address of this machine"),
        (look_at_all_ports, {"port": 9, "http_port": 9}, ERROR, r"--http-port \(WEFT_HTTP_PORT\): 9 is the port of"),
        (
            look_at_all_ports,
            {"port": 9, "api_port": 9},
            ERROR,
            r"--api-port .* 9 is the port of gRPC too",
        ),
        (look_at_api_port, {"cors_origins": "*"}, WARNING, r"--cors-origins .*there is no --api-port to call"),
        (look_at_api_port, {"console": True}, WARNING, r"--console .*there is no --api-port to show it at"),
        (look_at_grpc_port, {"host": "0.0.0.0"}, OK, r"any free port of 0\.0\.0\.0 for gRPC"),
        (look_at_http_port, {"host": "localhost"}, OK, r"any free port of localhost for HTTP"),
    ],
)
def test_places_to_listen(look, changed, state, says):
    """A host that is none, and one that can be listened on."""
    (finding,) = look(config(**changed))
    assert state == finding.state
    assert re.match(says, finding.says)


@pytest.mark.parametrize("look", [look_at_grpc_port, look_at_http_port, look_at_all_ports])
def test_a_fault_of_the_host_is_said_once(look):
    """Its ports say nothing then."""
    assert [] == list(look(config(host="192.0.2.1")))


def test_a_port_that_is_taken(taken):
    """By its flag and variable, whichever of the two ports it is."""
    (grpc,) = look_at_grpc_port(config(port=taken))
    (http,) = look_at_http_port(config(http_port=taken))

    assert (ERROR, ERROR) == (grpc.state, http.state)
    assert f"--port (WEFT_PORT): cannot listen on 127.0.0.1:{taken}: another process does" in grpc.line
    assert f"--http-port (WEFT_HTTP_PORT): cannot listen on 127.0.0.1:{taken}: another process does" in http.line


def test_a_port_is_free_again_at_once():
    """A connection of the last server that lingers does not keep the next one out."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()
            client.recv(1)
    (finding,) = look_at_grpc_port(config(port=port))
    assert OK == finding.state


@pytest.mark.parametrize(
    ("free", "state"), [(None, OK), (2 * 10**9, OK), (2 * 10**9 - 1, WARNING), (10**9, WARNING), (10**9 - 1, ERROR)]
)
def test_models_that_fit_alone_may_not_fit_together(monkeypatch, free, state):
    """What all take at once must be free. What they take when all slots are full is a warning."""
    monkeypatch.setattr(bundles, "free_memory", lambda: free)
    assert state == bundles.look_at_room([MemoryNeed(5 * 10**8, 10**9)] * 2).state


def test_settings_that_cannot_be_read_have_their_defaults(monkeypatch):
    """So the others can be looked at: of flags, of variables, and of those that there are not."""
    monkeypatch.setenv("WEFT_PORT", "x")
    reading = try_config(slots=0, lanes=3, no_such=1)

    assert {"port", "slots", "repository", "no_such"} == reading.bad
    assert (7070, 32, 3) == (reading.config.port, reading.config.slots, reading.config.lanes)
    assert 4 == len(reading.faults)


def test_a_check_is_left_out_where_its_settings_cannot_be_read(monkeypatch):
    """No check sees a value that nobody has given."""
    seen = []
    checks = [
        settings.Check((field,), lambda config, field=field: seen.append(field) or []) for field in ("slots", "port")
    ]
    monkeypatch.setattr(settings, "CHECKS", checks)
    settings.look_at_settings(try_config(repository="m", slots=0))
    assert ["port"] == seen


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_findings_fit_a_terminal(monkeypatch, capsys, columns):
    """No line is wider, and each begins with how it stands or with spaces."""
    monkeypatch.setenv("COLUMNS", str(columns))
    show([Finding(ERROR, "ports", "word " * 60, "mend " * 60), Finding(OK, "device", "cpu")])
    lines = capsys.readouterr().out.splitlines()

    assert columns >= max(map(len, lines))
    assert {"error   ", "ok      ", " " * 8} == {line[:8] for line in lines}


def test_a_path_stays_whole(monkeypatch, capsys):
    """It can be copied, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "50")
    path = "/a/rather-long/path-of/a-repository/that-does-not/fit-into/a-line"
    show([Finding(OK, "repository", path)])
    assert path in capsys.readouterr().out


def test_an_admin_port_is_tried_and_one_for_everybody_is_warned_of():
    """Off it is not looked at. Beyond this machine it wants to know who calls."""

    def findings(**more):
        reading = read_config(repository="m", admin_port=0, **more)
        return [(each.state, each.says) for each in look_at_admin_port(reading)]

    assert [] == findings()
    assert [(OK, "any free port of 127.0.0.1 for admin")] == findings(admin=True)
    (warning, _) = findings(admin=True, admin_host="0.0.0.0")
    assert WARNING == warning[0]
    assert "whoever reaches 0.0.0.0 may change the models" in warning[1]
    (error,) = findings(admin=True, admin_host="192.0.2.1")
    assert ERROR == error[0]
    assert "192.0.2.1 is no address of this machine" in error[1]


@pytest.mark.parametrize(("days", "states"), [(-1, []), (5, [WARNING]), (13, [WARNING]), (30, [OK])])
def test_a_certificate_that_ends(tmp_path, days, states):
    """Soon is a warning. One that has ended is told of by whoever reads it."""
    cert, key = Authority().issue(days=days).write(tmp_path)
    findings = list(look_at_credentials(config(tls_cert=cert, tls_key=key)))

    assert states == [finding.state for finding in findings if "the certificate ends on" in finding.says]
    assert (days < 0) == any("expired on" in finding.says for finding in findings)


def test_what_has_no_effect_is_told_of(tmp_path):
    """Callers who are known by a certificate that nobody asks for, and weights of tenants that no call has."""
    (tmp_path / "tokens").write_text("operator call cert:operator.example\n")
    (tmp_path / "tokens").chmod(0o600)
    asked = config(tokens=tmp_path / "tokens")
    (warning,) = (each for each in look_at_credentials(asked) if each.state == WARNING)
    assert "callers by `cert:` are never known" in warning.says
    (warning,) = (each for each in look_at_credentials(config(tenant_weights="a=2")) if each.state == WARNING)
    assert "--tenant-weights (WEFT_TENANT_WEIGHTS): no call has a tenant" in warning.says
    for more in ({"tenant_key": "x-tenant"}, {}):
        given = config(tenant_weights="a=2" if more else None, **more)
        assert [] == [each for each in look_at_credentials(given) if each.state == WARNING]


def test_a_key_of_another_certificate(tmp_path):
    """It is refused, with the flag and the variable of the key."""
    cert, _ = Authority().issue().write(tmp_path, "a")
    _, key = Authority().issue().write(tmp_path, "b")
    (finding,) = look_at_credentials(config(tls_cert=cert, tls_key=key))
    assert ERROR == finding.state
    assert f"--tls-key (WEFT_TLS_KEY): {key}: the key is not that of the certificate" == finding.line
