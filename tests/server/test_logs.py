"""Log lines: one event is one line, readable by a person or a machine, with the request it belongs to."""

import fcntl
import json
import os
import subprocess
import sys

import pytest

from weft_server.telemetry import log_writer
from weft_server.telemetry.log_writer import LogWriter

SCRIPT = """
import structlog
from weft_server.telemetry.logs import configure_logging
configure_logging({log_format!r}, {level!r})
log = structlog.get_logger("test")
log.debug("too fine")
with structlog.contextvars.bound_contextvars(request_id="r1"):
    log.info("call", code="OK", path=__import__("pathlib").Path("a\\nb"))
    try:
        secret = "what a caller sent"
        1 / (secret == "")
    except ZeroDivisionError:
        log.exception("bug")
"""


def _log(log_format: str, level: str) -> str:
    script = SCRIPT.format(log_format=log_format, level=level)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "" == done.stdout
    return done.stderr


def test_json_lines_carry_the_request_and_the_traceback():
    """In JSON each line is one object with time, level, event, bound request id, and a traceback where there is one."""
    call, bug = map(json.loads, _log("json", "info").splitlines())
    assert ("call", "info", "r1", "OK", "a\nb") == tuple(
        call[k] for k in ("event", "level", "request_id", "code", "path")
    )
    assert call["timestamp"].endswith("Z")
    assert ("error", "ZeroDivisionError") == (bug["level"], bug["exception"][0]["exc_type"])


@pytest.mark.parametrize(("level", "seen"), [("debug", True), ("info", False)])
def test_less_severe_events_are_left_out(level, seen):
    """Events below the level are not written."""
    text = _log("console", level)
    assert seen == ("too fine" in text)
    assert "request_id=r1" in text
    assert "ZeroDivisionError" in text


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_what_callers_sent_is_not_logged(log_format):
    """A traceback shows where, and not with which values."""
    assert "what a caller sent" not in _log(log_format, "info")


def test_a_log_that_cannot_be_written_stops_nothing():
    """A line is lost, and no error, where the disk is full or nobody reads the pipe any more."""
    script = SCRIPT.format(log_format="json", level="info") + "print('went on', flush=True)"
    command = [sys.executable, "-c", script]
    reader, nobody_reads = os.pipe()
    os.close(reader)
    for where in (os.open("/dev/full", os.O_WRONLY), nobody_reads):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=where, text=True, check=False)
        os.close(where)
        assert (0, "went on\n") == (done.returncode, done.stdout)


OTHERS = """
import asyncio, gc, logging, sys, threading, warnings
from weft_server.telemetry.logs import configure_logging
configure_logging({log_format!r}, "info")
warnings.warn("a warning")
logging.getLogger("some.library").error("it is %s", "said")
print("printed", file=sys.stderr)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
class Broken:
    def __del__(self):
        raise KeyError("unraisable")
Broken()
async def lost():
    raise LookupError("nobody waits")
async def main():
    asyncio.create_task(lost())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(lambda: int("a callback"))
    await asyncio.sleep(0.01)
    gc.collect()
asyncio.run(main())
raise OSError("the end")
"""


