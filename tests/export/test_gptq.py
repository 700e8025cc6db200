"""Rounding to 4 bits by GPTQ: what a product writes of inputs that it has not seen changes less."""

import pytest
import tiny
import torch
from torch import nn

from weft_export.choices import PRECISIONS
from weft_export.estimate import seconds_of
from weft_export.layers.block_linear import FOUR_BITS, BlockLinear, quantise_blocks
from weft_export.quantization import in_blocks
from weft_export.quantization.gptq import compensated_blocks
from weft_export.quantization.requests import telling_requests

WIDTH = 90


def inputs_like(num_rows, seed):
    """Rows whose numbers go together, as activations do, some of them far larger: [num_rows, WIDTH]."""
    mix = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
    mix *= torch.logspace(0, -2, WIDTH)[:, None]
    rows = torch.randn(num_rows, WIDTH, generator=torch.Generator().manual_seed(seed)) @ mix
    return rows * torch.where(torch.arange(WIDTH) % 17 == 3, 20, 1)


def error(weight, rounded, inputs):
    """How far outputs are off, as a share of their size."""
    return float((inputs @ (rounded - weight).T).norm() / (inputs @ weight.T).norm())


def compensated(weight, inputs):
    """The weights as they are after rounding for such inputs."""
    return BlockLinear(weight, None, FOUR_BITS, compensated_blocks(weight, inputs, FOUR_BITS)).wide


@pytest.mark.parametrize("num_rows", [20, 400])
def test_outputs_of_other_inputs_change_less(num_rows):
    """By a quarter at least, even where the inputs that are known are fewer than the width."""
    weight = torch.randn(40, WIDTH, generator=torch.Generator().manual_seed(2)) / 8
    others = inputs_like(200, 5)
    plain = error(weight, BlockLinear(weight, None, FOUR_BITS).wide, others)

    assert error(weight, compensated(weight, inputs_like(num_rows, 4)), others) < 0.75 * plain


def test_weights_on_a_grid_stay_what_they_are():
    """Also those that read nothing but zeros. Whoever rounded them before knew more."""
    generator = torch.Generator().manual_seed(3)
    levels = torch.randint(-8, 8, (40, 3, 32), generator=generator)
    scales = (torch.randn(40, 3, 1, generator=generator) / 100).half().float()
    weight = (levels * scales).flatten(1)[:, :WIDTH].contiguous()
    inputs = inputs_like(50, 4)
    inputs[:, 5:9] = 0

    assert torch.equal(weight, compensated(weight, inputs))


def test_inputs_of_zeros_say_nothing():
    """Then each weight is rounded by itself."""
    weight = torch.randn(40, WIDTH) / 8
    found = compensated_blocks(weight, torch.zeros(5, WIDTH), FOUR_BITS)

    assert all(map(torch.equal, quantise_blocks(weight, FOUR_BITS), found))


def test_every_product_of_a_model_of_texts_is_told_what_it_reads():
    """One that reads what another does shares the rows. Of a model of pictures nothing is known without examples."""
    checkpoint = tiny.tiny_generate()
    found = in_blocks.inputs_of(checkpoint, ())
    products = in_blocks.products_of(checkpoint.model)

    assert found.keys() == products.keys()
    assert all(found[path].shape[1] == product.weight.shape[1] for path, product in products.items())
    feed_forwards = {path: rows for path, rows in found.items() if path.startswith("layers.0.feed_forward")}
    assert len({rows.data_ptr() for rows in feed_forwards.values()}) < len(feed_forwards)
    assert [] == telling_requests(tiny.CHECKPOINTS["tiny-swin"](), ())


def test_as_many_tokens_are_read_as_are_asked_for(monkeypatch):
    """The request that reaches the number is the last."""
    checkpoint = tiny.tiny_generate()
    lengths = [len(tokens) for _, tokens in telling_requests(checkpoint, ())]
    monkeypatch.setattr(in_blocks, "MAX_TOKENS", lengths[0] + 1)
    found = in_blocks.inputs_of(checkpoint, ())

    assert {lengths[0] + lengths[1]} == {len(rows) for rows in found.values()}


def test_a_model_is_rounded_by_what_it_reads(monkeypatch):
    """At int4 each product of a text's model is."""
    checkpoint = tiny.tiny_generate()
    seen = {}
    monkeypatch.setattr(in_blocks, "rounded", lambda product, kind, inputs=None: seen.setdefault(product, inputs))
    with pytest.raises(AttributeError):  # nothing was made
        in_blocks.rounded_in_blocks(checkpoint, PRECISIONS["int4"])

    assert len(seen) == len(in_blocks.products_of(checkpoint.model))
    assert all(isinstance(product, nn.Module) and inputs is not None for product, inputs in seen.items())


def test_an_estimate_counts_what_it_takes():
    """One product of Llama 3.2 1B, which took 23 seconds on one core. Other precisions do nothing like it."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8192, 2048))
    seconds = {name: seconds_of(model, PRECISIONS[name], 0) for name in ("int4", "int8-weights")}

    assert 10 < seconds["int4"] - seconds["int8-weights"] < 50
