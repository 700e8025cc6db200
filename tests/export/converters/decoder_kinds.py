"""The table of decoder-only kinds: a row for each, which draws configs of odd sizes."""

from foreign import END, PAD, VOCAB, Kind


def ids():
    """Return the special ids of the byte tokenizer."""
    return {"vocab_size": VOCAB, "eos_token_id": END, "pad_token_id": PAD, "bos_token_id": 2}


def heads(rng, multiple=16):
    """Draw heads that share keys and values, and a width that is theirs."""
    kv_heads = rng.choice([1, 2, 3])
    num_heads = kv_heads * rng.choice([1, 2, 3])
    return {
        "num_attention_heads": num_heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": num_heads * multiple * rng.choice([1, 2]),
    }


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
        **ids(),
        **heads(rng),
        "intermediate_size": rng.choice([72, 97, 128]),
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "max_position_embeddings": 128,
        "tie_word_embeddings": rng.random() < 0.5,
        "attention_bias": rng.random() < 0.5,
        "mlp_bias": rng.random() < 0.5,
        "rms_norm_eps": rng.choice([1e-6, 1e-5]),
        "rope_parameters": scaling or {"rope_type": "default", "rope_theta": rng.choice([10000.0, 500000.0])},
    }


DECODERS = [Kind("llama", "LlamaForCausalLM", llama)]
