"""The picture of an adapter: how few directions it has beside a weight's, and which products it changes most."""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from weft_export.adapters.peft import read_adapter
from weft_export.checkpoints.directory import load_checkpoint

CHECKPOINTS = Path(__file__).parents[2] / "export" / "checkpoints"


def plot(path):
    """Draw both panels."""
    model = load_checkpoint(CHECKPOINTS / "en-es").model
    weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    changes = {name: each.matrix().numpy() for name, each in read_adapter(CHECKPOINTS / "en-es-formal").changes.items()}
    shares = {name: np.linalg.norm(each) / np.linalg.norm(weights[f"{name}.weight"]) for name, each in changes.items()}
    largest = max(shares, key=shares.get)

    figure = Figure(figsize=(11, 5.2), layout="constrained")
    directions, products = figure.subplots(1, 2, width_ratios=(1, 1.25))
    of_weight = np.linalg.svd(weights[f"{largest}.weight"], compute_uv=False)
    of_change = np.linalg.svd(changes[largest], compute_uv=False)
    rank = int((of_change > 1e-9 * of_change[0]).sum())
    directions.plot(range(1, len(of_weight) + 1), of_weight, label="W", color="grey")
    directions.plot(range(1, rank + 1), of_change[:rank], "o", label="what is added to it", color="C0")
    directions.set_xscale("log")
    directions.set_xlabel("singular value, from the largest")
    directions.set_title(largest)
    directions.set_ylim(0)
    directions.legend()
    products.bar(range(len(shares)), [100 * share for share in shares.values()])
    products.set_xticks(range(len(shares)), list(shares), rotation=90, fontsize=7)
    products.set_title("size of what is added, % of the size of W")
    products.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    plot(sys.argv[1])
