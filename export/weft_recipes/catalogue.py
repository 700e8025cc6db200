"""The recipes by name; each is imported only when it is asked for."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from weft_export.console import OnProgress
from weft_recipes.shared.figures import Figures

Recipe = Callable[[Path, OnProgress], Figures]
"""Trains, writes the directory of a checkpoint or an adapter, and returns the figures."""


def _late(module: str) -> Recipe:
    def train(out: Path, on_progress: OnProgress) -> Figures:
        recipe: Recipe = import_module(f"weft_recipes.{module}").train
        return recipe(out, on_progress)

    return train


RECIPES: dict[str, Recipe] = {
    "en-es": _late("en_es"),
    "en-es-rnn": _late("en_es_rnn"),
    "en-es-attention": _late("en_es_attention"),
    "scenes": _late("scenes"),
    "scenes-lstm": _late("scenes_lstm"),
    "scenes-answers": _late("scenes_answers"),
    "scenes-match": _late("scenes_match"),
    "scenes-chat": _late("scenes_chat"),
    "commands": _late("commands"),
    "digits": _late("digits"),
    "found-digits-resnet": _late("found_digits_resnet"),
    "found-digits-deit": _late("found_digits_deit"),
    "found-digits-swin": _late("found_digits_swin"),
    "topics": _late("topics"),
    "pydocs": _late("pydocs"),
    "few-shot": _late("few_shot"),
    "tags": _late("tags"),
    "text-to-text": _late("text_to_text"),
}
"""Those that make a checkpoint."""

ADAPTERS: dict[str, Recipe] = {"en-es-formal": _late("en_es_formal")}
"""Those that make an adapter of one, for `weft export-adapter`."""
