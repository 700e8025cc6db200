"""Adapters: PEFT's files are read as PEFT reads them, and a row with one is what merged weights give."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import CHECKPOINTS, save_tiny, with_outliers
from tiny_adapters import linear_shapes, write_adapter
from torch import nn

from weft_export.adapters.beside import beside, rounded_base, smoothed
from weft_export.adapters.export_adapter import export_adapter
from weft_export.adapters.merging import pairs_of, write_merged
from weft_export.adapters.modules import Modules
from weft_export.adapters.peft import PICKLE, WEIGHTS, read_adapter
from weft_export.adapters.peft import changed as with_change
from weft_export.checkpoints.sharing import sharing
from weft_export.choices import PRECISIONS
from weft_export.errors import CheckpointError, ExportError, ParityError
from weft_export.export import export_checkpoint, prepared
from weft_export.graphs.adapting import adapter_spec
from weft_export.layers.adapted_linear import AdaptedLinear, Adapters, adapting
from weft_export.layers.nf4_linear import Nf4Linear
from weft_export.options import ExportOptions
from weft_export.quantization.in_blocks import rounded_in_blocks
from weft_export.quantization.integer_products import quantised
from weft_export.verification.session import AdaptedSession
from weft_proto.bundle_rules import ADAPTER_PORTS
from weft_proto.v1 import bundle_pb2


@pytest.mark.parametrize(
    ("more", "scale"),
    [
        ({}, 3.0),
        ({"use_rslora": True}, 6 / 2**0.5),
        ({"alpha_pattern": {"layers.1.q": 8}}, 4.0),
        ({"alpha_pattern": {"q": 2, "layers.1.q": 8}}, 1.0),
        ({"alpha_pattern": {"^layers.1": 2}}, 3.0),
    ],
)
def test_what_an_adapter_adds_is_scaled_as_in_peft(tmp_path, more, scale):
    """It is alpha / r, or alpha / sqrt(r) with rsLoRA. Of patterns the first counts that matches the end of a path."""
    write_adapter(tmp_path, {"layers.1.q": (4, 3)}, **more)
    (change,) = read_adapter(tmp_path).changes.values()
    assert scale == pytest.approx(change.scale)
    assert torch.allclose(scale * (change.b @ change.a).double(), change.matrix())


def test_ranks_may_differ_by_module(tmp_path):
    """rank_pattern says the rank of some modules, and alpha is divided by it."""
    shapes = {"layers.0.q": (4, 3), "layers.1.q": (4, 3)}
    write_adapter(tmp_path, shapes, ranks={"layers.1.q": 1}, rank_pattern={"1.q": 1})
    assert {"layers.0.q": (2, 3.0), "layers.1.q": (1, 6.0)} == {
        module: (change.rank, change.scale) for module, change in read_adapter(tmp_path).changes.items()
    }


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["head"]}, "modules_to_save names head"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"something_new": True}, "something_new"),
        ({"lora_alpha": "much"}, "lora_alpha"),
        ({"lora_alpha": 10**400}, "lora_alpha"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"rank_pattern": {"(": 3}}, "rank_pattern"),
        ({"rank_pattern": {"q": 3}}, "rank is 3"),
    ],
)
def test_what_is_more_than_lora_is_refused_by_name(tmp_path, more, why):
    """A setting that would change answers in another way is named."""
    write_adapter(tmp_path, {"layers.1.q": (4, 3)}, **more)
    with pytest.raises(CheckpointError, match=why.replace("(", r"\(")):
        read_adapter(tmp_path)


@pytest.mark.parametrize(
    ("name", "tensor", "why"),
    [
        ("layers.1.q.lora_magnitude_vector.weight", torch.ones(4), "DoRA"),
        ("words.lora_embedding_A", torch.ones(2, 3), "embedding"),
        ("layers.1.q.lora_B.bias", torch.ones(4), "bias"),
        ("words.trainable_tokens_delta", torch.ones(2, 3), "no A or B"),
        ("layers.1.conv.lora_A.weight", torch.ones(2, 3, 1, 1), "4 axes"),
        ("layers.1.k.lora_A.weight", torch.ones(2, 3), "no lora_B"),
    ],
)
def test_a_tensor_that_is_no_a_or_b_is_refused(tmp_path, name, tensor, why):
    """Each other tensor is named, and what it is."""
    write_adapter(tmp_path, {"layers.1.q": (4, 3)})
    ours = {f"base_model.model.layers.1.q.lora_{part}.weight": torch.ones(*shape) for part, shape in _AB.items()}
    save_file({**ours, f"base_model.model.{name}": tensor}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=why):
        read_adapter(tmp_path)


_AB = {"A": (2, 3), "B": (4, 2)}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [(["model.q.weight"], "model.q.weight"), (["model.q.weight", "head.q.weight"], None), (["model.k.weight"], None)],
)
def test_a_name_that_may_be_one_of_two_weights_is_none(stored, expected, tmp_path):
    """A path may lack what the file's names begin with, as long as one weight alone can be meant."""
    assert expected == Modules(tmp_path, stored).stored("q.weight")


