"""The same table for mixtures of experts."""

from decoder_draws import coin, gated, heads, rotation
from decoders_of_2025 import granite, normed_heads
from hf_models import Kind


def mixture(rng, experts):
    """Draw how many experts there are, how many a token passes, and widths that torch takes for several at once."""
    return {
        "intermediate_size": rng.choice([72, 128]),
        experts: rng.choice([4, 5]),
        "num_experts_per_tok": rng.choice([1, 2, 3]),
    }


def mixtral(rng):
    """Draw a Mixtral."""
    return {**gated(rng), **heads(rng), **mixture(rng, "num_local_experts"), "sliding_window": rng.choice([5, None])}


def qwen3_moe(rng):
    """Draw a Qwen 3 of experts."""
    return {
        **gated(rng),
        **heads(rng),
        **mixture(rng, "num_experts"),
        "head_dim": rng.choice([16, 48]),
        "moe_intermediate_size": rng.choice([24, 40]),
        "norm_topk_prob": coin(rng),
        "attention_bias": coin(rng),
    }


def olmoe(rng):
    """Draw an OLMoE."""
    return {**gated(rng), **normed_heads(rng), **mixture(rng, "num_experts"), "norm_topk_prob": coin(rng)}


def granitemoe(rng):
    """Draw a Granite of experts."""
    drawn = {**granite(rng), **mixture(rng, "num_local_experts")}
    del drawn["mlp_bias"]
    return drawn


def gpt_oss(rng):
    """Draw a gpt-oss. Some say what all layers are, of which some see no more than a window."""
    drawn = {**gated(rng), **heads(rng), **mixture(rng, "num_local_experts")}
    layers = drawn["num_hidden_layers"]
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 150000.0}
    return {
        **drawn,
        "head_dim": rng.choice([16, 20, 48]),
        "rope_parameters": rng.choice([{**yarn, "truncate": False}, rotation(rng)]),
        "sliding_window": rng.choice([5, 16]),
        "layer_types": rng.choice([None, [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]]),
        "attention_bias": coin(rng),
        # As released, and low enough to cut.
        "swiglu_limit": rng.choice([7.0, 0.5]),
    }


MIXTURES = [
    Kind("mixtral", "MixtralForCausalLM", mixtral),
    Kind("qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe),
    Kind("olmoe", "OlmoeForCausalLM", olmoe),
    Kind("granitemoe", "GraniteMoeForCausalLM", granitemoe),
    Kind("gpt_oss", "GptOssForCausalLM", gpt_oss),
]
