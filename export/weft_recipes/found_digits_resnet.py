"""Recipe `found-digits-resnet`: a residual network that attends, on digits somewhere in a picture."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from weft_export.console import OnProgress
from weft_export.families.attention_resnet import AttentionResnet, AttentionResnetConfig
from weft_recipes.pictures.canvas import Canvas
from weft_recipes.pictures.found_digits import DATA, NOTES, SIZES, finish, write_examples
from weft_recipes.shared.card import Card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, prepare

SEED = 11
BATCH, NUM_STEPS, PEAK_LR = 48, 1_700, 3e-3


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on held-out pictures."""
    watch, generator, canvas = Stopwatch(), prepare(SEED), Canvas(held_out=False)
    torch.set_num_threads(1)
    config = AttentionResnetConfig(
        10, **SIZES, widths=(32, 64), num_blocks=1, num_attention_blocks=2, num_heads=4, reduction=2
    )
    model = AttentionResnet(config)

    def loss_of(_step: int) -> Tensor:
        pictures = canvas.draw_any(BATCH, generator)
        return functional.cross_entropy(model(pictures.pixels), pictures.labels, label_smoothing=0.05)

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, weight_decay=0.05, on_progress=on_progress)
    figures = finish(out, "attention_resnet", model, CARD, watch, {"pictures trained on": NUM_STEPS * BATCH})
    write_examples(out)
    return figures


CARD = Card(
    name="found-digits-resnet",
    title="a digit somewhere in a picture, by convolutions and attention",
    summary="Tells which digit stands somewhere in a cluttered picture, and shows where it looked.",
    data=DATA,
    model="""Residual network: a stem and one residual block of convolutions, then two bottleneck blocks whose middle is
self-attention over 8 x 8 positions with 4 heads; float16.""",
    notes=f"""{NOTES}
- `examples/` holds four held-out pictures, named by their labels; the other `found-digits` models take them too.""",
)
