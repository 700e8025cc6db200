"""The command as a process: Ctrl-C, pipes, terminals, full disks."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from terminal import WEFT, on_a_terminal


def test_ctrl_c_ends_quietly(server):
    """An interrupt during a stream ends with 130 and no words, and the server sees the call cancelled."""
    server.servicer.step_s = 0.2
    argv = [*WEFT, "generate", " ".join("p" * 100), "--stream", "-t", server.target]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert b"p" == process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)

    assert (130, b"") == (process.returncode, error)
    assert server.servicer.seen[0].cancelled.wait(60)


def test_a_closed_pipe_ends_quietly(server):
    """A reader that has had enough, such as head, causes no words, and the server sees the call cancelled."""
    server.servicer.step_s = 0.1
    argv = [*WEFT, "generate", " ".join("p" * 100), "--stream", "-t", server.target]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert b"p" == process.stdout.read(1)
        process.stdout.close()
        error = process.stderr.read()
        process.wait(timeout=20)

    assert b"" == error
    assert 0 != process.returncode
    assert server.servicer.seen[0].cancelled.wait(60)


@pytest.mark.parametrize(("wait_s", "shown"), [(0.1, False), (4.0, True)])
def test_a_terminal_sees_that_it_takes_long(server, wait_s, shown):
    """What takes longer than two seconds shows a spinner on the terminal, and what does not shows nothing."""
    server.servicer.script.append(wait_s)
    out, terminal = on_a_terminal([*WEFT, "translate", "a b", "-t", server.target])

    assert b"b a\n" == out
    assert shown == (b"translating" in terminal)


@pytest.mark.parametrize(
    ("environment", "stdout", "complaint"),
    [({}, "/dev/full", "No space left"), ({"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}, None, "")],
)
def test_the_surroundings_are_no_bug(server, environment, stdout, complaint):
    """A full disk is one line; a terminal without the characters still shows the answer."""
    with Path(stdout or os.devnull).open("wb") as out:
        run = subprocess.run(
            [*WEFT, "translate", "pan frío"],
            env=os.environ | environment | {"WEFT_TARGET": server.target},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

    assert complaint in run.stderr
    assert "bug" not in run.stderr
    assert (1 if complaint else 0, bool(complaint)) == (run.returncode, run.stderr.count("\n") == 1)


def test_json_stays_json_where_not_all_can_be_printed(server):
    """A letter that stdout can't encode is escaped as JSON has it."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "WEFT_TARGET": server.target}
    command = [*WEFT, "translate", "frío 🐈", "--json"]
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=60, check=True).stdout

    assert "🐈 frío" == json.loads(out.decode("ascii"))["text"]


@pytest.mark.parametrize(
    ("closed", "argv"),
    [("2>&-", "translate 'a b'"), ("<&-", "translate -"), (">&-", "models"), (">&-", "bench --requests 2 --warmup 0")],
)
def test_a_closed_stream_is_no_bug(server, closed, argv):
    """As under cron: without stderr the answer is all there is, without stdin no text, without stdout no answer."""
    command = f"exec {shlex.join(WEFT)} {argv} {closed}"
    environment = os.environ | {"WEFT_TARGET": server.target}
    run = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    expected = {"2>&-": (0, "b a\n", ""), "<&-": (2, "", "weft: stdin is closed\n"), ">&-": (0, "", "")}
    # On a busy machine a benchmark says that it may have been late itself.
    said = "".join(line for line in run.stderr.splitlines(keepends=True) if "the generator " not in line)
    assert expected[closed] == (run.returncode, run.stdout, said)


@pytest.mark.parametrize(("argv", "code"), [(["generate"], 2), (["models", "-t", "x"], 2), (["health", "no"], 1)])
def test_the_exit_code_needs_no_stderr(server, argv, code):
    """A line that can't be written changes nothing about whose fault it was."""
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            [*WEFT, *argv], env=os.environ | {"WEFT_TARGET": server.target}, stderr=full, timeout=60, check=False
        )
    assert code == run.returncode


def test_a_system_that_blocks_no_signals_has_the_command_too():
    """Windows is one."""
    program = "import signal, sys; del signal.pthread_sigmask, signal.SIG_UNBLOCK; import weft_command as command; "
    program += "sys.exit(command.main())"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    assert "translate" in done.stdout
