"""Adapters without a model: which there are, who waits for one that is loaded, and what is refused before it is run."""

import asyncio

import pytest
from google.protobuf import json_format

from waiting import until
from weft_proto.bundle_rules import ADAPTER_FILE, ADAPTERS_DIR, FORMAT_VERSION
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.adapter import load_adapter, versions_with
from weft_server.bundle.load import Bundle
from weft_server.errors import AdapterNotFound, AdapterRefused, BundleError, LaneFailed, ModelNotReady
from weft_server.loading import adapter_loader
from weft_server.loading.adapter_loader import AdapterLoader
from weft_server.models.adapters import Adapters
from weft_server.models.allowed_models import AllowedModels
from weft_server.sequence import Adapter
from weft_server.telemetry.metrics import Metrics


@pytest.fixture
def bundle(tmp_path):
    """Version 2 of a model that takes adapters of one layer."""
    manifest = bundle_pb2.BundleManifest()
    manifest.adapters.layers.add(name="a", inputs=2, outputs=3, rank=2)
    return Bundle("m", 2, tmp_path / "m" / "2", manifest, "0" * 64)


def lay(bundle, *names, version=2):
    """Let adapters lie beside a version."""
    for name in names:
        folder = bundle.directory.parent / ADAPTERS_DIR / str(version) / name
        folder.mkdir(parents=True)
        (folder / ADAPTER_FILE).touch()


def adapters_of(bundle, load, max_adapters=2):
    """The adapters of a model that loads them so."""
    adapters = Adapters(bundle, max_adapters, Metrics().for_model("m", 2, "t"), max_requests=9)
    adapters.begin_loading = lambda path: asyncio.create_task(load(path.name))
    return adapters


async def loaded(name):
    """One that is good."""
    return Adapter(name, "", {})


def test_an_adapter_that_is_not_there_is_refused_with_those_that_are(bundle):
    """And with the last other version that has it. What a caller may not ask is not named."""

    async def why(name, *allowed):
        with pytest.raises(AdapterNotFound) as refused:
            await adapters_of(bundle, loaded).take(name, allowed=AllowedModels(allowed or None))
        return refused.value.message

    async def run():
        assert "version 2 of model 'm' has no adapter 'rude'; it has none" == await why("rude")
        lay(bundle, "rude", version=1)
        lay(bundle, "rude", version=3)
        assert (await why("rude")).endswith("it has none; version 3 has it")
        lay(bundle, "formal", "short")
        assert (await why("other")).endswith("'other'; it has formal, short")
        assert (await why("other", "m", "m:short")).endswith("'other'; it has short")
        for name in ("../2/formal", "/etc", ".", ""):
            assert (await why(name)).endswith("it has formal, short")

    asyncio.run(run())


def test_a_model_without_a_folder_of_adapters_has_no_version_with_one(bundle):
    """That is no fault of anybody's."""
    assert [] == versions_with(bundle, "formal")
    lay(bundle, "formal", version=2)
    assert [] == versions_with(bundle, "formal")
    lay(bundle, "formal", version=10)
    lay(bundle, "formal", version=3)
    assert [3, 10] == versions_with(bundle, "formal")


def test_who_waits_for_an_adapter_that_is_refused_hears_why(bundle):
    """All of them. Nobody holds it then, and it is begun again for who asks next."""
    lay(bundle, "formal")
    adapters, begun = None, []

    async def refuse(name):
        begun.append(name)
        await until(lambda: adapters.residents[name].num_users == 3)
        raise AdapterRefused("m", name, "it is wrong")

    async def run():
        nonlocal adapters
        adapters = adapters_of(bundle, refuse)
        for _ in range(2):
            heard = await asyncio.gather(*(adapters.take("formal") for _ in range(3)), return_exceptions=True)
            assert [AdapterRefused] * 3 == [type(each) for each in heard]
            assert 0 == adapters.count()

    asyncio.run(run())
    assert ["formal"] * 2 == begun


def test_who_goes_while_an_adapter_is_loaded_holds_no_place_of_it(bundle):
    """It goes on to its end, and is the first to leave."""
    lay(bundle, "formal", "short")
    go = asyncio.Event()

    async def slow(name):
        await go.wait()
        return await loaded(name)

    async def run():
        adapters = adapters_of(bundle, slow, max_adapters=1)
        waits = asyncio.create_task(adapters.take("formal"))
        await until(adapters.count)
        waits.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await waits
        short = await adapters.take("short")
        assert ("short", ["short"]) == (short.name, list(adapters.residents))
        adapters.let_go(short)

    asyncio.run(run())


class Model:
    """What a loader asks of a model."""

    name, version = "m", 2

    def __init__(self, bundle):
        self.bundle, self.num_held = bundle, 0
        self.metrics = Metrics().for_model("m", 2, "t")

    def hold(self):
        """Stay."""
        self.num_held += 1

    def release(self):
        """As you like."""
        self.num_held -= 1

    async def work(self, job, *_):
        """Do a job, and let nobody wait."""
        return job(0.0)


@pytest.mark.parametrize(
    ("error", "raised", "result"),
    [
        (None, None, "ready"),
        (LaneFailed("STEP_FAILED", "a step failed"), "its golden request fails: a step failed", "refused"),
        (AdapterNotFound("no such id"), "its golden request is refused: no such id", "refused"),
        (ModelNotReady("the model sleeps", 1.0), None, None),
    ],
    ids=["good", "fails", "refused", "not now"],
)
def test_an_adapter_is_what_its_golden_request_says(bundle, monkeypatch, error, raised, result):
    """It is counted by that. What is the model's load and not the adapter's fault refuses none, and counts none."""
    model = Model(bundle)

    async def ask(*_):
        if error:
            raise error

    monkeypatch.setattr(adapter_loader, "verify_adapter", ask)
    monkeypatch.setattr(adapter_loader, "load_adapter", lambda path, _: (Adapter(path.name, "", {}), None))

    async def run():
        task = AdapterLoader(model).begin(bundle.directory / "formal")
        assert 1 == model.num_held
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        return outcome

    outcome = asyncio.run(run())
    assert 0 == model.num_held
    if raised:
        assert isinstance(outcome, AdapterRefused)
        assert raised in outcome.message
    else:
        assert (outcome is error) == bool(error)
    counts = {name: model.metrics.counters["adapter_loads_total", name].value for name in ("ready", "refused")}
    assert {name: int(name == result) for name in ("ready", "refused")} == counts


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([], "layers are missing"),
        ([("a", 1), ("a", 1)], "layers has a name twice"),
        ([("b", 1)], "the base takes no adapter of 'b'"),
        ([("a", 3)], "'a' has a rank of 3; the base takes 2"),
        ([("a", 2)], "weights.size_bytes is 0; its layers take 40"),
    ],
    ids=["none", "twice", "unknown", "rank", "size"],
)
def test_layers_that_the_base_does_not_take_are_refused(bundle, layers, why):
    """Before a file of weights is looked at."""
    manifest = bundle_pb2.AdapterManifest(format_version=FORMAT_VERSION, base_sha256=bundle.sha256)
    for name, rank in layers:
        manifest.layers.add(name=name, rank=rank)
    lay(bundle, "formal")
    directory = bundle.directory.parent / ADAPTERS_DIR / "2" / "formal"
    (directory / ADAPTER_FILE).write_text(json_format.MessageToJson(manifest))
    with pytest.raises(BundleError) as refused:
        load_adapter(directory, bundle)
    assert why in str(refused.value)
