"""Precisions with weights in blocks: which bits each product gets, and what their bundles say."""

from dataclasses import replace

import onnx
import pytest
import torch
from google.protobuf import json_format
from tiny import CHECKPOINTS, INT8, save_tiny, tiny_generate
from tiny_mixture import tiny_mixture
from torch import nn
from torch.nn import functional

from weft_export import export
from weft_export.__main__ import _bits_line
from weft_export.choices import PRECISIONS
from weft_export.errors import CheckpointError, ParityError
from weft_export.layers.block_linear import FOUR_BITS, MAX_WEIGHT, BlockEmbedding, BlockLinear
from weft_export.layers.nf4_linear import Nf4Linear
from weft_export.layers.patches import PatchEmbedding
from weft_export.options import ExportOptions
from weft_export.quantization import choice, in_blocks
from weft_export.quantization.block_kinds import BlockKind
from weft_export.quantization.choice import MAX_BLOCK_EFFECT, choose_kinds, enlarged
from weft_export.quantization.in_blocks import rounded_in_blocks
from weft_export.quantization.observers import MIN_COLUMNS
from weft_export.quantization.requests import sensible_requests
from weft_proto.v1 import bundle_pb2

INT4, INT8_WEIGHTS, NF4 = (PRECISIONS[name] for name in ("int4", "int8-weights", "nf4"))
SMALLEST = {4: 32, 8: 64}
ROUNDED = (BlockLinear, BlockEmbedding, Nf4Linear)


@pytest.mark.parametrize("name", INT8)
def test_every_kind_of_product_is_rounded(name):
    """No product stays float32, but those of few columns and of patches; the report names each with its bits."""
    checkpoint = CHECKPOINTS[name]()
    rounded = rounded_in_blocks(checkpoint, NF4)
    modules = dict(rounded.model.named_modules())
    left = [
        path for path, module in modules.items() if type(module) is nn.Linear and module.out_features >= MIN_COLUMNS
    ]
    kinds = {path: type(module) for path, module in modules.items() if isinstance(module, ROUNDED)}

    assert all(isinstance(modules[path.rpartition(".")[0]], PatchEmbedding) for path in left)
    assert {product.name: product.bits for product in rounded.rounding.products} == {
        path: 4 if kind is Nf4Linear else 8 for path, kind in kinds.items()
    }
    assert {BlockEmbedding, Nf4Linear} >= set(kinds.values())
    assert all(parameter.data_ptr() for parameter in checkpoint.model.parameters())


def divergence(expected, actual):
    """The mean Kullback-Leibler divergence of logits, in nats."""
    expected, actual = expected.log_softmax(-1), actual.log_softmax(-1)
    return float((expected.exp() * (expected - actual)).sum(-1).mean())


def answers(checkpoint, requests):
    """All logits of a generator, [tokens, vocab]."""
    with torch.inference_mode():
        return torch.cat([checkpoint.model.decode(torch.tensor([tokens]))[0] for _, tokens in requests])


@pytest.mark.parametrize("precision", [INT4, INT8_WEIGHTS, NF4])
def test_the_effect_says_what_rounding_does(precision, monkeypatch):
    """The estimate is within a factor of three of the divergence that is then measured."""
    checkpoint = tiny_generate()
    requests = sensible_requests(checkpoint, (), 8)
    monkeypatch.setattr(in_blocks, "round_caches", lambda *_: None)
    rounded = rounded_in_blocks(checkpoint, precision)
    measured = divergence(answers(checkpoint, requests), answers(rounded, requests))

    assert 1 / 3 < rounded.rounding.effect / measured < 3


def test_products_get_more_bits_until_the_effect_is_small():
    """First those that give most for each weight, and none where all together move answers by little."""
    ladder = (BlockKind.INT4, BlockKind.INT8)
    small = {"a": 0.2, "b": 0.3, "c": 0.05}
    effects = {(path, BlockKind.INT4): share * MAX_BLOCK_EFFECT for path, share in small.items()}
    effects |= dict.fromkeys(((path, BlockKind.INT8) for path in small), 0.0)
    ladders, sizes = dict.fromkeys(small, ladder), {"a": 10, "b": 100, "c": 100}
    assert {BlockKind.INT4} == set(choose_kinds(effects, ladders, sizes).values())

    loud = {key: 2.5 * effect for key, effect in effects.items()}
    assert ["a"] == wide(choose_kinds(loud, ladders, sizes))
    loudest = {key: 100 * effect for key, effect in effects.items()}
    assert ["a"] == wide(choose_kinds(loudest, ladders, sizes))  # of the others, each is too large
    # A table of tokens has room of its own, and takes none of that of the others.
    assert ["a", "b"] == wide(choose_kinds(loudest, ladders, {**sizes, "a": 15}, ["b"]))


