"""An admin's client and `weft models load`, `unload`, `swap`, `label`, against a server that only notes what comes."""
# ruff: noqa: D102, N802 - gRPC names the methods, and the protos document them

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import weft
from fakes import Failure
from weft_command import running
from weft_proto.v1 import admin_pb2, admin_pb2_grpc, model_pb2


class Noting(admin_pb2_grpc.ModelAdminServiceServicer):
    """Answers as if all went well, or with `failure`."""

    def __init__(self):
        self.seen, self.failure = [], None

    def _note(self, request, context):
        self.seen.append(request)
        if self.failure:
            self.failure.abort(context)
        labels = [label] if (label := getattr(request, "version_label", "")) else []
        return model_pb2.Model(
            name=request.name, version=request.version or 9, state=model_pb2.MODEL_STATE_READY, version_labels=labels
        )

    def LoadModel(self, request, context):
        return admin_pb2.LoadModelResponse(model=self._note(request, context))

    def UnloadModel(self, request, context):
        self._note(request, context)
        return admin_pb2.UnloadModelResponse()

    def SwapModel(self, request, context):
        return admin_pb2.SwapModelResponse(model=self._note(request, context), unloaded=[1])

    def SetLabel(self, request, context):
        self._note(request, context)
        return admin_pb2.SetLabelResponse()


@pytest.fixture
def admin():
    """(what notes, its target)."""
    with ThreadPoolExecutor() as pool:
        server, noting = grpc.server(pool), Noting()
        admin_pb2_grpc.add_ModelAdminServiceServicer_to_server(noting, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield noting, f"127.0.0.1:{port}"
        server.stop(None)


def _change(client):
    """What each method does, in order."""
    yield client.load_model("m", 2, version_label="canary", share=0.25)
    yield client.load_model("m")
    yield client.swap_model("m", 3)
    yield client.set_label("m", "stable", 3)
    yield client.set_label("m", "stable", None)
    yield client.unload_model("m", 2)


ASKED = [
    admin_pb2.LoadModelRequest(name="m", version=2, version_label="canary", share=0.25),
    admin_pb2.LoadModelRequest(name="m"),
    admin_pb2.SwapModelRequest(name="m", version=3),
    admin_pb2.SetLabelRequest(name="m", version_label="stable", version=3),
    admin_pb2.SetLabelRequest(name="m", version_label="stable"),
    admin_pb2.UnloadModelRequest(name="m", version=2),
]


def test_each_method_is_one_call(admin):
    """Awaited or not, with what was given and nothing else."""
    noting, target = admin
    with weft.AdminClient(target, timeout=10) as client:
        loaded, highest, swapped, *rest = _change(client)
    assert (2, ("canary",), 9, 3) == (loaded.version, loaded.version_labels, highest.version, swapped.version)
    assert [None] * 3 == rest

    async def run():
        async with weft.AsyncAdminClient(target, timeout=10) as client:
            return [await each for each in _change(client)]

    assert [loaded, highest, swapped, *rest] == asyncio.run(run())
    assert [*ASKED, *ASKED] == noting.seen


def test_a_refusal_is_a_typed_error(admin):
    """With the server's words; and what no message can hold is not sent."""
    noting, target = admin
    noting.failure = Failure(grpc.StatusCode.FAILED_PRECONDITION, "BUNDLE_REFUSED", "it does not fit")
    with weft.AdminClient(target, timeout=10) as client:
        with pytest.raises(weft.FailedPrecondition, match=r"^it does not fit$") as refused:
            client.load_model("m")
        assert "BUNDLE_REFUSED" == refused.value.reason
        with pytest.raises(weft.InvalidRequest, match="version"):
            client.load_model("m", -1)
        assert 1 == len(noting.seen)


def test_a_version_is_named_by_number_or_by_label(client, server):
    """Not by both."""
    client.translate("a", model="en-es", version_label="canary")
    assert "canary" == server.servicer.seen[-1].request.model.version_label
    with pytest.raises(weft.InvalidRequest, match=r"model\.version_label: names a version"):
        client.translate("a", model="en-es", model_version=1, version_label="canary")


def test_an_adapter_is_named_beside_the_model(client, server):
    """It goes with whatever names the model, or with none."""
    client.translate("a", adapter="formal")
    assert ("", "formal") == (
        server.servicer.seen[-1].request.model.name,
        server.servicer.seen[-1].request.model.adapter,
    )
    client.score("a", "b", model="en-es", adapter="formal")
    assert "formal" == server.servicer.seen[-1].request.model.adapter


@pytest.mark.parametrize(
    ("words", "asked", "said"),
    [
        ("load m 2 --label canary --share 0.25", ASKED[0], "m 2 ready canary\n"),
        ("load m", ASKED[1], "m 9 ready\n"),
        ("swap m 3", ASKED[2], "m 3 ready\n"),
        ("label m stable 3", ASKED[3], "m 3 is stable\n"),
        ("label m stable", ASKED[4], "no version of m is stable\n"),
        ("unload m 2", ASKED[5], "m 2 unloaded\n"),
    ],
)
def test_each_subcommand_is_one_call_and_one_line(admin, monkeypatch, capsys, words, asked, said):
    """The admin port has a variable of its own."""
    noting, target = admin
    monkeypatch.setenv("WEFT_ADMIN_TARGET", target)
    monkeypatch.setenv("WEFT_TARGET", "localhost:1")
    assert 0 == running.run(["models", *words.split()])
    assert (said, "") == capsys.readouterr()
    assert [asked] == noting.seen


def test_json_is_the_whole_model(admin, capsys):
    """As of the list."""
    assert 0 == running.run(["models", "swap", "m", "3", "--json", "-t", admin[1]])
    model = json.loads(capsys.readouterr().out)
    assert ("m", 3, "ready") == (model["name"], model["version"], model["state"])


def test_an_option_before_the_subcommand_is_refused(admin, weft_command):
    """It would be the list's, and the change would go elsewhere."""
    noting, target = admin
    code, out, error = weft_command("models", "-t", target, "load", "m")
    assert (2, "", "weft: put the options behind the subcommand: weft models load ...\n") == (code, out, error)
    assert [] == noting.seen


def test_a_refused_field_has_the_name_that_was_typed(admin, capsys):
    """Not the name that the contract has for it."""
    noting, target = admin
    for field, words in (("share", "--share must be 0..1, not 2"), ("version_label", "the label must be 0..1, not 2")):
        noting.failure = Failure(
            grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", f"{field} must be 0..1, not 2", field
        )
        assert 2 == running.run(["models", "label", "m", "canary", "2", "--share", "2", "-t", target])
        assert f"weft: {words}\n" == capsys.readouterr().err


@pytest.mark.parametrize("columns", ["80", "50"])
@pytest.mark.parametrize("command", ["load", "unload", "swap", "label"])
def test_help_is_whole(weft_command, monkeypatch, command, columns):
    """Nothing is cut, and the list of subcommands has each one's whole sentence."""
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = weft_command("models", command, "--help")
    assert 0 == code
    assert max(map(len, out.splitlines())) <= int(columns)
    flat = " ".join(out.split())
    assert "[env var: WEFT_ADMIN_TARGET; default: localhost:7072]" in flat
    assert "[default: 600.0]" in flat
    listed = weft_command("models", "--help")[1].partition("Commands:")[2]
    assert columns == "50" or "..." not in listed
    assert command in listed
