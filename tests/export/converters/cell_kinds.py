"""The table of kinds that read pictures at a size near their own, with their processors: Qwen2-VL to Qwen3-VL."""

import random

import torch
import transformers
from hf_models import Kind, made_model
from mixture_kinds import mixture
from sight_kinds import tokenizer_of_sight

PATCH = 4
TOKENS = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|im_start|>", "<|im_end|>")
FIRST_ID = 302
# As the released models have it.
TEMPLATE = """\
{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages %}\
{% if loop.first and message['role'] != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}<|im_end|>
{% else %}{% for content in message['content'] %}\
{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}\
{% set image_count.value = image_count.value + 1 %}\
{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>\
{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}\
{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>\
{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def text(rng):
    """Draw a decoder whose places have three positions."""
    head_dim, heads = rng.choice([16, 32]), rng.choice([2, 4])
    rope = rng.choice([{"rope_type": "default"}, {"rope_type": "linear", "factor": 2.5}])
    sections = [head_dim // 16 * each for each in rng.choice([[2, 3, 3], [4, 2, 2], [1, 1, 1, 3, 2]])]
    return {
        "vocab_size": 340,
        "hidden_size": heads * head_dim,
        "intermediate_size": rng.choice([40, 65]),
        "num_hidden_layers": rng.choice([2, 3]),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([1, heads]),
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
        "max_position_embeddings": 4096,
        "rope_parameters": rope | {"rope_theta": 10000.0, "mrope_section": sections},
        "use_sliding_window": rng.random() < 0.3,
        "sliding_window": 9,
        "max_window_layers": rng.choice([0, 1]),
        "bos_token_id": None,
        "eos_token_id": 1,
    }


def first(rng, width):
    """Draw the encoder of a Qwen2-VL."""
    heads = rng.choice([2, 3])
    return {
        "embed_dim": heads * rng.choice([8, 12]),
        "hidden_size": width,
        "num_heads": heads,
        "depth": rng.choice([1, 2]),
        "mlp_ratio": rng.choice([2, 3]),
        "hidden_act": rng.choice(["quick_gelu", "gelu"]),
    }


def second(rng, width):
    """Draw that of a Qwen2.5-VL: windows of one to three cells."""
    heads = rng.choice([2, 3])
    return {
        "hidden_size": heads * rng.choice([8, 12]),
        "out_hidden_size": width,
        "num_heads": heads,
        "depth": 3,
        "intermediate_size": rng.choice([17, 40]),
        "window_size": rng.choice([8, 16, 24]),
        "fullatt_block_indexes": rng.choice([[1], [0, 2], [2]]),
    }


def third_text(rng):
    """Draw the decoder of a Qwen3-VL, whose neighbouring pairs turn by different positions."""
    given, half = text(rng), 8 * rng.choice([1, 2])
    sections = [half - 4, 2, 2] if half == 8 else rng.choice([[6, 5, 5], [10, 4, 2]])
    rope = given["rope_parameters"] | {"mrope_section": sections, "mrope_interleaved": True}
    for name in ("use_sliding_window", "sliding_window", "max_window_layers"):
        del given[name]
    return given | {"head_dim": 2 * half, "rope_parameters": rope, "num_hidden_layers": 3}


def third_mixture(rng):
    """Draw the decoder of a Qwen3-VL of experts."""
    return {**third_text(rng), "moe_intermediate_size": rng.choice([24, 40]), **mixture(rng, "num_experts")}


def third(rng, width):
    """Draw the encoder of a Qwen3-VL, which is read at one to three layers."""
    heads = rng.choice([2, 3])
    return {
        "hidden_size": heads * rng.choice([8, 12]),
        "out_hidden_size": width,
        "num_heads": heads,
        "depth": 3,
        "intermediate_size": rng.choice([17, 40]),
        "num_position_embeddings": rng.choice([9, 25]),
        "deepstack_visual_indexes": rng.choice([[1], [0, 2], [0, 1, 2]]),
    }


def seeing(vision, text=text):
    """Return what draws a config, given what draws its encoder."""

    def draw(rng):
        decoder = text(rng)
        return {
            "text_config": decoder,
            "vision_config": vision(rng, decoder["hidden_size"])
            | {"patch_size": PATCH, "spatial_merge_size": rng.choice([1, 2, 2])},
            "image_token_id": FIRST_ID,
            "video_token_id": FIRST_ID + 1,
            "vision_start_token_id": FIRST_ID + 2,
            "vision_end_token_id": FIRST_ID + 3,
            "tie_word_embeddings": rng.random() < 0.3,
        }

    return draw


# With larger numbers their own sums round by more than 1e-4.
CELLS = [
    Kind("qwen2-vl", "Qwen2VLForConditionalGeneration", seeing(first), 1.5),
    Kind("qwen2.5-vl", "Qwen2_5_VLForConditionalGeneration", seeing(second), 1.5),
    Kind("qwen3-vl", "Qwen3VLForConditionalGeneration", seeing(third, third_text), 1.5),
    Kind("qwen3-vl-moe", "Qwen3VLMoeForConditionalGeneration", seeing(third, third_mixture), 1.5),
]


class Qwen2VLProcessor(transformers.Qwen2VLProcessor):
    """Theirs without a processor of videos, which needs torchvision."""

    def check_argument_for_proper_class(self, name, value):
        """Let there be none."""
        if name != "video_processor":
            super().check_argument_for_proper_class(name, value)


class Qwen3VLProcessor(transformers.Qwen3VLProcessor):
    """Theirs without a processor of videos, which needs torchvision."""

    def check_argument_for_proper_class(self, name, value):
        """Let there be none."""
        if name != "video_processor":
            super().check_argument_for_proper_class(name, value)


def processor_of(config, rng, template=TEMPLATE):
    """Return the processor of a config: a picture has up to 24 places, or as few as 1."""
    vision = config.vision_config
    place = (PATCH * vision.spatial_merge_size) ** 2
    size = {"shortest_edge": rng.choice([1, 3, 4]) * place, "longest_edge": rng.choice([16, 24]) * place}
    images = transformers.Qwen2VLImageProcessorPil(size=size, patch_size=PATCH, merge_size=vision.spatial_merge_size)
    made = Qwen3VLProcessor if config.model_type.startswith("qwen3_vl") else Qwen2VLProcessor
    processor = made(images, tokenizer_of_sight(*TOKENS), None, chat_template=template)
    processor.get_attributes = lambda: ["image_processor", "tokenizer"]
    return processor


def made_cells(kind, seed, directory, template=TEMPLATE, **saving):
    """Write a random model with its processor, as their own classes save them; return both."""
    model_class, rng = getattr(transformers, kind.architecture), random.Random(seed)
    torch.manual_seed(seed)
    config = model_class.config_class(**kind.draw(rng))
    model = made_model(model_class, config, directory, kind.gain, **saving)
    processor = processor_of(config, rng, template)
    processor.save_pretrained(directory)
    return model, processor
