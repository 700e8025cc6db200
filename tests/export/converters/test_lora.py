"""Adapters of Hugging Face models: what PEFT writes of them, against what PEFT computes with them."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
import transformers
from adapted import KINDS, RANK, adapted, case_of, linears, read_back
from encoder_kinds import CLASSIFIERS, EMBEDDERS
from hf_models import LOGITS, NUM_LONG, furthest, made
from test_embedders import dense, described
from test_pairs import joining, with_segments
from tiny_adapters import write_adapter

from weft_export.adapters.export_adapter import export_adapter
from weft_export.adapters.modules import Modules
from weft_export.adapters.peft import read_adapter
from weft_export.converters.tensors import StoredTensors
from weft_export.errors import CheckpointError, ParityError
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions

# A kind for each way in which names or layouts differ, and for each task.
QUICK = (
    "llama",
    "gpt2",
    "bert",
    "bert-spans",
    "roberta-masks",
    "vit",
    "beit",
    "dinov2",
    "swin",
    "t5",
    "vit-gpt2",
    "whisper",
    "llava-llama",
)
# Bundles take no adapters of these, or none of their attention.
DEBERTA = ("debertav2", "debertav2-tags", "debertav2-spans", "debertav2-masks", "debertav2-body", "debertav2-words")
APART = ("swin", "swin v2", "convnext", *DEBERTA)
# The products of the first are convolutions. Several of NomicBERT's and GTE's are one in their files: see their test.
WITHOUT = ("resnet", *(name for name in KINDS if name.startswith(("nomicbert", "gte"))))


def check_names(model, directory):
    """Hold the names of a model's parameters, and how they are stored, to the files that transformers wrote."""
    stored = StoredTensors(directory)
    modules = Modules(directory, stored.entries)
    uses = Counter(id(each) for _, each in model.named_parameters(remove_duplicate=False))
    for path, module in model.named_modules():
        is_conv1d = isinstance(module, transformers.pytorch_utils.Conv1D)
        for own, parameter in module.named_parameters(recurse=False):
            name = modules.stored(f"{path}.{own}".removeprefix("."))
            if name is None:
                # It is tied to another, which is there, or computed, as Marian's positions are. Experts and their
                # router have other names in files: adapters are for attention there.
                apart = any(each in type(module).__name__ for each in ("SinusoidalPositional", "Experts", "Router"))
                assert uses[id(parameter)] > 1 or apart, f"{path}.{own}"
                continue
            assert torch.equal(stored.read(name), parameter), f"{path}.{own}"
            assert (is_conv1d and own == "weight") == modules.is_turned(name)


def check(name, seed, tmp_path):
    """Hold an adapter of all products of a model's layers to PEFT."""
    case = case_of(KINDS[name], tmp_path / "model", seed)
    check_names(case.model, tmp_path / "model")
    with torch.inference_mode():
        base = case.theirs(case.model)
        products = linears(case.model, inside=case.inside)
        expected = case.theirs(adapted(case.model, tmp_path / "adapter", seed, size=0.5, target_modules=products))
    actual = read_back(case, tmp_path / "model", tmp_path / "adapter", tmp_path / "merged", proved=name not in APART)
    assert LOGITS >= furthest(actual, expected)
    assert 100 * LOGITS < furthest(base, expected)


