"""The same table for decoders of which some layers attend, and others keep a state of constant size."""

from decoder_draws import coin, common, heads, ids, rotation
from decoders_of_2025 import granite
from hf_models import Kind
from mixture_kinds import mixture


def lfm2(rng):
    """Draw an LFM2. Layers are named one by one, or by the numbers of those that attend."""
    drawn = {**common(rng), **heads(rng)}
    layers = drawn["num_hidden_layers"] = rng.choice([2, 3, 5])
    attending = sorted(rng.sample(range(layers), rng.choice([1, layers - 1])))
    named = ["full_attention" if layer in attending else "conv" for layer in range(layers)]
    return {
        **drawn,
        "hidden_size": drawn["num_attention_heads"] * rng.choice([16, 32]),
        "norm_eps": rng.choice([1e-5, 1e-3]),
        "rope_parameters": rotation(rng),
        "conv_L_cache": rng.choice([2, 3, 5]),
        "conv_bias": coin(rng),
        "block_auto_adjust_ff_dim": coin(rng),
        "block_multiple_of": rng.choice([8, 24]),
        "block_ffn_dim_multiplier": rng.choice([1.0, 1.3]),
        **rng.choice([{"full_attn_idxs": attending}, {"layer_types": named}]),
    }


def granitemoehybrid(rng):
    """Draw a Granite 4 H, dense or a mixture, whose layers have one of two names each."""
    drawn = {**granite(rng), "num_hidden_layers": rng.choice([2, 3])}
    layers = drawn["num_hidden_layers"]
    attending = rng.sample(range(layers), rng.choice([1, layers - 1]))
    words = rng.choice([("linear_attention", "full_attention"), ("mamba", "attention")])
    del drawn["mlp_bias"]
    head, groups = rng.choice([8, 12]), rng.choice([1, 2])
    heads = groups * rng.choice([1, 3])
    kv_heads = rng.choice([1, 2])
    # Heads of both kinds have the whole width.
    width = 2 * heads * head
    return {
        **drawn,
        "hidden_size": width,
        "num_attention_heads": 2 * kv_heads,
        "num_key_value_heads": kv_heads,
        # Rounding grows in each layer, so that logits may not be large.
        "logits_scaling": rng.choice([2.0, 8]),
        "residual_multiplier": rng.choice([0.22, 0.6]),
        **rng.choice([{"num_local_experts": 0}, mixture(rng, "num_local_experts")]),
        "shared_intermediate_size": rng.choice([64, 97]),
        "position_embedding_type": rng.choice(["nope", "rope", None]),
        "layer_types": [words[layer in attending] for layer in range(layers)],
        "mamba_n_heads": 2 * heads,
        "mamba_d_head": rng.choice([2 * head, "auto"]),
        "mamba_n_groups": groups,
        "mamba_d_state": rng.choice([8, 20]),
        "mamba_d_conv": rng.choice([2, 4]),
        "mamba_conv_bias": coin(rng),
        "mamba_proj_bias": coin(rng),
        "mamba_chunk_size": rng.choice([8, 256]),
    }


def granite4(rng):
    """Draw a Granite 4 without experts, whose layers all attend: what is said of states is of none."""
    drawn = {name: value for name, value in granitemoehybrid(rng).items() if name != "num_experts_per_tok"}
    word = rng.choice(["attention", "full_attention"])
    return drawn | {"num_local_experts": 0, "layer_types": [word] * drawn["num_hidden_layers"]}


def mamba2(rng):
    """Draw a Mamba 2."""
    head, groups = rng.choice([8, 12]), rng.choice([1, 2])
    heads = groups * rng.choice([1, 3])
    return {
        **ids(),
        "hidden_size": heads * head,
        "num_heads": 2 * heads,
        "head_dim": head,
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "n_groups": groups,
        "state_size": rng.choice([8, 20]),
        "conv_kernel": rng.choice([2, 4]),
        "use_conv_bias": coin(rng),
        "use_bias": coin(rng),
        "chunk_size": rng.choice([8, 256]),
        "tie_word_embeddings": coin(rng),
    }


def mamba(rng):
    """Draw a Mamba."""
    return {
        **ids(),
        "hidden_size": rng.choice([24, 40]),
        "num_hidden_layers": rng.choice([1, 2, 3]),
        **rng.choice([{"expand": 1}, {"expand": 2}, {"expand": 16, "intermediate_size": 36}]),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "state_size": rng.choice([5, 16]),
        "conv_kernel": rng.choice([2, 4]),
        "time_step_rank": rng.choice(["auto", 1, 7]),
        "use_conv_bias": coin(rng),
        "use_bias": coin(rng),
        "tie_word_embeddings": coin(rng),
    }


def falcon_mamba(rng):
    """Draw a Falcon Mamba, which norms what says the steps, what is written and what is read."""
    return {**mamba(rng), "mixer_rms_eps": rng.choice([1e-6, 1e-2])}


STATE_SPACES = [
    Kind("mamba", "MambaForCausalLM", mamba, gain=1.0),
    Kind("falcon_mamba", "FalconMambaForCausalLM", falcon_mamba, gain=1.0),
    Kind("mamba2", "Mamba2ForCausalLM", mamba2, gain=1.0),
]
"""Those of which no layer attends."""
GRANITE4 = Kind("granite4", "GraniteMoeHybridForCausalLM", granite4, gain=1.0)
"""Of a class of hybrids, and none."""
HYBRIDS = [
    Kind("lfm2", "Lfm2ForCausalLM", lfm2),
    # Products of products: at the usual gain rounding grows tenfold in each layer.
    Kind("granitemoehybrid", "GraniteMoeHybridForCausalLM", granitemoehybrid, gain=1.0),
]
