"""The table of decoder-only kinds: a row for each, which draws configs of odd sizes."""

from decoder_draws import coin, common, gated, heads, ids, rotation, share, whole_heads, window
from decoders_of_2025 import DECODERS_OF_2025
from hf_models import Kind
from hybrid_kinds import GRANITE4, HYBRIDS
from mixture_kinds import MIXTURES


def llama(rng):
    """Draw a Llama."""
    scaling = rng.choice(
        [
            None,
            {"rope_type": "linear", "factor": 2.5, "rope_theta": 5000.0},
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 40,
                "rope_theta": 500000.0,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0},
        ]
    )
    return {
        **gated(rng),
        **heads(rng),
        "attention_bias": coin(rng),
        "mlp_bias": coin(rng),
        **({"rope_parameters": scaling} if scaling else {}),
    }


def gpt2(rng):
    """Draw a GPT-2."""
    num_heads = rng.choice([1, 2, 3])
    return {
        **ids(),
        "n_embd": num_heads * rng.choice([8, 12, 16, 20]),
        "n_head": num_heads,
        "n_layer": rng.choice([1, 2, 3]),
        "n_inner": rng.choice([None, 50]),
        "n_positions": 100,
        "activation_function": rng.choice(["gelu_new", "gelu", "relu", "silu"]),
        "scale_attn_weights": coin(rng),
        "tie_word_embeddings": coin(rng),
    }


def gpt_bigcode(rng):
    """Draw a GPT-BigCode: with one head of keys and values, or as many as of queries."""
    drawn = {**gpt2(rng), "activation_function": rng.choice(["gelu_pytorch_tanh", "gelu"]), "multi_query": coin(rng)}
    return {**drawn, "n_positions": 110}


def gpt_neo(rng):
    """Draw a GPT-Neo, with windows in some layers."""
    types = rng.choice([[[["global", "local"], 1]], [[["local"], 3]], [[["global"], 1], [["local", "global"], 1]]])
    num_heads = rng.choice([1, 2, 3])
    return {
        **ids(),
        "hidden_size": num_heads * rng.choice([8, 12, 16]),
        "num_heads": num_heads,
        "num_layers": sum(len(each) * times for each, times in types),
        "attention_types": types,
        "window_size": rng.choice([5, 16]),
        "intermediate_size": rng.choice([None, 72]),
        "max_position_embeddings": 100,
        "activation_function": rng.choice(["gelu_new", "relu"]),
        "tie_word_embeddings": coin(rng),
    }


def gptj(rng):
    """Draw a GPT-J, of whose heads some numbers are turned, or all."""
    num_heads = rng.choice([1, 2, 3])
    head_dim = rng.choice([12, 16, 24])
    return {
        **ids(),
        "n_embd": num_heads * head_dim,
        "n_head": num_heads,
        "n_layer": rng.choice([1, 2, 3]),
        "n_inner": rng.choice([None, 72]),
        "n_positions": 100,
        "rotary_dim": rng.choice([4, 10, head_dim]),
        "tie_word_embeddings": coin(rng),
    }


def codegen(rng):
    """Draw a CodeGen: a multiple of four heads."""
    drawn = gptj(rng)
    return {**drawn, "n_embd": 4 * drawn["n_embd"], "n_head": 4 * drawn["n_head"]}


def mistral(rng):
    """Draw a Mistral, with heads of a size of their own."""
    return {**gated(rng), **heads(rng), **window(rng), "head_dim": rng.choice([16, 20, 48, None])}


def qwen2(rng):
    """Draw a Qwen 2."""
    first = rng.choice([0, 1, 28])
    return {
        **gated(rng),
        **heads(rng),
        "use_sliding_window": coin(rng),
        "sliding_window": 9,
        "max_window_layers": first,
    }


def qwen3(rng):
    """Draw a Qwen 3."""
    return {**qwen2(rng), "head_dim": rng.choice([16, 48]), "attention_bias": coin(rng)}


def gemma(rng):
    """Draw a Gemma 1."""
    return {
        **gated(rng),
        **heads(rng),
        "head_dim": rng.choice([16, 20, 48]),
        "hidden_act": rng.choice(["gelu", "gelu_pytorch_tanh"]),
    }


def gemma2(rng):
    """Draw a Gemma 2, whose caps are low enough to bend."""
    return {
        **gated(rng),
        **heads(rng),
        "head_dim": rng.choice([16, 20, 48]),
        "query_pre_attn_scalar": rng.choice([16, 50]),
        "sliding_window": rng.choice([5, 16]),
        "attn_logit_softcapping": rng.choice([2.0, None]),
        "final_logit_softcapping": rng.choice([3.0, None]),
        "attention_bias": coin(rng),
    }


def gemma3(rng):
    """Draw a Gemma 3."""
    linear = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    drawn = {**gemma2(rng), "head_dim": rng.choice([16, 48]), "attn_logit_softcapping": None}
    return {
        **drawn,
        "num_hidden_layers": rng.choice([2, 3, 7]),
        "rope_parameters": {
            "full_attention": rng.choice([linear, {"rope_type": "default", "rope_theta": 1e6}]),
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }


def phi(rng):
    """Draw a Phi 2, with heads half of which are turned."""
    return {
        **common(rng),
        **heads(rng),
        "rope_parameters": share(rng, rng.choice([0.5, 1.0])),
        "hidden_act": "gelu_new",
    }


def phi3(rng):
    """Draw a Phi 3, or a Phi 4 mini: its rotation has a factor for each pair."""
    sizes = heads(rng)
    part = rng.choice([1.0, 0.5])
    pairs = int(sizes["hidden_size"] // sizes["num_attention_heads"] * part) // 2
    longrope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0 + 0.1 * pair for pair in range(pairs)],
        "long_factor": [2.0 + 0.3 * pair for pair in range(pairs)],
        "partial_rotary_factor": part,
    }
    return {
        **gated(rng),
        **sizes,
        **window(rng),
        "original_max_position_embeddings": 100,
        "rope_parameters": rng.choice([longrope, share(rng, part)]),
    }


