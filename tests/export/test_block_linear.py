"""Products with weights in blocks: what is rounded, and that ONNX Runtime computes what torch does, in any crowd."""

import statistics

import numpy as np
import pytest
import torch
from torch import nn

from weft_export.graphs.graphs import Graph, Input
from weft_export.graphs.onnx_graph import read_ports, write_graph
from weft_export.layers.block_linear import (
    EIGHT_BITS,
    FOUR_BITS,
    BlockEmbedding,
    BlockLinear,
    in_blocks,
    quantise_blocks,
    rounded_rows,
)
from weft_export.layers.nf4_linear import BLOCK, LEVELS, Nf4Linear, double_quantise, quantise
from weft_export.verification.session import open_session
from weft_proto.v1 import bundle_pb2

# Widths and columns: whole blocks, a last block that is not full, less than a block, and odd numbers.
SHAPES = [(256, 96), (200, 33), (20, 40)]
WIDEST = max(width for width, _ in SHAPES)
# Half the distance of float32 numbers near 1.
ROUNDING = 2.0**-24
KINDS = {
    "int4": lambda weight, bias: BlockLinear(weight, bias, FOUR_BITS),
    "int8": lambda weight, bias: BlockLinear(weight, bias, EIGHT_BITS),
    "nf4": Nf4Linear,
}


# Of _Several: products by the first kind, and those with the tables of 4 bits.
FOUR_BIT_OUTPUTS = {*range(len(SHAPES)), *(len(KINDS) * len(SHAPES) + table for table in range(2))}


class _Several(nn.Module):
    """Products of the first numbers of each row, one for each shape and kind; and rows of tables for their signs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.products = nn.ModuleList(
            make(torch.randn(columns, width) / 8, torch.randn(columns) if width % 2 else None)
            for make in KINDS.values()
            for width, columns in SHAPES
        )
        self.tables = nn.ModuleList(
            BlockEmbedding(torch.randn(2, width), blocks) for blocks in (FOUR_BITS, EIGHT_BITS) for width in (64, 20)
        )

    def forward(self, *inputs):  # as all views are called
        (x,) = inputs
        products = [product(x[..., : product.wide.shape[1]]) for product in self.products]
        vectors = [table((x[..., 0] > 0).long()) for table in self.tables]
        logits = [table.logits(x[..., : each.shape[-1]]) for table, each in zip(self.tables, vectors, strict=True)]
        return (*products, *logits, *vectors)


@pytest.mark.parametrize("largest", [8, 6, 3, 1])
def test_weights_that_were_rounded_to_4_bits_before_stay_what_they_are(largest):
    """Any levels and scales are found again, whatever the largest level of a block is: the weights have the same bits.

    So weights of 4 bits that others made (Q4_0 of ggml, symmetric GPTQ) lose nothing. Among their blocks some have the
    level 8; a block without it may have any other as its largest.
    """
    generator = torch.Generator().manual_seed(largest)
    levels = torch.randint(-largest, min(largest, 7) + 1, (40, 3, 32), generator=generator)
    levels[0] = torch.randint(-8, 8, (3, 32), generator=generator)
    scales = (torch.randn(40, 3, 1, generator=generator) / 100).half().float()
    weight = (levels * scales).flatten(1)[:, :90].contiguous()

    assert torch.equal(weight, BlockLinear(weight, None, FOUR_BITS).wide)


def opened(module, example, directory, num_threads=1):
    """Write a module's graph as an export does, and open it."""
    count = len(module(example))
    axes = {0: "batch", 1: "seq"}
    outputs = tuple(f"y{index}" for index in range(count))
    graph = Graph(bundle_pb2.GRAPH_ROLE_CLASSIFIER, "graph.onnx", module, (Input("x", example, axes),), outputs)
    if not (directory / graph.file_name).exists():
        write_graph(graph, directory)
    return open_session(directory / graph.file_name, num_threads)


def rows_of(count):
    """Rows of very different sizes, one of them of zeros."""
    x = torch.randn(count, 1, WIDEST) * 10.0 ** torch.arange(count).remainder(7).sub(3)[:, None, None]
    x[3] = 0
    return x


