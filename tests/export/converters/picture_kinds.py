"""The table of classifiers of pictures: a row for each, which draws configs of odd sizes."""

from hf_models import END, VOCAB, Kind

ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "quick_gelu"]


def labels(rng):
    """Draw how many labels there are, and name them."""
    return {"id2label": {index: f"thing {index}" for index in range(rng.choice([2, 5, 11]))}}


def patched(rng, *, square=False):
    """Draw pictures in patches, and Transformer layers."""
    patch, heads = rng.choice([2, 3, 4]), rng.choice([1, 2, 3])
    height = patch * rng.choice([1, 2, 3, 5])
    width = height if square else patch * rng.choice([2, 3, 4])
    return {
        **labels(rng),
        "image_size": height if height == width else [height, width],
        "patch_size": patch,
        "num_channels": rng.choice([1, 3]),
        "hidden_size": heads * rng.choice([5, 8, 12]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([1, 2, 3]),
        "hidden_act": rng.choice(ACTIVATIONS),
        "layer_norm_eps": rng.choice([1e-12, 1e-6, 1e-5]),
    }


def vit(rng):
    """Draw a ViT or a DeiT."""
    return {**patched(rng), "qkv_bias": rng.random() < 0.7}


def beit(rng):
    """Draw a BEiT."""
    return {
        **patched(rng, square=True),
        "use_mean_pooling": rng.random() < 0.6,
        "use_relative_position_bias": rng.random() < 0.7,
        "use_shared_relative_position_bias": rng.random() < 0.3,
        "use_absolute_position_embeddings": rng.random() < 0.4,
        "use_mask_token": rng.random() < 0.3,
    }


def staged(rng, most_stages=3):
    """Draw stages of windows that fill their grids."""
    stages, window, patch = rng.choice(range(1, most_stages + 1)), rng.choice([2, 3]), rng.choice([2, 4])
    side, across = (patch * window * 2 ** (stages - 1) * rng.choice([1, 2]) for _ in range(2))
    heads = rng.choice([1, 2])
    return {
        **labels(rng),
        "image_size": side if side == across else [side, across],
        "patch_size": patch,
        "num_channels": rng.choice([1, 3]),
        "embed_dim": 8 * heads,
        "depths": [rng.choice([1, 2, 3]) for _ in range(stages)],
        "num_heads": [heads * 2**stage for stage in range(stages)],
        "window_size": window,
        "mlp_ratio": rng.choice([2.0, 4.0]),
        "hidden_act": rng.choice(ACTIVATIONS),
        "layer_norm_eps": rng.choice([1e-6, 1e-5]),
    }


def swin_v2(rng):
    """Draw a Swin V2: in squares, its last windows may be larger than the grid."""
    config = staged(rng)
    stages = len(config["depths"])
    if isinstance(config["image_size"], list):
        config["image_size"].sort()
    if rng.random() < 0.5:
        config["image_size"] = config["patch_size"] * config["window_size"] * 2 ** (stages - 1)
        config["window_size"] += rng.choice([0, 1, 5]) if stages == 1 else 0
    if rng.random() < 0.5:
        config["pretrained_window_sizes"] = [rng.choice([0, 4, 12]) for _ in range(stages)]
    return config


def convnext(rng):
    """Draw a ConvNeXt, for pictures of any size."""
    stages = rng.choice([1, 2, 3])
    return {
        **labels(rng),
        "num_channels": rng.choice([1, 3]),
        "patch_size": rng.choice([2, 4]),
        "num_stages": stages,
        "hidden_sizes": [rng.choice([6, 8, 12]) for _ in range(stages)],
        "depths": [rng.choice([1, 2]) for _ in range(stages)],
        "layer_scale_init_value": rng.choice([1e-6, 0.5]),
        "hidden_act": rng.choice(ACTIVATIONS),
        "layer_norm_eps": rng.choice([1e-12, 1e-6]),
    }


def resnet(rng):
    """Draw a ResNet, for pictures of any size."""
    stages = rng.choice([1, 2, 3])
    return {
        **labels(rng),
        "num_channels": rng.choice([1, 3]),
        "embedding_size": rng.choice([4, 6]),
        "hidden_sizes": [rng.choice([4, 8, 10, 16]) for _ in range(stages)],
        "depths": [rng.choice([1, 2, 3]) for _ in range(stages)],
        "layer_type": rng.choice(["basic", "bottleneck"]),
        "downsample_in_first_stage": rng.random() < 0.5,
        "downsample_in_bottleneck": rng.random() < 0.5,
    }


def clip(rng):
    """Draw CLIP's image encoder with a trained head."""
    vision = patched(rng, square=True)
    return {"id2label": vision.pop("id2label"), "vision_config": vision}


def siglip_vision(rng):
    """Draw SigLIP's image encoder. Its patches may leave some of a picture over."""
    vision = patched(rng, square=True)
    del vision["id2label"]
    return {**vision, "image_size": vision["image_size"] + rng.randrange(vision["patch_size"])}


def siglip(rng):
    """Draw it with a trained head."""
    return {**labels(rng), "vision_config": siglip_vision(rng) | {"vision_use_head": rng.random() < 0.5}}


def siglip_texts(rng):
    """Draw SigLIP's text encoder."""
    texts = clip_texts(rng)
    return {key: value for key, value in texts.items() if not key.endswith("_id")} | {"projection_size": 24}


def whole_siglip(rng):
    """Draw a SigLIP of a picture's encoder and a text's."""
    vision = siglip_vision(rng)
    return {"text_config": siglip_texts(rng) | {"projection_size": vision["hidden_size"]}, "vision_config": vision}


def whole_clip(rng):
    """Draw a CLIP of a picture's encoder and a text's."""
    vision = patched(rng, square=True)
    del vision["id2label"]
    return {"text_config": clip_texts(rng), "vision_config": vision, "projection_dim": rng.choice([7, 24])}


def clip_texts(rng):
    """Draw CLIP's text encoder."""
    heads = rng.choice([1, 2, 3])
    return {
        "vocab_size": VOCAB,
        "max_position_embeddings": 100,
        "hidden_size": heads * rng.choice([5, 8]),
        "num_attention_heads": heads,
        "intermediate_size": rng.choice([17, 40]),
        "num_hidden_layers": rng.choice([1, 2]),
        "hidden_act": rng.choice(ACTIVATIONS),
        # 2 is what old configs say; it then is the highest id.
        "eos_token_id": rng.choice([END, END, 2]),
        "bos_token_id": END,
    }


def clip_texts_alone(rng):
    """Draw it where its config is no part of another, and its texts end with the token that it is read at."""
    return {**clip_texts(rng), "eos_token_id": END, "projection_dim": rng.choice([7, 24])}


def clip_alone(rng):
    """Draw CLIP's image encoder, whose config is no part of another."""
    vision = patched(rng, square=True)
    del vision["id2label"]
    return {**vision, "projection_dim": rng.choice([7, 24])}


def vit_body(rng):
    """Draw a ViT without labels."""
    config = vit(rng)
    del config["id2label"]
    return config


def dinov2(rng):
    """Draw a DINOv2 of 3 x 3 patches."""
    config = vit(rng)
    del config["id2label"], config["intermediate_size"]
    return {**config, "image_size": 3 * config["patch_size"], "mlp_ratio": rng.choice([2, 3])}


def with_registers(rng):
    """Draw one with registers."""
    config = dinov2(rng)
    return {**config, "num_register_tokens": rng.choice([1, 4])}


VIT_BODY = Kind("vit body", "ViTModel", vit_body)
DINOV2 = Kind("dinov2", "Dinov2Model", dinov2)
REGISTERS = Kind("dinov2 with registers", "Dinov2WithRegistersModel", with_registers)
SIGLIP_ALONE = Kind("siglip alone", "SiglipVisionModel", siglip_vision)
CLIP_ALONE = Kind("clip alone", "CLIPVisionModelWithProjection", clip_alone)
CLIP_TEXTS_ALONE = Kind("clip texts alone", "CLIPTextModelWithProjection", clip_texts_alone)
WHOLE_SIGLIP = Kind("whole siglip", "SiglipModel", whole_siglip)
SIGLIP_TEXTS_ALONE = Kind("siglip texts alone", "SiglipTextModel", siglip_texts)
WHOLE_CLIP = Kind("whole clip", "CLIPModel", whole_clip)
PICTURES = [
    Kind("vit", "ViTForImageClassification", vit),
    Kind("deit", "DeiTForImageClassificationWithTeacher", vit),
    Kind("deit without a teacher", "DeiTForImageClassification", vit),
    Kind("beit", "BeitForImageClassification", beit),
    Kind("swin", "SwinForImageClassification", staged),
    Kind("swin v2", "Swinv2ForImageClassification", swin_v2),
    Kind("convnext", "ConvNextForImageClassification", convnext),
    Kind("resnet", "ResNetForImageClassification", resnet),
    Kind("clip", "CLIPForImageClassification", clip),
    Kind("siglip", "SiglipForImageClassification", siglip),
]
