"""Model cards: the README.md beside a checkpoint, written by the recipe from what it measured."""

import datetime as dt
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_recipes.shared.figures import Figures


@dataclass(frozen=True, slots=True)
class Card:
    """What a model card says besides the figures: each text is a Markdown paragraph or list."""

    name: str
    title: str
    summary: str
    data: str
    model: str
    notes: str


def _held_out(directory: Path) -> str:
    path = directory / HELD_OUT_FILE
    if not path.exists():
        return ""
    count = path.read_text(encoding="utf-8").count("\n")
    return f"\n\n`{HELD_OUT_FILE}` has {count} examples of the held-out part; it is what int8 is measured on."


def write_card(directory: Path, card: Card, figures: Figures) -> None:
    """Write README.md into the directory of a checkpoint or an adapter; the size is that of the weights there."""
    (weights,) = directory.glob("*model.safetensors")
    size = weights.stat().st_size
    threads = "one CPU thread" if torch.get_num_threads() == 1 else f"{torch.get_num_threads()} CPU threads"
    rows = "\n".join(f"| {name} | {show(value)} |" for name, value in figures.items())
    text = f"""# {card.name}: {card.title}

{card.summary}

## Data

{card.data}{_held_out(directory)}

## Model

{card.model} `{weights.name}` has {size / 1e6:.2f} MB.

## Figures

Printed by the recipe, measured on the weights as they are stored here:

| figure | value |
|---|---|
{rows}

## Notes

{card.notes}

## How it was made

`weft train {card.name}` on {dt.datetime.now(dt.UTC).date()}, {threads}, Python {platform.python_version()},
torch {torch.__version__}. The recipe is seeded; another torch version or processor may give slightly other weights.
"""
    (directory / "README.md").write_text(text, encoding="utf-8")


def show(value: float | str) -> str:
    """Return a figure as people read it: thousands apart, four digits after the point."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
