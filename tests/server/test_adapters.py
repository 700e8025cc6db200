"""The laws of adapters: in any company a row has its own adapter's bits, or the model's own; and few are in memory."""

import asyncio
import hashlib
import json
import os
import shutil
from contextlib import asynccontextmanager

import numpy as np
import pytest
from google.protobuf import json_format
from tiny import CHECKPOINTS, save_tiny
from tiny_adapters import linear_shapes, write_adapter

from loaded import Loaded, answering, refusal_of, score
from waiting import until
from weft_export.adapters.export_adapter import export_adapter
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.bundle_rules import ADAPTER_FILE, ADAPTERS_DIR
from weft_proto.v1 import bundle_pb2, common_pb2, translation_pb2
from weft_server.bundle.adapter import load_adapter, versions_with
from weft_server.bundle.load import Bundle, load_bundle
from weft_server.checks.bundles import look_at_bundles
from weft_server.config import try_config
from weft_server.errors import AdapterNotFound, AdapterRefused, BundleError, CannotAdapt, Overloaded
from weft_server.loading import adapter_loader
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.runtime import adapter_stack
from weft_server.runtime.adapter_stack import grouped
from weft_server.sequence import Standing

# Nearly all of them are about one bundle and its adapters, which takes seconds to export.
pytestmark = pytest.mark.slow

