"""Log lines: one event is one line, readable by a person or a machine, with the request it belongs to."""

import json
import os
import subprocess
import sys

import pytest

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
