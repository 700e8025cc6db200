"""`weft bench` against a server whose answers are known beforehand."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest
from grpc import StatusCode

import weft
from fakes import NUM_WAITING, Failure, fake_server
from weft_bench import caller, load
from weft_bench.arrivals import Closed
from weft_bench.asking import Asked
from weft_bench.record import Outcome
from weft_bench.workload import Workload

WEFT = [sys.executable, "-m", "weft_command"]
FULL = Failure(StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", retry_after=0.01)


@pytest.fixture
def bench(weft_command):
    """Run `weft bench --json` without a warm-up; returns the exit code, the report of each line, and stderr."""

    def run(*argv):
        code, out, error = weft_command("bench", "--json", "--warmup", 0, *argv)
        return code, [json.loads(line) for line in out.splitlines()], error

    return run


def test_a_closed_loop_keeps_so_many_in_flight(bench, server):
    """Every request is answered and counted, and no more of them wait at once than callers there are."""
    server.servicer.step_s = 0.01
    code, (report,), _ = bench("-c", 3, "--requests", 20, "--input-tokens", 4)

    assert (0, 20, 20, "closed", 3) == (code, report["requests"], report["completed"], report["kind"], report["amount"])
    streams = [seen for seen in server.servicer.seen if seen.method == "StreamTranslate"]
    assert 20 == len(streams)
    assert {"en-es"} == {seen.request.request.model.name for seen in streams}
    assert 20 * 4 == sum(len(seen.request.request.token_ids.ids) for seen in streams)
    # Four messages of 10 ms each, three callers: no faster than that.
    assert report["seconds"] > 20 * 4 * 0.01 / 3
    assert {"ttft", "itl", "gap", "tpot", "e2e"} == set(report["latency"])
    assert 0.01 <= report["latency"]["gap"]["p50"]
    assert (0.0015, 0.002, 1.0) == tuple(report["server"][part]["p50"] for part in ("queue", "prefill", "decode"))


def test_an_open_loop_shows_what_waits(bench, server):
    """A server slower than the rate answers ever later, and latency from when each was due holds all of it."""
    server.servicer.script.extend([0.05] * 101)  # 160 a second
    code, (report,), _ = bench("--rate", 1000, "--requests", 100, "--unary")

    assert (0, "open", 100) == (code, report["kind"], report["completed"])
    last_ended = 100 * 0.05 / NUM_WAITING
    assert report["seconds"] >= last_ended
    assert report["latency"]["e2e"]["max"] >= last_ended - 0.3
    assert report["latency"]["e2e"]["p50"] > 2 * 0.05


def test_warming_up_does_not_count(weft_command, server):
    """What is sent in the warm-up reaches the server, and no count."""
    code, out, _ = weft_command("bench", "--json", "--warmup", 0.3, "--duration", 2, "--unary")
    report = json.loads(out)

    assert 0 == code
    assert 0 < report["requests"] < sum(seen.method == "Translate" for seen in server.servicer.seen)
    assert 2 == pytest.approx(report["seconds"])


class Script:
    """What happens at a call, for each in turn; see FakeServicer.script."""

    def __init__(self, happens):
        self.num_calls, self.popleft = 0, lambda: happens(self)


def test_answers_to_the_warm_up_make_no_success(weft_command, server):
    """A server that fails before it counts has not been measured, however well it began."""

    def happens(script):
        script.num_calls += 1
        return FULL if script.num_calls > 2 else None  # the first asks for models

    server.servicer.script = Script(happens)
    code, out, error = weft_command("bench", "--json", "--warmup", 0.5, "--duration", 2, "--unary")
    report = json.loads(out)

    assert (1, 0) == (code, report["completed"])
    assert report["failed"] > 0
    assert "full" in error


def test_a_load_in_which_nothing_was_due_says_so(bench):
    """One request in twenty seconds, for half a second: nothing was measured, and nobody's processor was busy."""
    code, (report,), error = bench("--rate", 0.05, "--duration", 0.5, "--unary")

    assert (2, 0) == (code, report["requests"])
    assert "weft: no request was due in the measured time: let it last longer\n" == error


