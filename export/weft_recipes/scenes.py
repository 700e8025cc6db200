"""Recipe `scenes`: captions of drawn scenes by a vision encoder with a Transformer decoder."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import HeldOut, write_held_out
from weft_export.checkpoints.picture import to_pixel_values
from weft_export.console import OnProgress
from weft_export.families.captioner import Captioner, CaptionerConfig
from weft_export.layers.positions import sinusoidal_table
from weft_proto.v1 import bundle_pb2
from weft_recipes.pictures.drawing import render
from weft_recipes.pictures.gallery import (
    GRID,
    IMAGE,
    MAX_TARGET,
    PATCH,
    PICTURE_SIDE,
    SIDE,
    draw,
    examples_of_scenes,
    measure_pointing,
    normalize,
    png,
    write_examples,
)
from weft_recipes.pictures.scene import HELD_OUT_SHARE, Scene, sample
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.greedy import greedy
from weft_recipes.shared.training import fit, pad, prepare, shuffled
from weft_recipes.shared.vocabulary import END, PAD, START, word_tokenizer

SEED = 29
NUM_TRAINED, NUM_HELD_OUT = 30_000, 1_000
BATCH, NUM_STEPS, PEAK_LR = 32, 2_900, 2e-3
NUM_EASY_STEPS = 700
"""How many steps show lone things only: once a model can name one, it learns two four times as fast."""


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out combinations."""
    watch = Stopwatch()
    generator = prepare(SEED)
    scenes = sample(NUM_TRAINED, SEED, held_out=False)
    pictures = draw(scenes, on_progress)
    tokenizer = word_tokenizer(word for scene in scenes for word in scene.caption.split())
    captions = [[START, *encoding.ids] for encoding in tokenizer.encode_batch([scene.caption for scene in scenes])]
    model = Captioner(
        CaptionerConfig(
            target_vocab_size=tokenizer.get_vocab_size(),
            max_target_tokens=MAX_TARGET,
            channels=3,
            image_height=SIDE,
            image_width=SIDE,
            patch_size=PATCH,
            d_model=128,
            num_heads=4,
            d_ff=256,
            num_encoder_layers=3,
            num_decoder_layers=2,
        )
    )
    _place(model)
    easy = torch.tensor([index for index, scene in enumerate(scenes) if len(scene.things) == 1])
    easy_order, order = shuffled(len(easy), BATCH, generator), shuffled(NUM_TRAINED, BATCH, generator)

    def loss_of(step: int) -> Tensor:
        chosen = easy[next(easy_order)] if step < NUM_EASY_STEPS else next(order)
        target = pad([captions[index] for index in chosen.tolist()], PAD)
        logits = model(normalize(pictures[chosen]), target[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, on_progress=on_progress)
    shown = sample(200, SEED + 1, held_out=False)
    layer = max(range(2), key=lambda index: measure_pointing(model, tokenizer, shown, index))
    examples = examples_of_scenes()
    save_checkpoint(out, _checkpoint(model, tokenizer, layer, examples[0]))
    write_examples(out / "examples", examples)
    figures = measure(out, NUM_HELD_OUT)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures["scenes trained on"] = NUM_TRAINED
    figures["distinct captions trained on"] = len({scene.caption for scene in scenes})
    figures |= watch.figures()
    write_held_out(out, held_out())
    write_card(out, CARD, figures)
    return figures


def measure(directory: Path, count: int) -> Figures:
    """Measure a stored checkpoint on `count` large pictures whose combinations it was never trained on."""
    checkpoint = load_checkpoint(directory)
    assert isinstance(checkpoint.model, Captioner)
    tokenizer = Tokenizer.from_str(checkpoint.files["target.json"].decode())
    scenes = sample(count, SEED + 2, held_out=True)
    answers = caption(checkpoint.model, tokenizer, [render(scene, PICTURE_SIDE) for scene in scenes])
    right = sum(answer == scene.caption for answer, scene in zip(answers, scenes, strict=True))
    pointing = measure_pointing(checkpoint.model, tokenizer, scenes[:300], checkpoint.explained_layer)
    return {
        "exact match on held-out combinations": right / count,
        "held-out scenes": count,
        f"pointing (layer {checkpoint.explained_layer})": pointing,
    }


def held_out() -> HeldOut:
    """Return pictures of combinations that were never trained on, at the model's own size, and their captions."""
    examples = []
    for scene in sample(50, SEED + 2, held_out=True):
        file = io.BytesIO()
        # Two fifths of a PNG, whose bytes go to the grain of the background.
        render(scene, SIDE).save(file, "JPEG", quality=85)
        examples.append((file.getvalue(), scene.caption))
    return examples


def caption(model: Captioner, tokenizer: Tokenizer, pictures: list[Image.Image]) -> list[str]:
    """Caption pictures of any size greedily."""
    answers: list[str] = []
    for first in range(0, len(pictures), 100):
        pixels = np.stack([to_pixel_values(picture, IMAGE) for picture in pictures[first : first + 100]])
        ids = greedy(model, torch.from_numpy(pixels), start=START, end=END, max_new_tokens=MAX_TARGET - 1)
        answers += tokenizer.decode_batch(ids)
    return answers


def _place(model: Captioner) -> None:
    """Start the learned positions as sinusoids of row and column, so that neighbours are alike from the beginning."""
    half = sinusoidal_table(GRID, model.config.d_model // 2)
    rows, columns = half[:, None].expand(-1, GRID, -1), half[None].expand(GRID, -1, -1)
    with torch.no_grad():
        model.positions.copy_(0.7 * torch.cat((rows, columns), dim=-1).flatten(0, 1))


def _checkpoint(model: Captioner, tokenizer: Tokenizer, layer: int, golden: Scene) -> Checkpoint:
    return Checkpoint(
        family="captioner",
        description="Captions of drawn scenes with one or two coloured shapes",
        model=model,
        golden=bundle_pb2.Golden(image_path="golden.png"),
        text=bundle_pb2.TextSpec(
            target_tokenizer="target.json",
            target_vocab_size=model.config.target_vocab_size,
            start_id=START,
            end_ids=[END],
            pad_id=PAD,
            max_total_tokens=MAX_TARGET,
            max_new_tokens=MAX_TARGET,
            target_languages=["en"],
        ),
        image=IMAGE,
        max_new_tokens=MAX_TARGET,
        attention_layer=layer,
        files={"target.json": tokenizer.to_str().encode(), "golden.png": png(golden)},
    )


CARD = Card(
    name="scenes",
    title="captions of drawn scenes",
    summary="Says what a picture of one or two coloured shapes shows: `a small red circle above a large blue square`.",
    data=f"""Scenes drawn for this purpose (`weft_recipes/pictures/scene.py`, `drawing.py`): five shapes, seven
colours, two sizes, nine places for a shape alone, five relations between two, with jittered colours, rotations and
positions on pale gradients with noise; what stands inside a shape is a circle or a star. Each scene has exactly one
caption. One pair of coloured shapes in {HELD_OUT_SHARE} (by a hash), and of a lone coloured shape and its place,
occurs in no training scene; the held-out figures are measured on scenes of these combinations only, drawn at
{PICTURE_SIDE} x {PICTURE_SIDE} pixels and resized as a server would.""",
    model=f"""Vision encoder (3 layers over {PATCH} x {PATCH} patches of {SIDE} x {SIDE} pixels) and Transformer
decoder (2 layers), width 128, 4 heads, pre-norm; float32. Each word is one token.""",
    notes="""- It sees its own kind of drawing and nothing else: photographs get a caption too, which means nothing.
- Pointing: the share of shape words for which the patch with the largest averaged cross-attention weight lies in
  the square around the shape meant. Nothing in training asked for it.
- `examples/` holds three held-out pictures, named by their captions.""",
)
