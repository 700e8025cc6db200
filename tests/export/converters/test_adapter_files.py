"""The files of adapters, in each form in which PEFT saves them: read as PEFT reads them, or refused by name."""

import copy
import json
import re

import pytest
import torch
from adapted import KINDS, adapted, case_of, randomise, read_back
from hf_models import LOGITS, furthest
from safetensors.torch import load_file, save_file

from late import Late
from weft_export.adapters.peft import PICKLE, WEIGHTS
from weft_export.converters.convert import convert
from weft_export.errors import CheckpointError

peft = Late("peft")

# What PEFT trains beside A and B, or otherwise, and what the refusal names.
BEYOND = [
    ("llama", {"use_dora": True}, "use_dora"),
    ("llama", {"lora_bias": True}, "lora_bias"),
    ("llama", {"trainable_token_indices": [4, 5]}, "trainable_token_indices"),
    ("llama", {"target_modules": ["embed_tokens", "q_proj"]}, "lora_embedding_A adapts an embedding"),
    ("llama", {"target_modules": ["lm_head", "q_proj"]}, "lm_head"),
    ("llama", {"target_parameters": ["q_proj.weight"], "target_modules": []}, "target_parameters"),
    ("llama", {"alora_invocation_tokens": [5], "task_type": "CAUSAL_LM"}, "alora_invocation_tokens"),
    ("llama", {"init_lora_weights": "pissa"}, "init_lora_weights"),
    ("llama", {"init_lora_weights": "olora"}, "init_lora_weights"),
    ("llama", {"kasa_config": "KasaConfig"}, "kasa_config"),
    ("vit", {"target_modules": ["projection"]}, "lora_A.weight has 4 axes"),
]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A Llama on disk."""
    directory = tmp_path_factory.mktemp("llama")
    return case_of(KINDS["llama"], directory, 5), directory


def check(case, theirs, checkpoint, tmp_path):
    """Hold our answer to PEFT's."""
    with torch.inference_mode():
        assert LOGITS >= furthest(
            read_back(case, checkpoint, tmp_path / "adapter", tmp_path / "merged"), case.theirs(theirs)
        )


def check_merged(case, theirs, checkpoint, directory):
    """Hold a model that PEFT merged, converted as any other, to PEFT's adapter."""
    with torch.inference_mode():
        expected = case.theirs(theirs)
    theirs.merge_and_unload().save_pretrained(directory)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (directory / file).write_bytes((checkpoint / file).read_bytes())
    with torch.inference_mode():
        assert LOGITS >= furthest(case.ours(convert(directory, case.options).checkpoint), expected)


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": "all-linear"},
        {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
        {"target_modules": r".*\.(o_proj|up_proj)", "exclude_modules": r".*\.0\..*"},
        {"target_modules": ["proj"], "exclude_modules": ["k_proj"]},
        {"rank_pattern": {"q_proj": 1, r"layers\.1\..*v_proj": 4}, "alpha_pattern": {"^model.layers.0.*": 3}},
        {"use_rslora": True, "rank_pattern": {"v_proj": 1}},
        {"bias": "all"},
        {"task_type": "CAUSAL_LM", "modules_to_save": ["lm_head"]},
    ],
    ids=lambda each: json.dumps(each)[:60],
)
def test_what_peft_saves_of_its_own_settings_is_read(llama, config, tmp_path):
    """What it adapts, with which ranks and scales; and what it saves whole without a change."""
    case, checkpoint = llama
    if config.get("target_modules") == ["proj"]:
        config = config | {"target_modules": [f"{part}_proj" for part in ("q", "k", "v", "o", "gate")]}
    check(case, adapted(copy.deepcopy(case.model), tmp_path / "adapter", **config), checkpoint, tmp_path)