def test_a_module_has_one_a_and_one_b(tmp_path):
    """Not one by each of two names, of which a reader would drop one."""
    write_adapter(tmp_path / "adapter", {"layers.1.q": (4, 3)})
    names = [f"{prefix}layers.1.q.lora_{part}.weight" for prefix in ("", "base_model.model.") for part in _AB]
    tensors = {name: torch.ones(*_AB[name[-8]]) for name in names}
    save_file(tensors, tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"are both lora_A of layers\.1\.q"):
        read_adapter(tmp_path / "adapter")
    (tmp_path / "model").mkdir()
    save_file({"model.layers.1.q.weight": torch.ones(4, 3)}, tmp_path / "model" / "model.safetensors")
    write_adapter(tmp_path / "adapter", {"layers.1.q": (4, 3), "model.layers.1.q": (4, 3)})
    with pytest.raises(CheckpointError, match=r"another module that is model\.layers\.1\.q\.weight too"):
        write_merged(tmp_path / "model", read_adapter(tmp_path / "adapter"), tmp_path)


def test_a_directory_without_weights_is_refused(tmp_path):
    """Both names that PEFT gives them are said."""
    (write_adapter(tmp_path, {"q": (4, 3)}) / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match=r"neither adapter_model\.safetensors nor adapter_model\.bin"):
        read_adapter(tmp_path)


def test_a_rank_of_none_is_refused(tmp_path):
    """Nothing divides alpha by 0."""
    write_adapter(tmp_path, {"layers.1.q": (4, 3)}, rank=0)
    with pytest.raises(CheckpointError, match="its rank is 0"):
        read_adapter(tmp_path)


def test_what_float32_does_not_hold_is_refused(tmp_path):
    """The weight is named."""
    write_adapter(tmp_path, {"q": (4, 3)}, lora_alpha=1e300)
    (change,) = read_adapter(tmp_path).changes.values()
    with pytest.raises(CheckpointError, match=r"lora_alpha .* adds more to q\.weight than float32 holds"):
        with_change(torch.ones(4, 3), change, "q.weight")


def test_rows_of_a_run_get_their_own_adapter_or_none():
    """A row in a group is x W + x A B + b. One in none keeps its bits, infinity included."""
    linear = nn.Linear(3, 5)
    adapted = AdaptedLinear(linear, "x")
    a, b = torch.randn(2, 3, 2), torch.randn(2, 2, 5)
    x = torch.randn(4, 2, 3)
    x[3] = torch.inf
    given = Adapters(torch.tensor([[2, 0], [1, 1]]), torch.tensor([1, 2]), torch.tensor([2, 0]), {"x": (a, b)})
    with torch.no_grad(), adapting(given):
        out = adapted(x)
        plain = torch.nn.functional.linear(x, linear.weight) + linear.bias
    assert torch.equal(plain[[0, 3]].view(torch.int32), out[[0, 3]].view(torch.int32))
    for row, group in ((1, 1), (2, 0)):
        assert torch.allclose(linear(x[row]) + x[row] @ a[group] @ b[group], out[row], atol=1e-6)


