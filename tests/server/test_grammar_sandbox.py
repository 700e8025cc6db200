"""Whatever a grammar does to a parser, it does in a process that can be ended; and nobody learns what others asked."""

import errno
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import grpc
import pytest

from weft_server.errors import DeadlineExpired, Overloaded
from weft_server.preprocessing.wanted import Wanted
from weft_server.structured_output import grammar_sandbox, sandbox_verdicts
from weft_server.structured_output.grammar_sandbox import HELD_BYTES, GrammarSandbox
from weft_server.structured_output.sandbox_verdicts import SandboxVerdicts
from weft_server.transport.status import to_status

# Each has a parser count further than a trial may, by few bytes.
COUNTS = ['start: %json {"type":"integer","multipleOf":99999989}']
COUNTS.append('start: %json {"type":"number","multipleOf":123456.7}')
COUNTS.append('start: %json {"allOf":[' + ",".join(f'{{"type":"integer","multipleOf":{i}}}' for i in (997, 991)) + "]}")
COUNTS.append('start: a+\na: "x" b\nb: %json {"type":"array","items":{"type":"integer","multipleOf":99999989}}')
COUNTS.append("start: T\nT: " + " & ".join(f"/(a|b)*a(a|b){{{i}}}/" for i in range(100)))
HOLDS_MUCH = "start: /" + "(a|a)*" * 10_000 + "/"


@pytest.fixture
def trials():
    """Those of a model, ended on the way out."""
    made = GrammarSandbox()
    yield made
    made.stop()


def held(trials, grammar, tenant="", wanted=None):
    """What a trial says."""
    return trials.held_bytes(grammar, tenant, wanted or Wanted())


def test_what_ends_in_good_order_passes(trials):
    """A grammar that is built, and one that a parser refuses, whose words a caller shall read."""
    assert 0 < held(trials, 'start: "a"') < 8 << 20
    assert 0 == held(trials, "start: nobody")
    assert 0 == held(trials, "start: " + "(" * 30_000 + '"a"' + ")" * 30_000)


@pytest.mark.parametrize("grammar", [*COUNTS, HOLDS_MUCH])
def test_what_takes_more_than_it_may_is_ended(trials, grammar):
    """Whether it would not end or holds much memory. The next grammar passes, and again it is no trial at all."""
    assert held(trials, grammar) is None
    assert held(trials, 'start: "b"') is not None
    process = trials.process
    assert held(trials, grammar) is None
    assert process is trials.process
    assert process.poll() is None


def test_a_trial_has_little_processor_time(trials, monkeypatch):
    """What passes with a second of it is ended with a hundredth."""
    grammar = 'start: %json {"type":"integer","multipleOf":49999}'
    monkeypatch.setattr(grammar_sandbox, "CPU_S", 0.01)
    assert held(trials, grammar, "a") is None
    trials.stop()
    monkeypatch.setattr(grammar_sandbox, "CPU_S", 600.0)
    assert held(trials, grammar, "b") > 8 << 20


def test_a_grammar_that_holds_too_much_does_not_pass(trials, monkeypatch):
    """Although it is built in time and in the room that there is."""
    monkeypatch.setattr(grammar_sandbox, "HELD_BYTES", 1 << 20)
    assert held(trials, 'start: %json {"type":"integer","multipleOf":49999}') is None
    assert held(trials, 'start: "b"') is not None


def test_each_grammar_counts_though_its_process_had_as_large_ones(trials):
    """What the last one gave back to the allocator is no part of what the next one takes for nothing."""
    schemas = [{"enum": [f"{i} value {j:05d}" for j in range(2000)]} for i in range(6)]
    found = [held(trials, f"start: %json {json.dumps(schema)}") for schema in schemas]
    assert 1 << 20 < min(found)
    assert max(found) < 1.5 * min(found)


def test_where_no_allocator_tells_all_that_grew_counts(monkeypatch):
    """Then the pages that a process keeps count again: rather too much than too little."""
    monkeypatch.setattr(grammar_sandbox.ctypes, "CDLL", lambda _: object())
    monkeypatch.setattr(grammar_sandbox, "_resident", lambda: 5000)
    assert grammar_sandbox._allocated() is None
    assert 4000 == grammar_sandbox._growth(None, 1000)


def test_a_process_that_reads_nothing_is_ended(trials, monkeypatch):
    """A text that is larger than the buffers on its way is not sent for ever, and whoever comes next has a process."""
    held(trials, 'start: "a"')
    os.kill(trials.process.pid, signal.SIGSTOP)
    wanted = Wanted()
    leaves = threading.Timer(0.1, wanted.give_up)
    leaves.start()
    with pytest.raises(DeadlineExpired):
        held(trials, "// " + "x" * (4 << 20), wanted=wanted)
    assert held(trials, 'start: "b"') is not None
    os.kill(trials.process.pid, signal.SIGSTOP)
    monkeypatch.setattr(grammar_sandbox, "_WAIT_S", 0)
    with pytest.raises(Overloaded):
        held(trials, "// " + "x" * (4 << 20))