def test_a_pickle_is_read_as_safetensors_are(llama, tmp_path):
    """adapter_model.bin, as PEFT wrote before 2023 and still can. Where both are there, PEFT takes safetensors."""
    case, checkpoint = llama
    theirs = adapted(copy.deepcopy(case.model), tmp_path / "adapter")
    tensors = load_file(tmp_path / "adapter" / WEIGHTS)
    (tmp_path / "adapter" / PICKLE).write_bytes(b"none")
    check(case, theirs, checkpoint, tmp_path)
    (tmp_path / "adapter" / WEIGHTS).unlink()
    (tmp_path / "merged").rename(tmp_path / "before")
    torch.save(tensors, tmp_path / "adapter" / PICKLE)
    check(case, theirs, checkpoint, tmp_path)


def test_an_adapter_with_a_name_lies_in_a_folder(llama, tmp_path):
    """PEFT puts it there. The refusal of the folder above it names the one to give, and that is read."""
    case, checkpoint = llama
    theirs = adapted(copy.deepcopy(case.model), tmp_path / "saved", name="formal")
    with pytest.raises(CheckpointError, match=rf"and {re.escape(str(tmp_path))}/saved/formal has one"):
        read_back(case, checkpoint, tmp_path / "saved", tmp_path / "none")
    (tmp_path / "saved" / "formal").rename(tmp_path / "adapter")
    check(case, theirs, checkpoint, tmp_path)


@pytest.mark.parametrize(("name", "config", "named"), BEYOND, ids=lambda each: str(each)[:40])
def test_what_peft_trains_beyond_lora_is_refused_by_name(name, config, named, tmp_path):
    """Nothing of it is left out without a word."""
    case = case_of(KINDS[name], tmp_path / "model", 5)
    # A part of the config is a class of PEFT's.
    given = {key: peft.KasaConfig() if value == "KasaConfig" else value for key, value in config.items()}
    adapted(case.model, tmp_path / "adapter", **given)
    with pytest.raises(CheckpointError, match=re.escape(named)):
        read_back(case, tmp_path / "model", tmp_path / "adapter", tmp_path / "merged")


