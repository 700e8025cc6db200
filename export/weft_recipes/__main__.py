"""`weft train`."""

from pathlib import Path
from typing import Annotated

import typer

from weft_export.console import plain_errors, shown
from weft_export.errors import ExportError
from weft_recipes.catalogue import ADAPTERS, RECIPES

# Without rich, as `weft export`.
train_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@train_app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="Name of the recipe, for example en-es. An unknown name prints all names.")
    ],
    out: Annotated[
        Path | None,
        typer.Argument(help="Directory of the new checkpoint.", show_default="build/checkpoints/RECIPE"),
    ] = None,
) -> None:
    """Train a demo checkpoint, or an adapter of one, by its recipe.

    For example: weft train en-es

    Then print what the recipe measured on held-out data.
    """
    with plain_errors("train"), shown("train", line_seconds=15) as say:
        say(0, 0, "loading torch")
        recipes = RECIPES | ADAPTERS
        if recipe not in recipes:
            raise ExportError(f"there is no recipe {recipe!r}; there are {', '.join(recipes)}")
        directory = out or Path("build/checkpoints") / recipe
        figures = recipes[recipe](directory, say)
    typer.echo(f"{directory}:")
    for name, value in figures.items():
        typer.echo(f"  {name}: {value:.4g}" if isinstance(value, float) else f"  {name}: {value}")


if __name__ == "__main__":
    train_app()
