"""`weft doctor` says how it stands with a machine, and what to do: also where no server is installed."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from weft_server.checks import machine, packages
from weft_server.checks.finding import ERROR, OK, WARNING

DOCTOR = "weft_server.cli.doctor"
# What a machine without the extra cannot import. Some versions of typer bring pydantic.
MISSING = ("numpy", "onnx", "onnxruntime", "PIL", "prometheus_client", "pydantic_settings", "structlog", "tokenizers")


def doctor(*arguments, command=("-m", DOCTOR), **environment):
    """How `weft doctor` ends with these flags and variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")} | environment
    argv = [sys.executable, *command, *map(str, arguments)]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=60)


def look_at(about):
    """What is found about one thing of this machine."""
    return next(finding for finding in machine.look_at_machine() if about == finding.about)


def findings(ended):
    """What it says as JSON: what is looked at -> (how it stands, in words)."""
    return {each["about"]: (each["state"], each["says"]) for each in json.loads(ended.stdout)["findings"]}


def test_a_machine_without_a_repository():
    """Nothing keeps this machine from serving, and what was not given was not looked at."""
    ended = doctor("--json", "--port=0", "--http-port=0")

    assert (0, "") == (ended.returncode, ended.stderr)
    said = findings(ended)
    assert (OK, "none is given, and none was looked at") == said["repository"]
    looked = {"packages", "constraints", "runtime", "telemetry", "python", "system", "cpus", "memory", "huge pages"}
    looked |= {"open files", "clock", "repository", "ports", "credentials", "device", "threads", "connections"}
    assert looked == set(said)


def test_what_is_wrong_is_said_last_and_fails(tmp_path):
    """An empty repository, a port that is taken, a setting out of range, and telemetry that is not off."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ended = doctor(tmp_path, f"--port={port}", "--slots=0", ORT_DISABLE_TELEMETRY="0", COLUMNS="1000")

    assert (1, "") == (ended.returncode, ended.stderr)
    *lines, total = ended.stdout.splitlines()
    states = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert states == sorted(states, key=[OK, WARNING, ERROR].index)
    assert "warning  telemetry: ORT_DISABLE_TELEMETRY is '0'" in ended.stdout
    errors = re.findall(r"^error .*(--\S+ \(\w+\))", ended.stdout, re.MULTILINE)
    assert ["--slots (WEFT_SLOTS)", "--repository (WEFT_REPOSITORY)", "--port (WEFT_PORT)"] == errors
    assert total == f"errors: 3, warnings: {states.count(WARNING)}"


def test_a_repository_and_its_bundles(tiny_repository, tmp_path):
    """It is given as to `weft serve`, and each bundle is verified."""
    (tmp_path / "tiny-text").symlink_to(tiny_repository / "tiny-text")
    said = findings(doctor("--json", "--port=0", "--http-port=0", WEFT_REPOSITORY=str(tmp_path)))

    assert (OK, "tiny-text version 1: classify_text") == said["bundle"]
    assert OK == said["room"][0]


# Runs the command where some modules cannot be imported.
WITHOUT = f"""
import sys
for name in {MISSING}: sys.modules[name] = None
import runpy
runpy.run_module("{DOCTOR}", run_name="__main__")
"""


def test_a_machine_without_the_extra():
    """It looks at the machine all the same, and takes flags of settings that nobody can read there."""
    ended = doctor("models", "--json", "--slots=3", command=("-c", WITHOUT))

    assert "" == ended.stderr
    looked = {"packages", "constraints", "python", "system", "cpus", "memory", "huge pages", "open files", "clock"}
    assert looked == set(findings(ended))


@pytest.fixture
def installed(monkeypatch):
    """Makes the doctor find these packages, by name, and no others; gives what it says of them."""

    def look(**versions):
        def version(name):
            if name.replace("-", "_") not in versions:
                raise PackageNotFoundError(name)
            return versions[name.replace("-", "_")]

        monkeypatch.setattr(packages, "version", version)
        monkeypatch.setattr(packages, "_runtime", lambda: iter(()))
        return [(state, says, mend) for state, about, says, mend in packages.look_at_packages() if about == "packages"]

    return look


_HAVE = """googleapis_common_protos grpcio protobuf rich typer grpcio_health_checking grpcio_reflection httptools jinja2
msgspec numpy onnx onnxruntime pillow prometheus_client pydantic_settings pydantic python_multipart soundfile soxr
structlog tokenizers uvloop"""
HAVE = dict.fromkeys(_HAVE.split(), "999.0")


def test_all_packages_are_there(installed):
    """One line names them."""
    ((state, says, _),) = installed(**HAVE)
    assert OK == state
    assert len(HAVE) == says.count(" 999.0")


def test_packages_that_are_missing_and_too_old(installed):
    """The extra brings the missing ones. Versions are compared by their numbers."""
    have = {name: version for name, version in HAVE.items() if name not in {"numpy", "structlog"}}
    missing, *old, ok = installed(**have | {"grpcio": "1.9.7", "pillow": "11.0.0rc1"})

    assert (ERROR, "not installed: numpy, structlog") == missing[:2]
    assert "pip install 'weft-serving[server]'" in missing[2]
    assert [(ERROR, "grpcio 1.9.7 is older than 1.76", "pip install --upgrade grpcio")] == old
    assert OK == ok[0]


def test_two_runtimes(installed):
    """They lie over each other, and CUDA is lost."""
    first, _ = installed(**HAVE | {"onnxruntime_gpu": "999.0"})
    assert (ERROR, "onnxruntime and onnxruntime-gpu are both installed, and lie over each other") == first[:2]
    assert "weft-serving[gpu]" in first[2]


@pytest.mark.parametrize(("limit", "state"), [(4095, WARNING), (4096, OK), (resource.RLIM_INFINITY, OK)])
def test_open_files(monkeypatch, limit, state):
    """Few are a warning with the command that raises the limit."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, limit))
    found = look_at("open files")
    assert state == found.state
    assert ("ulimit -n" in found.mend) == (state == WARNING)


@pytest.mark.parametrize(("quota", "state"), [(0.5, WARNING), (1.0, OK), (1.5, WARNING), (2.0, OK)])
def test_cpus(monkeypatch, quota, state):
    """Less than one, and parts of one, are warnings."""
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    assert state == look_at("cpus").state


@pytest.mark.parametrize(("free", "state"), [(None, WARNING), (10**9 - 1, WARNING), (10**9, OK)])
def test_memory(monkeypatch, free, state):
    """Little is a warning, and so is a system that does not say."""
    monkeypatch.setattr(machine, "free_memory", lambda: free)
    assert state == look_at("memory").state


@pytest.mark.parametrize(("setting", "state"), [("always [madvise] never", OK), ("always madvise [never]", WARNING)])
def test_huge_pages(monkeypatch, tmp_path, setting, state):
    """Switched off, they are a warning with the command that switches them on."""
    (tmp_path / "enabled").write_text(setting)
    monkeypatch.setattr(machine, "Path", lambda _: tmp_path / "enabled")
    assert state == look_at("huge pages").state


def test_a_clock_that_is_behind(monkeypatch):
    """It is before the time when this package was installed."""
    monkeypatch.setattr(machine.time, "time", lambda: 0.0)
    assert (WARNING, "set the clock") == (look_at("clock").state, look_at("clock").mend)


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_it_fits_a_terminal(columns):
    """No line of the text is wider, but for a path, which is never cut."""
    ended = doctor("--port=0", "--http-port=0", COLUMNS=str(columns))
    assert [] == [line for line in ended.stdout.splitlines() if len(line) > columns and sys.executable not in line]
