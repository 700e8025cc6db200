"""The same table for decoders of which some layers attend, and others keep a state of constant size."""

from decoder_draws import coin, common, heads, rotation
from hf_models import Kind


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


HYBRIDS = [
    Kind("lfm2", "Lfm2ForCausalLM", lfm2),
]