def test_blocks_become_larger_while_the_effect_is_small():
    """First those that lose least for each weight, and none where all together move answers by too much already."""
    chosen = dict.fromkeys("abc", BlockKind.INT4)
    larger = dict.fromkeys("abc", BlockKind.INT4_128)
    sizes = {"a": 10, "b": 100, "c": 100}
    effects = {(path, BlockKind.INT4): MAX_BLOCK_EFFECT / 10 for path in chosen}
    losses = {"a": 0.2, "b": 0.3, "c": 0.8}
    effects |= {(path, BlockKind.INT4_128): (0.1 + losses[path]) * MAX_BLOCK_EFFECT for path in chosen}
    assert ["b", "a"] == list(enlarged(effects, chosen, larger, sizes))

    loud = {key: 4 * effect for key, effect in effects.items()}
    assert [] == list(enlarged(loud, chosen, larger, sizes))


def wide(chosen):
    """The products that got more than the fewest bits."""
    return [path for path, kind in chosen.items() if kind is BlockKind.INT8]


def test_who_gets_larger_blocks(monkeypatch):
    """Products of layers, as wide as some blocks: not the projection to logits, and none that a mixture's experts have.

    As large as asked at most. Of what is no generator of texts from texts, none has them.
    """
    monkeypatch.setattr(choice, "MAX_BLOCK_EFFECT", 100.0)

    def sizes(checkpoint, precision=INT4):
        products = rounded_in_blocks(checkpoint, precision).rounding.products
        return {product.name: product.block_size for product in products if product.block_size > SMALLEST[product.bits]}

    # What reads 96 numbers, down_proj, would be filled up.
    products = ("attention.qkv", "attention.output", "feed_forward.gate_proj", "feed_forward.up_proj")
    assert {f"layers.{layer}.{name}": 64 for layer in (0, 1) for name in products} == sizes(tiny_generate())
    assert {} == sizes(replace(tiny_generate(), max_block_size=32))
    assert {} == sizes(tiny_generate(), INT8_WEIGHTS)  # it is no wider than their smallest
    assert not any(".experts." in name for name in sizes(tiny_mixture(3)))
    for name in ("tiny-hybrid", "tiny-translate", "tiny-text", "tiny-gemma3"):
        assert {} == sizes(CHECKPOINTS[name]()), name


def test_weights_that_no_scale_fits_are_refused():
    """One sentence names the tensor, before anything is made."""
    checkpoint = tiny_generate()
    with torch.no_grad():
        checkpoint.model.layers[1].attention.output.weight[0, 0] = 2 * MAX_WEIGHT
    with pytest.raises(
        CheckpointError, match=r"layers\.1\.attention\.output\.weight has a weight of more than 400,000"
    ):
        rounded_in_blocks(checkpoint, INT4)


def test_a_bundle_says_the_bits_of_each_product(int4_repository):
    """The manifest names every product; keys and values are int8; and the files are as small as they should be."""
    bundle = int4_repository / "tiny-generate-int4" / "1"
    manifest = manifest_in(bundle)
    bits = {product.name: product.bits for product in manifest.rounding.products}
    sizes = {path: tiny_generate().model.get_submodule(path).weight.numel() for path in bits}
    stored = sum(sizes[path] * {4: 4 + 16 / 32, 8: 8 + 16 / 64}[each] / 8 for path, each in bits.items())

    assert PRECISIONS["int4"] == manifest.precision
    assert len(bits) == manifest.rounding.num_products > 4
    assert {bundle_pb2.DATA_TYPE_INT8} == {state.data_type for state in manifest.states}
    # Small tensors and tables of positions lie there too.
    assert stored * 0.9 < sum(path.stat().st_size for path in bundle.glob("*.data")) < stored * 1.3


def manifest_in(bundle):
    """The manifest of a bundle."""
    return json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())


