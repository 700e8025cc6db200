"""The client's own subcommands of `weft`."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from weft import __version__
from weft._commands import models as _models_commands
from weft._commands.table import ABOUT, COMMANDS, TAKE_TEXTS
from weft._flags import names_flags
from weft._options import SectionedCommand, flat

# More characters than any sentence has.
_WHOLE = 1000


class _TextCommand(SectionedCommand):
    of_extra_arguments = "put a text of several words in quotes"


class _Group(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each subcommand with its whole first sentence, however narrow the screen is."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each])


app = typer.Typer(cls=_Group, name="weft", invoke_without_command=True, rich_markup_mode=None)
for _verb in COMMANDS:
    app.command(cls=_TextCommand if _verb in TAKE_TEXTS else SectionedCommand)(flat(names_flags(_verb)))

_models = typer.Typer(cls=_Group, rich_markup_mode=None)
_models.callback(invoke_without_command=True)(flat(names_flags(_models_commands.models)))
for _change in (_models_commands.load, _models_commands.unload, _models_commands.swap, _models_commands.label):
    _models.command(cls=SectionedCommand)(flat(names_flags(_change)))
app.add_typer(_models, name="models")


@app.callback(help=ABOUT)
def root(
    ctx: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Do what no subcommand does."""
    if version:
        print(f"weft {__version__}", flush=True)  # noqa: T201 - the answer to what was asked
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help(), flush=True)  # noqa: T201 - same