def smollm3(rng):
    """Draw a SmolLM 3."""
    return {
        **llama(rng),
        "num_hidden_layers": rng.choice([2, 5]),
        "no_rope_layer_interval": rng.choice([2, 4]),
        "pretraining_tp": 2,
        "max_window_layers": 28,
        "use_sliding_window": coin(rng),
        "sliding_window": 9,
    }


def stablelm(rng):
    """Draw a StableLM."""
    return {
        **common(rng),
        **heads(rng),
        "rope_parameters": share(rng, rng.choice([0.25, 0.5])),
        "use_qkv_bias": coin(rng),
        "use_parallel_residual": coin(rng),
        "hidden_size": 48 * rng.choice([1, 2]),
        "num_attention_heads": 2,
        "num_key_value_heads": rng.choice([1, 2]),
    }


def gpt_neox(rng):
    """Draw a GPT-NeoX."""
    return {
        **common(rng),
        **whole_heads(rng),
        "rope_parameters": share(rng, rng.choice([0.5, 1.0])),
        "hidden_act": rng.choice(["gelu", "gelu_new"]),
        "use_parallel_residual": coin(rng),
        "attention_bias": coin(rng),
    }


def opt(rng):
    """Draw an OPT."""
    return {
        **ids(),
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "max_position_embeddings": 100,
        "tie_word_embeddings": coin(rng),
        **whole_heads(rng),
        "ffn_dim": rng.choice([72, 97]),
        "word_embed_proj_dim": None,
        "activation_function": rng.choice(["relu", "gelu"]),
        "enable_bias": coin(rng),
    }


def bloom(rng):
    """Draw a BLOOM, some with heads that are no power of 2."""
    sizes = whole_heads(rng)
    return {
        **ids(),
        "hidden_size": sizes["hidden_size"],
        "n_head": sizes["num_attention_heads"],
        "n_layer": rng.choice([1, 2, 3]),
        "tie_word_embeddings": coin(rng),
    }


def falcon(rng):
    """Draw a Falcon: 7B's kind, 40B's with one norm or two, and RefinedWeb's with ALiBi."""
    kinds = [
        {"multi_query": True, "parallel_attn": True},
        {"multi_query": coin(rng), "parallel_attn": coin(rng), "alibi": coin(rng)},
        {"new_decoder_architecture": True, "num_ln_in_parallel_attn": rng.choice([None, 1, 2])},
    ]
    kind, sizes = rng.choice(kinds), heads(rng)
    if kind.get("alibi"):
        # Nine slopes are no powers of 2, so it matters that they are rounded.
        sizes = {**sizes, "num_attention_heads": 9, "hidden_size": 9 * rng.choice([12, 16])}
    if "new_decoder_architecture" in kind:
        kind["num_kv_heads"] = sizes["num_key_value_heads"]
    del sizes["num_key_value_heads"]
    drawn = {**common(rng), **sizes, **kind, "bias": coin(rng), "ffn_hidden_size": rng.choice([None, 72])}
    del drawn["intermediate_size"]
    return {**drawn, "activation": "gelu", "rope_parameters": rotation(rng)}


def starcoder2(rng):
    """Draw a StarCoder 2."""
    return {**common(rng), **heads(rng), **window(rng), "rope_parameters": rotation(rng), "use_bias": coin(rng)}


def olmo(rng):
    """Draw an OLMo 1."""
    return {**common(rng), **heads(rng), "rope_parameters": rotation(rng), "attention_bias": coin(rng)}


DECODERS = [
    Kind("llama", "LlamaForCausalLM", llama),
    Kind("gpt2", "GPT2LMHeadModel", gpt2),
    Kind("gpt_bigcode", "GPTBigCodeForCausalLM", gpt_bigcode),
    Kind("gpt_neo", "GPTNeoForCausalLM", gpt_neo),
    Kind("gptj", "GPTJForCausalLM", gptj),
    Kind("codegen", "CodeGenForCausalLM", codegen),
    Kind("mistral", "MistralForCausalLM", mistral),
    Kind("qwen2", "Qwen2ForCausalLM", qwen2),
    Kind("qwen3", "Qwen3ForCausalLM", qwen3),
    Kind("gemma", "GemmaForCausalLM", gemma),
    Kind("gemma2", "Gemma2ForCausalLM", gemma2),
    Kind("gemma3", "Gemma3ForCausalLM", gemma3),
    Kind("phi", "PhiForCausalLM", phi),
    Kind("phi3", "Phi3ForCausalLM", phi3),
    Kind("smollm3", "SmolLM3ForCausalLM", smollm3),
    Kind("stablelm", "StableLmForCausalLM", stablelm),
    Kind("gpt_neox", "GPTNeoXForCausalLM", gpt_neox),
    Kind("opt", "OPTForCausalLM", opt),
    Kind("bloom", "BloomForCausalLM", bloom),
    Kind("falcon", "FalconForCausalLM", falcon),
    Kind("starcoder2", "Starcoder2ForCausalLM", starcoder2),
    Kind("olmo", "OlmoForCausalLM", olmo),
    *DECODERS_OF_2025,
    *HYBRIDS,
    GRANITE4,
    *MIXTURES,
]

_BODIES = ("llama", "mistral", "qwen2", "qwen3")
BODIES = [
    Kind(f"{kind.name}-body", kind.architecture.replace("ForCausalLM", "Model"), kind.draw)
    for kind in DECODERS
    if kind.name in _BODIES
]