def between_levels(x, size):
    """The steps of activations that float32 cannot tell to which of two levels they are nearer, and 0 of all others."""
    values = in_blocks(x, size)
    steps = values.abs().amax(dim=-1, keepdim=True) / 127
    shares = (values / steps).nan_to_num()
    near = (shares - shares.floor() - 0.5).abs() < 1e-4
    return (near * steps).flatten(-2)[..., : x.shape[-1]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Where the graph of _Several lies."""
    return tmp_path_factory.mktemp("blocks")


@pytest.mark.parametrize("num_threads", [1, 2])
def test_rows_have_the_same_bits_in_any_crowd(num_threads, directory):
    """Each of 64 rows has the same bits alone, among the first 1 to 64, and as a position of one long row.

    Alone, products of 4 bits have two rows that are equal: on x86 without AVX-512 their kernel for one row has other
    last bits. A server runs no such graph on one row: loading/lone_rows.py.
    """
    session = opened(_Several().eval(), torch.randn(2, 3, WIDEST), directory, num_threads)
    x = rows_of(64).numpy()
    together = session.run(None, {"x": x})
    for count in range(2, 65):
        for whole, some in zip(together, session.run(None, {"x": x[:count]}), strict=True):
            assert np.array_equal(whole[:count], some), count
    names = [port.name for port in session.get_outputs()]
    for row in range(64):
        alone = session.run(None, {"x": x[row : row + 1]})
        twice = session.run(None, {"x": x[[row, row]]})
        for index, whole in enumerate(together):
            assert np.array_equal(whole[row], twice[index][0]), names[index]
            if index not in FOUR_BIT_OUTPUTS:
                assert np.array_equal(whole[row], alone[index][0]), names[index]
    for whole, long in zip(together, session.run(None, {"x": x.transpose(1, 0, 2)}), strict=True):
        assert np.array_equal(whole[:, 0], long[0])


LARGER = [FOUR_BITS._replace(size=64), FOUR_BITS._replace(size=128), EIGHT_BITS._replace(size=128)]


class _Larger(nn.Module):
    """Products of weights in larger blocks, one for each kind and shape."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.products = nn.ModuleList(
            BlockLinear(torch.randn(columns, width) / 8, None, blocks)
            for blocks in LARGER
            for width, columns in ((256, 96), (128, 33))
        )

    def forward(self, *inputs):  # as all views are called
        (x,) = inputs
        return tuple(product(x[..., : product.wide.shape[1]]) for product in self.products)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_rows_of_larger_blocks_have_the_same_bits_in_pairs(num_threads, tmp_path):
    """Each of 64 rows has them among the first 1 to 64, if the last one of an odd number stands there twice.

    Among so many from the other end too, and as a position of one long row. So has each beside any neighbour.
    """
    session = opened(_Larger().eval(), torch.randn(2, 3, WIDEST), tmp_path, num_threads)
    x = rows_of(64).numpy()
    together = session.run(None, {"x": x})
    for count in range(1, 65):
        places = np.arange(count + count % 2).clip(max=count - 1)
        for given, kept in ((x, slice(None)), (x[::-1], slice(None, None, -1))):
            for whole, some in zip(together, session.run(None, {"x": given[places]}), strict=True):
                assert np.array_equal(whole[kept][:count], some[:count]), count
        for whole, long in zip(together, session.run(None, {"x": x[places].transpose(1, 0, 2)}), strict=True):
            assert np.array_equal(whole[places, 0], long[0]), count
    for row, beside in ((1, 0), (2, 3), (3, 62), (63, 3)):
        for whole, pair in zip(together, session.run(None, {"x": x[[row, beside]]}), strict=True):
            assert np.array_equal(whole[[row, beside]], pair)


def test_a_graph_says_that_its_rows_go_in_pairs(directory, tmp_path):
    """By the blocks of its products, which have the same bits for any number of rows up to a size."""
    opened(_Larger().eval(), torch.randn(2, 3, WIDEST), tmp_path)
    opened(_Several().eval(), torch.randn(2, 3, WIDEST), directory)
    graphs = [read_ports(each / "graph.onnx", bundle_pb2.GRAPH_ROLE_CLASSIFIER) for each in (tmp_path, directory)]

    assert [2, 1] == [graph.row_multiple for graph in graphs]


def test_onnx_runtime_computes_what_torch_does(directory):
    """The difference is that of summation: each of so many additions rounds a sum of so large parts.

    Beside that, an activation that lies between two levels may fall to the other one.
    """
    module = _Several().eval()
    x = rows_of(64)
    session = opened(module, torch.randn(2, 3, WIDEST), directory)
    outputs = session.run(None, {"x": x.numpy()})
    for product, expected, actual in zip((*module.products, *module.tables), module(x), outputs, strict=False):
        width = product.wide.shape[1]
        inputs, weights = x[..., :width].abs(), product.wide.abs()
        ties = torch.zeros(())
        if not isinstance(product, Nf4Linear):
            inputs = rounded_rows(inputs, product.blocks.size)
            ties = between_levels(x[..., :width], product.blocks.size) @ weights.t()
            # Levels are added up with their zero, which is taken away again in a sum of its own.
            steps = product.scale.float().abs().repeat_interleave(product.blocks.size, dim=1)[:, :width]
            weights = weights + steps * 2**product.blocks.bits
        largest = inputs @ weights.t() + (0 if (bias := getattr(product, "bias", None)) is None else bias.abs())
        bound = 2 * (width + 2) * ROUNDING * largest + ties
        assert (torch.from_numpy(actual) - expected).abs().le(bound).all()
        assert expected.abs().amax() > 1


