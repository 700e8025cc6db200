"""Starting, draining and overload: nothing admitted is lost, and who is refused is told so."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import weft
from process import ServerProcess

pytestmark = pytest.mark.e2e
LONG = weft.Decoding(max_new_tokens=60, min_new_tokens=60)


@pytest.fixture(scope="module")
def small_repository(tiny_repository, tmp_path_factory):
    """One tiny model for each kind of request, so that none has to name one."""
    repository = tmp_path_factory.mktemp("small")
    for name in ("tiny-translate", "tiny-caption", "tiny-image", "tiny-text", "tiny-generate"):
        (repository / name).symlink_to(tiny_repository / name)
    return repository


def test_sigterm_finishes_what_was_admitted(small_repository):
    """Streams that run at SIGTERM end whole, later calls are refused as Unavailable, and the exit code is 0."""
    with ServerProcess(small_repository, slots=2, lanes=1) as server, weft.Client(server.target, timeout=30) as client:
        server.wait_for("ready")
        waiting = 400
        with ThreadPoolExecutor(32) as pool:
            calls = [pool.submit(client.generate, "a", decoding=LONG) for _ in range(waiting)]
            while sum(call.done() for call in calls) < 20:
                time.sleep(0.005)
            server.process.send_signal(signal.SIGTERM)
            answers, refused = 0, 0
            for call in calls:
                try:
                    answers += len(call.result().token_ids) == 60
                except weft.Unavailable:
                    refused += 1
        assert 0 == server.exit_code()

    assert waiting == answers + refused
    assert answers >= 20
    assert any(event["event"] == "stopped" for event in server.log)


@pytest.mark.parametrize("host", ["::1", "::"])
def test_ipv6(small_repository, host):
    """Both gRPC and HTTP listen on IPv6, and `::` on IPv4 as well."""
    with ServerProcess(small_repository, host=host) as server:
        server.wait_for("ready")
        port, http_port = (at.rpartition(":")[2] for at in (server.target, server.http))
        for name in ["[::1]", "127.0.0.1"] if host == "::" else ["[::1]"]:
            with weft.Client(f"{name}:{port}", timeout=30) as client:
                assert client.translate("the cat").token_ids
            server.http = f"{name}:{http_port}"
            assert (200, "ok\n") == server.get("/readyz")


def test_draining_says_not_ready_and_still_serves_for_the_delay(small_repository):
    """During the delay health is NOT_SERVING, liveness SERVING, and requests are answered."""
    with ServerProcess(small_repository, drain_delay_s=600) as server, weft.Client(server.target, timeout=30) as client:
        server.wait_for("ready")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("draining")

        assert client.health() is weft.Health.NOT_SERVING
        assert client.health("live") is weft.Health.SERVING
        assert 503 == server.get("/readyz")[0]
        assert 200 == server.get("/livez")[0]
        assert 1 == server.metric("weft_draining")
        assert client.translate("the cat").token_ids


def test_what_outlives_the_drain_timeout_is_told(small_repository):
    """With no time to finish, running requests end as Unavailable, and the server still exits with 0."""
    with ServerProcess(small_repository, drain_timeout_s=0, slots=1, lanes=1) as server:
        server.wait_for("ready")
        with weft.Client(server.target, timeout=30) as client, ThreadPoolExecutor(64) as pool:
            calls = [pool.submit(client.generate, "a", decoding=LONG) for _ in range(64)]
            calls[0].result()
            server.process.send_signal(signal.SIGTERM)
            outcomes = set()
            for call in calls:
                outcomes.add(type(call.exception()).__name__)
            assert outcomes <= {"NoneType", "Unavailable"}
        assert 0 == server.exit_code()


def test_sigterm_while_models_load_ends_the_server(whole_tiny_repository):
    """Nothing waits for the models that are still to come."""
    with ServerProcess(whole_tiny_repository) as server:
        server.process.send_signal(signal.SIGTERM)

        assert 0 == server.exit_code()
        assert server.wait_for("stopped")
        assert [] == [event for event in server.log if event["event"] == "ready"]


def test_a_hangup_drains_too(small_repository):
    """A closed terminal ends the server as SIGTERM does, when the delay is over."""
    with ServerProcess(small_repository, drain_delay_s=0.1) as server:
        server.wait_for("ready")
        server.process.send_signal(signal.SIGHUP)

        assert 0 == server.exit_code()
        assert server.wait_for("draining")


def test_a_second_signal_exits_at_once(small_repository):
    """Whoever is in a hurry sends it twice: the drain delay is not waited for."""
    with ServerProcess(small_repository, drain_delay_s=600) as server:
        server.wait_for("ready")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("draining")
        server.process.send_signal(signal.SIGTERM)

        assert 1 == server.exit_code()


def test_a_full_queue_refuses_at_once_with_a_hint(small_repository):
    """More requests than slots and queue hold: some are refused with a hint, every other one is answered."""
    with ServerProcess(small_repository, slots=1, lanes=1, max_queued_requests=2) as server:
        server.wait_for("ready")
        barrier, outcomes = threading.Barrier(24), []

        def call():
            # Each its own connection; with no time to retry, the first refusal is the answer.
            with weft.Client(server.target, timeout=20) as client:
                barrier.wait()
                try:
                    with client.stream_generate("a", decoding=LONG) as stream:
                        list(stream)
                    outcomes.append("answered")
                except weft.Overloaded as error:
                    outcomes.append(f"refused: {error.reason}, come back later: {error.retry_after > 0}")

        threads = [threading.Thread(target=call) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert 24 == len(outcomes)
        assert {"answered", "refused: QUEUE_FULL, come back later: True"} == set(outcomes)
        for name in ("weft_requests_queued", "weft_decode_slots_used"):
            server.wait_until(lambda name=name: 0 == server.metric(name), what=name)


def test_a_flood_gets_answers_or_a_reason(small_repository):
    """Of 3,000 calls at once, each is answered or refused. Those that nobody has looked at are Overloaded as well."""

    async def flood(target):
        async with weft.AsyncClient(target, timeout=120) as client:

            async def call():
                try:
                    await client.generate([5, 6, 7])
                except weft.Overloaded as error:
                    return error.reason if error.retry_after else "no hint"
                return "answered"

            return Counter(await asyncio.gather(*(call() for _ in range(3000))))

    with ServerProcess(small_repository, max_queued_requests=10, slots=1, lanes=1) as server:
        server.wait_for("ready")
        outcomes = asyncio.run(flood(server.target))

    # How many are refused depends on how fast they come, and on a busy machine none may be.
    assert {"answered", "QUEUE_FULL", "SHED"} >= set(outcomes), outcomes
    assert outcomes["answered"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no model repository is given"),
        (["--repository", ""], "no model repository is given"),
        (["--repository", "/nowhere"], "/nowhere"),
        (["--repository", ".", "--slots", "0"], "--slots"),
        (["--repository", ".", "--port", "many"], "--port"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(arguments, complaint):
    """`weft serve` says what is wrong and exits with a code that is not 0, without a traceback."""
    run = subprocess.run(
        [sys.executable, "-m", "weft_server", *arguments], capture_output=True, text=True, timeout=60, check=False
    )

    assert run.returncode != 0
    assert complaint in run.stderr
    assert "Traceback" not in run.stderr


def test_a_taken_port_is_one_clear_line(small_repository):
    """A second server on the same port does not start."""
    with ServerProcess(small_repository) as server:
        port = server.target.rsplit(":", 1)[1]
        command = ["-m", "weft_server", "--repository", str(small_repository), "--port", port, "--http-port", "0"]
        run = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=False)

    assert 1 == run.returncode
    assert f"--port (WEFT_PORT): cannot listen on 127.0.0.1:{port}: another process does" in run.stderr
    assert "Traceback" not in run.stderr
