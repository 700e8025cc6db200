"""config.json as released: the fields that transformers no longer reads are accepted, and say what it does anyway."""

import copy
import inspect
import math
import re
import sys
from pathlib import Path

import pytest
import transformers
from decoder_kinds import DECODERS
from hybrid_kinds import STATE_SPACES

from weft_export.converters.convert import converter_of
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields
from weft_export.converters.generation import Generation
from weft_export.errors import CheckpointError

# Of each kind its sizes, then what its class has no field for.
COHERE = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32}
COHERE_LEFT = {
    "position_embedding_type": "rope_gptj",
    "rotary_pct": 1.0,
    "use_embedding_sharing": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_parallel_embedding": True,
}
COHERE2_LEFT = {
    **COHERE_LEFT,
    "layer_switch": 4,
    "order_of_interleaved_layers": "local_attn_first",
    "use_qk_norm": False,
}
PLAIN = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 4}
PLAIN |= {"intermediate_size": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu", "max_position_embeddings": 4096}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "attention_factor": 1.2}
YARN |= {"beta_fast": 32, "beta_slow": 1}
ROUTER = {"output_router_logits": False, "router_aux_loss_coef": 0.01}
MULTIPLIERS = {"attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "residual_multiplier": 0.22}
MULTIPLIERS |= {"logits_scaling": 8.0, "attention_bias": False}
SUMMARY = {"summary_type": "cls_index", "summary_use_proj": True, "summary_activation": None}
SUMMARY |= {"summary_proj_to_labels": True, "summary_first_dropout": 0.1}
GPTJ = {"n_embd": 4096, "n_head": 16, "n_layer": 28, "n_positions": 2048, "rotary_dim": 64, "n_inner": None}
GPTJ |= {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False}
RELEASED = {
    "gpt_bigcode": (
        {"n_embd": 6144, "n_head": 48, "n_layer": 40, "n_inner": 24576, "n_positions": 8192, "multi_query": True}
        | {"activation_function": "gelu", "scale_attn_weights": True}
        | {"attention_softmax_in_fp32": True, "scale_attention_softmax_in_fp32": True},
        {"inference_runner": 0, "max_batch_size": None, "max_sequence_length": None, "pad_key_length": True}
        | {"pre_allocate_kv_cache": False, "validate_runner_input": True, **SUMMARY},
    ),
    "gpt_neo": (
        {"hidden_size": 768, "num_heads": 12, "num_layers": 12, "intermediate_size": None, "window_size": 256}
        | {"attention_types": [[["global", "local"], 6]], "attention_layers": ["global", "local"] * 6},
        SUMMARY,
    ),
    "gptj": (GPTJ, {"rotary": True, "scale_attn_weights": True, **SUMMARY}),
    "codegen": (GPTJ | {"n_ctx": 2048}, {"scale_attn_weights": True, **SUMMARY}),
    "cohere": (COHERE | {"use_qk_norm": False}, {"model_max_length": 131072, "pretraining_tp": 1}),
    "cohere2": (COHERE | {"head_dim": 128, "sliding_window": 4096, "sliding_window_pattern": 4}, COHERE2_LEFT),
    "nemotron": (
        {"hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 8, "num_hidden_layers": 32}
        | {"head_dim": 128, "norm_eps": 1e-5, "partial_rotary_factor": 0.5},
        {"kv_channels": 128, "rope_percent": 0.5, "layer_norm_eps": 1e-5, "pretraining_tp": 1},
    ),
    "ernie4_5": (
        {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 2, "num_hidden_layers": 18}
        | {"head_dim": 128, "use_bias": False},
        {"compression_ratio": 1.0},
    ),
    "hunyuan_v1_dense": (
        PLAIN
        | {"head_dim": 128, "rope_theta": 10000, "eod_token_id": 3}
        | {"rope_scaling": {"type": "dynamic", "alpha": 1000, "factor": 1}},
        {"use_qk_norm": True, "use_cla": False},
    ),
    "seed_oss": (
        {"hidden_size": 5120, "num_attention_heads": 80, "num_key_value_heads": 8, "num_hidden_layers": 64}
        | {"head_dim": 128, "residual_dropout": 0.1},
        {"pretraining_tp": 1},
    ),
    "smollm3": (
        {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 36},
        {"pretraining_tp": 2, "max_window_layers": 28},
    ),
    "exaone4": (
        {"hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8, "num_hidden_layers": 4}
        | {"head_dim": 128, "sliding_window": 4096}
        | {"layer_types": [*["sliding_attention"] * 3, "full_attention"], "sliding_window_pattern": "LLLG"},
        {},
    ),
    "qwen3_moe": (
        {"hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 48}
        | {"head_dim": 128, "num_experts": 128, "mlp_only_layers": [], "decoder_sparse_step": 1},
        {"max_window_layers": 48},
    ),
    "olmo": (PLAIN | {"rms_norm_eps": None, "clip_qkv": None, "attention_bias": False}, {"pretraining_tp": 1}),
    "olmo2": (PLAIN | {"attention_bias": False, "rope_scaling": None, "rope_theta": 500000}, {}),
    "olmo3": (PLAIN | {"sliding_window": 4096, "rope_scaling": YARN, "rope_theta": 500000}, {}),
    "olmoe": (PLAIN | {"clip_qkv": None, "num_experts": 64, "num_experts_per_tok": 8, **ROUTER}, {}),
    "mixtral": (PLAIN | {"sliding_window": None, "num_local_experts": 8, "router_jitter_noise": 0.0, **ROUTER}, {}),
    "gpt_oss": (
        PLAIN
        | {"head_dim": 64, "sliding_window": 128, "attention_bias": True, "swiglu_limit": 7.0, "rope_theta": 150000}
        | {"num_local_experts": 32, "num_experts_per_tok": 4, "max_position_embeddings": 131072, **ROUTER}
        | {"rope_scaling": YARN | {"factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}}
        | {"layer_types": ["sliding_attention", "full_attention"] * 2},
        {"experts_per_token": 4, "initial_context_length": 4096},
    ),
    "granite": (PLAIN | MULTIPLIERS | {"mlp_bias": False}, {}),
    "granitemoe": (PLAIN | MULTIPLIERS | {"num_local_experts": 32, **ROUTER}, {}),
    "granitemoehybrid": (
        PLAIN
        | MULTIPLIERS
        | {"hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 512}
        | {"layer_types": [*["mamba"] * 3, "attention"], "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 128}
        | {"mamba_chunk_size": 256, "num_local_experts": 64, "num_experts_per_tok": 6, **ROUTER}
        | {"shared_intermediate_size": 1024, "position_embedding_type": "nope", "rope_theta": 10000},
        {"init_method": "mup", "normalization_function": "rmsnorm"},
    ),
    "mamba": (
        {"hidden_size": 768, "num_hidden_layers": 24, "expand": 2, "intermediate_size": 1536, "state_size": 16}
        | {
            "conv_kernel": 4,
            "time_step_rank": 48,
            "time_step_init_scheme": "random",
            "rescale_prenorm_residual": False,
        },
        {"d_inner": 1536, "d_model": 768, "n_layer": 24, "rms_norm": True, "ssm_cfg": {}}
        | {"fused_add_norm": True, "pad_vocab_size_multiple": 8},
    ),
    "falcon_mamba": (
        {"hidden_size": 4096, "num_hidden_layers": 64, "expand": 16, "intermediate_size": 8192, "state_size": 16}
        | {"conv_kernel": 4, "time_step_rank": 256, "mixer_rms_eps": 1e-6, "use_falcon_mambapy": False},
        {},
    ),
    "mamba2": (
        {"hidden_size": 4096, "num_heads": 128, "head_dim": 64, "num_hidden_layers": 64, "n_groups": 8, "expand": 2}
        | {"state_size": 128, "conv_kernel": 4, "chunk_size": 256, "time_step_limit": [0.0, math.inf]},
        {"rms_norm": True, "norm_before_gate": True},
    ),
    "glm": (PLAIN | {"head_dim": 128, "partial_rotary_factor": 0.5, "attention_bias": True}, {}),
    "glm4": (PLAIN | {"head_dim": 128, "partial_rotary_factor": 0.5, "attention_bias": True}, {}),
    "helium": (PLAIN | {"head_dim": 128, "mlp_bias": False, "attention_bias": False}, {}),
    "arcee": (PLAIN | {"head_dim": 128, "mlp_bias": False, "attention_bias": False}, {"pretraining_tp": 1}),
    "ministral": (PLAIN | {"head_dim": 128, "sliding_window": 32768}, {}),
    "lfm2": (
        {"hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 16}
        | {"block_ff_dim": 12288, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0}
        | {"block_multiple_of": 256, "conv_L_cache": 3, "conv_bias": False, "full_attn_idxs": [2, 5, 8, 10, 12, 14]}
        | {"norm_eps": 1e-5, "max_position_embeddings": 128000, "rope_theta": 1e6},
        {"block_dim": 2048, "block_mlp_init_scale": 1.0, "block_norm_eps": 1e-5, "block_out_init_scale": 1.0}
        | {"block_use_swiglu": True, "block_use_xavier_init": True, "conv_dim": 2048, "conv_dim_out": 2048}
        | {"conv_use_xavier_init": True, "num_heads": 32, "use_pos_enc": True},
    ),
}
# What says another thing than transformers does.
OTHER = [
    ("gpt_bigcode", {"num_key_value_heads": 48}),
    ("gpt_neo", {"attention_layers": ["global"] * 12}),
    ("gptj", {"rotary": False}),
    ("gptj", {"scale_attn_weights": False}),
    ("codegen", {"scale_attn_weights": False}),
    ("cohere2", {"position_embedding_type": "rope_neox"}),
    ("cohere2", {"rotary_pct": 0.5}),
    ("cohere2", {"order_of_interleaved_layers": "global_attn_first"}),
    ("cohere2", {"use_gated_activation": False}),
    ("cohere2", {"use_parallel_block": False}),
    ("cohere2", {"use_embedding_sharing": False}),
    ("cohere2", {"use_qk_norm": True}),
    ("cohere", {"use_qk_norm": True}),
    ("nemotron", {"kv_channels": 64}),
    ("nemotron", {"rope_percent": 1.0}),
    ("nemotron", {"layer_norm_eps": 1e-6}),
    ("ernie4_5", {"compression_ratio": 2.0}),
    ("gpt_oss", {"experts_per_token": 8}),
    ("gpt_oss", {"initial_context_length": 8192}),
    ("gpt_oss", {"hidden_act": "gelu"}),
    ("gpt_oss", {"swiglu_alpha": 1.0}),
    ("granitemoehybrid", {"normalization_function": "layernorm"}),
    ("hunyuan_v1_dense", {"use_qk_norm": False}),
    ("hunyuan_v1_dense", {"use_cla": True}),
    ("mamba", {"hidden_act": "gelu"}),
    ("mamba", {"d_inner": 768}),
    ("mamba", {"d_model": 1536}),
    ("mamba", {"n_layer": 48}),
    ("mamba", {"rms_norm": False}),
    ("mamba", {"rescale_prenorm_residual": True}),
    ("mamba2", {"hidden_act": "gelu"}),
    ("mamba2", {"rms_norm": False}),
    ("mamba2", {"rescale_prenorm_residual": True}),
    ("lfm2", {"conv_dim": 1024}),
    ("lfm2", {"num_heads": 16}),
    ("lfm2", {"block_norm_eps": 1e-6}),
    ("lfm2", {"block_use_swiglu": False}),
    ("lfm2", {"use_pos_enc": False}),
]


def sizes(name, fields):
    """What we make of a config, all of whose fields are held to account."""
    hf = HfCheckpoint(Path(), Fields({"vocab_size": 256000, **fields}), Generation(), frozenset())
    made = converter_of({"model_type": name}).sizes(hf)
    hf.fields.check_all_read()
    return made


@pytest.mark.parametrize("name", RELEASED)
def test_what_transformers_does_not_read_of_a_released_config_changes_nothing(name):
    """Neither there nor here: none of these fields is named in the code of its model."""
    known, left = RELEASED[name]
    kind = next(each for each in [*DECODERS, *STATE_SPACES] if each.name == name)
    source = inspect.getsource(sys.modules[getattr(transformers, kind.architecture).__module__])
    assert [] == [key for key in left if re.search(rf"config\.{key}\b", source)]
    assert sizes(name, known) == sizes(name, {**known, **left})


@pytest.mark.parametrize(("name", "other"), OTHER, ids=str)
def test_such_a_field_with_another_value_is_refused_by_its_name(name, other):
    """The model was made to do what it says, and neither transformers nor we would."""
    with pytest.raises(CheckpointError, match=next(iter(other))):
        sizes(name, {**RELEASED[name][0], **other})


@pytest.mark.parametrize(
    ("name", "other", "complaint"),
    [
        (
            "olmo2",
            {"hidden_size": 1920, "num_attention_heads": 80},
            "hidden_size / num_attention_heads is 24: it must be",
        ),
        ("qwen3", {"head_dim": 24}, "head_dim is 24: it must be a multiple of 16"),
        ("exaone4", {"sliding_window_pattern": "LLLG"}, "sliding_window_pattern is 'LLLG': it needs layer_types"),
    ],
)
def test_what_is_wrong_is_named_as_the_config_has_it(name, other, complaint):
    """Not by a field that is not there."""
    with pytest.raises(CheckpointError, match=complaint):
        sizes(name, {**PLAIN, **other})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("gptj", {"rotary_dim": value}) for value in (None, 0, 63, 258, "64")),
        ("codegen", {"n_head": 2}),
        *(("gpt_neo", {"attention_types": [[types, times]]}) for types, times in (("global", 12), (["far"], 12))),
        *(("gpt_neo", {"attention_types": [[["global"], times]]}) for times in (11, 13, 12.0, 10**12)),
        ("gpt_neo", {"window_size": 0}),
        *(("mamba2", wrong) for wrong in ({"num_heads": 3}, {"n_groups": 0}, {"n_groups": 3}, {"conv_kernel": 1})),
        ("mamba2", {"time_step_limit": [0.1, 0.5]}),
        ("mamba", {"conv_kernel": 1}),
    ],
    ids=str,
)
def test_what_no_model_can_be_made_of_is_named(name, wrong):
    """Where the code of its model fails later, or takes it for what it is not."""
    known, _ = RELEASED[name]
    with pytest.raises(CheckpointError, match=next(iter(wrong))):
        sizes(name, {**known, **wrong})


@pytest.mark.parametrize("said", [{}, {"rope_theta": 10000.0}], ids=str)
@pytest.mark.parametrize("far", [None, {"rope_type": "default"}, {"rope_theta": 777.0}], ids=str)
@pytest.mark.parametrize("near", [None, {"rope_theta": 999.0}], ids=str)
def test_layers_of_an_olmo_3_turn_as_its_config_object_says(said, far, near):
    """rope_theta is of the layers that see all, and never of those with a window."""
    parts = {"full_attention": far, "sliding_attention": near}
    given = {"rope_parameters": {name: {"rope_type": "default"} | part for name, part in parts.items() if part}}
    theirs = transformers.Olmo3Config(**PLAIN, **said, **copy.deepcopy(given)).rope_parameters
    ours = sizes("olmo3", {**PLAIN, **said, **given})
    # The second pair of 64 turns by theta to the power of -1 / 64.
    thetas = [round(rotation.frequencies[1] ** -64) for rotation in ours.rotations]
    assert [theirs[name]["rope_theta"] for name in parts] == pytest.approx(thetas, rel=1e-4)


NEOX = {name: value for name, value in PLAIN.items() if name not in {"num_key_value_heads", "rms_norm_eps"}}
TURNED = [
    ("cwm", {}),
    ("cwm", {"rope_theta": 1e6}),
    ("cwm", {"rope_scaling": None, "rope_theta": 1e6}),
    ("cwm", {"rope_scaling": {}}),
    ("cwm", {"rope_parameters": {}, "rope_theta": 777.0}),
    ("gpt_oss", {"rope_theta": 777.0}),
    ("gpt_oss", {"rope_scaling": {}}),
    ("gpt_neox", {"rotary_emb_base": 777, "rotary_pct": 0.5}),
    ("gpt_neox", {"rotary_emb_base": 777, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    (
        "gpt_neox",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 777.0, "partial_rotary_factor": 0.5}}
        | {"rope_theta": 888.0, "partial_rotary_factor": 1.0},
    ),
]


@pytest.mark.parametrize(("name", "said"), TURNED, ids=str)
def test_heads_turn_as_the_config_object_of_a_kind_says(name, said):
    """Each of these has names, or an object, of its own, and takes them before those that all others have."""
    known = NEOX if name == "gpt_neox" else PLAIN
    theirs = transformers.CONFIG_MAPPING[name](**known, **copy.deepcopy(said)).rope_parameters
    assert sizes(name, {**known, "rope_parameters": theirs}).rotations == sizes(name, {**known, **said}).rotations


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cwm", {"rope_theta": 777.0}),
        ("gpt_neox", {"rope_theta": 777.0}),
        ("gpt_neox", {"partial_rotary_factor": 1.0}),
        ("gpt_neox", {"rope_theta": 777.0, "rope_parameters": {"rope_type": "default"}}),
    ],
    ids=str,
)
def test_a_name_that_the_config_object_of_a_kind_does_not_know_is_refused(name, said):
    """Where it says another thing than what counts."""
    with pytest.raises(CheckpointError, match=next(iter(said))):
        sizes(name, {**(NEOX if name == "gpt_neox" else PLAIN), **said})
