"""The table of kinds whose prompts hold pictures, and directories of random ones as transformers saves them."""

import asyncio
import io
import json

import torch
import transformers
from decoder_kinds import llama, mistral, qwen2
from hf_models import Kind, made_model
from PIL import Image
from tiny_parts import byte_tokenizer
from tokenizers import AddedToken, Tokenizer, processors

from loaded import Loaded, ask
from weft_proto.v1 import common_pb2, generation_pb2

IMAGE_TOKEN, BOS = "<image>", "<s>"
NEW_TOKENS = 24
DECODING = common_pb2.Decoding(greedy={}, max_new_tokens=NEW_TOKENS)
# As the released models have it: pictures come first, then texts.
TEMPLATE = """\
{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}\
{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% endfor %}\
{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}{{ part['text'] + ' ' }}{% endfor %}\
{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"""


def tower(rng):
    """Draw a CLIP of pictures of 12 x 12 to 20 x 20."""
    heads = rng.choice([2, 3])
    return {
        "model_type": "clip_vision_model",
        "image_size": rng.choice([12, 20]),
        "patch_size": 4,
        "hidden_size": heads * rng.choice([8, 12]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([2, 3]),
        "hidden_act": rng.choice(["quick_gelu", "gelu"]),
        "projection_dim": 16,
    }


def seeing(model_type, decoder):
    """Return what draws a LLaVA over a kind of decoder."""

    def draw(rng):
        text = {**decoder(rng), "model_type": model_type, "vocab_size": 304, "tie_word_embeddings": rng.random() < 0.3}
        return {
            "text_config": text,
            "vision_config": tower(rng),
            "image_token_index": 300,
            "vision_feature_layer": rng.choice([-2, -1, 1, [-2, -1]]),
            "vision_feature_select_strategy": rng.choice(["default", "full"]),
            "projector_hidden_act": rng.choice(["gelu", "relu"]),
            "multimodal_projector_bias": rng.random() < 0.7,
        }

    return draw


SEEING = [
    Kind(f"llava-{name}", "LlavaForConditionalGeneration", seeing(name, draw))
    for name, draw in (("llama", llama), ("mistral", mistral), ("qwen2", qwen2))
]


def tiling_tower(rng):
    """Draw a SigLIP of tiles of 12 x 12 to 20 x 20."""
    heads = rng.choice([2, 3])
    return {
        "model_type": "siglip_vision_model",
        "image_size": rng.choice([12, 14, 20]),
        "patch_size": 4,
        "hidden_size": heads * rng.choice([8, 12]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([2, 3]),
        "vision_use_head": rng.random() < 0.5,
    }


def tiling(model_type, decoder):
    """Return what draws a LLaVA-OneVision over a kind of decoder."""

    def draw(rng):
        text = {**decoder(rng), "model_type": model_type, "vocab_size": 304, "tie_word_embeddings": rng.random() < 0.3}
        vision = tiling_tower(rng)
        most = rng.choice([2, 3])
        grids = [(rows, columns) for rows in range(1, most + 1) for columns in range(1, most + 1)]
        return {
            "text_config": text,
            "vision_config": vision,
            "image_token_index": 300,
            "video_token_index": 303,
            "vision_feature_layer": rng.choice([-2, -1, 1, [-2, -1]]),
            "projector_hidden_act": rng.choice(["gelu", "relu"]),
            "multimodal_projector_bias": rng.random() < 0.7,
            "image_grid_pinpoints": [[side * vision["image_size"] for side in grid] for grid in grids],
            "vision_aspect_ratio": f"anyres_max_{rng.choice([1, 2, 9])}",
        }

    return draw


TILING = [
    Kind(f"llava-onevision-{name}", "LlavaOnevisionForConditionalGeneration", tiling(name, draw))
    for name, draw in (("qwen2", qwen2), ("llama", llama))
]


def splitting_tower(rng):
    """Draw a SigLIP of tiles, whose positions may be of another size."""
    heads = rng.choice([2, 3])
    return {
        "image_size": rng.choice([16, 24, 20]),
        "patch_size": 4,
        "hidden_size": heads * rng.choice([8, 12]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([1, 2]),
    }


def splitting(model_type, decoder):
    """Return what draws an Idefics 3 or SmolVLM over a kind of decoder."""

    def draw(rng):
        text = {**decoder(rng), "model_type": model_type, "vocab_size": 340, "pad_token_id": 0}
        return {
            "text_config": text,
            "vision_config": splitting_tower(rng),
            "image_token_id": 300,
            "scale_factor": rng.choice([1, 2]),
            "tie_word_embeddings": rng.random() < 0.3,
        }

    return draw


# As SmolVLM's directories have it: pictures stand where they are in a message, and a text is a part.
SPLITTING_TEMPLATE = """\
<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}\
{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}\
{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}\
{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""
# With larger numbers, 32 layers, which a class has where its config does not say it, round theirs by more than 1e-4.
SPLITTING = [
    Kind("idefics3-llama", "Idefics3ForConditionalGeneration", splitting("llama", llama), 1.5),
    Kind("smolvlm-llama", "SmolVLMForConditionalGeneration", splitting("llama", llama), 1.5),
]
TILE = 16
_FAKE = "<fake_token_around_image>"


def splitting_processor(kind, config, template, rng):
    """Return the processor of an Idefics 3 or a SmolVLM."""
    from transformers.models.smolvlm import processing_smolvlm

    name = kind.architecture.removesuffix("ForConditionalGeneration")
    images = getattr(transformers, f"{name}ImageProcessorPil")(
        size={"longest_edge": rng.choice([3 * TILE, 2 * TILE - 1, 37])},
        max_image_size={"longest_edge": TILE},
        do_image_splitting=rng.random() < 0.8,
    )
    tokens = [_FAKE, "<global-img>", "<end_of_utterance>"]
    tokens += [f"<row_{row}_col_{column}>" for row in range(1, 3) for column in range(1, 4)]
    tokenizer = tokenizer_of_sight(*tokens)
    places = (TILE // config.vision_config.patch_size // config.scale_factor) ** 2
    made = {"image_seq_len": places, "chat_template": template}
    if kind.name.startswith("idefics3"):
        return transformers.Idefics3Processor(images, tokenizer, **made)
    # It spells the numbers of frames of a video with another package.
    processing_smolvlm.num2words = str
    processor = SmolVLMProcessor(images, tokenizer, None, **made)
    processor.get_attributes = lambda: ["image_processor", "tokenizer"]
    return processor


class SmolVLMProcessor(transformers.SmolVLMProcessor):
    """Theirs without a processor of videos, which needs torchvision."""

    apply_chat_template = transformers.ProcessorMixin.apply_chat_template

    def check_argument_for_proper_class(self, name, value):
        """Let there be none."""
        if name != "video_processor":
            super().check_argument_for_proper_class(name, value)


class LlavaOnevisionProcessor(transformers.LlavaOnevisionProcessor):
    """Theirs without a processor of videos, which needs torchvision."""

    def check_argument_for_proper_class(self, name, value):
        """Let there be none."""
        if name != "video_processor":
            super().check_argument_for_proper_class(name, value)


def tiling_processor(config, template):
    """Return the processor of a LLaVA-OneVision."""
    vision = config.vision_config
    side = {"height": vision.image_size, "width": vision.image_size}
    images = transformers.LlavaOnevisionImageProcessorPil(size=side, image_grid_pinpoints=config.image_grid_pinpoints)
    processor = LlavaOnevisionProcessor(
        images,
        tokenizer_of_sight(),
        num_image_tokens=(vision.image_size // vision.patch_size) ** 2,
        vision_feature_select_strategy=config.vision_feature_select_strategy,
        vision_aspect_ratio=config.vision_aspect_ratio,
        chat_template=template,
    )
    processor.get_attributes = lambda: ["image_processor", "tokenizer"]
    return processor


def tokenizer_of_sight(*more, named=None):
    """Return a tokenizer of bytes that begins a text with a token of its own, and has one for a picture, and more.

    named: some of these, by the names that a processor asks for.
    """
    tokenizer = Tokenizer.from_buffer(byte_tokenizer())
    special = (IMAGE_TOKEN, BOS, *more)
    tokenizer.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in special])
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 301)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token="<end>",
        pad_token="<pad>",
        extra_special_tokens=named or {},
    )


def made_seeing(kind, seed, directory, template=TEMPLATE, **saving):
    """Write a random model with its processor, as their own classes save them; return both."""
    import random

    model_class = getattr(transformers, kind.architecture)
    torch.manual_seed(seed)
    config = model_class.config_class(**kind.draw(random.Random(seed)))
    model = made_model(model_class, config, directory, kind.gain, **saving)
    if kind in SPLITTING:
        processor = splitting_processor(kind, config, template, random.Random(seed))
        processor.save_pretrained(directory)
        return model, processor
    if kind in TILING:
        processor = tiling_processor(config, template)
        processor.save_pretrained(directory)
        return model, processor
    side, strategy = config.vision_config.image_size, config.vision_feature_select_strategy
    processor = transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(size={"shortest_edge": side}, crop_size=side),
        tokenizer=tokenizer_of_sight(),
        patch_size=config.vision_config.patch_size,
        vision_feature_select_strategy=strategy,
        num_additional_image_tokens=1,
        image_token=IMAGE_TOKEN,
        chat_template=template,
    )
    processor.save_pretrained(directory)
    return model, processor


def pictures(count, seed=0):
    """Return pictures of noise, of different sizes."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((31, 22), (20, 40), (12, 12), (57, 33))
    made = [torch.randint(256, (high, wide, 3), generator=generator, dtype=torch.uint8) for wide, high in sizes[:count]]
    return [Image.fromarray(each.numpy()) for each in made]


def change_processor(directory, **fields):
    """Set keys of a directory's processor_config.json."""
    path = directory / "processor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def chat_of(seen):
    """Two questions with a picture each, and one without, in one chat."""
    first, second = ({"type": "image", "image": each} for each in seen)
    asked = [[first, {"type": "text", "text": "What is this?"}], [{"type": "text", "text": "And here?"}, second]]
    turns = [{"role": "user", "content": each} for each in asked]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}
    return [turns[0], answer, turns[1]]


def their_inputs(processor, messages):
    """What their model reads of a chat."""
    return processor.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_tensors="pt", add_generation_prompt=True
    )


def their_tokens(theirs, processor, chat):
    """What their model writes greedily: NEW_TOKENS at most."""
    inputs = their_inputs(processor, chat)
    with torch.inference_mode():
        found = theirs.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS)
    return found[0, inputs["input_ids"].shape[1] :].tolist()


def as_messages(chat):
    """A chat of theirs as a request of ours has it, with pictures as files."""
    messages = generation_pb2.Messages()
    for turn in chat:
        message = messages.turns.add(role=turn["role"])
        for part in turn["content"]:
            if part["type"] == "text":
                message.parts.add(text=part["text"])
                continue
            file = io.BytesIO()
            part["image"].save(file, "PNG")
            message.parts.add().image.data = file.getvalue()
    return messages


def served(bundle, chats):
    """What a server answers to chats that come at once: the tokens of each."""

    async def run():
        async with Loaded(bundle, slots=len(chats)) as model:
            asked = (ask(model, messages=messages, decoding=DECODING) for messages in chats)
            return [list(each.completion.token_ids) for each in await asyncio.gather(*asked)]

    return asyncio.run(run())
