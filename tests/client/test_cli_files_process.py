"""Files in and out as a process: Ctrl-C, a kill, a pipe that is slow, a terminal, a server that comes back."""

import asyncio
import os
import signal
import subprocess
import threading

import pytest

from fakes import EMPTY, fake_server
from terminal import WEFT, on_a_terminal
from waiting import until


@pytest.fixture
def slow(server, tmp_path):
    """An input of 60 lines, each of which takes some time, and the path of an output."""
    lines = [f"{number} a" for number in range(60)]
    server.servicer.by_text = dict.fromkeys(lines, 0.05)
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{line}\n" for line in lines))
    return source, tmp_path / "out.txt"


def command(server, source, out, *more):
    """The command that translates a file."""
    return [*WEFT, "translate", "--file", source, "--out", out, "--concurrency", "2", "-t", server.target, *more]


def begin(server, source, out):
    """Start it, and wait until some lines are written."""
    process = subprocess.Popen(command(server, source, out), stderr=subprocess.PIPE, text=True)
    asyncio.run(until(lambda: out.exists() and 3 <= out.read_bytes().count(b"\n")))
    return process


EXPECTED = "".join(f"a {number}\n" for number in range(60))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_was_ended_is_resumed(server, slow, how):
    """What it left is whole lines; after the second run every line has its answer, once."""
    source, out = slow
    server.servicer.by_text |= {f"{number} a": 60.0 for number in range(10, 60)}  # it is not done when it is ended
    process = begin(server, source, out)
    process.send_signal(how)
    _, error = process.communicate(timeout=120)
    left = out.read_text()

    assert EXPECTED.startswith(left)
    assert left.endswith("\n")
    if how is signal.SIGINT:
        assert 130 == process.returncode
        assert error.startswith(f"weft: stopped: {left.count(chr(10))} lines: ")
        assert error.endswith(". --resume goes on\n")
        assert 1 == error.count("\n")
        running = [seen for seen in server.servicer.seen if seen.request.text not in {f"{n} a" for n in range(60)}]
        assert [] == running
    with out.open("a") as file:
        file.write("a part of a li")
    server.servicer.by_text = {}
    subprocess.run(command(server, source, out, "--resume"), check=True, timeout=60, stderr=subprocess.DEVNULL)
    assert EXPECTED == out.read_text()


def test_a_server_that_comes_back_loses_no_line(tmp_path):
    """The run waits for it, and goes on."""
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{number} a\n" for number in range(60)))
    with fake_server(host=EMPTY) as server:
        server.servicer.by_text = {f"{number} a": 0.05 for number in range(60)}
        process = begin(server, source, out)
    with fake_server(int(server.target.rpartition(":")[2]), host=EMPTY):
        _, error = process.communicate(timeout=60)

    assert (0, EXPECTED) == (process.returncode, out.read_text())
    assert error.splitlines()[-1].startswith("weft: 60 lines: 60 answered; ")  # before it gRPC may tell of the loss


def test_a_server_that_stays_away_ends_the_run(tmp_path):
    """After --timeout; no line is called failed for it, so that --resume asks them all."""
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{number} a\n" for number in range(60)))
    with fake_server(host=EMPTY) as server:
        server.servicer.by_text = {f"{number} a": 0.05 for number in range(60)}
        argv = command(server, source, out, "--timeout", "5")
        process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        asyncio.run(until(lambda: out.exists() and 3 <= out.read_bytes().count(b"\n")))
    _, error = process.communicate(timeout=60)
    *_, stopped, why = error.splitlines()

    assert 1 == process.returncode
    assert EXPECTED.startswith(out.read_text())
    assert stopped.endswith(". --resume goes on")
    assert "failed" not in stopped
    assert "Is a server there?" in why


def test_a_line_that_is_typed_is_answered_at_once(server):
    """Before the next one is there; and a Ctrl-C ends the waiting for it."""
    argv = [*WEFT, "translate", "--file", "-", "-t", server.target]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for line, answer in ((b"a b\n", b"b a\n"), (b"c d\n", b"d c\n")):
            process.stdin.write(line)
            process.stdin.flush()
            assert answer == process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(120)
        error = process.stderr.read()

    assert error.startswith(b"weft: stopped: 2 lines: 2 answered; ")
    assert b"Fatal" not in error


def test_a_reader_that_had_enough_ends_it_quietly(server):
    """As `head` does: no words but what became of the lines."""
    run = subprocess.run(
        ["sh", "-c", f"yes 'a b' | {subprocess.list2cmdline(WEFT)} translate --file - -t {server.target} | head -n 3"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "b a\nb a\nb a\n" == run.stdout
    assert all(line.startswith("weft: stopped: ") for line in run.stderr.splitlines())


def test_memory_does_not_grow_with_the_input(server):
    """Of an endless pipe only a few lines are read ahead: it blocks."""
    server.servicer.by_text = {"a b": 60.0}
    argv = [*WEFT, "translate", "--file", "-", "-t", server.target]
    ours, theirs = os.pipe()
    num_written = [0]

    def fill():
        try:
            while True:
                num_written[0] += os.write(theirs, b"a b\n" * 1024)
        except BrokenPipeError:
            return

    filler = threading.Thread(target=fill)
    with subprocess.Popen(argv, stdin=ours, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(ours)
        filler.start()
        asyncio.run(until(lambda: 8 == server.servicer.most_waiting))
        seen = -1
        while seen != num_written[0]:
            seen = num_written[0]
            asyncio.run(asyncio.sleep(0.3))
        process.kill()
    filler.join(20)
    os.close(theirs)

    assert num_written[0] < 1 << 20


def test_a_terminal_sees_how_far_it_is(server, slow):
    """A bar on stderr while it runs, and the line at the end; the answers stay in their file."""
    source, out = slow
    shown, terminal = on_a_terminal(command(server, source, out))

    assert (b"", EXPECTED) == (shown, out.read_text())
    assert b"translating" in terminal
    assert b" done, " in terminal
    assert b"weft: 60 lines: 60 answered; " in terminal