def _others(log_format):
    command = [sys.executable, "-c", OTHERS.format(log_format=log_format)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_what_others_say_are_events_too():
    """Warnings, loggers of libraries, prints, exceptions that nobody catches: in JSON, each line is an object."""
    events = [json.loads(line) for line in _others("json").splitlines()]
    said = [(event["event"].split("\n")[0], event.get("logger"), event.get("thread")) for event in events]
    kinds = [(event.get("exception") or [{"exc_type": None}])[0]["exc_type"] for event in events]
    assert "UserWarning: a warning" in said[0][0]
    assert [("it is said", "some.library", None), ("printed", "stderr", None)] == said[1:3]
    assert ("a thread ended", None, "Thread-1 (<lambda>)") == said[3]
    assert [None, None, None, "ZeroDivisionError", "KeyError", "LookupError", "ValueError", "OSError"] == sorted(
        kinds, key=[None, "ZeroDivisionError", "KeyError", "LookupError", "ValueError", "OSError"].index
    )
    assert ("uncaught exception", "OSError") == (said[-1][0], kinds[-1])


def test_for_people_what_is_printed_stays_as_it_is():
    """An error line of the command is one."""
    assert "\nprinted\n" in _others("console")
    assert "OSError: the end" in _others("console")


ODD = """
import json, logging, sys
from weft_server.telemetry.logs import configure_logging
configure_logging({log_format!r}, "info")
class Unsayable:
    def __str__(self):
        raise KeyError("nothing")
log = logging.getLogger("some.library")
log.setLevel(1)
for level in (1, 15, 35, 49, 1000):
    log.log(level, "at %d", level)
log.warning("two of %s and %s", "what a caller sent")
log.error(Unsayable())
log.error("%s", Unsayable())
try:
    raise ValueError(Unsayable())
except ValueError:
    log.exception("went on")
"""


def _odd(log_format):
    command = [sys.executable, "-c", ODD.format(log_format=log_format)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stderr


def test_no_library_fails_by_what_it_logs():
    """A level of its own is the next lower one of ours. What cannot be said is an event that names the logger."""
    *said, last = [json.loads(line) for line in _odd("json").splitlines()]
    levels = [("at 35", "warning"), ("at 49", "error"), ("at 1000", "critical")]
    unsaid = "a library's event could not be said"
    assert [*levels, *[(unsaid, "error")] * 3] == [(event["event"], event["level"]) for event in said]
    assert ["TypeError", "KeyError", "KeyError"] == [event["why"] for event in said[3:]]
    assert {"some.library"} == {event["logger"] for event in [*said, last]}
    assert ("went on", "ValueError") == (last["event"], last["exception"][0]["exc_type"])


def test_for_people_no_library_fails_by_what_it_logs_either():
    """Arguments of what cannot be said are left out: they may be what a caller sent."""
    text = _odd("console")
    assert 3 == text.count("a library's event could not be said")
    assert "at 35" in text
    assert "went on" in text
    assert "what a caller sent" not in text


def _full_pipe():
    """A pipe that takes a page at a time, and has no room."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"x" * 4096)
    return reader, writer


def test_who_logs_does_not_wait_and_what_does_not_fit_is_counted(monkeypatch):
    """Lines up to a bound are kept, in their order, and one line says where some are missing."""
    monkeypatch.setattr(log_writer, "MAX_BYTES", 4000)
    reader, writer = _full_pipe()
    log = LogWriter(writer, lambda number: f"{number} missing\n")
    for number in range(1000):
        log.write(f"line {number:3}\n")
    log.write("x" * 3999 + "\n")
    assert 1001 - 444 == log.num_dropped  # a line is 9 bytes
    log.write("ab\n")  # there is room for it
    log.flush(0.01)

    assert b"x" * 4096 == os.read(reader, 4096)
    log.flush(60)
    log.write("after\n")
    log.flush(60)
    os.close(writer)
    expected = [*(f"line {number:3}" for number in range(444)), "557 missing", "ab", "after"]
    with os.fdopen(reader) as file:
        os.set_blocking(reader, False)
        assert expected == file.read().splitlines()


def test_a_write_that_takes_a_part_is_gone_on_with(monkeypatch):
    """As of a pipe with room for so much: each byte is written once, in its place."""
    write, (reader, writer) = os.write, os.pipe()
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    log = LogWriter(writer, str)
    lines = [f"line {number}" for number in range(50)]
    for line in lines:
        log.write(line + "\n")
    log.flush(60)
    os.close(writer)
    with os.fdopen(reader) as file:
        assert lines == file.read().splitlines()


def test_the_end_waits_for_a_reader_no_longer_than_it_may():
    """A process whose log is not read ends by itself, and with its own exit code."""
    script = SCRIPT.format(log_format="json", level="info") + "raise SystemExit(3)"
    reader, writer = _full_pipe()
    with subprocess.Popen([sys.executable, "-c", script], stderr=writer) as process:
        assert 3 == process.wait(60)
    assert os.get_blocking(writer)  # for us it is as it was
    os.close(writer)
    os.close(reader)


def test_lines_of_c_code_wait_for_no_reader_either():
    """What a library in C says on standard error is lost then, and the thread that says it goes on."""
    c_line = "import os; os.write(2, b'y' * 100)"
    script = SCRIPT.format(log_format="json", level="info")
    script += f"\ntry: {c_line}\nexcept BlockingIOError: raise SystemExit(3)"
    reader, writer = _full_pipe()
    with subprocess.Popen([sys.executable, "-c", script], stderr=writer) as process:
        assert 3 == process.wait(60)
    os.close(writer)
    os.close(reader)
