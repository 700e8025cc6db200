"""The table of kinds that read a picture and write a text: a row for each, which draws configs of odd sizes."""

import transformers
from hf_models import END, PAD, VOCAB, Kind


def encoder(rng):
    """Draw a ViT of pictures of 8 x 8 to 12 x 12."""
    heads = rng.choice([2, 3])
    return {
        "image_size": rng.choice([8, 12]),
        "patch_size": 4,
        "num_channels": 3,
        "hidden_size": heads * rng.choice([8, 12]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([1, 2]),
        "hidden_act": rng.choice(["gelu", "relu"]),
        "qkv_bias": rng.random() < 0.7,
    }


def gpt2(rng):
    """Draw a GPT-2 that reads pictures."""
    heads = rng.choice([2, 3])
    return transformers.GPT2Config(
        vocab_size=VOCAB,
        n_embd=heads * rng.choice([8, 16]),
        n_head=heads,
        n_layer=rng.choice([1, 2]),
        n_positions=96,
        n_inner=rng.choice([None, 33]),
        activation_function=rng.choice(["gelu_new", "relu"]),
        tie_word_embeddings=rng.random() < 0.5,
        eos_token_id=END,
        bos_token_id=2,
    )


def trocr(rng):
    """Draw TrOCR's decoder."""
    heads = rng.choice([2, 3])
    return {
        "vocab_size": VOCAB,
        "d_model": heads * rng.choice([8, 16]),
        "decoder_attention_heads": heads,
        "decoder_ffn_dim": rng.choice([33, 40]),
        "decoder_layers": rng.choice([1, 2]),
        "max_position_embeddings": 96,
        "activation_function": rng.choice(["gelu", "relu"]),
        "scale_embedding": rng.random() < 0.5,
        "layernorm_embedding": rng.random() < 0.5,
        "use_learned_position_embeddings": rng.random() < 0.7,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "bos_token_id": 0,
    }


def with_gpt2(rng):
    """Draw a ViT or a DeiT, and a GPT-2 of another width."""
    kind = rng.choice([transformers.ViTConfig, transformers.DeiTConfig])
    decoder = gpt2(rng)
    decoder.is_decoder = decoder.add_cross_attention = True
    special = {"decoder_start_token_id": 3, "pad_token_id": PAD, "eos_token_id": END}
    return {"encoder": kind(**encoder(rng)).to_dict(), "decoder": decoder.to_dict(), **special}


def with_trocr(rng):
    """Draw a ViT or a DeiT, and TrOCR's decoder, which reads the picture at the encoder's width."""
    kind = rng.choice([transformers.ViTConfig, transformers.DeiTConfig])
    seen = kind(**encoder(rng))
    decoder = transformers.TrOCRConfig(**trocr(rng), cross_attention_hidden_size=seen.hidden_size)
    decoder.is_decoder = decoder.add_cross_attention = True
    special = {"decoder_start_token_id": 2, "pad_token_id": 1, "eos_token_id": 2}
    return {"encoder": seen.to_dict(), "decoder": decoder.to_dict(), **special}


def blip(rng):
    """Draw a BLIP."""
    heads = rng.choice([2, 3])
    vision = encoder(rng)
    del vision["qkv_bias"]
    text = {
        "vocab_size": VOCAB,
        "hidden_size": heads * rng.choice([8, 16]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([33, 40]),
        "num_hidden_layers": rng.choice([1, 2]),
        "max_position_embeddings": 96,
        "encoder_hidden_size": vision["hidden_size"],
        "hidden_act": rng.choice(["gelu", "relu"]),
        "bos_token_id": 2,
        "sep_token_id": END,
        "eos_token_id": 4,
        "pad_token_id": PAD,
    }
    return {"text_config": text, "vision_config": vision}


CAPTIONERS = [
    Kind("vit-gpt2", "VisionEncoderDecoderModel", with_gpt2),
    Kind("trocr", "VisionEncoderDecoderModel", with_trocr),
    Kind("blip", "BlipForConditionalGeneration", blip),
]
