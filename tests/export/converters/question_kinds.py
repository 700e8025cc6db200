"""The kinds whose encoder reads a picture and a question: random ones, as their own classes save them."""

import random

import torch
import transformers
from hf_models import END, Kind, made_model
from query_kinds import queries, tower
from seq2seq_kinds import stacks, t5
from tiny_parts import byte_tokenizer
from tokenizers import AddedToken, Tokenizer, processors

IMAGE_TOKEN, BOS, EOS = "<image>", "<s>", "<end>"
IMAGE_ID, VOCABULARY = 300, 328
PLACES = (*(f"<loc_{place}>" for place in range(20)), "<mask>")


def davit(rng, d_model):
    """Draw a DaViT whose grids and windows are no multiples of each other."""
    count = rng.choice([2, 3])
    heads = [rng.choice([1, 2, 3]) for _ in range(count)]
    groups = [rng.choice([1, 2]) for _ in range(count)]
    return {
        "depths": [rng.choice([1, 2]) for _ in range(count)],
        "patch_size": [rng.choice([7, 4]), *[rng.choice([3, 2])] * (count - 1)],
        "patch_stride": [4, *[2] * (count - 1)],
        "patch_padding": [rng.choice([3, 0]), *[1] * (count - 1)],
        "patch_prenorm": [False, *[rng.random() < 0.7 for _ in range(count - 1)]],
        "embed_dim": [6 * heads * groups for heads, groups in zip(heads, groups, strict=True)],
        "num_heads": heads,
        "num_groups": groups,
        "window_size": rng.choice([2, 3, 4]),
        "mlp_ratio": rng.choice([4.0, 2.5]),
        "qkv_bias": rng.random() < 0.7,
        "activation_function": rng.choice(["gelu", "relu"]),
        "projection_dim": d_model,
        "max_position_embeddings": rng.choice([12, 50]),
    }


def florence2(rng):
    """Draw a Florence-2."""
    text = stacks(rng) | {"vocab_size": VOCABULARY, "model_type": "bart", "max_position_embeddings": 256}
    return {"text_config": text, "vision_config": davit(rng, text["d_model"]), "image_token_id": IMAGE_ID}


def blip2_t5(rng):
    """Draw a BLIP-2 over T5."""
    return {
        "text_config": {**t5(rng), "model_type": "t5", "vocab_size": VOCABULARY},
        "vision_config": tower(rng),
        "qformer_config": queries(rng),
        "num_query_tokens": rng.choice([3, 6]),
        "image_token_index": IMAGE_ID,
        "use_decoder_only_language_model": False,
    }


FLORENCE2 = Kind("florence2", "Florence2ForConditionalGeneration", florence2, 1.5)
BLIP2_T5 = Kind("blip-2-t5", "Blip2ForConditionalGeneration", blip2_t5, 1.0)
ASKING = [FLORENCE2, BLIP2_T5]


def tokenizer_of(frame, *more, named=None):
    """Return a tokenizer of bytes that frames a text, with a token of a picture and more."""
    tokenizer = Tokenizer.from_buffer(byte_tokenizer())
    special = (IMAGE_TOKEN, BOS, *more)
    tokenizer.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in special])
    tokens = [(BOS, 301), (EOS, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=frame, special_tokens=tokens)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token="<pad>",
        extra_special_tokens=named or {},
        additional_special_tokens=list(more),
    )


def made_asking(kind, seed, directory, **saving):
    """Write a random model with its processor; return both."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model_class = getattr(transformers, kind.architecture)
    config = model_class.config_class(**kind.draw(rng))
    model = made_model(model_class, config, directory, kind.gain, **saving)
    if kind is BLIP2_T5:
        side = config.vision_config.image_size
        images = transformers.BlipImageProcessorPil(size={"height": side, "width": side})
        tokenizer = tokenizer_of(f"$A {EOS}")
        processor = transformers.Blip2Processor(images, tokenizer, num_query_tokens=config.num_query_tokens)
    else:
        sides = {"height": rng.choice([24, 36]), "width": rng.choice([24, 30])}
        images = transformers.CLIPImageProcessor(size=sides, do_center_crop=False)
        with torch.inference_mode():
            features = model.get_image_features(torch.zeros(1, 3, sides["height"], sides["width"])).pooler_output
        images.image_seq_length = features.shape[1]
        processor = transformers.Florence2Processor(
            images, tokenizer_of(f"{BOS} $A {EOS}", *PLACES, named={"image_token": IMAGE_TOKEN})
        )
    processor.save_pretrained(directory)
    return model, processor


def inputs_of(kind, processor, picture, question):
    """What their model reads of a picture and a question."""
    return processor(images=picture, text=question, return_tensors="pt")
