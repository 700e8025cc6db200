"""Three servers behind Envoy, or behind the SDK's own round robin: restarted, killed and stopped under load.

`make test-replicas` runs it, and prints what it measured. `make envoy` fetches the Envoy.
"""
# ruff: noqa: T201 - for who runs it

import os
import signal
import threading
import time
from contextlib import contextmanager

import pytest

import weft
from envoy import envoy, needs_envoy
from held import Held
from process import ServerProcess
from replicas import NUM_REPLICAS, Replicas
from traffic import Traffic

NUM_RESTARTS = int(os.environ.get("RESTARTS", "50"))
# A connection that says nothing for 15 s is asked, and has 10 s to answer: ours and Envoy's alike.
PING_S = 15 + 10
# Envoy checks each second, and waits a second for the answer.
CHECK_S = 1 + 1
# A call that took longer has waited for a replica that says nothing. A busy machine may stand still for two.
WAITED_S = 5
LONG = weft.Decoding(max_new_tokens=60, min_new_tokens=60)

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3000)]
fronts = pytest.mark.parametrize("front", [pytest.param("envoy", marks=needs_envoy), "sdk"])


@pytest.fixture(scope="module")
def repository(demo_repository, tmp_path_factory):
    """A generator, a translator and a classifier of pictures."""
    repository = tmp_path_factory.mktemp("three")
    for name in ("pydocs", "en-es", "digits"):
        (repository / name).symlink_to(demo_repository / name)
    return repository


@contextmanager
def reached_through(front, replicas, folder):
    """What a client needs to reach all replicas: arguments of weft.Client."""
    if front == "sdk":
        yield {"target": f"ipv4:{','.join(replicas.targets)}"}
        return
    with envoy(folder, replicas.targets) as target:
        yield {"target": target, "watch_health": False}


def answered(server):
    """Answers that a server has given."""
    return server.metric("weft_requests_total", code="OK")


def gone_on(traffic, server, num_more):
    """Wait until there are more answers, and some are of one server."""
    num = len(traffic.ended) + num_more
    server.wait_until(
        lambda: len(traffic.ended) >= num and answered(server) > 0, what="answers of it and of the others"
    )


@fronts
def test_rolling_restarts_lose_nothing(front, repository, digit, tmp_path):
    """Replica after replica is restarted: each call is answered, and rightly, and each replica ends with 0."""
    with (
        Replicas(lambda _, **settings: ServerProcess(repository, **settings)) as replicas,
        reached_through(front, replicas, tmp_path) as reach,
        Traffic(picture=digit[0], **reach) as traffic,
    ):
        times = []
        for number in range(NUM_RESTARTS):
            times.append(replicas.restart(number % NUM_REPLICAS))
            gone_on(traffic, replicas.servers[number % NUM_REPLICAS], 20)
    ends, starts = (sorted(each) for each in zip(*times, strict=True))
    print(
        f"\n{front}: {NUM_RESTARTS} restarts, {len(traffic.ended)} calls, {len(traffic.errors)} lost, "
        f"{len(traffic.wrong)} wrong. A drain took {ends[-1]:.2f} s at most, a start {starts[len(starts) // 2]:.1f} s "
        f"(median), the slowest call {max(call.seconds for call in traffic.ended):.2f} s."
    )
    assert ([], []) == (traffic.errors, traffic.wrong)


def all_asked(client, replicas):
    """Wait until each replica gets calls. Envoy may have missed one of them in its first look."""
    for server in replicas.servers:
        server.wait_until(lambda s=server: client.generate("a", decoding=LONG, model="pydocs") and answered(s) > 0)


class Begun:
    """A stream whose first piece has come."""

    def __init__(self, client):
        self.stream = client.stream_generate("Open a file and", decoding=LONG, model="pydocs", timeout=120)
        self.pieces, self.outcome = [], None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.pieces.extend(self.stream)
            self.outcome = self.stream.result.text
        except weft.Error as error:
            self.outcome = error

    def end(self):
        """The text or the error."""
        self._thread.join(60)
        assert not self._thread.is_alive(), "a stream has no end"
        return self.outcome


def let_all_begin(replicas, streams):
    """Let step after step go by until each stream has a piece. They are held then, at one step."""
    for number in range(1, 25):
        for server in replicas.servers:
            server.say("pydocs.decode", f"hold {number}")
        # What a step gave takes a while to arrive.
        give_up = time.monotonic() + 1
        while time.monotonic() < give_up:
            if all(stream.pieces for stream in streams):
                return
            time.sleep(0.01)
    raise AssertionError("some streams did not begin")