@pytest.mark.slow
def test_numbers_between_two_levels_are_rounded_alike(directory):
    """Rows on a grid of 4 bits, as embeddings give them, get the levels in torch that they get in ONNX Runtime."""
    module = _Several().eval()
    x = torch.randint(-8, 9, (64, 1, WIDEST)) * torch.rand(64, 1, 1)
    session = opened(module, torch.randn(2, 3, WIDEST), directory)
    for expected, actual in zip(module(x), session.run(None, {"x": x.numpy()}), strict=True):
        assert np.allclose(expected.numpy(), actual, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_tables_are_looked_up_bit_for_bit(directory):
    """A vector has torch's bits in ONNX Runtime, and the file holds each table once, for projection too."""
    module, x = _Several().eval(), rows_of(64)
    session = opened(module, torch.randn(2, 3, WIDEST), directory)
    written = (directory / "graph.onnx").read_bytes() + (directory / "graph.onnx.data").read_bytes()

    actual = session.run(None, {"x": x.numpy()})[-4:]
    for table, one, other in zip(module.tables, module(x)[-4:], actual, strict=True):
        assert np.array_equal(one.numpy(), other)
        assert 1 == written.count(table.packed.numpy().tobytes())


@pytest.mark.parametrize("blocks", [FOUR_BITS, EIGHT_BITS])
def test_weights_on_the_grid_are_kept(blocks):
    """Weights that are levels times a scale stay as they are, whatever the scale of their block, and zeros too."""
    highest = 2 ** (blocks.bits - 1) - 1
    levels = torch.randint(-highest, highest + 1, (6, 4, blocks.size))
    levels[..., 0] = -highest
    levels[2] = 0
    weight = (levels * 2.0 ** torch.randint(-8, 2, (6, 4, 1))).flatten(1)

    assert torch.equal(weight, BlockLinear(weight, None, blocks).wide)


def test_the_largest_level_of_an_embedding_is_odd():
    """So none of its numbers lies between two levels of the activations that they become."""
    levels, _ = quantise_blocks(torch.randn(40, 128), FOUR_BITS, odd=True)

    assert torch.equal((levels.int() - 8).abs().amax(dim=-1), torch.full((40, 4), 7))


def test_no_weight_is_further_off_than_by_the_plain_scale():
    """Of scales that were tried the best is taken: no block has a larger error than with its largest weight at 7."""
    weight = torch.randn(40, 128)
    plain = weight.view(40, 4, 32).abs().amax(dim=-1, keepdim=True) / 7
    values = weight.view(40, 4, 32)
    expected = ((values / plain).round() * plain - values).square().sum(-1)
    levels, scale = quantise_blocks(weight, FOUR_BITS)
    actual = ((levels.float() - 8) * scale.float()[..., None] - values).square().sum(-1)

    assert (actual <= expected * 1.01).all()
    assert actual.sum() < 0.95 * expected.sum()


@pytest.mark.parametrize(
    ("kind", "bits"), [("int4", 4 + 16 / 32), ("int8", 8 + 16 / 64), ("nf4", 4 + 8 / 64 + 32 / 64 / 256)]
)
def test_bits_of_a_weight(kind, bits):
    """What is stored of a weight: its level, and its share of a scale; of NF4, of the scale's scale too."""
    product = KINDS[kind](torch.randn(256, 512), None)
    stored = sum(each.nbytes for name, each in product.named_buffers() if name not in {"wide", "mean"})

    assert bits * 256 * 512 / 8 == stored


def test_levels_of_nf4_are_those_of_the_paper():
    """QLoRA, Appendix E, and what they are: quantiles of a normal distribution for each sign, 0 among them."""
    table = """-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
        0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0"""
    quantile = statistics.NormalDist().inv_cdf
    last = 0.9677083  # of the authors' code: halfway between 1 - 1/30 and 1 - 1/32
    above = [quantile(0.5 + (last - 0.5) * step / 8) for step in range(1, 9)]
    below = [-quantile(0.5 + (last - 0.5) * step / 7) for step in range(7, 0, -1)]
    largest = quantile(last)

    assert tuple(map(float, table.split(","))) == LEVELS
    assert [pytest.approx(each / largest, abs=2e-6) for each in (*below, 0.0, *above)] == list(LEVELS)


def test_nf4_takes_the_nearest_level():
    """Of each weight the level is the nearest to its share of the block's largest."""
    weight = torch.randn(30, BLOCK)
    places, scales = quantise(weight)
    shares = weight / scales[:, None]
    distances = (shares[..., None] - torch.tensor(LEVELS)).abs()

    assert torch.equal(distances.argmin(dim=-1).flatten(), places.long())
    assert torch.equal(weight.abs().amax(dim=1), scales)


def test_equal_scales_of_nf4_are_kept():
    """They are their mean, and nothing is left to round."""
    scales = torch.full((5,), 0.3)
    codes, rows, mean = double_quantise(scales)

    assert torch.equal(scales, (codes.float() * rows + mean).flatten()[:5])


def test_scales_of_nf4_are_rounded_too():
    """A scale is off by a sixteenth of its distance from the mean at most, which is what 8-bit floats keep."""
    scales = torch.rand(700) + 0.1
    codes, rows, mean = double_quantise(scales)
    actual = (codes.float() * rows + mean).flatten()[:700]

    assert (3, 256) == tuple(codes.shape)
    assert ((actual - scales).abs() <= (scales - scales.mean()).abs() / 16 + 1e-4).all()
