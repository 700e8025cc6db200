"""A real server whose lanes fail and hang: it goes on, and ends by itself when that happens too often."""

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import pytest

import weft
from lifecycles import repository_of
from weft_proto.v1.generation_pb2 import GenerateRequest
from weft_server.requests.generate import SHORT_BYTES

sys.path.insert(0, str(Path(__file__).parents[1] / "matrix"))
from asking import Asked

from held import Held

pytestmark = pytest.mark.e2e


@pytest.fixture
def repository(tiny_repository, tmp_path):
    """Two tiny models."""
    for name in ("tiny-translate", "tiny-text"):
        (tmp_path / "repository" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "repository" / name).symlink_to(tiny_repository / name)
    return tmp_path / "repository"


@pytest.fixture
def points(tmp_path):
    """The folder of the server's failpoints."""
    (tmp_path / "points").mkdir()
    return tmp_path / "points"


def _fails(call):
    """The error that a call ends with."""
    with pytest.raises(weft.Error) as raised:
        call.result()
    return type(raised.value), raised.value.reason


def test_a_lane_that_hangs_is_replaced_and_the_server_stays_live(repository, points):
    """Who was in it is told within seconds, and who comes then is answered. The thread that hangs shows at the exit."""
    with (
        # A machine that stands still for two seconds makes no other step late.
        Held(repository, points, step_timeout_s=2.5) as server,
        weft.Client(server.target, timeout=60) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        server.wait_for("ready")
        expected = client.translate("w1 w2").text
        server.say("tiny-translate.decode", "hold")
        assert (weft.InternalError, "LANE_STUCK") == _fails(pool.submit(client.translate, "w1 w2"))
        assert server.is_held("tiny-translate.decode")
        assert 200 == server.get("/livez")[0]
        server.free("tiny-translate.decode")
        assert expected == client.translate("w1 w2").text
        assert 1 == server.metric("weft_failures_total", reason="LANE_STUCK")
        assert 9 == server.metric("weft_restarts_left", model="tiny-translate")
        server.wait_for("failed")
        (failed,) = [event for event in server.log if event["event"] == "failed"]
        assert "in _decode" in failed["stack"]
        server.say("tiny-translate.decode", "hold")
        assert (weft.InternalError, "LANE_STUCK") == _fails(pool.submit(client.translate, "w1 w2"))
        assert 1 == server.terminate()


def test_a_process_that_stood_still_has_no_lanes_that_hang(repository, points):
    """A machine that sleeps, or SIGSTOP: what was under way goes on, and nothing has failed."""
    with (
        Held(repository, points, step_timeout_s=3) as server,
        weft.Client(server.target, timeout=60) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        server.wait_for("ready")
        expected = client.translate("w1 w2").text
        server.say("tiny-translate.decode", "hold")
        asked = pool.submit(client.translate, "w1 w2")
        server.wait_until(lambda: server.is_held("tiny-translate.decode"))
        server.process.send_signal(signal.SIGSTOP)
        server.free("tiny-translate.decode")
        time.sleep(4.5)
        server.process.send_signal(signal.SIGCONT)
        assert expected == asked.result().text
        assert 0 == server.metric("weft_failures_total")
        assert 0 == server.terminate()


def test_too_many_failures_end_the_server(repository, points):
    """Whoever is in the model is told that another server may answer, others are finished, and the exit code is 1."""
    with (
        Held(repository, points, max_restarts=1) as server,
        weft.Client(server.target, timeout=60) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        server.wait_for("ready")
        server.say("tiny-translate.encoder", "raise")
        assert (weft.InternalError, "STEP_FAILED") == _fails(pool.submit(client.translate, "w1"))
        assert client.translate("w1").text
        server.say("tiny-text.classifier", "hold")
        other = pool.submit(client.classify, "w1")
        server.wait_until(lambda: server.is_held("tiny-text.classifier"))
        server.say("tiny-translate.encoder", "hold")
        last = pool.submit(client.translate, "w1")
        server.wait_until(lambda: server.is_held("tiny-translate.encoder"))
        waits = pool.submit(client.translate, "w2")
        server.wait_until(lambda: server.metric("weft_queued_tokens", model="tiny-translate") > 0)
        server.say("tiny-translate.encoder", "raise")
        assert (weft.InternalError, "STEP_FAILED") == _fails(last)
        assert weft.Unavailable is _fails(waits)[0]
        server.wait_for("draining")
        server.free("tiny-text.classifier")
        assert other.result().labels
        assert 1 == server.exit_code()
    # The client has tried again, and may have another reason by now.
    reasons = [event["reason"] for event in server.calls() if event["code"] == "UNAVAILABLE"]
    assert "MODEL_FAILED" == reasons[0]
    assert any(event["event"] == "stopped after too many failures" for event in server.log)


def test_memory_that_runs_out_is_no_failure_of_the_server(repository, points):
    """Its requests are shed with a hint, as often as it happens, and the next ones are answered."""
    with Held(repository, points, max_restarts=0) as server, weft.Client(server.target) as client:
        server.wait_for("ready")
        for _ in range(3):
            for point, ask in (("tiny-translate.decode", client.translate), ("tiny-text.classifier", client.classify)):
                server.say(point, "memory")
                with pytest.raises(weft.Overloaded) as raised:
                    ask("w1")
                assert ("OUT_OF_MEMORY", 1.0) == (raised.value.reason, raised.value.retry_after)
                assert ask("w1")
        assert 6 == server.metric("weft_failures_total", reason="OUT_OF_MEMORY")
        assert 0 == server.terminate()


@pytest.mark.parametrize(("ends", "reason"), [("unload", "MODEL_NOT_READY"), ("drain", "DRAINING")])
def test_who_is_still_there_when_the_wait_is_over_is_told_why(tiny_repository, tmp_path, points, ends, reason):
    """Wherever a request is then, and though what it is in goes on: UNAVAILABLE, with the reason."""
    repository = repository_of(tmp_path / "models", tiny_repository / "tiny-generate" / "1", 1)
    settings = {"slots": 1, "drain_timeout_s": 1, "drain_delay_s": 0, "admin": True, "admin_port": 0}
    stages = [
        # Where it is held, the request, and how many: those behind the first wait for their turn.
        ("m.explain-job", {"token_ids": {"ids": [5]}, "explain": {}}, 2),
        ("m.decode", {"token_ids": {"ids": [5]}}, 2),
        ("m.worker-job", {"text": "a b " * SHORT_BYTES}, 3),
    ]
    with Held(repository, points, **settings) as server, grpc.insecure_channel(server.target) as channel:
        server.wait_for("ready")
        address, asked = server.wait_for("listening")["admin"], []
        for point, request, number in stages:
            server.say(point, "hold")
            asked += [Asked(channel, "generate", "unary", GenerateRequest(**request)) for _ in range(number)]
            server.wait_until(partial(server.is_held, point), what=point)
        server.wait_until(lambda: server.under_way()["calls"] == len(asked), what="all of them")
        with weft.AdminClient(address, timeout=60) as admin, ThreadPoolExecutor(1) as pool:
            unload = pool.submit(admin.unload_model, "m", 1) if ends == "unload" else None
            if not unload:
                server.process.send_signal(signal.SIGTERM)
            assert [("UNAVAILABLE", reason)] * len(asked) == [each.end()[:2] for each in asked]
            assert not [each for each in asked if "takes no new requests" in each.call.details()]
            server.free(*(point for point, _, _ in stages))
            if unload:
                unload.result()
                server.process.send_signal(signal.SIGTERM)
        assert 0 == server.exit_code()