@fronts
def test_a_killed_replica_costs_only_what_it_held(front, repository, tmp_path):
    """Streams that it had begun end as UNAVAILABLE. All others are answered, also calls that it had not begun."""
    folders = [tmp_path / str(number) for number in range(NUM_REPLICAS)]
    for folder in folders:
        folder.mkdir()

    def start(number, **settings):
        return Held(repository, folders[number], **settings)

    with (
        Replicas(start, slots=4) as replicas,
        reached_through(front, replicas, tmp_path) as reach,
        weft.Client(timeout=60, **reach) as client,
    ):
        alone = client.generate("Open a file and", decoding=LONG, model="pydocs").text
        all_asked(client, replicas)
        for server in replicas.servers:
            server.say("pydocs.decode", "hold")
        streams = [Begun(client) for _ in range(9)]
        let_all_begin(replicas, streams)
        # These wait behind the streams: they have not begun.
        waiting = [Begun(client) for _ in range(9)]
        held = [int(server.metric("weft_requests_running")) for server in replicas.servers]
        replicas.servers[0].wait_until(
            lambda: sum(each.metric("weft_requests_queued") for each in replicas.servers) == 9, what="all nine waiting"
        )
        queued = [int(server.metric("weft_requests_queued")) for server in replicas.servers]
        replicas.servers[0].process.kill()
        killed = time.monotonic()
        replicas.servers[0].wait_until(lambda: sum(each.outcome is not None for each in streams) >= held[0])
        noticed = time.monotonic() - killed
        for server in replicas.servers[1:]:
            server.free("pydocs.decode")
        outcomes = [stream.end() for stream in streams]
        behind = [stream.end() for stream in waiting]
        (folders[0] / "pydocs.decode").unlink()
        replicas.start(0)
        all_asked(client, replicas)
    lost = [each for each in outcomes if isinstance(each, weft.Error)]
    print(
        f"\n{front}: killed with {held[0]} of 9 streams and {queued[0]} of 9 waiting calls: {len(lost)} lost, "
        f"noticed after {noticed:.3f} s."
    )
    assert held[0] > 0
    assert queued[0] > 0
    assert [weft.Unavailable] * held[0] == [type(each) for each in lost]
    assert {alone} == {each for each in outcomes if each not in lost}
    assert [alone] * 9 == behind


@fronts
def test_a_stopped_replica_is_left_and_comes_back(front, repository, digit, tmp_path):
    """SIGSTOP: nobody waits for it longer than for a dead connection, then nobody asks it; SIGCONT: it is asked."""
    with (
        Replicas(lambda _, **settings: ServerProcess(repository, **settings)) as replicas,
        reached_through(front, replicas, tmp_path) as reach,
        Traffic(picture=digit[0], **reach) as traffic,
    ):
        stopped = replicas.servers[0]
        gone_on(traffic, stopped, 100)
        before = len(traffic.ended)
        stopped.process.send_signal(signal.SIGSTOP)
        at = time.monotonic()
        time.sleep(PING_S + 15)
        resumed_at = time.monotonic()
        stopped.process.send_signal(signal.SIGCONT)
        told = answered(stopped)
        stopped.wait_until(lambda: answered(stopped) > told + 20, what="answers of the one that was stopped")
        back = time.monotonic() - resumed_at
    held = [call for call in traffic.ended[before:] if call.seconds > WAITED_S]
    longest, last = max((call.seconds for call in held), default=0), max((call.began for call in held), default=at)
    print(
        f"\n{front}: {len(held)} calls waited for the stopped replica, {longest:.1f} s at most. "
        f"The last of them began {last - at:.1f} s after SIGSTOP. "
        f"{len(traffic.errors)} were lost. It was back {back:.1f} s after SIGCONT."
    )
    left_after = CHECK_S if front == "envoy" else PING_S
    assert [] == traffic.wrong
    assert all(call.began < at + left_after + WAITED_S for call in held)
    assert all(call.seconds < PING_S + WAITED_S for call in held)
    # A stream that had begun cannot be begun again elsewhere.
    assert {("stream", weft.Unavailable)} >= {(call.kind, type(call.error)) for call in traffic.errors}
    assert all(call.began < at + WAITED_S for call in traffic.errors)
