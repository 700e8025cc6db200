"""Each family on CUDA's provider, over the stand-in: a tiny random model of it says what it says on the CPU.

Inputs and tokens are the test's, so a tie of two tokens decides nothing. Each model is served too.
"""

import asyncio
from dataclasses import replace

import pytest
import torch
from driven import Writer, read_whole, share_of_spread
from standin import WHY_NOT, counting, verify_clean
from tiny import CHECKPOINTS
from tiny_parts import randomised

from loaded import Loaded
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.errors import ExportError
from weft_export.export import export_checkpoint
from weft_export.families.t5 import T5
from weft_export.options import ExportOptions
from weft_proto.tasks import TASKS
from weft_server.bundle.load import load_bundle
from weft_server.loading.golden import verify_golden

pytestmark = [pytest.mark.gpu, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
# CUDA has no kernels for them in bf16: they recur or convolve. The export says so.
NOT_IN_BF16 = {
    "tiny-rnn",
    "tiny-rnn-gru",
    "tiny-rnn-vanilla",
    "tiny-attention-rnn",
    "tiny-show-tell",
    "tiny-rnn-text",
    "tiny-convnext",
    "tiny-resnet",
    "tiny-bottlenecks",
    "tiny-speech",
    "tiny-ctc",
    "tiny-conformer",
    "tiny-waveform",
}
# They keep states beside attention, or read prompts in both directions, which is for CPU. The export says so.
NOT_IN_HALF = {
    "tiny-hybrid",
    "tiny-state-space",
    "tiny-mamba",
    "tiny-selective",
    "tiny-rwkv",
    "tiny-gemma3",
    "tiny-paligemma",
}
CAPACITY = 300
# What is left of their weights. By default it is a half. Then the golden answer of this one begins with a tie.
CALM = {"tiny-caption": 0.4}
# A bundle whose answers on the CPU are known beforehand: its own, unless no CPU has kernels for it.
KNOWN = {"bf16": "fp16"}
# How far what is said may be from the CPU, as a share of the spread of a row of logits.
TOLERANCE = {"fp16": 0.05, "bf16": 0.2, "int4-fp16": 0.05}


def calm(checkpoint, share):
    """Make a lively random model mild: in half precision, it would grow a rounding to another answer."""
    with torch.no_grad():
        for name, parameter in checkpoint.model.named_parameters():
            if parameter.dim() > 1 and "embedding" not in name:
                parameter.mul_(share)
    return checkpoint


@pytest.fixture(scope="module")
def tiny_bundles(tmp_path_factory):
    """A function: the directory of a tiny model's bundle, by name and precision."""
    made = {}

    def bundle(name, precision, make=None):
        if (name, precision) not in made:
            torch.set_num_threads(1)
            checkpoint = tmp_path_factory.mktemp("checkpoint")
            save_checkpoint(checkpoint, calm((make or CHECKPOINTS[name])(), CALM.get(name, 0.5)))
            directory = tmp_path_factory.mktemp(precision) / name / "1"
            export_checkpoint(checkpoint, directory, ExportOptions(precision=precision))
            made[name, precision] = directory
        return made[name, precision]

    return bundle


def verify_said(expected, actual, tolerance):
    """Nothing that was said differs by more than a share of its spread."""
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        assert share_of_spread(one, other) <= tolerance


def writes(directory):
    """Whether a bundle's model writes text."""
    return TASKS[load_bundle(directory).manifest.task].writes_text


def verify_writer(directory, expected, tolerance, *, cuda_graphs):
    """A writer says what is expected, in steps of one transfer each way, and each replays at most one graph."""
    writer = Writer(directory, device="cuda", cuda_graphs=cuda_graphs).drive()
    verify_said(expected.said, writer.said, tolerance)
    verify_said(expected.rows, writer.rows, tolerance)
    steps = {(step.to_device, step.to_host, step.captures, step.launches) for step in writer.steps}
    assert {(1, 1, 0, int(cuda_graphs))} == steps


async def serve(directory, **settings):
    """A model gives its golden answer, and explains it if it can."""
    async with Loaded(directory, slots=3, device="cuda", **settings) as model:
        await verify_golden(model)


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("precision", TOLERANCE)
def test_a_family_says_what_it_says_on_the_cpu(tiny_bundles, name, precision):
    """Plain and captured: the same values within rounding, one transfer each way, nothing raced or left to the host.

    What bf16 says is held to the CPU's fp16, for no CPU has kernels for bf16.
    """
    if name in NOT_IN_HALF or (precision == "bf16" and name in NOT_IN_BF16):
        with pytest.raises(ExportError, match="bf16"):
            tiny_bundles(name, precision)
        return
    known, directory = tiny_bundles(name, KNOWN.get(precision, precision)), tiny_bundles(name, precision)
    with counting() as counts:
        if writes(directory):
            expected = Writer(known).drive()
            for cuda_graphs in (False, True):
                verify_writer(directory, expected, TOLERANCE[precision], cuda_graphs=cuda_graphs)
        else:
            verify_said(read_whole(known), read_whole(directory, device="cuda"), TOLERANCE[precision])
        asyncio.run(serve(directory))
    verify_clean(counts)


def long_t5():
    """The tiny T5 with more room than the 256 that the runner rounds to: its bias has as many columns as that."""
    checkpoint = CHECKPOINTS["tiny-t5"]()
    checkpoint.text.max_total_tokens = checkpoint.text.max_new_tokens = CAPACITY
    model = T5(replace(checkpoint.model.config, max_target_tokens=CAPACITY))
    return replace(checkpoint, model=randomised(model, 1.2))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_bias_of_attention_fits_any_capacity(tiny_bundles, precision):
    """T5 with room for more than 256 tokens answers too."""
    known = tiny_bundles("long-t5", "fp16", long_t5)
    expected = Writer(known).drive()
    with counting() as counts:
        for cuda_graphs in (False, True):
            directory = tiny_bundles("long-t5", precision, long_t5)
            verify_writer(directory, expected, TOLERANCE[precision], cuda_graphs=cuda_graphs)
    verify_clean(counts)
