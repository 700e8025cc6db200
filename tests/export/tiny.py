"""Tiny random checkpoints, one for each family: real in every part, small enough to export in seconds."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

from weft_export.checkpoint import Checkpoint, save_checkpoint
from weft_export.families.captioner import Captioner, CaptionerConfig
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.families.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from weft_export.families.text_classifier import TextClassifier, TextClassifierConfig
from weft_export.families.vit import Vit, VitConfig
from weft_proto.v1 import bundle_pb2

PAD, UNKNOWN, START, END = range(4)
_SOURCE = "a the small big red blue green cat dog bird house tree sees eats finds and or not we you they here"
_TARGET = "un una el la gato perra casa pequeño grande roja azul verde ve come y o no nosotros ellos aquí árbol"
SOURCE_WORDS, TARGET_WORDS = _SOURCE.split(), _TARGET.split()
CORPUS = ["def f(x): return x + 1", "for the cat in the house: print(cat)", "a small café — and a naïve façade ✓"] * 4


def word_tokenizer(words: list[str], *, ends: bool) -> bytes:
    """Return a word-level tokenizer's JSON; with ends, every encoding closes with [END]."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNKNOWN]", "[START]", "[END]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNKNOWN]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[UNKNOWN]", "[START]", "[END]"])
    if ends:
        tokenizer.post_processor = processors.TemplateProcessing(single="$A [END]", special_tokens=[("[END]", END)])
    return tokenizer.to_str().encode()