@pytest.mark.parametrize("name", QUICK)
def test_an_adapter_of_peft_is_what_peft_computes(name, tmp_path):
    """Its modules are found where files call them otherwise, and a Conv1D, stored as [inputs, outputs], is known."""
    check(name, 0, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(NUM_LONG // 5))
@pytest.mark.parametrize("name", [name for name in KINDS if name not in WITHOUT])
def test_so_are_adapters_of_every_kind(name, seed, tmp_path):
    """The same law for all kinds."""
    check(name, seed, tmp_path)


@pytest.mark.parametrize("says", [False, True])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_what_a_module_is_decides_how_it_is_stored(name, says, tmp_path):
    """Whatever fan_in_fan_out says: PEFT takes it of the module. Of a square product no shape tells."""
    case = case_of(KINDS[name], tmp_path / "model", 0)
    targets = {"llama": ".*q_proj", "gpt2": ".*attn.c_proj"}[name]
    theirs = adapted(case.model, tmp_path / "adapter", target_modules=targets, fan_in_fan_out=says)
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fan_in_fan_out": says}))
    change, *_ = read_adapter(tmp_path / "adapter").changes.values()
    assert change.a.shape[1] == change.b.shape[0]
    with torch.inference_mode():
        actual = read_back(case, tmp_path / "model", tmp_path / "adapter", tmp_path / "merged")
        assert LOGITS >= furthest(actual, case.theirs(theirs))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_product_that_is_added_the_wrong_way_round_is_found(name, tmp_path, monkeypatch):
    """The proof has the adapter's own A, so an error of the merged weights is none of both."""
    case = case_of(KINDS[name], tmp_path / "model", 0)
    adapted(case.model, tmp_path / "adapter", target_modules={"llama": ".*q_proj", "gpt2": ".*attn.c_proj"}[name])
    is_turned = Modules.is_turned
    monkeypatch.setattr(Modules, "is_turned", lambda self, stored: not is_turned(self, stored))
    with pytest.raises(ParityError, match="does not read what PEFT's reads"):
        read_back(case, tmp_path / "model", tmp_path / "adapter", tmp_path / "merged")


STORED_AS_ONE = {
    "nomicbert": (["q_proj"], ["o_proj", "up_proj", "gate_proj", "down_proj"]),
    "gte": (["q_proj", "up_proj"], ["o_proj", "down_proj"]),
}


@pytest.mark.parametrize("name", STORED_AS_ONE)
def test_modules_of_one_stored_matrix_take_no_adapter(name, tmp_path):
    """Those of queries, keys and values are refused by name, and of GTE the gated ones; others are adapted."""
    refused, targets = STORED_AS_ONE[name]
    case = case_of(KINDS[name], tmp_path / "model", 0)
    for each in refused:
        adapted(case.model, tmp_path / each, target_modules=[each])
        with pytest.raises(CheckpointError, match=rf"\.{each}"):
            read_back(case, tmp_path / "model", tmp_path / each, tmp_path / f"{each}-refused")
        case = case_of(KINDS[name], tmp_path / "model", 0)
    theirs = adapted(case.model, tmp_path / "adapter", target_modules=targets)
    with torch.inference_mode():
        actual = read_back(case, tmp_path / "model", tmp_path / "adapter", tmp_path / "merged")
        assert LOGITS >= furthest(actual, case.theirs(theirs))


def test_a_head_that_is_excluded_is_as_it_was(tmp_path):
    """PEFT's usual targets of BERT are a head's product too: exclude_modules is the way that the refusal says."""
    case = case_of(KINDS["bert-masks"], tmp_path / "model", 0)
    adapted(case.model, tmp_path / "all", target_modules=["dense"])
    with pytest.raises(CheckpointError, match=r"dense\.weight \(of cls.*train it with exclude_modules"):
        read_back(case, tmp_path / "model", tmp_path / "all", tmp_path / "refused")
    case = case_of(KINDS["bert-masks"], tmp_path / "model", 0)
    targets = {"target_modules": ["dense"], "exclude_modules": ["cls.predictions.transform.dense"]}
    theirs = adapted(case.model, tmp_path / "adapter", **targets)
    with torch.inference_mode():
        actual = read_back(case, tmp_path / "model", tmp_path / "adapter", tmp_path / "merged")
        assert LOGITS >= furthest(actual, case.theirs(theirs))


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "gpt2",
        "bert",
        "electra-spans",
        "bert-masks",
        "vit",
        "deit",
        "beit",
        "dinov2",
        "t5",
        "vit-gpt2",
        "whisper",
    ],
)
def test_a_bundle_takes_an_adapter_of_peft(name, tmp_path):
    """From PEFT's directory to one beside a bundle: ONNX Runtime agrees with the merged weights in torch."""
    case = case_of(KINDS[name], tmp_path / "model", 0)
    adapted(case.model, tmp_path / "adapter", size=0.3)
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(tmp_path / "model", bundle, replace(case.options, adapters=RANK, no_explain=True))
    report = export_adapter(tmp_path / "adapter", bundle, tmp_path / "model")
    assert LOGITS >= report.manifest.parity.max_abs_error
    assert len(read_adapter(tmp_path / "adapter").changes) >= len(report.manifest.layers)


def exported(directory, tmp_path, options):
    """Export a checkpoint with places for adapters, and return its bundle and a random adapter of its values."""
    bundle = tmp_path / "models" / "m" / "1"
    export_checkpoint(directory, bundle, replace(options, adapters=RANK, no_explain=True))
    stored = StoredTensors(directory)
    modules = {name.removesuffix(".weight"): entry.shape for name, entry in stored.entries.items() if ".value." in name}
    shapes = {module: shape for module, shape in modules.items() if len(shape) == 2}
    return bundle, write_adapter(tmp_path / "adapter", shapes)


@pytest.mark.parametrize("files", [True, False])
def test_an_embedder_takes_adapters(files, tmp_path):
    """Its pooling is what the files of sentence-transformers say, or what was chosen when its bundle was made."""
    width = made(EMBEDDERS[0], 0, tmp_path / "model").config.hidden_size
    if files:
        described(tmp_path / "model", "Pooling", "Dense", "Normalize", pooling="mean")
        dense(tmp_path / "model" / "2_Dense", width, 5, "torch.nn.modules.activation.Tanh")
    bundle, adapter = exported(tmp_path / "model", tmp_path, ExportOptions(pooling=None if files else "max"))
    manifest = export_adapter(adapter, bundle, tmp_path / "model").manifest
    assert LOGITS >= manifest.parity.max_abs_error
    assert (5 if files else width) == len(manifest.golden.embedding)


def test_a_judge_of_several_labels_takes_adapters(tmp_path):
    """The bundle says that it judges two texts."""
    made(with_segments(CLASSIFIERS[0]), 1, tmp_path / "model")
    joining(tmp_path / "model", separator=5)
    bundle, adapter = exported(tmp_path / "model", tmp_path, ExportOptions(pairs=True))
    assert LOGITS >= export_adapter(adapter, bundle, tmp_path / "model").manifest.parity.max_abs_error
