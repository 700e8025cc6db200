"""What configs of decoder-only kinds have in common, drawn of odd sizes."""

from hf_models import END, PAD, VOCAB


def ids():
    """Return the special ids of the byte tokenizer."""
    return {"vocab_size": VOCAB, "eos_token_id": END, "pad_token_id": PAD, "bos_token_id": 2}


def coin(rng):
    """Draw true or false."""
    return rng.random() < 0.5


def heads(rng):
    """Draw heads that share keys and values, and a width that is theirs. Some are of 12, 20 or 24 numbers."""
    kv_heads = rng.choice([1, 2, 3])
    num_heads = kv_heads * rng.choice([1, 2, 3])
    return {
        "num_attention_heads": num_heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": num_heads * rng.choice([12, 16, 20, 24, 32]),
    }


def whole_heads(rng):
    """Draw heads that share nothing."""
    num_heads = rng.choice([1, 2, 3, 5])
    return {"num_attention_heads": num_heads, "hidden_size": num_heads * rng.choice([12, 16, 24, 32])}


def common(rng):
    """Draw what most configs have."""
    return {
        **ids(),
        "intermediate_size": rng.choice([72, 97, 128]),
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "max_position_embeddings": 128,
        "tie_word_embeddings": coin(rng),
    }


def rotation(rng):
    """Draw a rotation of whole heads."""
    return {"rope_type": "default", "rope_theta": rng.choice([10000.0, 500000.0])}


def gated(rng):
    """Draw what is common to Llama and its kin."""
    return {**common(rng), "rms_norm_eps": rng.choice([1e-6, 1e-5]), "rope_parameters": rotation(rng)}


def window(rng, name="sliding_window"):
    """Draw a window, or none."""
    return {name: rng.choice([5, 16, None])}


def share(rng, part):
    """Draw a rotation of a part of each head."""
    return {**rotation(rng), "partial_rotary_factor": part}
