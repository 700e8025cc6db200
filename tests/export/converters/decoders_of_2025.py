"""The same table for the decoders of 2024 and 2025 that came after Llama, Qwen and Gemma."""

from decoder_draws import coin, common, gated, heads, rotation, share
from hf_models import Kind


def normed_heads(rng):
    """Draw heads that are as long as ours: where all are normed together, none is padded."""
    sizes = heads(rng)
    return {**sizes, "hidden_size": sizes["num_attention_heads"] * rng.choice([16, 32])}


def olmo2(rng):
    """Draw an OLMo 2."""
    return {**gated(rng), **normed_heads(rng), "attention_bias": coin(rng)}


def two_rotations(rng):
    """Draw a rotation for layers that see all, and one for those with a window."""
    stretched = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "attention_factor": 1.2,
        "rope_theta": 500000.0,
    }
    return {
        "full_attention": rng.choice([stretched, {"rope_type": "default", "rope_theta": 5e5}]),
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
    }


def olmo3(rng):
    """Draw an OLMo 3."""
    return {
        **olmo2(rng),
        "num_hidden_layers": rng.choice([2, 5]),
        "sliding_window": rng.choice([5, 16]),
        "rope_parameters": two_rotations(rng),
    }


def granite(rng):
    """Draw a Granite, whose multipliers are not small."""
    return {
        **gated(rng),
        **heads(rng),
        "attention_bias": coin(rng),
        "mlp_bias": coin(rng),
        "embedding_multiplier": rng.choice([1.0, 12]),
        "logits_scaling": rng.choice([0.5, 8]),
        "residual_multiplier": rng.choice([0.22, 1.5]),
        "attention_multiplier": rng.choice([0.015625, 0.3]),
    }


def cohere(rng):
    """Draw a Command R."""
    return {
        **common(rng),
        **heads(rng),
        "rope_parameters": rotation(rng),
        "layer_norm_eps": rng.choice([1e-5, 1e-3]),
        "logit_scale": rng.choice([0.0625, 2.0]),
        "attention_bias": coin(rng),
        "use_qk_norm": False,
    }


def cohere2(rng):
    """Draw a Command R7B."""
    drawn = {**cohere(rng), "num_hidden_layers": rng.choice([2, 5]), "sliding_window": rng.choice([5, 16])}
    del drawn["use_qk_norm"]
    return drawn


def glm(rng):
    """Draw a GLM 4."""
    return {
        **gated(rng),
        **heads(rng),
        "head_dim": rng.choice([16, 24, 48]),
        "rope_parameters": share(rng, rng.choice([0.5, 1.0])),
        "attention_bias": coin(rng),
    }


def ministral(rng):
    """Draw a Ministral, with windows in some layers."""
    return {
        **gated(rng),
        **heads(rng),
        "num_hidden_layers": 3,
        "head_dim": rng.choice([16, 20]),
        "sliding_window": rng.choice([5, 16]),
        "layer_types": [rng.choice(["full_attention", "sliding_attention"]) for _ in range(3)],
    }


def exaone4(rng):
    """Draw an EXAONE 4, some without a window."""
    size = rng.choice([5, 16, None])
    layers = 5 if size else 2
    return {
        **gated(rng),
        **normed_heads(rng),
        "num_hidden_layers": layers,
        "sliding_window": size,
        **({} if size else {"layer_types": ["full_attention"] * layers}),
    }


def helium(rng):
    """Draw a Helium."""
    sizes = heads(rng)
    return {
        **gated(rng),
        **sizes,
        "head_dim": sizes["hidden_size"] // sizes["num_attention_heads"],
        "attention_bias": coin(rng),
        "mlp_bias": coin(rng),
    }


def nemotron(rng):
    """Draw a Nemotron."""
    return {
        **common(rng),
        **heads(rng),
        "head_dim": rng.choice([16, 20, None]),
        "norm_eps": rng.choice([1e-5, 1e-3]),
        "rope_parameters": share(rng, 0.5),
        "attention_bias": coin(rng),
        "mlp_bias": coin(rng),
    }


def ernie(rng):
    """Draw an ERNIE 4.5."""
    return {**gated(rng), **heads(rng), "head_dim": rng.choice([16, 20, 48]), "use_bias": coin(rng)}


def arcee(rng):
    """Draw an AFM."""
    return {**gated(rng), **heads(rng), "attention_bias": coin(rng), "mlp_bias": coin(rng)}


def seed_oss(rng):
    """Draw a Seed OSS."""
    return {
        **arcee(rng),
        "head_dim": rng.choice([16, 20, 48]),
        "attention_out_bias": coin(rng),
    }


def jais2(rng):
    """Draw a Jais 2."""
    return {
        **common(rng),
        **heads(rng),
        "hidden_act": rng.choice(["relu2", "gelu"]),
        "layer_norm_eps": rng.choice([1e-5, 1e-3]),
        "rope_parameters": rotation(rng),
        "attention_bias": coin(rng),
        "mlp_bias": coin(rng),
    }


def cwm(rng):
    """Draw a CWM, whose every fourth layer sees all."""
    return {
        **gated(rng),
        **heads(rng),
        "num_hidden_layers": rng.choice([2, 5]),
        "head_dim": rng.choice([16, 20, 48]),
        "sliding_window": rng.choice([5, 16]),
        "mlp_bias": coin(rng),
    }


def hunyuan(rng):
    """Draw a Hunyuan, with a rotation that alpha stretches, or a plain one."""
    stretched = {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0}
    return {
        **gated(rng),
        **heads(rng),
        "head_dim": rng.choice([16, 48]),
        "attention_bias": coin(rng),
        "rope_parameters": rng.choice([stretched, rotation(rng)]),
    }


DECODERS_OF_2025 = [
    Kind("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", hunyuan),
    Kind("olmo2", "Olmo2ForCausalLM", olmo2),
    Kind("olmo3", "Olmo3ForCausalLM", olmo3),
    Kind("granite", "GraniteForCausalLM", granite),
    Kind("cohere", "CohereForCausalLM", cohere),
    Kind("cohere2", "Cohere2ForCausalLM", cohere2),
    Kind("glm", "GlmForCausalLM", glm),
    Kind("glm4", "Glm4ForCausalLM", glm),
    Kind("ministral", "MinistralForCausalLM", ministral),
    Kind("exaone4", "Exaone4ForCausalLM", exaone4),
    Kind("helium", "HeliumForCausalLM", helium),
    Kind("nemotron", "NemotronForCausalLM", nemotron),
    Kind("ernie4_5", "Ernie4_5ForCausalLM", ernie),
    Kind("arcee", "ArceeForCausalLM", arcee),
    Kind("seed_oss", "SeedOssForCausalLM", seed_oss),
    Kind("jais2", "Jais2ForCausalLM", jais2),
    Kind("cwm", "CwmForCausalLM", cwm, gain=1.5),
]
