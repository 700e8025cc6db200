"""What a model leaves on the device when it is closed, over the stand-in: nothing, however it ended."""

import asyncio

import pytest
from answering import all_said, answers
from driven import Writer
from standin import WHY_NOT, counted, counting, failing, held, verify_clean

from loaded import Loaded, ask, golden_request
from waiting import until
from weft_proto.v1 import common_pb2
from weft_server.errors import Draining, LaneFailed
from weft_server.loading.golden import verify_golden

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
NAME = "en-es"
SETTINGS = [{"device": "cuda"}, {"device": "cuda", "cuda_graphs": True}]


@pytest.fixture(scope="module")
def directory(bundles):
    """A translator's bundle, opened and closed once: what belongs to the process is there."""
    for settings in SETTINGS:
        asyncio.run(answers(bundles(NAME, "fp16"), **settings))
    return bundles(NAME, "fp16")


def long(model):
    """A request that goes on for long."""
    decoding = common_pb2.Decoding(max_new_tokens=40, min_new_tokens=40)
    return golden_request(model, decoding=decoding)


async def under_way(model):
    """More requests than there are slots, in the middle of their steps."""
    asked = [asyncio.create_task(ask(model, **long(model))) for _ in range(5)]
    before = counted().syncs
    await until(lambda: counted().syncs > before + 20)
    return asked


async def ends(model):
    """All requests are answered."""
    await all_said(model)


async def leaves(model):
    """Callers go away."""
    asked = await under_way(model)
    for each in asked:
        each.cancel()
    assert {asyncio.CancelledError} == {type(each) for each in await asyncio.gather(*asked, return_exceptions=True)}


async def drains(model):
    """The model is told to end while requests run and wait."""
    asked = await under_way(model)
    model.cancel_all(Draining)
    assert {Draining} == {type(each) for each in await asyncio.gather(*asked, return_exceptions=True)}


async def fails(model):
    """A step fails, and those in it are told. The lane that takes its place answers right."""
    expected = await all_said(model)
    asked = await under_way(model)
    with failing("replay" if model.captures else "launch"):
        ended = await asyncio.gather(*asked, return_exceptions=True)
    assert LaneFailed in {type(each) for each in ended}
    assert expected == await all_said(model)
    await verify_golden(model)


@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "captured"])
@pytest.mark.parametrize("way", [ends, leaves, drains, fails])
def test_a_closed_model_leaves_nothing(directory, way, settings):
    """Memory, streams, events and graphs are as before it was opened, and nothing raced on the way."""

    async def run():
        async with Loaded(directory, slots=3, **settings) as model:
            model.captures = bool(settings.get("cuda_graphs"))
            await way(model)

    before = held()
    with counting() as counts:
        asyncio.run(run())
    assert before == held()
    verify_clean(counts)


@pytest.mark.parametrize("after", [0, 5, 12])
def test_a_model_that_cannot_be_opened_leaves_nothing(directory, after):
    """The device has no room for its weights or states: the error says so, and the next one can be opened."""
    before = held()
    with failing("allocation", after), pytest.raises(Exception, match="memory"):
        asyncio.run(answers(directory, device="cuda"))
    assert before == held()
    asyncio.run(answers(directory, device="cuda"))
    assert before == held()


def test_a_closed_writer_leaves_nothing_whatever_its_kind(bundles):
    """A recurrent model with captured steps and rows that were read whole: its values, copies and graphs go too."""
    settings = {"device": "cuda", "cuda_graphs": True}
    Writer(bundles("en-es-attention", "fp16"), **settings).drive()
    before = held()
    Writer(bundles("en-es-attention", "fp16"), **settings).drive()
    assert before == held()
