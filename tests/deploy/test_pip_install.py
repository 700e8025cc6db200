"""`make install` shows a line of progress, and everything that matters when pip fails."""

import os
import pty
import runpy
import signal
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "deploy/local/pip_install.py"
ENDS_WITHIN_S = 60


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of a virtual environment of our own: installs leave their log in it."""
    folder = tmp_path_factory.mktemp("install") / "venv"
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A wheel of nothing but a name."""
    folder = tmp_path_factory.mktemp("wheels")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "thread-of-nothing"\nversion = "1"\n'
        '[tool.hatch.build.targets.wheel]\nonly-include = ["pyproject.toml"]\n'
    )
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder), str(folder)], check=True)
    return folder


def install(python, *arguments):
    """Run the script as `make install` does."""
    return subprocess.run([python, INSTALL, *arguments], check=False, capture_output=True, text=True)


def test_a_log_gets_no_line_of_an_install_that_works(python, package):
    """Where nobody watches, success is silent; pip's own words are kept beside the packages."""
    done = install(python, "--no-index", "--find-links", package, "thread-of-nothing")

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert "Successfully installed thread-of-nothing-1" in (python.parents[1] / "pip.log").read_text()


def test_a_failure_says_what_pip_said(python, package):
    """Pip's status is ours, its last words are on stderr, and the way to the others."""
    done = install(python, "--no-index", "--find-links", package, "nobody-has-this")

    assert (1, "") == (done.returncode, done.stdout)
    assert "No matching distribution found for nobody-has-this" in done.stderr
    assert str(python.parents[1] / "pip.log") in done.stderr


def test_a_terminal_shows_one_line(python, package):
    """Who watches sees what is unpacked, on a line that is cleared at the end."""
    ours, theirs = pty.openpty()
    command = [python, INSTALL, "--no-index", "--force-reinstall", "--find-links", package, "thread-of-nothing"]
    with subprocess.Popen(command, stdout=theirs, stdin=subprocess.DEVNULL) as process:
        process.wait()
    seen = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)

    assert "packages to unpack: 1" in seen
    assert seen.endswith("\r\033[K")
    assert "\n" not in seen


def test_an_interrupted_install_says_no_more(python):
    """Ctrl-C while an index does not answer ends both, with the status of Ctrl-C and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(ENDS_WITHIN_S)
        address = f"http://127.0.0.1:{index.getsockname()[1]}"
        command = [python, INSTALL, "--isolated", "--index-url", address, "thread-of-nothing-else"]
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, start_new_session=True, env=environment, text=True
        ) as process:
            connection, _ = index.accept()  # pip waits for an answer
            os.killpg(process.pid, signal.SIGINT)
            said = process.stderr.read()
        connection.close()

    assert (130, "") == (process.returncode, said)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  Downloading torch-2.13.0-cp311-cp311-linux_x86_64.whl (526.6 MB)\n", "torch (526.6 MB)"),
        ("  Using cached grpcio_tools-1.76.0-cp311-cp311-linux_x86_64.whl (2.6 MB)\n", "grpcio_tools (2.6 MB)"),
        ("Downloading numpy-2.4.0.tar.gz (18.1 MB)\n", "numpy (18.1 MB)"),
        ("Installing collected packages: mpmath, sympy, torch\n", "packages to unpack: 3"),
        ("Collecting numpy>=1.26 (from weft-serving==0.1.0)\n", "numpy"),
        (
            "WARNING: Retrying (Retry(total=4)) after connection broken\n",
            "the package index does not answer; trying again",
        ),
        ("Requirement already satisfied: pip in a folder\n", None),
        ("Looking in links: a folder\n", None),
    ],
)
def test_what_is_shown_of_a_line(line, shown):
    """A package by its name, a file that is fetched with its size, the unpacking by its count, and nothing else."""
    assert shown == runpy.run_path(str(INSTALL))["step"](line)
