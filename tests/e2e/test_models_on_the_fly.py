"""Models come and go in a real server under load: no request is lost, and nothing of what left stays."""

import shutil
from contextlib import contextmanager

import grpc
import pytest

import weft
from lifecycles import repository_of
from process import ServerProcess
from under_load import Load
from weft_proto.v1 import admin_pb2, admin_pb2_grpc, generation_pb2, generation_pb2_grpc

pytestmark = pytest.mark.e2e
SMALL = {"slots": 2, "lanes": 1}


@pytest.fixture
def two(tiny_repository, tmp_path):
    """Two versions of a writer, and a classifier beside them."""
    repository_of(tmp_path, tiny_repository / "tiny-text" / "1", 1, name="other")
    return repository_of(tmp_path, tiny_repository / "tiny-generate" / "1", 1, 2, name="m")


@pytest.fixture(scope="module")
def shared(tiny_repository, tmp_path_factory):
    """(server, admin stub, repository) for tests that leave the models as they were."""
    repository = tmp_path_factory.mktemp("shared")
    repository_of(repository, tiny_repository / "tiny-generate" / "1", 1, 2, name="m")
    with administered(repository) as (server, admin):
        yield server, admin, repository


@contextmanager
def administered(repository, **settings):
    """A server, and a stub of its admin port."""
    with (
        ServerProcess(repository, admin=True, admin_port=0, **SMALL, **settings) as server,
        grpc.insecure_channel(server.wait_for("listening")["admin"]) as channel,
    ):
        server.wait_for("ready")
        yield server, admin_pb2_grpc.ModelAdminServiceStub(channel)


def generate(client):
    """One answer, and the version that gave it."""
    answer = client.generate("a b", model="m", decoding=weft.Decoding(max_new_tokens=20))
    return answer.token_ids, answer.model.version


def stream(client):
    """The same, streamed."""
    with client.stream_generate("a b", model="m", decoding=weft.Decoding(max_new_tokens=20)) as chunks:
        list(chunks)
        answer = chunks.result
    return answer.token_ids, answer.model.version


def classify(client):
    """Another model's answer."""
    return client.classify("a b", model="other").labels


def swap(admin, version):
    """Swap to a version of m."""
    answer = admin.SwapModel(admin_pb2.SwapModelRequest(name="m", version=version), timeout=60)
    assert version == answer.model.version
    return list(answer.unloaded)


def test_swaps_under_load_lose_nothing(two):
    """Every call is answered, by one version or the other, with the same bits. Another model's answers stay."""
    with administered(two) as (server, admin), Load(server.target, generate, stream, classify) as load:
        assert [1] == swap(admin, 2)
        for version in (1, 2, 1):
            assert [3 - version] == swap(admin, version)
            seen = [len(answers) for answers in load.answers]
            server.wait_until(lambda seen=seen: all(len(a) > n for a, n in zip(load.answers, seen, strict=True)))
    assert [] == load.errors
    assert 1 == len({answer[0] for answer in (*load.answers[0], *load.answers[1])})
    assert {1, 2} == {answer[1] for answer in load.answers[0]}
    assert 1 == len(set(load.answers[2]))


def test_what_left_leaves_nothing(two):
    """No series, no threads, no health status; the other model and readiness stay."""
    with administered(two) as (server, admin), weft.Client(server.target, timeout=30) as client:
        names = {dict(labels).get("model") for _, labels in server.metrics()}
        assert {"m", "other"} <= names
        for version in (1, 2):
            admin.UnloadModel(admin_pb2.UnloadModelRequest(name="m", version=version), timeout=30)
        assert ["other"] == [model.name for model in client.list_models()]
        assert "m" not in {dict(labels).get("model") for _, labels in server.metrics()}
        with pytest.raises(weft.NotFound):
            client.health("model/m")
        with pytest.raises(weft.NotFound, match="there is no model 'm'; there are other"):
            client.generate("a", model="m")
        assert weft.Health.SERVING is client.health()
        assert classify(client)
        assert 0 == server.terminate()


def test_a_refused_bundle_changes_nothing(shared):
    """The caller is told why, readiness stays, and the model answers as before."""
    server, admin, repository = shared
    (repository / "m" / "3").mkdir()
    shutil.copy(repository / "m" / "2" / "bundle.json", repository / "m" / "3")
    with weft.Client(server.target, timeout=30) as client:
        before = generate(client)
        with pytest.raises(grpc.RpcError) as refused:
            admin.SwapModel(admin_pb2.SwapModelRequest(name="m"), timeout=30)
        assert grpc.StatusCode.FAILED_PRECONDITION is refused.value.code()
        assert "model 'm' version 3 is refused: " in refused.value.details()
        assert str(repository) not in refused.value.details()
        assert before == generate(client)
        assert (200, "ok\n") == server.get("/readyz")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (admin_pb2.LoadModelRequest(), "name"),
        (admin_pb2.LoadModelRequest(name="m", version=0), "version"),
        (admin_pb2.LoadModelRequest(name="m", version_label="best"), "version_label"),
        (admin_pb2.LoadModelRequest(name="m", version_label="stable", share=0.5), "share"),
        (admin_pb2.SwapModelRequest(version=1), "name"),
        (admin_pb2.UnloadModelRequest(name="m"), "version"),
        (admin_pb2.SetLabelRequest(name="m", version=1), "version_label"),
        (admin_pb2.SetLabelRequest(name="m", version_label="canary", version=1, share=-1), "share"),
        (admin_pb2.SetLabelRequest(name="m", version_label="canary", version=1, share=float("nan")), "share"),
    ],
)
def test_a_wrong_request_names_its_field(shared, message, field):
    """As everywhere, and nothing changes."""
    _, admin, _ = shared
    method = type(message).__name__.removesuffix("Request")
    with pytest.raises(grpc.RpcError) as refused:
        getattr(admin, method)(message, timeout=30)
    assert grpc.StatusCode.INVALID_ARGUMENT is refused.value.code(), refused.value
    assert refused.value.details().startswith(f"{field} ")


