"""A page of help in sections: of forty options in one list nobody finds the one that is looked for."""

from typing import Any

from typer.core import TyperCommand


class SectionedCommand(TyperCommand):
    """A command whose options stand under the headings of their groups, `rich_help_panel` to typer."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then each section in the order in which its first option was declared."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                plain = "Arguments" if parameter.param_type_name == "argument" else "Options"
                heading = getattr(parameter, "rich_help_panel", None) or plain
                sections.setdefault(heading, []).append(record)
        for heading in sorted(sections, key=lambda each: each != "Arguments"):
            with formatter.section(heading):
                formatter.write_dl(sections[heading], col_max=min(30, formatter.width // 2 - 4))