def test_a_sweep_shows_what_came_before_its_server_went(weft_command, tmp_path, monkeypatch):
    """The table and the picture of the loads that were measured, and then why there are no more."""
    with ExitStack() as stack:
        gone, others = stack.enter_context(fake_server()), []

        def happens(script):
            script.num_calls += 1
            if script.num_calls == 8:
                monkeypatch.setattr("weft_bench.caller.CONNECT_S", 0.5)
                others.append(threading.Thread(target=stack.close))
                others[0].start()

        gone.servicer.script = Script(happens)
        picture = tmp_path / "sweep.svg"
        argv = ["--sweep", "1,2,4", "--requests", 4, "--warmup", 0, "--unary", "--plot", picture]
        code, out, error = weft_command("bench", "-t", gone.target, *argv)
        others[0].join()

    assert 1 == code
    assert picture.is_file()
    assert out.count("requests/s")
    assert "no connection in 0.5 s" in error


def test_a_report_says_what_was_asked_for(bench, tmp_path):
    """Each line of JSON holds every option that shapes the load or its judgement, so that it can be run again."""
    texts = tmp_path / "texts.txt"
    texts.write_text("a text\n")
    _, (first, second), _ = bench("--sweep", "1,2", "--requests", 2, "--input", texts, "--slo-ttft", 0.5, "--seed", 3)

    assert first["options"] == second["options"]
    expected = {"sweep": "1,2", "requests": 2, "input": [str(texts)], "slo_ttft": 0.5, "seed": 3, "warmup": 0}
    assert expected == {name: first["options"][name] for name in expected}
    assert {"rate", "concurrency", "duration", "cancel_fraction", "output_tokens", "timeout"} < set(first["options"])


def test_json_knows_no_infinity(bench):
    """A call without a deadline is null in what was asked for."""
    code, (report,), _ = bench("--timeout", "inf", "--requests", 2)

    assert (0, 2, None) == (code, report["completed"], report["options"]["timeout"])


def test_ctrl_c_while_a_sweep_connects_shows_what_came_before(weft_command, monkeypatch):
    """The second load waits for a server: the table of the first is there, and the exit code is Ctrl-C's."""
    connect, turns = caller._connect, iter(range(2))

    async def interrupted(*given):
        if next(turns) == 1:
            raise KeyboardInterrupt
        await connect(*given)

    monkeypatch.setattr(caller, "_connect", interrupted)
    code, out, _ = weft_command("bench", "--sweep", "1,2", "--requests", 4, "--warmup", 0)

    assert 130 == code
    assert 1 == out.count("requests/s")


def test_a_model_of_a_newer_server_is_not_asked(weft_command, server):
    """A task that this client does not know fits nothing, and by its name it is refused."""
    with weft.Client(server.target) as client:
        known, *_ = client.list_models()
    strange = replace(known, name="strange", task=weft.Task.UNSPECIFIED)

    assert known == Workload().find((known, strange))
    with pytest.raises(weft.InvalidRequest, match="too old"):
        Workload(model="strange").method(strange)


def test_streams_are_cancelled_within_their_messages():
    """Where four tokens share a message, cancelling after up to 64 of them would come too late for most."""
    asked = Asked(b"", 64)
    plan = load.Plan(cancel_fraction=1.0)
    new = load.Load(Closed(1), plan, [asked], streams=True)
    assert 32 < max(new._cancel_after(asked) for _ in range(200)) <= 64

    new.run.num_ended[Outcome.COMPLETED], new.run.num_tokens, new.run.message_sum = 10, 640, 160
    drawn = [new._cancel_after(asked) for _ in range(200)]
    assert (1, 16) == (min(drawn), max(drawn))
    assert set(drawn) == {new._cancel_after(Asked(b"", 0)) for _ in range(200)}


@pytest.mark.parametrize(("pauses", "expected"), [(True, 3.0), (False, 0.0)])
def test_callers_pause_as_long_as_they_waited(monkeypatch, pauses, expected):
    """On average, and never twice the same. Without pauses they ask again at once."""
    slept, sleep = [], asyncio.sleep

    async def answered(asked, record, _):
        record.ended, record.outcome = record.due + 3.0, Outcome.COMPLETED

    async def at_once(seconds):
        slept.append(seconds)
        await sleep(0)

    async def measured():
        loaded = load.Load(Closed(2, pauses=pauses), load.Plan(num_requests=1000), [Asked(b"", 0)], streams=False)
        await loaded.measure(contextlib.nullcontext(SimpleNamespace(call=answered)), lambda _: None)
        return [each for each in slept if each != load.LAG_PERIOD_S]

    monkeypatch.setattr(load.asyncio, "sleep", at_once)
    paused = asyncio.run(measured())
    assert pytest.approx(expected, rel=0.1) == sum(paused) / 1000
    assert len(paused) == len(set(paused))