def test_the_admin_service_is_off_by_default_and_never_on_the_port_of_requests(two, shared):
    """Nor is a model to be asked on the admin port."""
    with ServerProcess(two, **SMALL) as server, grpc.insecure_channel(server.target) as channel:
        assert "admin" not in server.wait_for("listening")
        with pytest.raises(grpc.RpcError) as refused:
            admin_pb2_grpc.ModelAdminServiceStub(channel).LoadModel(admin_pb2.LoadModelRequest(name="m"), timeout=10)
        assert grpc.StatusCode.UNIMPLEMENTED is refused.value.code()
    address = shared[0].wait_for("listening")["admin"]
    assert address.startswith("127.0.0.1:")
    with grpc.insecure_channel(shared[0].target) as channel, grpc.insecure_channel(address) as other:
        for call, message in (
            (admin_pb2_grpc.ModelAdminServiceStub(channel).LoadModel, admin_pb2.LoadModelRequest(name="m")),
            (generation_pb2_grpc.GenerationServiceStub(other).Generate, generation_pb2.GenerateRequest()),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call(message, timeout=10)
            assert grpc.StatusCode.UNIMPLEMENTED is refused.value.code()


def test_a_canary_gets_its_share_and_is_listed(shared):
    """Labels can be named; the list says who bears them, on the admin port too."""
    server, _, _ = shared
    address = server.wait_for("listening")["admin"]
    with weft.Client(server.target, timeout=30) as client, weft.AdminClient(address, timeout=30) as admin:

        def version(request_id="", **which):
            decoding = weft.Decoding(max_new_tokens=1)
            return client.generate("a", model="m", request_id=request_id, decoding=decoding, **which).model.version

        admin.set_label("m", "canary", 2, share=0.5)
        drawn = [version(f"r{number}") for number in range(40)]
        assert {1, 2} == set(drawn)
        assert drawn == [version(f"r{number}") for number in range(40)]
        assert 2 == version(version_label="canary")
        assert [((), 0.0), (("canary",), 0.5)] == [(m.version_labels, m.canary_share) for m in admin.list_models()]
        admin.set_label("m", "stable", 1)
        admin.set_label("m", "canary", None)
        assert {1} == {version(f"r{number}") for number in range(10)}
        assert [("stable",), ()] == [each.version_labels for each in client.list_models()]
        admin.set_label("m", "stable", None)
        assert 2 == admin.load_model("m", 2).version


def test_sigterm_during_a_load_ends_the_server(two):
    """Whoever waits for the change is told, and the exit code is 0."""
    outcome = []
    with administered(two) as (server, admin):
        swap(admin, 1)
        call = admin.SwapModel.future(admin_pb2.SwapModelRequest(name="m", version=2), timeout=30)
        call.add_done_callback(lambda ended: outcome.append(ended.code()))
        assert 0 == server.terminate()
    # A machine may be so fast that the swap is over before.
    assert {*outcome} <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK}


def test_a_watched_folder_is_followed_and_an_idle_model_sleeps(two):
    """A version is copied and answers; its folder goes, and so does it. Who sleeps is woken by who asks."""
    shutil.move(two / "m" / "2", two.parent / "away")
    with ServerProcess(two, watch=True, idle_unload_s=2, **SMALL) as server:
        server.wait_for("ready")
        with weft.Client(server.target, timeout=30) as client:
            shutil.copytree(two.parent / "away", two / "m" / "2")

            def states():
                return {(model.name, model.version): str(model.state) for model in client.list_models()}

            server.wait_until(lambda: ("m", 2) in states())
            assert 2 == generate(client)[1]
            server.wait_until(lambda: states()["other", 1] == "sleeping")
            assert (200, "ok\n") == server.get("/readyz")
            assert weft.Health.SERVING is client.health("model/other")
            with Load(server.target, *[classify] * 4) as load:
                server.wait_until(lambda: all(load.answers))
            assert [] == load.errors
            shutil.rmtree(two / "m" / "2")
            server.wait_until(lambda: ("m", 2) not in states())
            assert 1 == generate(client)[1]
            assert 0 == server.terminate()
