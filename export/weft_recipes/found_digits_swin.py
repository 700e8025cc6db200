"""Recipe `found-digits-swin`: a Swin Transformer on digits somewhere in a picture."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from weft_export.console import OnProgress
from weft_export.families.swin import Swin, SwinConfig
from weft_recipes.pictures.canvas import Canvas
from weft_recipes.pictures.found_digits import DATA, NOTES, SIZES, finish
from weft_recipes.shared.card import Card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, prepare

SEED = 12
BATCH, NUM_STEPS, PEAK_LR = 48, 2_000, 1e-3

NUM_LIGHT = 800
"""In so many first steps the clutter grows from nothing: a model that has not seen what a digit is cannot find one."""


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out pictures."""
    watch, generator, canvas = Stopwatch(), prepare(SEED), Canvas(held_out=False)
    torch.set_num_threads(1)
    model = Swin(
        SwinConfig(num_labels=10, **SIZES, patch_size=4, d_model=48, depths=(2, 2), num_heads=(3, 6), window_size=4)
    )

    def loss_of(step: int) -> Tensor:
        pictures = canvas.draw_any(BATCH, generator, min(1.0, step / NUM_LIGHT))
        return functional.cross_entropy(model(pictures.pixels), pictures.labels, label_smoothing=0.05)

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, weight_decay=0.05, on_progress=on_progress)
    return finish(out, "swin", model, CARD, watch, {"pictures trained on": NUM_STEPS * BATCH})


CARD = Card(
    name="found-digits-swin",
    title="a digit somewhere in a picture, by shifted windows",
    summary="Tells which digit stands somewhere in a cluttered picture, and shows where it looked.",
    data=DATA,
    model="""Swin Transformer: 8 x 8 patches of 4 x 4 pixels, two stages of two layers (8 x 8 and 4 x 4 positions;
widths 48 and 96; 3 and 6 heads) in windows of 4 x 4, shifted by 2 in the second layer; the second stage is one window;
float16.""",
    notes=NOTES,
)