def test_the_products_of_a_model_are_those_of_its_layers():
    """Of a Transformer all products of its layers can be adapted; fused ones have three times the rank."""
    spec = adapter_spec(CHECKPOINTS["tiny-generate"]().model, 4, ("qkv", "down_proj"))
    assert {"layers.0.attention.qkv": 12, "layers.1.feed_forward.down_proj": 4}.items() <= {
        layer.name: layer.rank for layer in spec.layers
    }.items()
    assert 4 == len(spec.layers)
    with pytest.raises(CheckpointError, match="layers of Transformers"):
        adapter_spec(CHECKPOINTS["tiny-rnn"]().model, 4)


def test_no_product_of_this_name_is_refused():
    """--adapted names products of layers."""
    with pytest.raises(ExportError, match="'q_proj' is no product"):
        _ = ExportOptions(adapters=4, adapted="qkv, q_proj").adapted_products


def test_an_adapter_of_too_large_a_rank_or_of_other_weights_is_refused():
    """The rank that a bundle takes, and the products, are said."""
    checkpoint = CHECKPOINTS["tiny-generate"]()
    spec = adapter_spec(checkpoint.model, 2, ("down_proj",))
    merged = CHECKPOINTS["tiny-generate"]().model
    with torch.no_grad():
        weight = merged.layers[1].feed_forward.down_proj.weight
        weight += torch.randn(weight.shape[0], 3) @ torch.randn(3, weight.shape[1])
    with pytest.raises(
        CheckpointError, match=r"rank of 3 in layers\.1\.feed_forward\.down_proj, and the bundle takes 2"
    ):
        pairs_of(checkpoint.model, merged, spec)
    with torch.no_grad():
        merged.norm.weight += 1
    with pytest.raises(CheckpointError, match=r"rank|norm\.weight"):
        pairs_of(checkpoint.model, merged, spec)


@pytest.mark.parametrize(
    ("weight", "advice"),
    [
        ("dense.weight", r"train it with exclude_modules .*merge_and_unload\(\)"),
        ("body.encoder.layers.1.feed_forward.up_proj.weight", "export it with up_proj in --adapted too"),
    ],
    ids=["of the head", "of a layer"],
)
def test_a_refused_weight_is_told_from_those_that_are_taken(weight, advice):
    """A head may have a product that is called as one of the layers is; the ways out are not the same."""
    checkpoint, merged = CHECKPOINTS["tiny-masks"](), CHECKPOINTS["tiny-masks"]().model
    with torch.no_grad():
        merged.get_parameter(weight).add_(1)
    spec = adapter_spec(checkpoint.model, 2, ("qkv", "down_proj"))
    said = rf"changes {re.escape(weight)}, and the bundle takes adapters of the layers' down_proj, qkv alone; {advice}"
    with pytest.raises(CheckpointError, match=said):
        pairs_of(checkpoint.model, merged, spec)


@pytest.mark.parametrize("scale", [1e-3, 1, 1e3, 1e9])
def test_a_change_of_any_size_keeps_its_rank(scale):
    """What float32 rounds of the sum is no change of its own, however large the sum is."""
    checkpoint, merged = CHECKPOINTS["tiny-generate"](), CHECKPOINTS["tiny-generate"]().model
    spec = adapter_spec(checkpoint.model, 2, ("down_proj",))
    with torch.no_grad():
        weight = merged.layers[1].feed_forward.down_proj.weight
        weight += scale * torch.randn(weight.shape[0], 2) @ torch.randn(2, weight.shape[1])
    ((a, b),) = pairs_of(checkpoint.model, merged, spec).values()
    assert 2 == a.shape[1]
    change = weight - checkpoint.model.layers[1].feed_forward.down_proj.weight
    assert 1e-5 * scale + 1e-6 * weight.abs().max() > (torch.from_numpy(a @ b).T - change).abs().max()