def test_weights_of_4_bits_beside_fp16(tmp_path):
    """Weights are those of int4. Rows are not rounded, states are float16, and gate and up products are one."""
    bundle = tmp_path / "m" / "1"
    export.export_checkpoint(
        save_tiny("tiny-generate", tmp_path / "tiny"), bundle, ExportOptions(precision="int4-fp16", no_explain=True)
    )
    manifest = manifest_in(bundle)
    graph = onnx.load(bundle / "decoder.onnx", load_external_data=False).graph
    products = [node for node in graph.node if node.op_type == "MatMulNBits"]
    attributes = [{each.name: each.i for each in node.attribute} for node in products]
    bits = {product.name: product.bits for product in manifest.rounding.products}
    pairs = [{bits[f"layers.{layer}.feed_forward.{part}"] for part in ("gate_proj", "up_proj")} for layer in (0, 1)]

    assert {bundle_pb2.DATA_TYPE_FLOAT16} == {state.data_type for state in manifest.states}
    assert {0} == {each["accuracy_level"] for each in attributes}
    # Where both have as many bits. An embedding is looked up, and multiplied once.
    assert any(len(pair) == 1 for pair in pairs)
    assert len(bits) - sum(len(pair) == 1 for pair in pairs) == len(products)
    assert {4} <= {each["bits"] for each in attributes} <= {4, 8}


def test_two_products_become_one():
    """It writes what both write, bit by bit."""
    x, blocks = torch.randn(3, 40), FOUR_BITS._replace(rounds_inputs=False)
    one, other = (BlockLinear(torch.randn(24, 40), torch.randn(24), blocks) for _ in range(2))

    assert torch.equal(torch.cat((one(x), other(x)), dim=-1), one.beside(other)(x))
    assert torch.equal(one(x), functional.linear(x, one.wide, one.bias))


def test_an_export_says_what_was_rounded():
    """How many products have how many bits, what that does to answers, and whether it is more than is meant."""
    products = [
        bundle_pb2.RoundedProduct(bits=bits, block_size=size) for bits, size in ((4, 32), (8, 64), (4, 128), (4, 32))
    ]
    said = (
        "2 with weights of 4 bits in blocks of 32 and 1 with weights of 4 bits in blocks of 128 and 1 with weights of 8"
        " bits in blocks of 64: rounding moves an answer by 0.0100 nats (estimated)"
    )

    assert said == _bits_line(bundle_pb2.Rounding(products=products, effect=0.01), "int4")
    assert f"more than {MAX_BLOCK_EFFECT} is not for int4" in _bits_line(
        bundle_pb2.Rounding(effect=2 * MAX_BLOCK_EFFECT), "int4"
    )


TOO_COARSE = [
    ("int4", MAX_BLOCK_EFFECT, 128, ", and more than 0.02 is not for int4; --precision int8-weights loses less"),
    ("int4", 1.0, 128, "0.24 of its spread; --max-block-size 32 loses less"),
    ("int4", 1.0, 32, "0.24 of its spread"),
    ("nf4", 1.0, 128, "0.24 of its spread"),
]


@pytest.mark.parametrize(("precision", "most", "max_block_size", "told"), TOO_COARSE)
def test_a_model_that_is_rounded_too_coarsely_is_told_so(precision, most, max_block_size, told, tmp_path, monkeypatch):
    """Where torch and ONNX Runtime are too far apart then, the error says what else to try."""

    def far_apart(*_, **__):
        raise ParityError("decoder.onnx output logits differs by 0.24 of its spread")

    monkeypatch.setattr(export, "check_parity", far_apart)
    monkeypatch.setattr(choice, "MAX_BLOCK_EFFECT", most)
    monkeypatch.setattr(export, "_trace", lambda *_: None)
    with pytest.raises(ParityError) as raised:
        export.export_checkpoint(
            save_tiny("tiny-generate", tmp_path / "tiny"),
            tmp_path / "m" / "1",
            ExportOptions(precision=precision, max_block_size=max_block_size),
        )

    assert f"{told}. The graphs" in str(raised.value)


@pytest.mark.parametrize(("precision", "bits", "least"), [("int4", 4, 32), ("int8-weights", 8, 64)])
def test_such_an_error_names_a_size_that_an_export_takes(precision, bits, least):
    """Weights of 8 bits have no smaller blocks than of 64."""
    products = [bundle_pb2.RoundedProduct(bits=bits, block_size=128)]
    assert f"; --max-block-size {least} loses less" == export._too_coarse(
        bundle_pb2.Rounding(products=products), PRECISIONS[precision]
    )
    ExportOptions(precision=precision, max_block_size=least).check_precision()
