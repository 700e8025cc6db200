"""The table of kinds that read a text and write another: a row for each, which draws configs of odd sizes."""

from hf_models import END, PAD, VOCAB, Kind


def stacks(rng):
    """Draw the sizes of an encoder and a decoder of BART's kind."""
    width = rng.choice([1, 2, 3]) * 48
    return {
        "vocab_size": VOCAB,
        "max_position_embeddings": 128,
        "d_model": width,
        "encoder_layers": rng.choice([2, 3]),  # transformers makes as many caches
        "decoder_layers": rng.choice([1, 2]),
        "encoder_attention_heads": rng.choice([2, 3, 4]),
        "decoder_attention_heads": rng.choice([2, 3]),
        "encoder_ffn_dim": rng.choice([40, 65]),
        "decoder_ffn_dim": rng.choice([33, 80]),
        "activation_function": rng.choice(["gelu", "relu", "swish", "gelu_new"]),
        "scale_embedding": rng.random() < 0.5,
        "pad_token_id": PAD,
        "eos_token_id": END,
        "bos_token_id": 2,
        "forced_eos_token_id": None,
        "decoder_start_token_id": 3,
    }


def m2m_100(rng):
    """Draw an M2M-100, whose positions count from behind the padding token."""
    return stacks(rng) | {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}


def marian(rng):
    """Draw a Marian: half of them have a vocabulary on each side."""
    if rng.random() < 0.5:
        return stacks(rng)
    own = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": VOCAB, "tie_word_embeddings": True}
    return stacks(rng) | own


def t5(rng):
    """Draw a T5 of version 1.0 or 1.1."""
    return {
        "vocab_size": VOCAB,
        "d_model": rng.choice([32, 50]),
        "d_kv": rng.choice([8, 16]),
        "d_ff": rng.choice([40, 65]),
        "num_layers": rng.choice([2, 3]),
        "num_decoder_layers": rng.choice([1, 2]),
        "num_heads": rng.choice([2, 3]),
        "relative_attention_num_buckets": rng.choice([8, 32]),
        "relative_attention_max_distance": rng.choice([20, 128]),
        "feed_forward_proj": rng.choice(["relu", "gated-gelu", "gated-silu"]),
        "tie_word_embeddings": rng.random() < 0.5,
        "layer_norm_epsilon": rng.choice([1e-6, 1e-5]),
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": PAD,
    }


SEQ2SEQ = [
    Kind("marian", "MarianMTModel", marian),
    Kind("bart", "BartForConditionalGeneration", stacks),
    Kind("mbart", "MBartForConditionalGeneration", stacks),
    Kind("m2m_100", "M2M100ForConditionalGeneration", m2m_100),
    Kind("pegasus", "PegasusForConditionalGeneration", stacks),
    Kind("t5", "T5ForConditionalGeneration", t5, gain=1.0),
    Kind("mt5", "MT5ForConditionalGeneration", t5, gain=1.0),
    Kind("umt5", "UMT5ForConditionalGeneration", t5, gain=1.0),
]
