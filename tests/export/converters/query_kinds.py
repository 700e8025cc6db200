"""The kind whose pictures are read by few queries, BLIP-2, with its processor: random ones, as their classes save."""

import random

import torch
import transformers
from decoder_kinds import opt
from hf_models import Kind, made_model
from sight_kinds import tokenizer_of_sight

VOCABULARY = 304


def tower(rng):
    """Draw a ViT of pictures of 12 x 12 to 20 x 20."""
    heads = rng.choice([2, 3])
    return {
        "image_size": rng.choice([12, 20]),
        "patch_size": 4,
        "hidden_size": heads * rng.choice([8, 12]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([1, 2]),
        "layer_norm_eps": rng.choice([1e-5, 1e-6]),
        "hidden_act": rng.choice(["gelu", "quick_gelu"]),
        "qkv_bias": rng.random() < 0.7,
    }


def queries(rng):
    """Draw a Q-Former, some of whose layers attend to the picture."""
    heads = rng.choice([2, 3])
    return {
        "vocab_size": 40,
        "hidden_size": heads * rng.choice([8, 12]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([2, 3]),
        "cross_attention_frequency": rng.choice([1, 2, 3]),
        "hidden_act": rng.choice(["gelu", "relu"]),
        "layer_norm_eps": rng.choice([1e-5, 1e-12]),
    }


def blip2(rng):
    """Draw a BLIP-2 over OPT."""
    return {
        "text_config": {**opt(rng), "model_type": "opt", "vocab_size": VOCABULARY},
        "vision_config": tower(rng),
        "qformer_config": queries(rng),
        "num_query_tokens": rng.choice([3, 6]),
        "image_token_index": 300,
    }


BLIP2 = Kind("blip-2-opt", "Blip2ForConditionalGeneration", blip2, 1.5)


def made_queries(seed, directory, **saving):
    """Write a random model with its processor, as their own classes save them; return both."""
    torch.manual_seed(seed)
    config = transformers.Blip2Config(**BLIP2.draw(random.Random(seed)))
    model = made_model(transformers.Blip2ForConditionalGeneration, config, directory, BLIP2.gain, **saving)
    side = config.vision_config.image_size
    images = transformers.BlipImageProcessorPil(size={"height": side, "width": side})
    processor = transformers.Blip2Processor(images, tokenizer_of_sight(), num_query_tokens=config.num_query_tokens)
    processor.save_pretrained(directory)
    return model, processor


def inputs_of(processor, picture, text):
    """What their model reads of a picture and a text; of a text alone, what its decoder does."""
    return processor(images=picture, text=text, return_tensors="pt")


def asked(picture, text):
    """The same as a chat."""
    parts = [{"type": "text", "text": text}] * bool(text)
    if picture is not None:
        parts.append({"type": "image", "image": picture})
    return [{"role": "user", "content": parts}]
