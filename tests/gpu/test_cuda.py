"""A CUDA device for real: what the CPU cannot rehearse. Without one, skipped with the reason.

Last run on an H200: on 2026-11-26 all but the last two, and those on 2026-11-27.
"""

import asyncio
from pathlib import Path

import numpy as np
import onnx
import pytest

from loaded import Loaded
from paged_bundles import gigabytes_of
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.paging import block_tokens
from weft_server.bundle.load import load_bundle
from weft_server.config import ConfigError
from weft_server.errors import BundleError
from weft_server.loading.golden import verify_golden
from weft_server.runtime.cuda.copies import Copies, Stretch
from weft_server.runtime.device import Device
from weft_server.runtime.session import Session, Value, verify_device
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids

CUDA = Device("cuda", in_place=False)
CHECKPOINTS = Path(__file__).parents[2] / "export" / "checkpoints"
# One that generates, one that translates, one with a recurrent state, one that classifies.
NAMES = ("pydocs", "en-es", "en-es-attention", "digits")
NAMES_BF16 = ("pydocs", "en-es", "digits")


def why_not():
    """Why nothing here can run; empty on a machine with a GPU."""
    try:
        verify_device(CUDA)
    except ConfigError as error:
        return str(error)
    return ""


WHY_NOT = why_not()
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is CUDA")]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Trained models in fp16, by name, and those that do not recur in bf16, by name and -bf16."""
    repository = tmp_path_factory.mktemp("half")
    for name in NAMES:
        export_checkpoint(CHECKPOINTS / name, repository / name / "1", ExportOptions(precision="fp16"))
    for name in NAMES_BF16:
        export_checkpoint(CHECKPOINTS / name, repository / f"{name}-bf16" / "1", ExportOptions(precision="bf16"))
    return {path.name: path / "1" for path in repository.iterdir()}


def sent(array):
    """A tensor on the device with the array's content."""
    value = Value.like(array, CUDA)
    value.send(array)
    return value


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_what_is_sent_comes_back(dtype):
    """Content survives the way to the device, a copy between rows there, and the way back."""
    array = np.arange(24).reshape(4, 6).astype(dtype)
    value = sent(array)
    Copies(1, CUDA).run([(value.block.rows(3, 4), value.block.rows(0, 1))])
    np.testing.assert_array_equal(array[[3, 1, 2, 3]], value.fetch())


@pytest.mark.parametrize("length", [2, 5, 7])
def test_a_stretch_keeps_the_head(length):
    """A source of any length lands at the start of each row, with zeros behind it."""
    source = np.random.default_rng(0).normal(size=(6, length, 3)).astype(np.float32)
    target = sent(np.full((6, 5, 3), 9, np.float32))
    Stretch(CUDA).run(sent(source).block, target.block)
    expected = np.zeros((6, 5, 3), np.float32)
    expected[:, :length] = source[:, :5]
    np.testing.assert_array_equal(expected, target.fetch())


async def golden_and_answers(directory, sources, **settings):
    """The model's golden request holds; greedy answers to `sources`, which all come at once."""
    async with Loaded(directory, device="cuda", **settings) as model:
        await verify_golden(model)
        sequences = [Sequence(str(n), Ids(ids), Decoding(24)) for n, ids in enumerate(sources)]
        for sequence in sequences:
            model.engine.reserve()
            model.engine.submit(sequence)
        for sequence in sequences:
            await sequence.reply.done()
        return [sequence.reply.token_ids for sequence in sequences]


@pytest.mark.parametrize("name", [*NAMES, *(f"{name}-bf16" for name in NAMES_BF16)])
def test_the_golden_answer_is_given(bundles, name):
    """Every kind of model answers its golden request on the device."""
    asyncio.run(golden_and_answers(bundles[name], []))


@pytest.mark.parametrize("name", ["pydocs", "en-es", "en-es-attention", "pydocs-bf16", "en-es-bf16"])
def test_what_a_device_is_told_is_read_there(bundles, name):
    """Of what a decoder reads, the host has total_length alone: another would be copied once, when memory is bound."""
    path = bundles[name] / "decoder.onnx"
    session = Session(path, 1, CUDA)
    infos = session.opened.get_input_memory_infos()
    on_host = {port for port, info in zip(session.input_names, infos, strict=True) if "cuda" not in info.name.lower()}
    # An input that no operator reads counts as the host's. A recurrent decoder has such ones.
    read = {name for node in onnx.load(path, load_external_data=False).graph.node for name in node.input}
    assert on_host & read <= {"total_length"}


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "graphs"])
@pytest.mark.parametrize("name", ["pydocs", "en-es"])
def test_greedy_answers_do_not_depend_on_the_batch(bundles, name, cuda_graphs):
    """A trained model's greedy tokens are the same alone and in a crowd, whether steps are replayed or not."""
    rng = np.random.default_rng(3)
    sources = [rng.integers(4, 200, rng.integers(3, 20)) for _ in range(40)]
    alone = asyncio.run(golden_and_answers(bundles[name], sources, slots=1))
    crowd = asyncio.run(golden_and_answers(bundles[name], sources, slots=13, cuda_graphs=cuda_graphs))
    same = [one == other for one, other in zip(alone, crowd, strict=True)]
    # Half precision may decide a tie of two logits either way.
    assert sum(same) >= 38


@pytest.mark.parametrize("num_sequences", [100, 2], ids=["much memory", "little memory"])
def test_blocks_answer_as_slots_do(bundles, num_sequences, tmp_path):
    """A cache in blocks gives the greedy tokens of one in slots, also where sequences give their blocks up."""
    paged = tmp_path / "paged" / "1"
    export_checkpoint(CHECKPOINTS / "pydocs", paged, ExportOptions(precision="fp16", paged=True))
    manifest = load_bundle(paged).manifest
    longest = -(-manifest.text.max_total_tokens // block_tokens(manifest.states))
    rng = np.random.default_rng(3)
    sources = [rng.integers(4, 200, rng.integers(3, 20)) for _ in range(40)]
    slots = asyncio.run(golden_and_answers(bundles["pydocs"], sources, slots=13))
    cache_gb = gigabytes_of(paged, num_sequences * longest)
    blocks = asyncio.run(golden_and_answers(paged, sources, slots=13, cache_gb=cache_gb))
    same = [one == other for one, other in zip(slots, blocks, strict=True)]
    assert sum(same) >= 38


def test_attention_in_fp32_is_refused(tmp_path):
    """CUDA's attention kernels take half precision only; an fp32 bundle is refused with the precision that it wants."""
    export_checkpoint(CHECKPOINTS / "en-es", tmp_path / "en-es" / "1", ExportOptions(precision="fp32"))
    with pytest.raises(BundleError, match=r"GroupQueryAttention.*--precision fp16, bf16 or int4-fp16"):
        asyncio.run(golden_and_answers(tmp_path / "en-es" / "1", []))