TEXTS = ("the big dog eats", "the cat", "a dog finds the red house", "the dog")
NAMES = ("formal", "short", "wide")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A model repository with a translator that takes adapters, and three of them."""
    root = tmp_path_factory.mktemp("adapters")
    checkpoint = save_tiny("tiny-translate", root / "checkpoint")
    bundle = root / "models" / "adapted" / "1"
    export_checkpoint(
        checkpoint, bundle, ExportOptions(adapters=3, adapted="qkv,query,key,output,down_proj", no_explain=True)
    )
    shapes = linear_shapes(CHECKPOINTS["tiny-translate"]().model, "qkv", "query", "key", "down_proj")
    for seed, (name, rank) in enumerate(zip(NAMES, (3, 1, 2), strict=True)):
        export_adapter(write_adapter(root / name, shapes, rank=rank, seed=seed), bundle, checkpoint)
    return root / "models"


@pytest.fixture
def adapters(repository, tmp_path):
    """A copy of the repository, to be changed."""
    shutil.copytree(repository, tmp_path / "models")
    return tmp_path / "models" / "adapted" / "adapters" / "1"


@asynccontextmanager
async def asked(model, text="", adapter="", **more):
    """Ask as a caller does whose call has not ended."""
    call = RequestContext("Translate")
    REQUEST_CONTEXT.set(call)
    selector = common_pb2.ModelSelector(name=model.name, adapter=adapter)
    request = translation_pb2.TranslateRequest(model=selector, text=text or TEXTS[0], return_scores=True, **more)
    try:
        yield await answering(model)["Translate"](request, None)
    finally:
        call.let_go()


async def answer(model, text="", adapter="", **more):
    """The ids of an answer, and the bits of their log-probabilities."""
    async with asked(model, text, adapter, **more) as response:
        done = response.completion
        assert adapter == done.model.adapter
        return list(done.token_ids), np.array(done.token_log_probs, np.float32).tobytes()


def test_in_any_mix_each_row_has_the_bits_that_it_has_alone(repository):
    """Rows of three adapters and of none in one lane, greedy and searching, answer as each does alone."""

    async def run():
        async with Loaded(repository / "adapted" / "1", slots=8, lanes=1) as model:
            beams = {"decoding": common_pb2.Decoding(beams=common_pb2.Beams(num_beams=3), max_new_tokens=8)}
            asks = [(text, name, more) for text in TEXTS for name in ("", *NAMES) for more in ({}, beams)]
            alone = [await answer(model, text, name, **more) for text, name, more in asks]
            together = await asyncio.gather(*(answer(model, text, name, **more) for text, name, more in asks))
            assert alone == together
            greedy = {
                str(ids) for (ids, _), (text, _, more) in zip(alone, asks, strict=True) if text == TEXTS[0] and not more
            }
            assert 1 + len(NAMES) == len(greedy)

    asyncio.run(run())


def test_a_row_without_an_adapter_has_the_bits_of_a_bundle_that_takes_none(repository, tiny_repository):
    """Nothing is added to it, also beside rows that have one."""

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1", slots=4, lanes=1) as plain:
            expected = [await answer(plain, text) for text in TEXTS]
        async with Loaded(repository / "adapted" / "1", slots=4, lanes=1) as model:
            beside = asyncio.gather(*(answer(model, text, "wide") for text in TEXTS))
            assert expected == await asyncio.gather(*(answer(model, text) for text in TEXTS))
            await beside

    asyncio.run(run())


def test_the_prefix_cache_and_scores_follow_the_adapter(repository):
    """A source that one adapter has read is not recalled for another, and a given answer is scored by its adapter."""

    async def run():
        async with Loaded(repository / "adapted" / "1", slots=4, lanes=1) as model:
            expected = [await answer(model, TEXTS[0], name) for name in ("", *NAMES)]
        async with Loaded(repository / "adapted" / "1", slots=4, lanes=1, prefix_cache_mb=8) as model:
            for _ in range(3):
                seen = [await answer(model, TEXTS[0], name) for name in ("", *NAMES)]
                assert expected == seen
            assert model.metrics.counters["prefix_cache_lookups_total", "hit"].value
            for name, (ids, log_probs) in zip(("", *NAMES), seen, strict=True):
                selector = common_pb2.ModelSelector(name=model.name, adapter=name)
                scored = await score(model, model=selector, text=TEXTS[0], target_ids=common_pb2.TokenIds(ids=ids))
                assert np.frombuffer(log_probs, np.float32) == pytest.approx(list(scored.token_log_probs), abs=1e-4)
                REQUEST_CONTEXT.get().let_go()

    asyncio.run(run())


def test_few_are_in_memory_and_those_in_use_stay(repository):
    """Beyond --max-adapters, the one goes that nobody has asked for the longest. One that is in use never goes."""

    async def run():
        async with Loaded(repository / "adapted" / "1", slots=4, max_adapters=2) as model:
            for name in ("formal", "short", "formal", "wide", "formal"):
                await answer(model, adapter=name)
            assert (2, 1, 3) == _counts(model)
            async with asked(model, adapter="formal"), asked(model, adapter="short"):
                with pytest.raises(Overloaded, match="all 2 adapters") as refused:
                    await answer(model, adapter="wide")
                assert "ADAPTERS_IN_USE" == refused.value.reason
                await answer(model, adapter="short")
            await answer(model, adapter="wide")

    asyncio.run(run())


def _counts(model):
    metrics = model.metrics
    return (
        model.adapters.count(),
        metrics.adapter_evictions.value,
        metrics.counters["adapter_loads_total", "ready"].value,
    )


def test_a_graph_that_cannot_add_an_adapter_is_refused(repository, monkeypatch):
    """It is tried with one when the bundle is loaded: no request has to find out."""

    def wrong(places, seq):
        start, stop, (members, rows, found) = grouped(places, seq)
        return start, stop, (members + 99, rows, found)

    monkeypatch.setattr(adapter_stack, "grouped", wrong)
    assert "more than a graph can do" in asyncio.run(refusal_of(repository / "adapted" / "1"))


def test_many_who_ask_for_an_adapter_at_once_load_it_once(repository):
    """Those who come while it is on its way wait for it."""

    async def run():
        async with Loaded(repository / "adapted" / "1", slots=4) as model:
            await asyncio.gather(*(answer(model, adapter="formal") for _ in range(6)))
            assert 1 == model.metrics.counters["adapter_loads_total", "ready"].value

    asyncio.run(run())


def test_an_adapter_that_is_not_there_is_named(repository, tiny_repository):
    """The answer says which there are. A name that is a path is none."""

    async def run():
        async with Loaded(repository / "adapted" / "1", slots=4) as model:
            assert sorted(NAMES) == await model.adapters.names()
            for name in ("rude", "../1/formal", "/etc", ".", "x" * 500):
                with pytest.raises(AdapterNotFound, match=r"version 1 .* has no .*; it has formal, short, wide$"):
                    await answer(model, adapter=name)
        async with Loaded(tiny_repository / "tiny-translate" / "1", slots=4) as model:
            with pytest.raises(CannotAdapt):
                await answer(model, adapter="formal")

    asyncio.run(run())


def test_a_version_without_an_adapter_names_the_one_that_has_it(adapters):
    """A new version of a model begins with none."""
    home = adapters.parents[1]
    shutil.copytree(home / "1", home / "2")

    async def run():
        async with Loaded(home / "2", slots=4) as model:
            with pytest.raises(
                AdapterNotFound, match=r"^version 2 .* no adapter 'formal'; it has none; version 1 has it$"
            ):
                await answer(model, adapter="formal")
            with pytest.raises(AdapterNotFound, match=r"it has none$"):
                await answer(model, adapter="rude")

    asyncio.run(run())


def test_a_model_without_a_folder_of_adapters_has_no_version_with_one(tmp_path):
    """Of those that have it, the others are told, in order."""
    bundle = Bundle("m", 2, tmp_path / "m" / "2", bundle_pb2.BundleManifest())
    assert [] == versions_with(bundle, "formal")
    for version in (10, 2, 3):
        folder = tmp_path / "m" / ADAPTERS_DIR / str(version) / "formal"
        folder.mkdir(parents=True)
        (folder / ADAPTER_FILE).touch()
    assert [3, 10] == versions_with(bundle, "formal")


def test_a_refused_adapter_says_why_and_is_tried_again_when_it_changes(adapters):
    """Its reason is told to who asks for it. Others go on. Files that are mended are taken."""
    manifest = adapters / "formal" / "adapter.json"
    whole = manifest.read_text()

    async def run():
        async with Loaded(adapters.parents[1] / "1", slots=4) as model:
            spoiled = json.loads(whole)
            spoiled["golden"]["tokenIds"] = [7] * len(spoiled["golden"]["tokenIds"])
            manifest.write_text(json.dumps(spoiled))
            for _ in range(2):
                with pytest.raises(AdapterRefused, match="golden answer differs"):
                    await answer(model, adapter="formal")
            assert 1 == model.metrics.counters["adapter_loads_total", "refused"].value
            await answer(model, adapter="wide")
            await asyncio.wait_for(model.unheld(), 20)  # what is loaded, or was refused, holds no model
            manifest.write_text(whole)
            await answer(model, adapter="formal")

    asyncio.run(run())


def test_a_refused_adapter_is_tried_again_when_its_weights_alone_change(adapters):
    """Also when a repair keeps the size of the file, and the time of its content."""
    weights = adapters / "formal" / "adapter.bin"
    whole, stat = weights.read_bytes(), weights.stat()

    def write(content):
        weights.write_bytes(content)
        os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    async def run():
        async with Loaded(adapters.parents[1] / "1", slots=4) as model:
            write(b"x" + whole[1:])
            with pytest.raises(AdapterRefused, match="sha256"):
                await answer(model, adapter="formal")
            write(whole)
            await answer(model, adapter="formal")

    asyncio.run(run())


def test_an_adapter_s_folder_may_be_a_link(adapters):
    """As that of a model or a version may be. Its files may not."""
    away = adapters.parents[3] / "away"
    (adapters / "formal").rename(away)
    (adapters / "formal").symlink_to(away)

    async def run():
        async with Loaded(adapters.parents[1] / "1", slots=4) as model:
            assert "formal" in await model.adapters.names()
            await answer(model, adapter="formal")
            _linked(None, adapters / "wide")
            with pytest.raises(AdapterRefused, match="symbolic link"):
                await answer(model, adapter="wide")

    asyncio.run(run())


def test_an_adapter_that_is_not_ready_in_time_is_refused(adapters, monkeypatch):
    """Its reading and its golden request have one budget. Others go on."""
    monkeypatch.setattr(adapter_loader, "LOAD_S", 0.0)

    async def run():
        async with Loaded(adapters.parents[1] / "1", slots=4) as model:
            with pytest.raises(AdapterRefused, match="it is not ready after 0 s"):
                await answer(model, adapter="formal")
            await answer(model)

    asyncio.run(run())


def test_a_check_tells_of_adapters_that_would_be_refused(adapters):
    """Each by its directory and the reason, as a warning: a server starts without it."""
    (adapters / "short" / "adapter.bin").write_bytes(b"")
    (adapters / "notes").mkdir()
    found = [each for each in look_at_bundles(try_config(repository=adapters.parents[2])) if each.about == "adapter"]
    assert [("warning", True)] == [(each.state, "short: adapter.bin has 0 bytes" in each.says) for each in found]


def test_the_same_numbers_for_other_layers_are_another_adapter(adapters):
    """What one has read of a prompt is not recalled for the other: their digests differ."""
    directory, bundle = adapters / "formal", load_bundle(adapters.parents[1] / "1")
    before, _ = load_adapter(directory, bundle)
    manifest = json_format.Parse((directory / "adapter.json").read_text(), bundle_pb2.AdapterManifest())
    by_size = {}
    for layer in manifest.layers:
        by_size.setdefault(tuple(matrix.shape for matrix in before.pairs[layer.name]), []).append(layer)
    one, other, *_ = max(by_size.values(), key=len)
    one.name, other.name = other.name, one.name
    (directory / "adapter.json").write_text(json_format.MessageToJson(manifest))
    after, _ = load_adapter(directory, bundle)
    assert before.digest != after.digest


def _nothing(manifest, directory):
    (directory / "more").write_text("")


def _of_another(manifest, directory):
    manifest.base_sha256 = "0" * 64


def _short(manifest, directory):
    manifest.layers[0].rank -= 1


def _high(manifest, directory):
    manifest.layers[0].rank = 90


def _twice(manifest, directory):
    manifest.layers[1].name = manifest.layers[0].name


def _unknown(manifest, directory):
    manifest.layers[0].name = "layers.99.attention.qkv"


def _changed(manifest, directory):
    content = bytearray((directory / "adapter.bin").read_bytes())
    content[5] ^= 1
    (directory / "adapter.bin").write_bytes(content)


def _infinite(manifest, directory):
    content = bytearray((directory / "adapter.bin").read_bytes())
    content[:4] = np.array([np.inf], "<f4").tobytes()
    (directory / "adapter.bin").write_bytes(content)
    manifest.weights.sha256 = hashlib.sha256(content).hexdigest()


def _outside(manifest, directory):
    shutil.copy(directory / "adapter.bin", directory.parent / "adapter.bin")
    manifest.weights.path = "../adapter.bin"


def _linked(manifest, directory):
    (directory / "adapter.bin").rename(directory.parent / "there")
    (directory / "adapter.bin").symlink_to(directory.parent / "there")


def _unasked(manifest, directory):
    manifest.golden.ClearField("token_ids")


def _newer(manifest, directory):
    manifest.format_version = 2


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_nothing, "more is not listed"),
        (_of_another, "another base"),
        (_short, "size_bytes"),
        (_high, "a rank of 90"),
        (_twice, "twice"),
        (_unknown, "takes no adapter"),
        (_changed, "sha256"),
        (_infinite, "not finite"),
        (_outside, "not listed"),
        (_linked, "symbolic link"),
        (_unasked, "golden.token_ids"),
        (_newer, "format_version 2"),
    ],
)
def test_a_wrong_adapter_is_refused_before_it_is_run(adapters, spoil, why):
    """It is hostile until it is verified: its digest, its base, its sizes, its numbers and what it must answer."""
    directory = adapters / "formal"
    manifest = json_format.Parse((directory / "adapter.json").read_text(), bundle_pb2.AdapterManifest())
    spoil(manifest, directory)
    (directory / "adapter.json").write_text(json_format.MessageToJson(manifest))
    with pytest.raises(BundleError, match=why):
        load_adapter(directory, load_bundle(adapters.parents[1] / "1"))


def test_loads_that_nobody_waits_for_are_bounded(repository):
    """Who asks for one adapter after the other and leaves begins no more loads than there may be adapters."""

    async def run():
        async with Loaded(repository / "adapted" / "1", max_adapters=2) as model:
            load, free, begun = model.adapters.begin_loading, asyncio.Event(), []

            async def slowly(directory):
                begun.append(directory.name)
                await free.wait()
                return await load(directory)

            model.adapters.begin_loading = lambda directory: asyncio.create_task(slowly(directory))
            for name in NAMES[:2]:
                task = asyncio.create_task(model.adapters.take(name))
                await until(lambda name=name: name in begun)
                task.cancel()
                await asyncio.wait([task])
            with pytest.raises(Overloaded, match="on their way") as refused:
                await model.adapters.take(NAMES[2])
            assert "ADAPTERS_IN_USE" == refused.value.reason
            assert list(NAMES[:2]) == begun
            loads = [each.loading for each in model.adapters.residents.values()]
            free.set()
            await asyncio.wait(loads)
            model.adapters.let_go(await model.adapters.take(NAMES[2]))

    asyncio.run(run())


def test_those_who_wait_for_an_adapter_are_bounded(repository):
    """By a quarter of the requests that may wait, and by tenant. One that is there is had at once all the same."""

    async def run():
        async with Loaded(repository / "adapted" / "1", max_queued_requests=40, max_adapters=2) as model:
            load, free = model.adapters.begin_loading, asyncio.Event()

            async def slowly(directory):
                await free.wait()
                return await load(directory)

            there = await model.adapters.take(NAMES[1])
            model.adapters.begin_loading = lambda directory: asyncio.create_task(slowly(directory))
            tasks = []
            for tenant, most in (("many", 8), ("few", 2)):
                tasks += [
                    asyncio.create_task(model.adapters.take(NAMES[0], Standing(tenant=tenant))) for _ in range(most)
                ]
                await asyncio.sleep(0)
                with pytest.raises(Overloaded) as refused:
                    await model.adapters.take(NAMES[0], Standing(tenant="many"))
                assert ("TENANT_QUEUE_FULL" if tenant == "many" else "QUEUE_FULL") == refused.value.reason
            assert 10 == model.metrics.adapting
            assert there is await model.adapters.take(NAMES[1], Standing(tenant="many"))
            tasks.pop().cancel()
            free.set()
            got = await asyncio.gather(*tasks)
            assert 1 == len(set(got))
            assert 0 == model.metrics.adapting
            for adapter in (*got, there, there):
                model.adapters.let_go(adapter)

    asyncio.run(run())