def test_cancelled_requests_are_counted_apart(bench, server):
    """Streams are cancelled after a random number of messages: the server sees it, and no latency does."""
    server.servicer.step_s = 0.05
    options = ("--input-tokens", 40, "--output-tokens", 20, "--requests", 8, "-c", 4)
    code, (report,), _ = bench(*options, "--cancel-fraction", 1)

    assert (0, 8, 8, 0) == (code, report["requests"], report["cancelled"], report["latency"]["e2e"]["count"])
    assert all(seen.cancelled.wait(60) for seen in server.servicer.seen if seen.method == "StreamTranslate")
    server.servicer.step_s = 0.0
    _, (report,), _ = bench(*options[:4], "--requests", 100, "--unary", "--cancel-fraction", 0.5)
    assert 100 == report["cancelled"] + report["completed"]
    assert 0 < report["cancelled"] < 100
    _, (report,), _ = bench("--requests", 8)
    assert 0 == report["cancelled"]


def test_a_full_queue_is_counted_and_not_the_end(bench, server):
    """Refused requests stand by status and reason, the caller waits as it is told to, and the load goes on."""
    server.servicer.script.extend([0.0, FULL, FULL, FULL, Failure(StatusCode.INTERNAL, "BUG", "oops", after=2)])
    code, (report,), error = bench("--requests", 10)

    assert error.endswith("weft: 1 of 10 requests failed, the first: oops\n")
    assert (1, 10, 6, 4) == (code, report["requests"], report["completed"], report["failed"])
    assert [("RESOURCE_EXHAUSTED", "QUEUE_FULL", 3, "full"), ("INTERNAL", "BUG", 1, "oops")] == [
        tuple(each.values()) for each in report["failures"]
    ]


def test_nothing_is_retried(bench, server):
    """A call that the server could not take is one that failed, though the SDK would have tried again."""
    server.servicer.script.extend([0.0, Failure(StatusCode.UNAVAILABLE, "DRAINING", "draining")])
    _, (report,), _ = bench("--requests", 5)

    assert (4, "UNAVAILABLE") == (report["completed"], report["failures"][0]["status"])
    assert 5 == sum(seen.method == "StreamTranslate" for seen in server.servicer.seen)


def test_refusals_are_what_an_overload_shows(bench, server):
    """A load that is refused in part is no failure; nor is one that is cancelled."""
    server.servicer.script.extend([0.0, FULL, FULL])
    code, (report,), error = bench("--requests", 6, "--cancel-fraction", 0.3)
    assert (0, 2) == (code, report["failed"])
    assert "requests failed" not in error


@pytest.mark.parametrize(("status", "code"), [(StatusCode.INVALID_ARGUMENT, 2), (StatusCode.UNAVAILABLE, 1)])
def test_a_load_without_any_answer_fails(bench, server, status, code):
    """When no request completed, the report is still there, and the first error is the command's."""
    server.servicer.script.extend([0.0, *[Failure(status, "X", "no such thing")] * 3])
    got, (report,), error = bench("--requests", 3)

    assert (code, 3) == (got, report["failed"])
    assert error.endswith("weft: no such thing\n")


def test_goodput_needs_every_bound(bench, server):
    """Where each answer begins too late, none is good; where none does, all are."""
    server.servicer.step_s = 0.002
    _, (report,), _ = bench("--requests", 5, "--input-tokens", 8, "--slo-ttft", 0.0001, "--slo-tpot", 10)
    assert (0.0, 0.0) == (report["per_s"]["good"], report["good_share"])
    _, (report,), _ = bench("--requests", 5, "--input-tokens", 8, "--slo-ttft", 50, "--slo-tpot", 10, "--slo-e2e", 50)
    assert (report["per_s"]["requests"], 1.0) == (report["per_s"]["good"], report["good_share"])


def test_people_get_a_table(weft_command):
    """Counts, rates and percentiles, with what each number is; a sweep ends in a table of its loads."""
    code, out, _ = weft_command("bench", "--requests", 10, "--sweep", "1,2", "--warmup", 0)

    assert 0 == code
    for words in (
        "en-es 1 (translate, streams), 2 in flight",
        "10: 10 completed",
        "requests/s",
        "first message (TTFT)",
        "token to token (ITL)",
        "server: prefill",
        "p99",
    ):
        assert words in out
    assert ["TTFT", "TTFT", "TPOT", "TPOT", "E2E", "E2E"] in [line.split() for line in out.splitlines()]


