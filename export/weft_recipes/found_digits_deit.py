"""Recipe `found-digits-deit`: a DeiT that learns from found-digits-resnet, on digits somewhere in a picture."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from weft_export.console import OnProgress
from weft_export.families.vit import Vit, VitConfig
from weft_recipes.pictures.canvas import Canvas
from weft_recipes.pictures.found_digits import DATA, NOTES, SIZES, finish
from weft_recipes.shared.base import load_base
from weft_recipes.shared.card import Card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, prepare

SEED = 13
BATCH, NUM_STEPS, PEAK_LR = 48, 3_400, 1e-3
TEACHER = "found-digits-resnet"

NUM_LIGHT = 1_600
"""In so many first steps the clutter grows from nothing: a model that has not seen what a digit is cannot find one."""


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out pictures."""
    watch, generator, canvas = Stopwatch(), prepare(SEED), Canvas(held_out=False)
    teacher = load_base(TEACHER).model
    sizes: dict[str, Any] = {"d_model": 64, "num_heads": 4, "d_ff": 128, "num_layers": 4}
    model = Vit(VitConfig(num_labels=10, **SIZES, patch_size=4, **sizes, distillation=True))

    def loss_of(step: int) -> Tensor:
        """Return the mean of cross-entropies to the label and to the teacher's answer (hard distillation, eq. 3)."""
        pictures = canvas.draw_any(BATCH, generator, min(1.0, step / NUM_LIGHT))
        with torch.no_grad():
            taught = teacher(pictures.pixels).argmax(dim=-1)
        classified, distilled = model.head_logits(pictures.pixels)
        loss = functional.cross_entropy(classified, pictures.labels) + functional.cross_entropy(distilled, taught)
        return loss / 2

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, weight_decay=0.05, on_progress=on_progress)
    return finish(out, "vit", model, CARD, watch, {"pictures trained on": NUM_STEPS * BATCH})


OWN_NOTES = """- It reads about half: without a notion of neighbourhood, some 1,400 digits teach it little.
  Shown for comparison; 1,500 steps had given 39.1 %.
"""

CARD = Card(
    name="found-digits-deit",
    title="a digit somewhere in a picture, by a distilled ViT",
    summary="Tells which digit stands somewhere in a cluttered picture, and shows where it looked.",
    data=DATA,
    model="""DeiT: 64 patches of 4 x 4 pixels, a class token and a distillation token, 4 layers, width 64, 4 heads;
float16. The distillation head learned the answers of `found-digits-resnet` (hard distillation), the class head the
labels; an answer is the mean of their probabilities.""",
    notes=OWN_NOTES + NOTES,
)