def test_a_bundle_without_adapters_is_untouched():
    """A checkpoint that is to take none is exported as it is: its modules are the same."""
    checkpoint = CHECKPOINTS["tiny-generate"]()
    assert prepared(checkpoint) is checkpoint
    spec = adapter_spec(checkpoint.model, 2)
    assert any(isinstance(each, AdaptedLinear) for each in prepared(replace(checkpoint, adapters=spec)).model.modules())


def test_an_adapter_is_exported_and_agrees_with_merged_weights(tmp_path, monkeypatch):
    """Logits, states, probabilities and attentions are those of torch with merged weights, within 1e-4."""
    checkpoint = save_tiny("tiny-text", tmp_path / "checkpoint")
    bundle = tmp_path / "models" / "topics" / "1"
    names = ("qkv", "output", "down_proj")
    base = export_checkpoint(checkpoint, bundle, ExportOptions(adapters=2, adapted=",".join(names)))
    adapter = write_adapter(tmp_path / "formal", linear_shapes(CHECKPOINTS["tiny-text"]().model, *names))
    torch.save(load_file(adapter / WEIGHTS), adapter / PICKLE)
    (adapter / WEIGHTS).unlink()
    report = export_adapter(adapter, bundle, checkpoint, golden="the dog finds")
    assert ["adapter_model.bin is a pickle"] == [note.partition(",")[0] for note in report.notes]
    assert bundle.parent / "adapters" / "1" / "formal" == report.directory
    assert 1e-4 >= report.manifest.parity.max_abs_error
    assert {2} == {layer.rank for layer in report.manifest.layers}
    assert base.manifest.golden.probabilities != report.manifest.golden.probabilities
    with pytest.raises(ExportError, match="description has 5000 characters"):
        export_adapter(adapter, bundle, checkpoint, name="other", description="x" * 5000)
    with pytest.raises(ExportError, match="--force"):
        export_adapter(adapter, bundle, checkpoint)
    with pytest.raises(CheckpointError, match="another checkpoint"):
        export_adapter(adapter, bundle, save_tiny("tiny-image", tmp_path / "other"), name="other")
    write_adapter(tmp_path / "wrong", {"layers.7.qkv": (4, 4)})
    with pytest.raises(CheckpointError, match=r"layers\.7\.qkv"):
        export_adapter(tmp_path / "wrong", bundle, checkpoint)
    square = write_adapter(tmp_path / "square", linear_shapes(CHECKPOINTS["tiny-text"]().model, "output"))
    monkeypatch.setattr(Modules, "is_turned", lambda *_: True)
    with pytest.raises(ParityError, match="does not read what PEFT's reads"):
        export_adapter(square, bundle, checkpoint)


@pytest.fixture
def changed():
    """The tiny generator with channels that int8 smooths; a small change of some products; and one with it merged."""
    base, merged = with_outliers(), with_outliers()
    spec = adapter_spec(base.model, 2, ("qkv", "up_proj", "down_proj"))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for layer in spec.layers:
            weight = merged.model.get_submodule(layer.name).weight
            a = torch.randn(2, layer.inputs, generator=generator) * weight.abs().mean(0)
            b = torch.randn(layer.outputs, 2, generator=generator) * weight.abs().mean(1, keepdim=True)
            weight += 0.3 * (b @ a) / weight.abs().mean()
    return base, pairs_of(base.model, merged.model, spec), merged


TOKENS = torch.tensor([[5, 9, 2, 17, 30, 4, 8, 21]])


def test_beside_nf4_an_adapter_is_one_of_the_widened_weights(changed):
    """As in QLoRA: answers are those of the 4-bit weights, widened to float32, with the adapter merged into them."""
    base, pairs, _ = changed
    rounded = rounded_in_blocks(base, PRECISIONS["nf4"])
    actual = beside(rounded, pairs).model
    wide = sharing(rounded.model)
    for path, product in rounded.model.named_modules():
        if isinstance(product, Nf4Linear):
            delta = torch.from_numpy(pairs[path][0] @ pairs[path][1]).T if path in pairs else 0
            parent, _, name = path.rpartition(".")
            setattr(wide.get_submodule(parent), name, linear_of(product.wide + delta, product.bias))
    with torch.inference_mode():
        expected = wide.decode(TOKENS)
        # Rounded keys and values may take the other of two levels.
        assert 1e-2 > float((actual.decode(TOKENS) - expected).abs().max() / expected.std())
        assert 0.1 < float((rounded.model.decode(TOKENS) - expected).abs().max() / expected.std())


