"""Rounding chosen by what it does to the answers: smoothing, and products that stay float32."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from google.protobuf import json_format
from tiny import CHECKPOINTS, tiny_generate, with_outliers
from torch import nn

from weft_export.__main__ import _rounding_line
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.checkpoints.sharing import sharing
from weft_export.export import export_checkpoint
from weft_export.layers.quantized_linear import QuantisedEmbedding, QuantisedLinear
from weft_export.options import ExportOptions
from weft_export.quantization import integer_products
from weft_export.quantization.choice import MAX_EFFECT, MAX_SHARE, Choice, choose
from weft_export.quantization.effects import STRENGTHS, Effects, effects_of
from weft_export.quantization.integer_products import choice_of, quantised, smooth
from weft_export.quantization.requests import sensible_requests
from weft_export.quantization.smoothing_sites import Site, own_sites, sites_of
from weft_export.verification.session import open_session
from weft_proto.v1 import bundle_pb2

SMOOTHABLE = ["tiny-translate", "tiny-generate", "tiny-gpt", "tiny-t5", "tiny-caption", "tiny-image"]


def divergence(expected, actual):
    """The mean Kullback-Leibler divergence of logits, in nats."""
    expected, actual = expected.log_softmax(-1), actual.log_softmax(-1)
    return float((expected.exp() * (expected - actual)).sum(-1).mean())


def answers(checkpoint, requests):
    """All logits of a generator, [tokens, vocab]."""
    with torch.inference_mode():
        return torch.cat([checkpoint.model.decode(torch.tensor([tokens]))[0] for _, tokens in requests])


@pytest.mark.parametrize("name", SMOOTHABLE)
def test_smoothing_changes_no_answer(name):
    """With factors at all sites, and everything still float32, a model computes what it did before."""
    checkpoint = CHECKPOINTS[name]()
    sites = sites_of(checkpoint.model)
    requests = sensible_requests(checkpoint, (), 2)
    effects = effects_of(checkpoint, requests, sites)
    choice = Choice(floats=set(effects.plain))
    # A tied output projection is smoothed when it is rounded, and never as it is.
    inner = [site for site in sites if isinstance(checkpoint.model.get_submodule(site.readers[0]), nn.Linear)]
    for site in inner:
        choice.divided[site.maker] = factors = effects.factors[site, STRENGTHS[0]]
        choice.multiplied.update(dict.fromkeys(site.readers, factors))
    model = sharing(checkpoint.model)
    smooth(model, choice)

    assert len(inner) >= 4
    assert all(factors.max() > 1.2 for factors in choice.multiplied.values())
    with torch.inference_mode():
        for source, tokens in requests:
            given = (torch.tensor([tokens]), *source) if tokens else source
            for expected, actual in zip(outputs(checkpoint.model, given), outputs(model, given), strict=True):
                assert torch.allclose(expected, actual, rtol=1e-3, atol=1e-4)


def test_what_is_cut_before_a_product_is_not_divided():
    """Of a network with a limit, as gpt-oss has: what is cut would no longer be the same."""
    model = CHECKPOINTS["tiny-generate"]().model
    networks = [layer.feed_forward for layer in model.layers]
    makers = {f"layers.{number}.feed_forward.up_proj" for number in range(len(networks))}
    assert makers <= {site.maker for site in sites_of(model)}
    for network in networks:
        network.limit = 7.0
    assert makers.isdisjoint(site.maker for site in sites_of(model))


def outputs(model, given):
    """The logits of a model that writes, or of one that classifies."""
    return [model.decode(*given) if hasattr(model, "decode") else model(*given)]


def test_a_smoothed_table_gives_the_same_vectors_and_logits():
    """Vectors leave a smoothed embedding as they were, and divided inputs get the logits of undivided ones."""
    embedding, factors = nn.Embedding(50, 16), torch.linspace(0.25, 4, 16)
    smoothed = QuantisedEmbedding(embedding, factors)
    x = torch.randn(3, 16) * factors
    expected = x @ embedding.weight.t()

    step = (embedding.weight * factors).abs().amax(dim=1, keepdim=True) / 127
    assert ((embedding.weight - smoothed(torch.arange(50))).abs() <= step * 0.5001 / factors).all()
    assert (expected - smoothed.logits(x / factors)).std() < 0.02 * expected.std()


def test_a_model_without_outliers_is_rounded_as_it_is():
    """Where rounding everything is harmless, nothing is smoothed and nothing stays float32."""
    checkpoint = CHECKPOINTS["tiny-translate"]()
    choice = choice_of(checkpoint, ())

    assert sum(choice.plain.values()) < MAX_EFFECT
    assert ({}, set(), {}) == (choice.strengths, choice.floats, choice.divided)
    assert [] == list(quantised(checkpoint).rounding.products)


def test_outliers_are_smoothed():
    """Outliers in norms and in products of gates are taken out, and int8 then says what it says without them."""
    clean, checkpoint = tiny_generate(), with_outliers()
    requests = sensible_requests(clean, (), 8)
    expected = answers(clean, requests)
    assert torch.allclose(expected, answers(checkpoint, requests), atol=1e-3)
    choice = choice_of(checkpoint, ())

    for layer in ("layers.0", "layers.1"):
        assert choice.strengths[f"{layer}.attention.qkv"] > 0
        assert choice.strengths[f"{layer}.feed_forward.down_proj"] > 0
    assert sum(choice.plain.values()) > 3 * MAX_EFFECT
    assert sum(choice.effects.values()) <= MAX_EFFECT
    smoothed = divergence(expected, answers(quantised(checkpoint), requests))
    assert smoothed < 1.5 * divergence(expected, answers(quantised(clean), requests))


def test_the_effect_says_what_rounding_does(monkeypatch):
    """The estimate is within a factor of three of the divergence that is then measured, however it is rounded."""
    checkpoint = with_outliers()
    requests = sensible_requests(checkpoint, (), 8)
    expected = answers(checkpoint, requests)
    for choice in (choice_of(checkpoint, ()), Choice(effects=choice_of(checkpoint, ()).plain)):
        monkeypatch.setattr(integer_products, "choice_of", lambda *_, choice=choice: choice)
        monkeypatch.setattr(integer_products, "round_caches", lambda *_: None)
        measured = divergence(expected, answers(quantised(checkpoint), requests))

        assert 1 / 3 < sum(choice.effects.values()) / measured < 3


def test_what_nothing_can_divide_before_divides_what_it_reads():
    """Behind a norm that a residual reads too there is no site. Of such products few divide by themselves.

    They are those that gain most, as few as are needed, and none that gains less than half.
    """
    smoothed = {"most": 0.001, "less": 0.0001, "little": 0.006}
    plain = {"most": 0.02, "less": 0.001, "little": 0.007}
    sites = [Site(None, (path,)) for path in plain]
    effects = Effects(
        plain,
        {(path, STRENGTHS[0]): effect for path, effect in smoothed.items()},
        {(site, STRENGTHS[0]): torch.ones(4) for site in sites},
    )
    choice = choose(effects, sites, dict.fromkeys(plain, 100))

    assert ({"most": STRENGTHS[0]}, set(), {"most"}) == (choice.strengths, choice.floats, choice.dividing.keys())
    assert 0.009 == pytest.approx(sum(choice.effects.values()))
    choice = choose(replace(effects, plain=plain | {"little": 0.02}), sites, dict.fromkeys(plain, 100))
    assert {"most", "little"} == choice.dividing.keys()


def test_a_rounded_model_divides_where_it_says_so():
    """What the manifest names is what the model does: a float product, or one that divides what it reads."""
    checkpoint = CHECKPOINTS["tiny-bert"]()
    assert [] == sites_of(checkpoint.model)
    choice, rounded = choice_of(checkpoint, ()), quantised(checkpoint)
    special = {product.name: product.is_float for product in rounded.rounding.products}

    assert special.keys() == choice.floats | choice.dividing.keys()
    assert 1 <= len(special) <= 5
    for path, module in rounded.model.named_modules():
        if isinstance(module, QuantisedLinear):
            assert (path in special) == (module.inverse is not None)
        elif special.get(path):
            assert checkpoint.model.get_submodule(path).weight.data_ptr() == module.weight.data_ptr()
        else:
            assert path.endswith("head") or type(module) is not nn.Linear
    assert rounded.rounding.effect <= MAX_EFFECT < rounded.rounding.plain_effect


def test_a_product_of_what_writes_stays_float(monkeypatch):
    """It divides nothing by itself: whether that keeps to parity was tried on Whisper base, and it does not."""
    tried = []
    monkeypatch.setattr(integer_products, "effects_of", lambda _, __, sites: tried.extend(sites) or Effects({}, {}, {}))
    for name, divides in (("tiny-bert", True), ("tiny-gpt", False), ("tiny-speech", False)):
        tried.clear()
        choice_of(CHECKPOINTS[name](), ())
        assert divides == any(site.maker is None for site in tried), name


def test_a_product_that_divides_what_it_reads_computes_the_same():
    """Its weights are multiplied by the factors. An outlying channel then costs the others nothing."""
    linear, factors = nn.Linear(64, 20), torch.ones(64)
    factors[3] = 100.0
    with torch.no_grad():
        linear.weight[:, 3] /= 100
    x = torch.randn(5, 64) * factors
    with torch.inference_mode():
        expected, plain, divides = (
            each(x) for each in (linear, QuantisedLinear(linear), QuantisedLinear(linear, factors))
        )

    assert (divides - expected).std() < 0.02 * expected.std() < 0.1 * (plain - expected).std()


def test_what_smoothing_cannot_mend_stays_float():
    """The product that costs most stays as it is, named, and shares its weights with the checkpoint."""
    checkpoint = with_outliers()
    sites = [*sites_of(checkpoint.model), *own_sites(checkpoint.model)]
    effects = effects_of(checkpoint, sensible_requests(checkpoint, (), 4), sites)
    path = max(effects.plain, key=effects.plain.__getitem__)
    hard = {key: effects.plain[key[0]] if key[0] == path else effect for key, effect in effects.smoothed.items()}
    sizes = {path: checkpoint.model.get_submodule(path).weight.numel() for path in effects.plain}
    choice = choose(replace(effects, smoothed=hard), sites, sizes)

    assert path in choice.floats
    assert path not in choice.strengths


def test_few_products_stay_float_however_much_rounding_costs():
    """Never more of the weights than MAX_SHARE; those that give most for each weight go first."""
    checkpoint = with_outliers()
    sites = sites_of(checkpoint.model)
    effects = effects_of(checkpoint, sensible_requests(checkpoint, (), 4), sites)
    plain = {path: effect * 1e3 for path, effect in effects.plain.items()}
    loud = replace(effects, plain=plain, smoothed={key: effect * 1e3 for key, effect in effects.smoothed.items()})
    sizes = {path: checkpoint.model.get_submodule(path).weight.numel() for path in effects.plain}
    choice = choose(loud, sites, sizes)
    share = sum(sizes[path] for path in choice.floats) / sum(sizes.values())

    assert 0 < share <= MAX_SHARE
    assert sum(choice.effects.values()) > MAX_EFFECT


def test_an_export_says_when_rounding_costs_too_much():
    """Its line names the bound if what is left is beyond it, and only then."""
    assert "more than 0.01 is not for int8" in _rounding_line(bundle_pb2.Rounding(num_products=3, effect=0.02))
    assert "is not for int8" not in _rounding_line(bundle_pb2.Rounding(num_products=3, effect=MAX_EFFECT))


@pytest.fixture(scope="module")
def smoothed_bundle(tmp_path_factory):
    """The tiny generator with outliers, at int8."""
    home = tmp_path_factory.mktemp("rounding")
    save_checkpoint(home / "checkpoint", with_outliers())
    export_checkpoint(
        home / "checkpoint",
        home / "models" / "outliers" / "1",
        ExportOptions(precision="int8", no_explain=True, no_score=True),
    )
    return home / "models" / "outliers" / "1"


def test_the_manifest_says_what_was_done(smoothed_bundle):
    """It names each product that was smoothed, with its strength and what that saved."""
    manifest = json_format.Parse((smoothed_bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())
    rounding = manifest.rounding
    qkv = next(product for product in rounding.products if product.name == "layers.0.attention.qkv")

    assert 11 == rounding.num_products
    assert qkv.strength in [pytest.approx(strength) for strength in STRENGTHS]
    assert qkv.effect < qkv.plain_effect / 3
    assert rounding.effect <= MAX_EFFECT < rounding.plain_effect


def test_a_smoothed_row_has_its_bits_in_any_crowd(smoothed_bundle):
    """A row of the smoothed graph is the same alone and among others, and no operator was added but the lookup's."""
    session = open_session(smoothed_bundle / "decoder.onnx")
    random = np.random.default_rng(0)
    feeds = {}
    for port in session.get_inputs():
        shape = [9 if axis in ("batch", "rows") else 1 if axis == "seq" else axis for axis in port.shape]
        if port.type == "tensor(int8)":
            feeds[port.name] = random.integers(-50, 50, shape, np.int8)
    feeds |= {
        "input_ids": random.integers(2, 300, (9, 1)),
        "past_lengths": random.integers(1, 60, 9).astype(np.int32),
        "lengths": np.ones(9, np.int32),
        "total_length": np.array([64], np.int32),
        "reads_all": np.ones(1, np.int32),
    }
    together = session.run(None, feeds)
    for row in range(9):
        alone = session.run(
            None, {name: value if value.shape[0] == 1 else value[row : row + 1] for name, value in feeds.items()}
        )
        for whole, part in zip(together, alone, strict=True):
            assert np.array_equal(whole[row], part[0])


def test_rounded_products_are_all_but_those_named():
    """Every product is rounded, unless the report says that it stays float32."""
    rounded = quantised(with_outliers())
    floats = {product.name for product in rounded.rounding.products if product.is_float}
    kinds = {path: type(module) for path, module in rounded.model.named_modules()}

    assert {nn.Linear} >= {kinds[path] for path in floats}
    assert rounded.rounding.num_products == len(floats) + sum(
        kind in (QuantisedLinear, QuantisedEmbedding) for kind in kinds.values()
    )