def test_a_sweep_is_drawn(bench, tmp_path):
    """Each load is a line of JSON, in order, and the picture is written."""
    code, reports, _ = bench("--sweep", "rate:50,100", "--requests", 5, "--plot", tmp_path / "out.png")

    assert (0, [50.0, 100.0]) == (code, [report["amount"] for report in reports])
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(weft_command, server, monkeypatch):
    """It is that of `weft bench`, and nothing is asked."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, error = weft_command("bench", "--sweep", "1,2", "--plot", "out.png")

    assert (1, "", []) == (code, out, server.servicer.seen)
    assert "pip install 'weft-serving[bench]'" in error


WRONG = [
    (["--concurrency", "0"], "--concurrency"),
    (["-c", "-4"], "--concurrency"),
    (["--rate", "0"], "--rate"),
    (["--rate", "-1"], "--rate"),
    (["--rate", "nan"], "--rate"),
    (["--rate", "inf"], "--rate"),
    (["--rate", "1", "-c", "2"], "--concurrency and --rate"),
    (["--sweep", "1,2", "--rate", "2"], "--rate and --sweep"),
    (["--sweep", "4..8"], "--sweep"),
    (["--duration", "0"], "--duration"),
    (["--duration", "nan"], "--duration"),
    (["--warmup", "-1"], "--warmup"),
    (["--requests", "0"], "--requests"),
    (["--cancel-fraction", "1.5"], "--cancel-fraction"),
    (["--cancel-fraction", "nan"], "--cancel-fraction"),
    (["--input-tokens", "-8"], "--input-tokens"),
    (["--input-tokens", "9..8"], "--input-tokens"),
    (["--input-tokens", "8..65"], "--input-tokens"),
    (["--output-tokens", "8..49"], "--output-tokens"),
    (["--free"], "--free"),
    (["--input", "no/such.txt"], "cannot read no/such.txt"),
    (["--input", "no/such.png"], "no model"),
    (["--model", "nope"], "--model"),
    (["--slo-ttft", "-1"], "--slo-ttft"),
    (["--slo-tpot", "1", "--unary"], "--slo-tpot needs streams"),
    (["--plot", "out.png"], "--plot needs --sweep"),
    (["--sweep", "1,2", "--plot", "out.nonsense"], "--plot"),
    (["--sweep", "1,2", "--plot", "no/such/out.png"], "there is no folder"),
    (["--timeout", "0"], "timeout"),
]


@pytest.mark.parametrize(("argv", "complaint"), WRONG, ids=[" ".join(argv) for argv, _ in WRONG])
def test_wrong_usage_is_one_line(weft_command, server, argv, complaint):
    """A number out of range, a file that is not there: one line that names it, exit code 2, and nothing is asked."""
    code, out, error = weft_command("bench", *argv)

    assert (2, "") == (code, out)
    assert error.startswith("weft: ")
    assert complaint in error
    assert 1 == error.count("\n")
    assert {"ListModels"} >= {seen.method for seen in server.servicer.seen}


def test_without_a_server_there_is_no_load(weft_command):
    """Nobody listening is one line and exit code 1."""
    code, out, error = weft_command("bench", "-t", "127.0.0.1:1")

    assert (1, "") == (code, out)
    assert error.startswith("weft: 127.0.0.1:1: ")


def test_ctrl_c_prints_what_there_is(server):
    """An interrupt ends the load at once, with a report of what had come, and 130."""
    server.servicer.step_s = 0.02
    argv = [*WEFT, "bench", "--json", "--warmup", "0", "--duration", "60", "-c", "2", "-t", server.target]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while len(server.servicer.seen) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)

    report = json.loads(out)
    assert (130, True) == (process.returncode, report["interrupted"])
    assert report["completed"] > 0
    assert report["requests"] == report["completed"] + report["unfinished"]
    assert report["seconds"] < 40


def test_a_terminal_sees_how_it_goes_on(server):
    """On a terminal a line on stderr tells how many are in flight and done; stdout holds the report alone."""
    server.servicer.step_s = 0.02
    argv = [*WEFT, "bench", "--json", "--warmup", "0", "--duration", "1", "-c", "2", "-t", server.target]
    ours, theirs = os.openpty()
    environment = {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        out, _ = process.communicate(timeout=30)
    shown = os.read(ours, 1 << 16).decode()
    os.close(theirs)
    os.close(ours)

    assert json.loads(out)["completed"] > 0
    assert "2 in flight, " in shown
    assert " done, " in shown
