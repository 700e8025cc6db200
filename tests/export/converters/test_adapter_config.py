"""adapter_config.json: whatever a key says, answers are PEFT's, or the key is named."""

import copy
import dataclasses
import json
import re
import warnings

import peft
import pytest
import torch
from adapted import KINDS, RANK, adapted, case_of, read_back
from foreign import LOGITS, furthest

from weft_export.adapters import adapter_config
from weft_export.errors import CheckpointError

TARGETS = ["down_proj", "q_proj", "v_proj"]
PATHS = [f"model.layers.{layer}.{path}" for layer in (0, 1) for path in ("self_attn.q_proj", "self_attn.v_proj")]
DOWN = [f"model.layers.{layer}.mlp.down_proj" for layer in (0, 1)]
CHANGES = [
    {"task_type": "CAUSAL_LM"},
    {"task_type": "FEATURE_EXTRACTION"},
    {"peft_type": "IA3"},
    {"auto_mapping": {"base_model_class": "LlamaModel"}},
    {"peft_version": "0.3.0"},
    {"base_model_name_or_path": "another"},
    {"revision": "v2"},
    {"inference_mode": False},
    {"r": RANK + 1, "rank_pattern": {}},
    {"target_modules": ["q_proj"]},
    {"target_modules": PATHS},
    {"target_modules": [*PATHS, *DOWN]},
    {"target_modules": []},
    {"target_modules": None},
    {"target_modules": "all-linear"},
    {"target_modules": ".*_proj"},
    {"target_modules": r".*\.(q|v)_proj"},
    {"target_modules": "q_proj|.*v_proj|.*down_proj"},
    {"target_modules": "("},
    {"exclude_modules": ["v_proj"]},
    {"exclude_modules": ["proj"]},
    {"exclude_modules": ".*v_proj"},
    {"exclude_modules": "v_proj"},
    {"lora_alpha": 11},
    {"lora_alpha": 0.5},
    {"lora_alpha": -6},
    {"lora_dropout": 0.5},
    {"fan_in_fan_out": True},
    {"bias": "all"},
    {"bias": "lora_only"},
    {"use_rslora": True},
    {"modules_to_save": ["lm_head"]},
    {"modules_to_save": ["v_proj"]},
    {"modules_to_save": []},
    *({"init_lora_weights": each} for each in (False, None, "gaussian", "orthogonal", "mica", "eva")),
    *({"init_lora_weights": each} for each in ("pissa", "pissa_niter_2", "olora", "loftq", "corda", "lora_ga")),
    {"layers_to_transform": [0, 1]},
    {"layers_to_transform": [0]},
    {"layers_to_transform": 1},
    {"layers_to_transform": []},
    {"layers_to_transform": [0], "target_modules": [*PATHS, *DOWN]},
    {"layers_to_transform": [0, 1], "layers_pattern": "layers"},
    {"layers_to_transform": [0, 1], "layers_pattern": ["h", "layers"]},
    {"layers_to_transform": [0, 1], "layers_pattern": "h"},
    {"layers_to_transform": [0], "target_modules": ".*_proj"},
    {"rank_pattern": {"v_proj": RANK}},
    {"rank_pattern": {"v_proj": 3}},
    {"alpha_pattern": {"q_proj": 20}},
    {"alpha_pattern": {"^model.layers.0.self_attn.q_proj": 20, "q_proj": 1}},
    {"alpha_pattern": {"layers.1.mlp.down_proj": 1, "proj": 90}},
    {"alpha_pattern": {r".*\.self_attn\..*": 9}, "use_rslora": True},
    {"megatron_config": {"tensor_model_parallel_size": 1}},
    {"megatron_core": "megatron.other"},
    {"trainable_token_indices": [3]},
    {"trainable_token_indices": {"embed_tokens": [3]}},
    {"loftq_config": {"loftq_bits": 4, "loftq_iter": 1}},
    {"eva_config": {"rho": 1.5}},
    {"corda_config": {"corda_method": "kpm"}},
    {"lora_ga_config": {}},
    {"use_dora": True},
    {"velora_config": {}},
    {"alora_invocation_tokens": [5], "task_type": "CAUSAL_LM"},
    {"alora_invocation_tokens": [], "task_type": "CAUSAL_LM"},
    {"use_qalora": True},
    {"qalora_group_size": 8},
    {"monteclora_config": {}},
    {"layer_replication": [[0, 2], [1, 2]]},
    {"lora_bias": True},
    {"target_parameters": ["mlp.down_proj.weight"]},
    {"use_bdlora": {}},
    {"arrow_config": {}},
    {"kasa_config": {}},
    {"ensure_weight_tying": True},
]


def test_every_key_of_peft_is_in_one_table():
    """Used, of targets, known to change nothing, or refused. What PEFT never writes is in none."""
    keys = [field.name for field in dataclasses.fields(peft.LoraConfig) if field.name != "runtime_config"]
    tables = [adapter_config.USED, adapter_config.TARGETS, adapter_config.HARMLESS, adapter_config.REFUSED]
    assert sorted(keys) == sorted(key for table in tables for key in table)
    assert set(keys) == {key for change in CHANGES for key in change}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A Llama on disk, and an adapter that PEFT saved."""
    directory = tmp_path_factory.mktemp("llama")
    # Seed 5 draws two layers.
    case = case_of(KINDS["llama"], directory / "model", 5)
    assert 2 == case.model.config.num_hidden_layers
    adapted(copy.deepcopy(case.model), directory / "adapter", target_modules=TARGETS)
    return case, directory


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: json.dumps(each)[:60])
def test_a_key_says_what_it_says_to_peft(saved, change, tmp_path):
    """Logits are PEFT's own, or the refusal has the key's name. PEFT may refuse too."""
    case, directory = saved
    config = json.loads((directory / "adapter" / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
    (tmp_path / "adapter_model.safetensors").symlink_to(directory / "adapter" / "adapter_model.safetensors")
    try:
        actual = read_back(case, directory / "model", tmp_path, tmp_path / "merged")
    except CheckpointError as error:
        assert any(re.search(rf"\b{key}\b", str(error)) for key in change)
        return
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        theirs = peft.PeftModel.from_pretrained(copy.deepcopy(case.model), tmp_path).eval()
        assert LOGITS >= furthest(actual, case.theirs(theirs))
