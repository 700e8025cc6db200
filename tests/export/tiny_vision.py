"""Tiny random classifiers of pictures: DeiT, Swin, and a residual network that attends."""

import torch
from tiny_parts import image_spec, picture, randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.attention_resnet import AttentionResnet, AttentionResnetConfig
from weft_export.families.classifier import Classifier
from weft_export.families.swin import Swin, SwinConfig
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


def with_statistics(model: AttentionResnet) -> AttentionResnet:
    """Give the norms of a model the statistics of a random batch, as training leaves them."""
    config, generator = model.config, torch.Generator().manual_seed(1)
    model.train()
    for _ in range(20):
        model(torch.randn(8, config.channels, config.image_height, config.image_width, generator=generator))
    return model.eval()


def _classifier(family: str, model: Classifier, patch_size: int) -> Checkpoint:
    config = model.config
    height, width = config.image_height, config.image_width
    return Checkpoint(
        family=family,
        description="A random image classifier for tests.",
        model=model,
        golden=bundle_pb2.Golden(image_path="golden.png"),
        image=image_spec(config.channels, height, width, patch_size),
        labels=LABELS,
        files={"golden.png": picture(width, height, "L" if config.channels == 1 else "RGB")},
    )


VISION = {"tiny-deit": tiny_deit, "tiny-swin": tiny_swin, "tiny-resnet": tiny_resnet}
