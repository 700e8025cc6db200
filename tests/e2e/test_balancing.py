"""Several servers behind one target: which of them the SDK asks, and what is lost when one goes."""

import asyncio
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

import weft
from process import ServerProcess, stuck_reader
from weft import _channel

pytestmark = pytest.mark.e2e
CALLERS = 32
SHORT = weft.Decoding(max_new_tokens=4)


@pytest.fixture(scope="module")
def small_repository(demo_repository, tmp_path_factory):
    """One small model that writes and one that looks."""
    repository = tmp_path_factory.mktemp("small")
    for name in ("pydocs", "digits"):
        (repository / name).symlink_to(demo_repository / name)
    return repository


@contextmanager
def two_servers(repository, **settings):
    """Two servers and the target that names both."""
    with ExitStack() as stack:
        servers = [stack.enter_context(ServerProcess(repository, **settings)) for _ in range(2)]
        for server in servers:
            server.wait_for("ready")
        yield *servers, f"ipv4:{','.join(server.target for server in servers)}"


def by_threads(target, ask, until):
    """Ask from threads until told to stop."""

    def run(client):
        while not until.is_set():
            ask(lambda: client.generate("Return the", decoding=SHORT))

    with weft.Client(target) as client, ThreadPoolExecutor(CALLERS) as pool:
        for _ in range(CALLERS):
            pool.submit(run, client)


def by_asyncio(target, ask, until):
    """Ask from tasks until told to stop."""

    async def run(client):
        while not until.is_set():
            await ask(lambda: client.generate("Return the", decoding=SHORT))

    async def main():
        async with weft.AsyncClient(target) as client:
            await asyncio.gather(*(run(client) for _ in range(CALLERS)))

    asyncio.run(main())


@pytest.mark.parametrize("callers", [by_threads, by_asyncio])
def test_no_call_is_lost_while_a_server_drains(small_repository, callers):
    """One of two servers drains for seconds, held by a reader that reads no more: every call is answered."""
    answers, failures, until = [], [], threading.Event()

    def ask(call):
        try:
            answers.append(call())
        except weft.Error as error:
            failures.append(error)

    async def ask_async(call):
        try:
            answers.append(await call())
        except weft.Error as error:
            failures.append(error)

    with two_servers(small_repository, drain_timeout_s=4) as (one, other, target), stuck_reader(one):
        asks = ask if callers is by_threads else ask_async
        thread = threading.Thread(target=callers, args=(target, asks, until))
        thread.start()
        one.wait_until(lambda: len(answers) > 100)
        one.process.send_signal(signal.SIGTERM)
        one.wait_for("drain timeout, ending the rest")
        assert 0 == one.exit_code()
        until.set()
        thread.join(30)
        assert other.metric("weft_requests_total", code="OK") > 100
    assert [] == failures


def test_a_server_with_a_refused_bundle_answers_for_its_other_models(small_repository, tmp_path):
    """It is not ready, and still takes what it can do; health, list_models and get_model reach it."""
    repository = tmp_path / "models"
    shutil.copytree(small_repository, repository, symlinks=False)
    (repository / "digits" / "1" / "bundle.json").write_text("{}")
    with ServerProcess(repository) as server:
        server.wait_for("not ready")
        with weft.Client(server.target, timeout=10) as client:
            assert client.generate("Return the", decoding=SHORT).token_ids
            assert weft.Health.NOT_SERVING is client.health()
            assert {"digits": weft.ModelState.FAILED, "pydocs": weft.ModelState.READY} == {
                model.name: model.state for model in client.list_models()
            }
            with pytest.raises(weft.Unavailable, match="refused"):
                client.classify(image=b"", model="digits")


def test_a_lone_server_that_drains_says_so(small_repository):
    """Where no server takes new requests, the error says that it drains; what asks how it is still reaches it."""
    with ServerProcess(small_repository, drain_timeout_s=30) as server:
        server.wait_for("ready")
        with stuck_reader(server), weft.Client(server.target, timeout=10) as client:
            client.generate("Return the", decoding=SHORT)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("draining")
            server.wait_until(lambda: client.health("accepting") is weft.Health.NOT_SERVING)
            with pytest.raises(weft.Unavailable, match="draining") as caught:
                client.generate("Return the", decoding=SHORT)
            assert "DRAINING" == caught.value.reason
            assert weft.Health.NOT_SERVING is client.health()


def test_calls_on_a_frozen_server_are_answered_by_another(small_repository, monkeypatch):
    """A server that stops like a machine that hangs is left at its first missed ping, and its calls go elsewhere.

    The figures of the SDK are tested in tests/client; here they are small, so that nobody waits.
    """
    faster = {"grpc.keepalive_time_ms": 3000, "grpc.http2.ping_timeout_ms": 3000}
    monkeypatch.setattr(_channel, "CHANNEL_OPTIONS", list({**dict(_channel.CHANNEL_OPTIONS), **faster}.items()))
    with two_servers(small_repository) as (one, other, target), weft.Client(target, timeout=30) as client:
        for server in (one, other):
            server.wait_until(lambda s=server: client.generate("a", decoding=SHORT) and served(s))
        one.process.send_signal(signal.SIGSTOP)
        with ThreadPoolExecutor(CALLERS) as pool:
            calls = [pool.submit(client.generate, "Return the", decoding=SHORT) for _ in range(CALLERS)]
            assert [None] * CALLERS == [call.exception() for call in calls]
        one.process.send_signal(signal.SIGCONT)


def served(server):
    """Whether any request was answered there."""
    return server.metric("weft_requests_total", code="OK") > 0
