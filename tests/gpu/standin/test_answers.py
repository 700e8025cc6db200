"""Served requests on ONNX Runtime's CUDA provider, over a stand-in for the device, have the answers of the CPU.

The provider, its kernels' host side, bindings, copies, streams and captures are real. The arithmetic is src/'s.
"""

import asyncio
from itertools import product

import numpy as np
import pytest
from answering import answers
from standin import WHY_NOT, counting, verify_clean

from loaded import Loaded, ask, golden_request
from weft_proto.v1 import common_pb2
from weft_server.runtime.device import Device
from weft_server.runtime.session import Session

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
# One that generates, one that translates, one that captions, two that recur, one of them behind convolutions, one that
# tags, one that classifies.
NAMES = ("pydocs", "en-es", "scenes", "en-es-attention", "scenes-lstm", "tags", "digits")
DECODERS = ("pydocs", "en-es", "scenes", "en-es-attention")
# What a bf16 bundle's answers may differ by is proven at its export, for a CPU has no kernels for it.
NAMES_BF16 = ("pydocs", "en-es", "tags")


@pytest.mark.parametrize(("name", "cuda_graphs"), [*product(NAMES, [False]), *product(DECODERS, [True])])
def test_answers_are_those_of_the_cpu(bundles, name, cuda_graphs):
    """Requests that come together are answered as on the CPU, whether steps are replayed or not, and nothing races."""
    directory = bundles(name, "fp16")
    expected = asyncio.run(answers(directory))
    with counting() as counts:
        assert expected == asyncio.run(answers(directory, device="cuda", cuda_graphs=cuda_graphs))
    verify_clean(counts)
    assert bool(counts.launches) == cuda_graphs


@pytest.mark.parametrize("name", NAMES_BF16)
def test_bf16_gives_its_golden_answer(bundles, name):
    """A bundle that no CPU can run answers as torch did at its export."""
    with counting() as counts:
        asyncio.run(answers(bundles(name, "bf16"), device="cuda"))
    verify_clean(counts)


async def transfers(directory, num_tokens, **settings):
    """Transfers to the device and back that so many tokens of one answer take, after the first like it."""
    async with Loaded(directory, slots=3, device="cuda", **settings) as model:
        decoding = common_pb2.Decoding(max_new_tokens=num_tokens, min_new_tokens=num_tokens)
        request = golden_request(model, decoding=decoding)
        await ask(model, **request)
        with counting() as counts:
            await ask(model, **request)
    return np.array([counts.to_device, counts.to_host])


@pytest.mark.parametrize(("name", "cuda_graphs"), list(product(DECODERS, [False, True])))
def test_a_step_is_one_transfer_each_way(bundles, name, cuda_graphs):
    """Four tokens more are four steps more: four transfers to the device, and four back."""
    few, more = (asyncio.run(transfers(bundles(name, "fp16"), n, cuda_graphs=cuda_graphs)) for n in (4, 8))
    assert [4, 4] == (more - few).tolist()


def test_opening_a_graph_prints_nothing(bundles, capfd):
    """ONNX Runtime has no line to say about the first device: what the server prints is its log."""
    Session(bundles("digits", "fp16") / "classifier.onnx", 1, Device("cuda", in_place=False))
    assert ("", "") == capfd.readouterr()
