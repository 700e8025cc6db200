"""The kinds whose decoder reads a question about a picture, GIT and Donut: random ones, as their own classes save."""

import random

import torch
import transformers
from hf_models import Kind, made_model
from sight_kinds import tower
from tiny_parts import byte_tokenizer
from tokenizers import AddedToken, Tokenizer, processors

CLS, SEP, FILL, TASK = "[CLS]", "[SEP]", "<fill>", "<s_docvqa>"
MARKS = (TASK, "<s_question>", "</s_question>", "<s_answer>", "</s_answer>")
CLS_ID, SEP_ID, FILL_ID, TASK_ID, VOCABULARY = 300, 301, 302, 303, 312


def git(rng):
    """Draw a GIT over a CLIP of pictures of 12 x 12 to 20 x 20."""
    heads = rng.choice([2, 3])
    vision = tower(rng) | {"model_type": "git_vision_model", "layer_norm_eps": rng.choice([1e-5, 1e-3])}
    del vision["projection_dim"]
    return {
        "vision_config": vision,
        "vocab_size": VOCABULARY,
        "hidden_size": heads * rng.choice([8, 16]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([33, 40]),
        "num_hidden_layers": rng.choice([2, 3]),
        "hidden_act": rng.choice(["gelu", "relu"]),
        "layer_norm_eps": rng.choice([1e-12, 1e-5]),
        "max_position_embeddings": rng.choice([60, 96]),
        "tie_word_embeddings": rng.random() < 0.3,
        "bos_token_id": CLS_ID,
        "eos_token_id": SEP_ID,
        "pad_token_id": FILL_ID,
    }


def donut(rng):
    """Draw a Donut of pages whose grids are whole windows."""
    stages, window = rng.choice([2, 3]), rng.choice([2, 3])
    unit = 2 * window * 2 ** (stages - 1)
    encoder = transformers.DonutSwinConfig(
        image_size=[unit * rng.choice([1, 2]), unit * rng.choice([1, 2])],
        patch_size=2,
        embed_dim=rng.choice([8, 16]),
        depths=[rng.choice([1, 2]) for _ in range(stages)],
        num_heads=[rng.choice([1, 2, 4]) for _ in range(stages)],
        window_size=window,
        mlp_ratio=rng.choice([2.0, 4.0]),
        hidden_act=rng.choice(["gelu", "relu"]),
        layer_norm_eps=rng.choice([1e-5, 1e-3]),
    )
    heads = rng.choice([2, 4])
    decoder = transformers.MBartConfig(
        vocab_size=VOCABULARY,
        d_model=heads * rng.choice([8, 16]),
        decoder_layers=rng.choice([1, 2]),
        decoder_attention_heads=heads,
        decoder_ffn_dim=rng.choice([33, 40]),
        max_position_embeddings=96,
        scale_embedding=rng.random() < 0.7,
        activation_function=rng.choice(["gelu", "relu"]),
        tie_word_embeddings=rng.random() < 0.7,
        bos_token_id=CLS_ID,
        eos_token_id=SEP_ID,
        pad_token_id=FILL_ID,
        forced_eos_token_id=None,
        is_decoder=True,
        is_encoder_decoder=False,
        add_cross_attention=True,
    )
    special = {"decoder_start_token_id": TASK_ID, "pad_token_id": FILL_ID, "eos_token_id": SEP_ID}
    return {"encoder": encoder.to_dict(), "decoder": decoder.to_dict(), **special}


GIT = Kind("git", "GitForCausalLM", git, 1.0)
DONUT = Kind("donut", "VisionEncoderDecoderModel", donut, 1.0)
PROMPTED = [GIT, DONUT]


def tokenizer_of(kind):
    """Return a tokenizer of bytes. GIT's frames a text; of a Donut's all marks are special."""
    tokenizer = Tokenizer.from_buffer(byte_tokenizer())
    special = (CLS, SEP, FILL, *(MARKS if kind is DONUT else ()))
    tokenizer.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in special])
    named = {"pad_token": FILL, "eos_token": SEP, "bos_token": CLS}
    if kind is GIT:
        frame = [(CLS, CLS_ID), (SEP, SEP_ID)]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{CLS} $A {SEP}", special_tokens=frame)
        named = {"pad_token": FILL, "cls_token": CLS, "sep_token": SEP}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=list(special[3:]), **named
    )


def made_prompted(kind, seed, directory, **saving):
    """Write a random model with its processor; return both."""
    torch.manual_seed(seed)
    model_class = getattr(transformers, kind.architecture)
    config = model_class.config_class(**kind.draw(random.Random(seed)))
    model = made_model(model_class, config, directory, kind.gain, **saving)
    if kind is GIT:
        side = config.vision_config.image_size
        sides = {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}
        processor = transformers.GitProcessor(transformers.CLIPImageProcessorPil(**sides), tokenizer_of(kind))
    else:
        height, width = config.encoder.image_size
        images = transformers.DonutImageProcessorPil(size={"height": height, "width": width})
        processor = transformers.DonutProcessor(images, tokenizer_of(kind))
    processor.save_pretrained(directory)
    return model, processor


def inputs_of(kind, processor, picture, question=""):
    """What generate() is given of a picture and a question, as their pages say. A Donut's prompt begins with a task."""
    begun = CLS if kind is GIT else TASK
    ids = processor.tokenizer(begun + question, add_special_tokens=False).input_ids
    pixels = processor(images=picture, return_tensors="pt")["pixel_values"]
    return {"pixel_values": pixels, "input_ids" if kind is GIT else "decoder_input_ids": torch.tensor([ids])}


def ids_of(inputs):
    """The start token and the question."""
    return inputs.get("input_ids", inputs.get("decoder_input_ids"))


def written_by(model, inputs, max_new_tokens, **settings):
    """The tokens that generate() writes behind a question, without beams and without drawing."""
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": max_new_tokens, **settings}
    with torch.inference_mode():
        return model.generate(**inputs, **settings)[0].tolist()[ids_of(inputs).shape[1] :]


def logits_of(model, inputs):
    """Logits behind each token of a question: a GIT's are those of a picture's places too."""
    return model(**inputs).logits[:, -ids_of(inputs).shape[1] :]
