"""`weft bench` as a process against a real server: every task, a sweep with its picture, a full queue, a drain."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from process import ServerProcess

pytestmark = pytest.mark.e2e
WEFT = Path(sys.executable).with_name("weft")
ROOT = Path(__file__).parents[2]
SCENES, ASKED, DIGITS, SPOKEN = (
    str(ROOT / "export/checkpoints" / name / "examples") for name in ("scenes", "scenes-answers", "digits", "commands")
)
TASKS = [
    (["--model", "en-es", "--output-tokens", "4..12"], True),
    (["--model", "pydocs", "--input-tokens", "8..32", "--output-tokens", "lognormal:16,0.5"], True),
    (["--model", "pydocs", "--unary"], False),
    (["--model", "scenes", "--input", SCENES], True),
    (["--model", "scenes-answers", "--input", ASKED, "--question", "how many triangles are there?"], True),
    (["--model", "digits", "--input", DIGITS], False),
    (["--model", "commands", "--input", SPOKEN], True),
    (["--model", "topics", "--input-tokens", "16"], False),
    (["--model", "tags"], False),
]


@pytest.fixture(scope="module")
def server(demo_repository):
    """A server with both ports."""
    with ServerProcess(demo_repository, api_port=0) as server:
        server.wait_for("ready")
        yield server


def bench(target, *argv):
    """Run the command to its end; returns its exit code and the reports."""
    command = [WEFT, "bench", "--json", "--target", target, *argv]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return answer.returncode, [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.mark.parametrize(("argv", "streams"), TASKS, ids=[argv[1] for argv, _ in TASKS])
def test_every_task_can_be_measured(server, argv, streams):
    """All requests complete, the server's own split is there, and text comes as a stream unless it was not wanted."""
    code, (report,) = bench(server.target, *argv, "-c", "4", "--requests", "24", "--warmup", "0.1")

    assert (0, 24, streams) == (code, report["completed"], "ttft" in report["latency"])
    assert 0 < report["server"]["prefill"]["p50"] < report["latency"]["e2e"]["max"]
    assert report["per_s"]["requests"] > 0


def test_forced_answers_have_their_length(server):
    """With one length for all, tokens a second are that many times requests a second."""
    code, (report,) = bench(server.target, "--model", "pydocs", "--output-tokens", "24", "--requests", "16", "-c", "4")

    assert 0 == code
    assert pytest.approx(24 * report["per_s"]["requests"]) == report["per_s"]["output_tokens"]


def test_a_sweep_of_a_real_server_is_drawn(server, tmp_path):
    """Three loads, three lines, one picture."""
    options = ["--model", "en-es", "--output-tokens", "8", "--requests", "20", "--warmup", "0.2"]
    code, reports = bench(server.target, *options, "--sweep", "1,2,4", "--plot", str(tmp_path / "sweep.png"))

    assert (0, [1, 2, 4]) == (code, [report["amount"] for report in reports])
    assert all(report["completed"] for report in reports)
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_cancelled_streams_leave_nothing_behind(server):
    """What the load cancels, the server has forgotten when it ends."""
    options = ["--model", "pydocs", "--output-tokens", "64", "--requests", "40", "-c", "8", "--cancel-fraction", "0.5"]
    code, (report,) = bench(server.target, *options)

    assert 0 == code
    assert report["cancelled"] > 0
    assert 40 == report["cancelled"] + report["completed"]
    for gauge in ("weft_decode_slots_used", "weft_requests_queued", "weft_requests_running"):
        server.wait_until(lambda name=gauge: server.metric(name) == 0, what=f"{gauge} at 0")


@pytest.fixture
def generator(demo_repository, tmp_path):
    """A repository of one generator."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models/pydocs").symlink_to(demo_repository / "pydocs")
    return tmp_path / "models"


def test_more_in_flight_than_the_queue_holds(generator):
    """A small queue refuses some: they are counted with their reason, and the others complete."""
    with ServerProcess(generator, slots=2, max_queued_requests=2) as server:
        server.wait_for("ready")
        options = ["--model", "pydocs", "--output-tokens", "48", "-c", "24", "--requests", "96"]
        code, (report,) = bench(server.target, *options)

    assert 0 == code
    assert [("RESOURCE_EXHAUSTED", "QUEUE_FULL")] == [(each["status"], each["reason"]) for each in report["failures"]]
    assert 96 == report["completed"] + report["failed"]
    assert report["completed"] > 0


def test_a_server_that_drains_is_no_end(generator):
    """SIGTERM in mid-run: what was admitted completes, what comes after is unavailable, counted, and a failure."""
    with ServerProcess(generator) as server:
        server.wait_for("ready")
        options = ["--model", "pydocs", "--output-tokens", "32", "-c", "4", "--duration", "8", "--warmup", "0"]
        command = [WEFT, "bench", "--json", "--target", server.target, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            server.wait_until(lambda: server.metric("weft_requests_total", model="pydocs") > 8)
            assert 0 == server.terminate()
            out, _ = process.communicate(timeout=60)

    report = json.loads(out)
    assert 1 == process.returncode
    assert report["completed"] > 0
    assert {"UNAVAILABLE"} == {each["status"] for each in report["failures"]}
    assert 8.0 == pytest.approx(report["seconds"])


@pytest.mark.parametrize("form", ["proto", "json", "openai"])
@pytest.mark.parametrize("way", ["--stream", "--unary"])
def test_by_http_the_server_counts_the_same(server, form, way):
    """Requests and tokens are those of /metrics, whatever the form. Streams come message by message."""
    names = ("weft_requests_total", "weft_prompt_tokens_total", "weft_generated_tokens_total")
    before = [server.metric(name, model="pydocs") for name in names]
    api = server.wait_for("listening")["api"]
    options = ["--model", "pydocs", way, "--output-tokens", "8..16", "--requests", "12", "-c", "3", "--warmup", "0"]
    code, (report,) = bench(api, "--http", form, *options)
    counted = [server.metric(name, model="pydocs") - at for name, at in zip(names, before, strict=True)]

    per_s, seconds = report["per_s"], report["seconds"]
    said = [per_s[name] * seconds for name in ("requests", "input_tokens", "output_tokens")]
    assert (0, 12) == (code, report["completed"])
    assert counted == pytest.approx(said)
    assert (way == "--stream") is (report["tokens_per_message"] is not None)


def test_by_http_a_full_queue_is_counted_as_the_server_does(generator):
    """Each refusal that the caller counts is one of /metrics, and the others complete."""
    with ServerProcess(generator, slots=2, max_queued_requests=2, api_port=0) as server:
        server.wait_for("ready")
        options = ["--model", "pydocs", "--output-tokens", "48", "-c", "24", "--requests", "96", "--warmup", "0"]
        code, (report,) = bench(server.wait_for("listening")["api"], "--http", "proto", *options)
        refused = server.metric("weft_rejected_total", reason="QUEUE_FULL")

    assert 0 == code
    assert [("RESOURCE_EXHAUSTED", "QUEUE_FULL", refused)] == [
        (each["status"], each["reason"], each["count"]) for each in report["failures"]
    ]
    assert 96 == report["completed"] + report["failed"]
