"""The table of kinds that read stretches of a prompt in both directions, with their processors: Gemma 3, PaliGemma."""

import random

import torch
import transformers
from hf_models import Kind, made_model
from sight_kinds import tokenizer_of_sight

IMAGE_ID = 302
TOKENS = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
# As the released models have it.
TEMPLATE = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""


def tower(rng):
    """Draw a SigLIP of pictures of 16 x 16 or 24 x 24."""
    heads = rng.choice([2, 3])
    return {
        "model_type": "siglip_vision_model",
        "image_size": rng.choice([16, 24]),
        "patch_size": 4,
        "hidden_size": heads * rng.choice([8, 12]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([1, 2]),
        "vision_use_head": rng.random() < 0.5,
    }


def text(rng, vocab_size):
    """Draw what all Gemmas have. A window may be shorter than a picture."""
    head_dim, heads = rng.choice([16, 32]), rng.choice([2, 4])
    return {
        "vocab_size": vocab_size,
        "hidden_size": heads * rng.choice([12, 16]),
        "intermediate_size": rng.choice([40, 65]),
        "num_hidden_layers": 3,
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([1, heads]),
        "head_dim": head_dim,
        "max_position_embeddings": 4096,
        "query_pre_attn_scalar": rng.choice([16, 256]),
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 301,
    }


def windowed(rng):
    """Draw windows of a Gemma 2 or 3."""
    types = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(2)]
    return {"sliding_window": rng.choice([3, 7, 40]), "layer_types": [*types, "sliding_attention"]}


def gemma3(rng):
    """Draw a Gemma 3."""
    vision = tower(rng)
    patches = vision["image_size"] // 4
    return {
        "text_config": {**text(rng, 320), **windowed(rng)},
        "vision_config": vision,
        "mm_tokens_per_image": (patches // rng.choice([1, 2])) ** 2,
        "image_token_index": IMAGE_ID,
        "boi_token_index": IMAGE_ID + 1,
        "eoi_token_index": IMAGE_ID + 2,
    }


def paligemma(model_type):
    """Return what draws a PaliGemma over a kind of decoder."""

    def draw(rng):
        decoder = {**text(rng, 1500), "model_type": model_type}
        if model_type == "gemma2":
            decoder |= windowed(rng)
        else:
            del decoder["query_pre_attn_scalar"]
        width = decoder["hidden_size"]
        return {
            "text_config": decoder,
            "vision_config": tower(rng),
            "image_token_index": 300,
            "projection_dim": width,
            "hidden_size": width,
        }

    return draw


GEMMA3 = Kind("gemma3", "Gemma3ForConditionalGeneration", gemma3, 1.5)
PALIGEMMA = [
    Kind(f"paligemma-{each}", "PaliGemmaForConditionalGeneration", paligemma(each), 1.5) for each in ("gemma", "gemma2")
]
STRETCHES = [GEMMA3, *PALIGEMMA]


def processor_of(kind, config):
    """Return the processor of a config."""
    vision = config.vision_config
    size = {"height": vision.image_size, "width": vision.image_size}
    if kind is GEMMA3:
        tokenizer = tokenizer_of_sight(*TOKENS.values(), "<start_of_turn>", "<end_of_turn>", named=TOKENS)
        images = transformers.Gemma3ImageProcessorPil(size=size)
        count = config.mm_tokens_per_image
        return transformers.Gemma3Processor(images, tokenizer, chat_template=TEMPLATE, image_seq_length=count)
    images = transformers.SiglipImageProcessorPil(size=size)
    images.image_seq_length = (vision.image_size // vision.patch_size) ** 2
    return transformers.PaliGemmaProcessor(images, tokenizer_of_sight())


def made_stretches(kind, seed, directory, **saving):
    """Write a random model with its processor, as their own classes save them; return both."""
    model_class, rng = getattr(transformers, kind.architecture), random.Random(seed)
    torch.manual_seed(seed)
    config = model_class.config_class(**kind.draw(rng))
    model = made_model(model_class, config, directory, kind.gain, **saving)
    processor = processor_of(kind, config)
    processor.save_pretrained(directory)
    return model, processor
