"""adapter_config.json: whatever a key says, answers are PEFT's, or the key is named."""

import copy
import dataclasses
import json
import warnings

import pytest
import torch
from adapted import KINDS, RANK, adapted, case_of, read_back
from hf_models import LOGITS, furthest
from safetensors.torch import load_file, save_file

from late import Late
from weft_export.adapters import adapter_config
from weft_export.errors import CheckpointError

peft = Late("peft")

TARGETS = ["down_proj", "q_proj", "v_proj"]
PATHS = [f"model.layers.{layer}.{path}" for layer in (0, 1) for path in ("self_attn.q_proj", "self_attn.v_proj")]
DOWN = [f"model.layers.{layer}.mlp.down_proj" for layer in (0, 1)]
FOLLOWED = [
    {"task_type": "CAUSAL_LM"},
    {"task_type": "FEATURE_EXTRACTION"},
    {"auto_mapping": {"base_model_class": "LlamaModel"}},
    {"peft_version": "0.3.0"},
    {"base_model_name_or_path": "another"},
    {"revision": "v2"},
    {"inference_mode": False},
    {"target_modules": [*PATHS, *DOWN]},
    {"target_modules": "all-linear"},
    {"target_modules": ".*_proj"},
    {"target_modules": "q_proj|.*q_proj|.*v_proj|.*down_proj"},
    {"exclude_modules": ["proj"]},
    {"exclude_modules": "v_proj"},
    {"lora_alpha": 11},
    {"lora_alpha": 0.5},
    {"lora_alpha": -6},
    {"lora_dropout": 0.5},
    {"fan_in_fan_out": True},
    {"bias": "all"},
    {"bias": "lora_only"},
    {"use_rslora": True},
    {"modules_to_save": []},
    *({"init_lora_weights": each} for each in (False, None, "gaussian", "orthogonal", "mica", "eva")),
    {"layers_to_transform": [0, 1]},
    {"layers_to_transform": []},
    {"layers_to_transform": [0], "target_modules": [*PATHS, *DOWN]},
    {"layers_to_transform": [0, 1], "layers_pattern": "layers"},
    {"layers_to_transform": [0, 1], "layers_pattern": ["h", "layers"]},
    {"rank_pattern": {"v_proj": RANK}},
    {"alpha_pattern": {"q_proj": 20}},
    {"alpha_pattern": {"^model.layers.0.self_attn.q_proj": 20, "q_proj": 1}},
    {"alpha_pattern": {"layers.1.mlp.down_proj": 1, "proj": 90}},
    {"alpha_pattern": {r".*\.self_attn\..*": 9}, "use_rslora": True},
    {"megatron_core": "megatron.other"},
    {"loftq_config": {"loftq_bits": 4, "loftq_iter": 1}},
    {"eva_config": {"rho": 1.5}},
    {"corda_config": {"corda_method": "kpm"}},
    {"lora_ga_config": {}},
    {"velora_config": {}},
    {"qalora_group_size": 8},
    {"ensure_weight_tying": True},
    {"target_parameters": []},
]
# The refusal names the first key of each.
REFUSED = [
    {"peft_type": "IA3"},
    {"r": RANK + 1, "rank_pattern": {}},
    {"rank_pattern": {"v_proj": 3}},
    {"target_modules": ["q_proj"]},
    {"target_modules": PATHS},
    {"target_modules": []},
    {"target_modules": None},
    {"target_modules": r".*\.(q|v)_proj"},
    {"target_modules": "("},
    {"exclude_modules": ["v_proj"]},
    {"exclude_modules": ".*v_proj"},
    {"modules_to_save": ["lm_head"]},
    {"modules_to_save": ["v_proj"]},
    *({"init_lora_weights": each} for each in ("pissa", "pissa_niter_2", "olora", "loftq", "corda", "lora_ga")),
    {"layers_to_transform": [0]},
    {"layers_to_transform": 1},
    {"layers_to_transform": [0, 1], "layers_pattern": "h"},
    {"layers_to_transform": [0, 1], "target_modules": ".*_proj"},
    {"megatron_config": {"tensor_model_parallel_size": 1}},
    {"trainable_token_indices": [3]},
    {"trainable_token_indices": {"embed_tokens": [3]}},
    {"use_dora": True},
    {"alora_invocation_tokens": [5], "task_type": "CAUSAL_LM"},
    {"alora_invocation_tokens": [], "task_type": "CAUSAL_LM"},
    {"use_qalora": True},
    {"monteclora_config": {}},
    {"layer_replication": [[0, 2], [1, 2]]},
    {"lora_bias": True},
    {"target_parameters": ["mlp.down_proj.weight"]},
    {"use_bdlora": {}},
    {"arrow_config": {}},
    {"kasa_config": {}},
]


def test_every_key_of_peft_is_in_one_table():
    """Used, of targets, known to change nothing, or refused. What PEFT never writes is in none."""
    keys = [field.name for field in dataclasses.fields(peft.LoraConfig) if field.name != "runtime_config"]
    tables = [adapter_config.USED, adapter_config.TARGETS, adapter_config.HARMLESS, adapter_config.REFUSED]
    assert sorted(keys) == sorted(key for table in tables for key in table)
    assert set(keys) == {key for change in [*FOLLOWED, *REFUSED] for key in change}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A Llama on disk, and an adapter that PEFT saved."""
    directory = tmp_path_factory.mktemp("llama")
    # Seed 5 draws two layers.
    case = case_of(KINDS["llama"], directory / "model", 5)
    assert 2 == case.model.config.num_hidden_layers
    adapted(copy.deepcopy(case.model), directory / "adapter", target_modules=TARGETS)
    return case, directory


def changed(directory, change, adapter):
    """Write the adapter with other keys in its config."""
    config = json.loads((directory / "adapter" / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | change))
    (adapter / "adapter_model.safetensors").symlink_to(directory / "adapter" / "adapter_model.safetensors")


@pytest.mark.parametrize("change", FOLLOWED, ids=lambda each: json.dumps(each)[:60])
def test_a_key_says_what_it_says_to_peft(saved, change, tmp_path):
    """Logits are those of PEFT, which has read the same file."""
    case, directory = saved
    changed(directory, change, tmp_path)
    actual = read_back(case, directory / "model", tmp_path, tmp_path / "merged")
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # of keys that it does not follow either
        theirs = peft.PeftModel.from_pretrained(copy.deepcopy(case.model), tmp_path).eval()
        assert LOGITS >= furthest(actual, case.theirs(theirs))


@pytest.mark.parametrize("change", REFUSED, ids=lambda each: json.dumps(each)[:60])
def test_what_is_not_followed_is_refused_by_name(saved, change, tmp_path):
    """Nor are tensors left out that the config is not for, as PEFT leaves them out."""
    case, directory = saved
    changed(directory, change, tmp_path)
    with pytest.raises(CheckpointError, match=rf"\b{next(iter(change))}\b"):
        read_back(case, directory / "model", tmp_path, tmp_path / "merged")


def test_what_was_saved_whole_has_no_adapter_beside_it(saved, tmp_path):
    """PEFT leaves an A and B out, where modules_to_save names the module too."""
    case, directory = saved
    changed(directory, {"modules_to_save": ["v_proj"]}, tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    tensors = load_file(path)
    for name, tensor in load_file(directory / "model" / "model.safetensors").items():
        if "v_proj" in name:
            tensors[f"base_model.model.{name}"] = tensor
    path.unlink()
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"by modules_to_save, the adapter is not for .*v_proj"):
        read_back(case, directory / "model", tmp_path, tmp_path / "merged")
