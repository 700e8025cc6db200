"""What tiny random checkpoints are made of: tokenizers, pictures, and weights large enough for lively answers."""

import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

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


def randomised(model: Any, inner_gain: float = 2.0) -> Any:
    """Draw all weights of a model from a fixed seed."""
    # Large inner weights: otherwise the tied embedding makes a random model repeat its last token for ever.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name.rpartition(".")[2]:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
            elif parameter.dim() > 1:
                words = "embedding.tokens" in name
                gain = 0.5 if words else inner_gain
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * gain * parameter.shape[-1] ** -0.5)
                if words:
                    parameter[:END] = 0  # so that padding and start are hardly ever produced
    return model.eval()


def image_spec(channels: int, height: int, width: int, patch_size: int) -> bundle_pb2.ImageSpec:
    """Describe pictures whose grid is that of their patches."""
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