def test_a_trial_that_nobody_waits_for_ends(trials, monkeypatch):
    """The caller who leaves and the deadline that passes free the builder, long before the time of a trial is over."""
    monkeypatch.setattr(grammar_sandbox, "_WAIT_S", 600)
    held(trials, 'start: "a"')
    process, wanted = trials.process, Wanted()
    os.kill(process.pid, signal.SIGSTOP)  # nothing comes from it, whatever its limits are
    leaves = threading.Timer(0.1, wanted.give_up)
    leaves.start()
    with pytest.raises(DeadlineExpired):
        held(trials, COUNTS[0], wanted=wanted)
    assert -signal.SIGKILL == process.returncode
    with pytest.raises(DeadlineExpired):
        held(trials, COUNTS[0], wanted=Wanted(time.monotonic()))
    assert held(trials, COUNTS[0]) is None  # neither was remembered as a verdict, and it is tried now


def test_usual_grammars_share_a_process(trials):
    """It starts once. A schema of some properties takes it no new one."""
    held(trials, 'start: "a"')
    process = trials.process
    for count in range(20):
        schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(count)}}
        assert held(trials, f"start: %json {json.dumps(schema)}") is not None
    assert process is trials.process


def test_a_process_that_has_grown_is_replaced(trials, monkeypatch):
    """What one trial leaves in memory is no part of what the later ones may take."""
    for count in range(30, 34):
        grammar = "start: /" + "(a|b)*" * 1000 + f"[ab]{{{count}}}/"
        assert held(trials, grammar) is not None
    if trials.process is not None:
        grown = int(Path(f"/proc/{trials.process.pid}/statm").read_text().split()[1]) * 4096
        assert grown < HELD_BYTES


def test_verdicts_are_remembered_for_each_tenant_apart(trials):
    """Who asks first waits for a trial, whoever asked for the same before: the time tells nothing."""
    held(trials, 'start: "a"', "one")
    tried = []
    trials.tried = lambda grammar, wanted: tried.append(grammar) or 7
    assert 7 != held(trials, 'start: "a"', "one")
    assert [] == tried
    assert 7 == held(trials, 'start: "a"', "another")
    assert 7 == held(trials, 'start: "a"', "another")
    assert 1 == len(tried)


def test_verdicts_are_forgotten():
    """After some time, and where there are more than a tenant may have, or more tenants: the oldest first."""
    found = SandboxVerdicts()
    found.note("a", "grammar", 0.0, 1)
    assert 1 == found.of("a", "grammar", sandbox_verdicts.KEPT_S - 1)
    assert found.of("a", "grammar", sandbox_verdicts.KEPT_S) is None
    for number in range(sandbox_verdicts.MAX_GRAMMARS):
        assert 1 == found.of("a", "grammar", 1.0)
        found.note("a", str(number), 1.0, 2)
    assert 1 == found.of("a", "grammar", 1.0)
    assert found.of("a", "0", 1.0) is None
    for number in range(sandbox_verdicts.MAX_TENANTS - 1):
        found.note(f"tenant {number}", "grammar", 1.0, 3)
    assert 1 == found.of("a", "grammar", 1.0)
    found.note("one more", "grammar", 1.0, 3)
    assert 1 == found.of("a", "grammar", 1.0)
    assert found.of("tenant 0", "grammar", 1.0) is None


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("_WAIT_S", -1, Overloaded), ("_MODULE", "weft_server.nothing", RuntimeError)],
)
def test_what_keeps_a_trial_from_its_end_is_not_remembered(trials, monkeypatch, name, value, error):
    """A machine that is overloaded, or a server that lacks something, refuses no grammar for good."""
    with monkeypatch.context() as patched:
        patched.setattr(grammar_sandbox, name, value)
        with pytest.raises(error):
            held(trials, COUNTS[0])
    assert held(trials, COUNTS[0]) is None


NO_ROOM = {
    "no memory": OSError(errno.ENOMEM, "no memory"),
    "no process": BlockingIOError(errno.EAGAIN, "no process"),
}


@pytest.mark.parametrize("why", NO_ROOM)
def test_a_machine_without_room_for_a_trial_gives_no_verdict(trials, monkeypatch, why):
    """The process never begins. Later it passes."""
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", lambda *_, **__: raised(NO_ROOM[why]))
        with pytest.raises(Overloaded) as refused:
            held(trials, 'start: "a"')
    assert ("MACHINE_BUSY", grpc.StatusCode.RESOURCE_EXHAUSTED) == (refused.value.reason, to_status(refused.value).code)
    assert held(trials, 'start: "a"') is not None


def test_a_process_that_the_machine_kills_gives_no_verdict(trials):
    """None of its own limits does that: the machine is short of memory."""
    held(trials, 'start: "a"')
    process = trials.process
    os.kill(process.pid, signal.SIGSTOP)
    kills = threading.Timer(0.1, process.kill)
    kills.start()
    with pytest.raises(Overloaded) as refused:
        held(trials, COUNTS[0])
    assert "MACHINE_BUSY" == refused.value.reason
    assert held(trials, 'start: "b"') is not None


def test_a_server_that_lacks_something_is_no_machine_without_room(trials, monkeypatch):
    """That is a bug, and is loud."""
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: raised(FileNotFoundError(errno.ENOENT, "no python")))
    with pytest.raises(FileNotFoundError):
        held(trials, 'start: "no python"')


def test_a_stopped_model_leaves_no_process(trials):
    """Also while a trial is on its way."""
    held(trials, 'start: "a"')
    process = trials.process
    trials.stop()
    assert process.poll() is not None


def raised(error):
    """Raise an error, where a statement cannot stand."""
    raise error