def linear_of(weight, bias):
    """A product of this weight and bias."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(weight)
    linear.bias = None if bias is None else nn.Parameter(bias)
    return linear


def test_an_adapter_is_smoothed_as_its_product_is(changed):
    """Beside int8 weights whose columns were multiplied, it is as near to the merged float32 as the base is to its own.

    Unless it is multiplied too.
    """
    base, pairs, merged = changed
    rounded = quantised(base)
    assert {"layers.0.attention.qkv", "layers.0.feed_forward.down_proj"} <= rounded.multiplied.keys()
    assert "layers.0.feed_forward.up_proj" in rounded.divided
    with torch.inference_mode():
        right, plain = merged.model.decode(TOKENS), base.model.decode(TOKENS)
        usual = float((rounded.model.decode(TOKENS) - plain).square().mean())
        near = float((beside(rounded, smoothed(pairs, rounded)).model.decode(TOKENS) - right).square().mean())
        wrong = float((beside(rounded, pairs).model.decode(TOKENS) - right).square().mean())
    assert 4 * usual > near
    assert 16 * near < wrong


def test_a_base_that_is_rounded_otherwise_is_refused():
    """Held-out examples choose how a product is rounded. The sentence says which option brings them."""
    base = CHECKPOINTS["tiny-generate"]()
    rounded = rounded_in_blocks(base, PRECISIONS["int4"])
    manifest = bundle_pb2.BundleManifest(precision=PRECISIONS["int4"], rounding=rounded.rounding)
    assert rounded.rounding.products == rounded_base(base, manifest, ()).rounding.products
    product = manifest.rounding.products[1]
    for change in ({"bits": 12 - product.bits}, {"block_size": product.block_size // 2}):
        other = bundle_pb2.BundleManifest()
        other.CopyFrom(manifest)
        other.rounding.products[1].MergeFrom(bundle_pb2.RoundedProduct(**change))
        with pytest.raises(CheckpointError, match="--held-out"):
            rounded_base(base, other, ())


class _Ports:
    """A session that only says what its graph takes."""

    def __init__(self, *names):
        self.ports = [SimpleNamespace(name=name, shape=["groups", 3, 2]) for name in names]

    def get_inputs(self):
        return self.ports


@pytest.mark.parametrize("source", ["input_ids", "pixel_values", "input_features"])
def test_each_row_of_any_source_has_the_adapter(source):
    """Of texts, pictures and recordings."""
    session = AdaptedSession(_Ports(source, *ADAPTER_PORTS, "adapter.x.a"), {})
    fed = session.whole({source: np.zeros((5, 7))})
    assert [0, 1, 2, 3, 4] == fed["adapter_rows"].tolist() == fed["adapter_members"][0].tolist()


def test_adapters_are_for_cpus(tmp_path):
    """What no server runs is refused."""
    checkpoint = save_tiny("tiny-text", tmp_path / "checkpoint")
    with pytest.raises(ExportError, match="adapters are not for fp16"):
        export_checkpoint(checkpoint, tmp_path / "m" / "1", ExportOptions(precision="fp16", adapters=2))


def test_a_bundle_that_takes_no_adapters_says_how_to_get_one_that_does(tmp_path):
    """--adapters is named."""
    bundle = tmp_path / "m" / "1"
    bundle.mkdir(parents=True)
    (bundle / "bundle.json").write_text(json.dumps({"formatVersion": 1}))
    with pytest.raises(ExportError, match="--adapters"):
        export_adapter(tmp_path, bundle, tmp_path)
