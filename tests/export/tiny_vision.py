"""Tiny random classifiers of pictures: of patches, of windows, and of convolutions."""

import torch
from tiny_parts import image_spec, picture, randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.attention_resnet import AttentionResnet, AttentionResnetConfig
from weft_export.families.beit import Beit, BeitConfig
from weft_export.families.classifier import IDENTITY, SIGMOID, Classifier
from weft_export.families.clip_vision import ClipVision, ClipVisionConfig
from weft_export.families.convnext import ConvNext, ConvNextConfig
from weft_export.families.resnet import Resnet, ResnetConfig
from weft_export.families.swin import Swin, SwinConfig, SwinV2
from weft_export.families.vit import Vit, VitConfig
from weft_proto.v1 import bundle_pb2

LABELS = tuple("0123456789")


def tiny_deit() -> Checkpoint:
    """Return a ViT with a distillation token, for 8 x 8 grey pictures."""
    sizes = {"channels": 1, "image_height": 8, "image_width": 8, "patch_size": 2}
    config = VitConfig(num_labels=10, **sizes, d_model=32, num_heads=2, d_ff=48, num_layers=2, distillation=True)
    return _classifier("vit", randomised(Vit(config)), patch_size=2)


def tiny_swin() -> Checkpoint:
    """Return a Swin Transformer for 16 x 24 colour pictures: 8 x 12, then 4 x 6 positions, in windows of 2 x 2."""
    sizes = {"channels": 3, "image_height": 16, "image_width": 24, "patch_size": 2}
    config = SwinConfig(num_labels=10, **sizes, d_model=16, depths=(2, 2), num_heads=(2, 4), window_size=2)
    return _classifier("swin", randomised(Swin(config)), patch_size=2)


def tiny_resnet() -> Checkpoint:
    """Return a residual network for 16 x 24 colour pictures that attends on 4 x 6 positions."""
    sizes = {"channels": 3, "image_height": 16, "image_width": 24}
    config = AttentionResnetConfig(
        num_labels=10, **sizes, widths=(8, 16), num_blocks=2, num_attention_blocks=2, num_heads=2
    )
    return _classifier("attention_resnet", with_statistics(randomised(AttentionResnet(config))), patch_size=4)


def tiny_swin_v2() -> Checkpoint:
    """Return a Swin Transformer V2 for 8 x 16 grey pictures: 4 x 8, then 2 x 4 positions, in windows of 2 x 2."""
    sizes = {"channels": 1, "image_height": 8, "image_width": 16, "patch_size": 2}
    config = SwinConfig(num_labels=10, **sizes, d_model=16, depths=(1, 1), num_heads=(2, 4), window_size=2)
    return _classifier("swin_v2", randomised(SwinV2(config)), patch_size=2)


def tiny_beit() -> Checkpoint:
    """Return a BEiT for 8 x 12 colour pictures of 2 x 3 patches."""
    sizes = {"channels": 3, "image_height": 8, "image_width": 12, "patch_size": 4}
    config = BeitConfig(num_labels=10, **sizes, d_model=32, num_heads=2, d_ff=48, num_layers=2)
    return _classifier("beit", randomised(Beit(config)), patch_size=4)


def tiny_clip() -> Checkpoint:
    """Return CLIP's image encoder for 8 x 12 colour pictures of 2 x 3 patches. Several labels may be right at once."""
    sizes = {"channels": 3, "image_height": 8, "image_width": 12, "patch_size": 4}
    layers = {"d_model": 32, "num_heads": 2, "d_ff": 48, "num_layers": 2, "d_embedding": 24}
    config = ClipVisionConfig(num_labels=10, **sizes, **layers, scoring=SIGMOID)
    return _classifier("clip_vision", randomised(ClipVision(config)), patch_size=4)


def tiny_convnext() -> Checkpoint:
    """Return a ConvNeXt for 16 x 22 colour pictures: 4 x 5, then 2 x 2 positions. Its scores are a regression's."""
    sizes = {"channels": 3, "image_height": 16, "image_width": 22, "patch_size": 4}
    config = ConvNextConfig(num_labels=10, **sizes, widths=(8, 16), depths=(1, 1), scoring=IDENTITY)
    return _classifier("convnext", randomised(ConvNext(config)))


def tiny_bottlenecks() -> Checkpoint:
    """Return a ResNet of bottlenecks for 17 x 24 grey pictures: 5 x 6, then 3 x 3 positions."""
    sizes = {"channels": 1, "image_height": 17, "image_width": 24}
    config = ResnetConfig(num_labels=10, **sizes, widths=(8, 16, 32), depths=(1, 1))
    return _classifier("resnet", with_statistics(randomised(Resnet(config))))


def with_statistics(model: Classifier) -> Classifier:
    """Give the norms of a model the statistics of a random batch, as training leaves them."""
    config, generator = model.config, torch.Generator().manual_seed(1)
    model.train()
    for _ in range(20):
        model(torch.randn(8, config.channels, config.image_height, config.image_width, generator=generator))
    return model.eval()


def _classifier(family: str, model: Classifier, patch_size: int = 1) -> Checkpoint:
    config = model.config
    height, width = config.image_height, config.image_width
    image = image_spec(config.channels, height, width, patch_size)
    image.grid_rows, image.grid_columns = config.grid
    return Checkpoint(
        family=family,
        description="A random image classifier for tests.",
        model=model,
        golden=bundle_pb2.Golden(image_path="golden.png"),
        image=image,
        labels=LABELS,
        files={"golden.png": picture(width, height, "L" if config.channels == 1 else "RGB")},
    )


VISION = {
    "tiny-deit": tiny_deit,
    "tiny-swin": tiny_swin,
    "tiny-swin-v2": tiny_swin_v2,
    "tiny-beit": tiny_beit,
    "tiny-clip": tiny_clip,
    "tiny-convnext": tiny_convnext,
    "tiny-resnet": tiny_resnet,
    "tiny-bottlenecks": tiny_bottlenecks,
}
