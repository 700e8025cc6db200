"""The picture of 4-bit weights: the levels of NF4 and int4, and what each product of pydocs loses by them."""

import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
from matplotlib.figure import Figure

from weft_export.checkpoints.directory import load_checkpoint
from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_export.checkpoints.held_out import read_held_out
from weft_export.layers.nf4_linear import LEVELS
from weft_export.quantization.block_kinds import BlockKind
from weft_export.quantization.effects import block_effects
from weft_export.quantization.in_blocks import products_of
from weft_export.quantization.integer_products import NUM_REQUESTS
from weft_export.quantization.requests import sensible_requests

PYDOCS = Path(__file__).parents[2] / "export" / "checkpoints" / "pydocs"
NAMES = {BlockKind.INT4: "int4", BlockKind.NF4: "NF4", BlockKind.INT8: "8 bits in blocks of 64"}


def losses():
    """By kind, the estimate of each product of pydocs in thousandths of a nat, and their names."""
    checkpoint = load_checkpoint(PYDOCS)
    examples = read_held_out(PYDOCS / HELD_OUT_FILE, checkpoint)
    ladders = {path: tuple(NAMES) for path in products_of(checkpoint.model)}
    effects = block_effects(checkpoint, sensible_requests(checkpoint, examples, NUM_REQUESTS), ladders)
    return list(ladders), {kind: [1e3 * effects[path, kind] for path in ladders] for kind in NAMES}


def plot(path):
    """Draw both panels."""
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    levels, errors = figure.subplots(1, 2, width_ratios=(1, 1.25))
    # A block's largest of 64 weights of a normal distribution is some 2.4 deviations away.
    x = np.linspace(-1, 1, 200)
    levels.fill_between(x, [NormalDist(0, 1 / 2.4).pdf(each) for each in x], alpha=0.15, color="grey")
    for row, (name, places) in enumerate({"int4": np.arange(-8, 8) / 8, "NF4": LEVELS}.items()):
        levels.vlines(places, 0.55 * row + 0.05, 0.55 * row + 0.45, color=f"C{row}", linewidth=2)
        levels.annotate(name, (-1.17, 0.55 * row + 0.2), color=f"C{row}")
    levels.set_xlim(-1.2, 1.05)
    levels.set_yticks([])
    levels.set_xlabel("share of the block's largest weight")
    levels.set_title("16 levels, and weights of a normal distribution")
    names, lost = losses()
    for (kind, values), marker in zip(lost.items(), "oD^", strict=True):
        errors.plot(range(len(names)), values, marker=marker, markersize=5, linestyle="none", label=NAMES[kind])
    errors.set_yscale("log")
    errors.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    errors.set_title("pydocs: what rounding one product moves, 0.001 nats")
    errors.grid(alpha=0.3)
    errors.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    plot(sys.argv[1])