def byte_tokenizer() -> bytes:
    """Return a byte-level BPE tokenizer's JSON, 300 ids: any text encodes, and tokens may be parts of a character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<pad>", "<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer.to_str().encode()


def picture(width: int, height: int, mode: str = "RGB") -> bytes:
    """Return a PNG with a gradient and a square."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    pixels = np.stack([across, down, 255 - across], axis=-1).astype(np.uint8)
    pixels[height // 4 : height // 2, width // 4 : width // 2] = (255, 0, 0)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "PNG")
    return file.getvalue()


def tiny_translate() -> Checkpoint:
    """Return a translator of words."""
    source, target = len(SOURCE_WORDS) + 4, len(TARGET_WORDS) + 4
    config = EncoderDecoderConfig(
        source_vocab_size=source,
        target_vocab_size=target,
        max_source_tokens=20,
        max_target_tokens=24,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_encoder_layers=2,
        num_decoder_layers=2,
    )
    return Checkpoint(
        family="encoder_decoder",
        description="A random translator for tests.",
        model=_random(EncoderDecoder(config), 3.0),
        golden=bundle_pb2.Golden(text="the big dog eats"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="source.json",
            target_tokenizer="target.json",
            source_vocab_size=source,
            target_vocab_size=target,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_source_tokens=20,
            max_total_tokens=24,
            max_new_tokens=24,
            source_languages=["en"],
            target_languages=["es"],
        ),
        max_new_tokens=16,
        alignment_layer=1,
        files={
            "source.json": word_tokenizer(SOURCE_WORDS, ends=True),
            "target.json": word_tokenizer(TARGET_WORDS, ends=False),
        },
    )


def tiny_caption() -> Checkpoint:
    """Return a captioner of 24 x 16 colour pictures in 4 rows of 6 patches."""
    target = len(TARGET_WORDS) + 4
    config = CaptionerConfig(
        target_vocab_size=target,
        max_target_tokens=24,
        channels=3,
        image_height=16,
        image_width=24,
        patch_size=4,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_encoder_layers=1,
        num_decoder_layers=2,
    )
    return Checkpoint(
        family="captioner",
        description="A random captioner for tests.",
        model=_random(Captioner(config), 3.0),
        golden=bundle_pb2.Golden(image_path="golden.png"),
        text=bundle_pb2.TextSpec(
            target_tokenizer="target.json",
            target_vocab_size=target,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=24,
            max_new_tokens=24,
        ),
        image=_image_spec(3, 16, 24, 4),
        max_new_tokens=16,
        alignment_layer=1,
        files={"target.json": word_tokenizer(TARGET_WORDS, ends=False), "golden.png": picture(30, 22)},
    )


def tiny_image() -> Checkpoint:
    """Return a classifier of 8 x 8 grey pictures into ten digits."""
    config = VitConfig(
        num_labels=10,
        channels=1,
        image_height=8,
        image_width=8,
        patch_size=2,
        d_model=32,
        num_heads=2,
        d_ff=48,
        num_layers=2,
    )
    return Checkpoint(
        family="vit",
        description="A random image classifier for tests.",
        model=_random(Vit(config)),
        golden=bundle_pb2.Golden(image_path="golden.png"),
        image=_image_spec(1, 8, 8, 2),
        labels=tuple("0123456789"),
        files={"golden.png": picture(8, 8, "L")},
    )


def tiny_text() -> Checkpoint:
    """Return a classifier of words into four topics."""
    vocab_size = len(SOURCE_WORDS) + 4
    config = TextClassifierConfig(
        vocab_size=vocab_size, num_labels=4, max_tokens=32, d_model=32, num_heads=2, d_ff=48, num_layers=2
    )
    return Checkpoint(
        family="text_classifier",
        description="A random text classifier for tests.",
        model=_random(TextClassifier(config)),
        golden=bundle_pb2.Golden(text="the cat eats and the dog finds"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json", source_vocab_size=vocab_size, pad_id=PAD, max_source_tokens=32
        ),
        labels=("animals", "colours", "houses", "people"),
        files={"tokenizer.json": word_tokenizer(SOURCE_WORDS, ends=True)},
    )


def tiny_generate() -> Checkpoint:
    """Return a generator of bytes with four query heads over two key and value heads."""
    config = CausalLmConfig(
        vocab_size=300, max_tokens=64, d_model=64, num_heads=4, num_kv_heads=2, d_ff=96, num_layers=2
    )
    return Checkpoint(
        family="causal_lm",
        description="A random generator for tests.",
        model=_random(CausalLm(config)),
        golden=bundle_pb2.Golden(text="the cat in the house"),
        text=bundle_pb2.TextSpec(
            source_tokenizer="tokenizer.json",
            target_tokenizer="tokenizer.json",
            source_vocab_size=300,
            target_vocab_size=300,
            end_ids=[1],
            pad_id=0,
            max_total_tokens=64,
            max_new_tokens=63,
        ),
        max_new_tokens=24,
        files={"tokenizer.json": byte_tokenizer()},
    )


CHECKPOINTS: dict[str, Callable[[], Checkpoint]] = {
    "tiny-translate": tiny_translate,
    "tiny-caption": tiny_caption,
    "tiny-image": tiny_image,
    "tiny-text": tiny_text,
    "tiny-generate": tiny_generate,
}


def save_tiny(name: str, directory: Path) -> Path:
    """Write one of CHECKPOINTS into a directory and return it."""
    save_checkpoint(directory, CHECKPOINTS[name]())
    return directory


def _random(model: nn.Module, inner_gain: float = 2.0) -> nn.Module:
    # Large inner weights: otherwise the tied embedding makes a random model repeat its last token for ever.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
            elif parameter.dim() > 1:
                words = "embedding.tokens" in name
                gain = 0.5 if words else inner_gain
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * gain * parameter.shape[-1] ** -0.5)
                if words:
                    parameter[:END] = 0  # so that padding and start are hardly ever produced
    return model.eval()


def _image_spec(channels: int, height: int, width: int, patch_size: int) -> bundle_pb2.ImageSpec:
    return bundle_pb2.ImageSpec(
        channels=channels,
        height=height,
        width=width,
        resample=bundle_pb2.RESAMPLE_BILINEAR,
        mean=[0.5] * channels,
        std=[0.25] * channels,
        grid_rows=height // patch_size,
        grid_columns=width // patch_size,
    )