# By kind: what PEFT calls its task, what else the config says, and the head that is saved whole.
HEADS = {
    "bert": ({"task_type": "SEQ_CLS"}, "classifier"),
    "bert-tags": ({"task_type": "TOKEN_CLS"}, "classifier"),
    "bert-spans": ({"task_type": "QUESTION_ANS"}, "qa_outputs"),
    # PEFT has no task for it, and saves what it is told to.
    "bert-masks": ({"modules_to_save": ["cls.predictions.transform"]}, "cls.predictions.transform"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_was_trained_is_refused_and_can_be_merged(name, tmp_path):
    """PEFT saves the head of a classifier whole. One that is the base's is let pass.

    Another is refused, and the advice is taken.
    """
    case = case_of(KINDS[name], tmp_path / "model", 0)
    config, head = HEADS[name]
    theirs = adapted(case.model, tmp_path / "adapter", target_modules=["query", "value"], **config)
    assert any(head in each for each in load_file(tmp_path / "adapter" / WEIGHTS))
    check(case, theirs, tmp_path / "model", tmp_path)
    with torch.no_grad():
        wrapper = theirs.base_model.model.get_submodule(head)
        next(wrapper.modules_to_save["default"].parameters()).add_(0.1)
    theirs.save_pretrained(tmp_path / "trained")
    with pytest.raises(CheckpointError, match=rf"{re.escape(head)}.*\.weight was saved whole.*merge_and_unload"):
        read_back(case, tmp_path / "model", tmp_path / "trained", tmp_path / "none")
    check_merged(case, theirs, tmp_path / "model", tmp_path / "whole")


def test_a_head_that_a_model_has_not_is_passed_over(tmp_path):
    """PEFT names `qa_outputs` in the config of whatever answers questions. A ModernBERT calls its head otherwise."""
    case = case_of(KINDS["modernbert-spans"], tmp_path / "model", 0)
    theirs = adapted(case.model, tmp_path / "adapter", target_modules=["Wqkv"], task_type="QUESTION_ANS")
    said = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert ["qa_outputs"] == said["modules_to_save"]
    check(case, theirs, tmp_path / "model", tmp_path)


@pytest.mark.parametrize(
    "config",
    [{"use_dora": True}, {"trainable_token_indices": [4, 5]}, {"target_modules": ["embed_tokens", "q_proj"]}],
    ids=lambda each: next(iter(each)),
)
def test_what_is_to_be_merged_can_be(llama, config, tmp_path):
    """The refusal says how, and the model that PEFT merges is read."""
    case, checkpoint = llama
    theirs = adapted(copy.deepcopy(case.model), tmp_path / "adapter", **config)
    with pytest.raises(CheckpointError, match="merge_and_unload"):
        read_back(case, checkpoint, tmp_path / "adapter", tmp_path / "none")
    check_merged(case, theirs, checkpoint, tmp_path / "merged")


@pytest.mark.filterwarnings("ignore:PiSSA changes the base weights")  # PEFT says it of the first adapter, at its end
def test_what_began_by_changing_the_base_becomes_plain_lora(llama, tmp_path):
    """As the refusal says."""
    case, checkpoint = llama
    theirs = adapted(copy.deepcopy(case.model), tmp_path / "first", size=None, init_lora_weights="pissa")
    with pytest.raises(CheckpointError, match="path_initial_model_for_weight_conversion"):
        read_back(case, checkpoint, tmp_path / "first", tmp_path / "none")
    # As PEFT's manual says: the first adapter is kept as plain LoRA.
    theirs.peft_config["default"].init_lora_weights = True
    theirs.save_pretrained(tmp_path / "first")
    theirs.peft_config["default"].init_lora_weights = "pissa"
    randomise(theirs, 0.1)
    theirs.save_pretrained(tmp_path / "adapter", path_initial_model_for_weight_conversion=tmp_path / "first")
    with torch.inference_mode():
        expected = case.theirs(theirs)
    actual = read_back(case, checkpoint, tmp_path / "adapter", tmp_path / "merged")
    assert LOGITS >= furthest(actual, expected)


def test_a_bias_that_was_trained_is_refused(tmp_path):
    """PEFT saves it by the name of the product."""
    case = case_of(KINDS["gpt2"], tmp_path / "model", 0)
    theirs = adapted(case.model, tmp_path / "adapter", bias="lora_only")
    assert any(name.endswith(".bias") for name in load_file(tmp_path / "adapter" / WEIGHTS))
    check(case, theirs, tmp_path / "model", tmp_path)
    with torch.no_grad():
        next(each for name, each in theirs.named_parameters() if name.endswith("c_fc.base_layer.bias")).add_(0.1)
    theirs.save_pretrained(tmp_path / "trained")
    with pytest.raises(CheckpointError, match=r"transformer\.h\.0\.mlp\.c_fc\.bias was saved whole"):
        read_back(case, tmp_path / "model", tmp_path / "trained", tmp_path / "none")


def test_old_names_of_norms_are_known(tmp_path):
    """PEFT saves all biases where one trains them, by their names in memory; old files have a beta."""
    case = case_of(KINDS["bert"], tmp_path / "model", 0)
    theirs = adapted(case.model, tmp_path / "adapter", bias="all")
    path = tmp_path / "model" / "model.safetensors"
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = {
        re.sub(r"LayerNorm\.\w+", lambda found: old[found[0]], name): each for name, each in load_file(path).items()
    }
    save_file(tensors, path)
    check(case, theirs, tmp_path / "model", tmp_path)


def test_an_adapter_that_names_modules_as_files_do_is_read(tmp_path):
    """As those are that were trained before transformers renamed modules."""
    case = case_of(KINDS["vit"], tmp_path / "model", 0)
    theirs = adapted(case.model, tmp_path / "adapter")
    old = {"layers.": "encoder.layer.", "attention.o_proj": "attention.output.dense"}
    old |= {"mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}
    old |= {f"attention.{word[0]}_proj": f"attention.attention.{word}" for word in ("query", "key", "value")}

    def named(text):
        for new, name in old.items():
            text = text.replace(new, name)
        return text

    tensors = load_file(tmp_path / "adapter" / WEIGHTS)
    save_file({named(name): tensor for name, tensor in tensors.items()}, tmp_path / "adapter" / WEIGHTS)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    config["target_modules"] = sorted(named(path) for path in config["target_modules"])
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    check(case, theirs, tmp_path / "model", tmp_path)
