"""The options that the subcommands share, each with its help."""

from pathlib import Path
from typing import Annotated

import typer

_SERVER = "Server"
_DECODING = "Decoding"
_OUTPUT = "Output"

SourceText = Annotated[str, typer.Argument(help="The text, or - to read it from stdin.")]
PicturePath = Annotated[Path, typer.Argument(help="A PNG, JPEG or WebP file.", show_default=False)]

Target = Annotated[
    str,
    typer.Option(
        "--target", "-t", envvar="WEFT_TARGET", help="Where the server is, host:port.", rich_help_panel=_SERVER
    ),
]
Model = Annotated[
    str,
    typer.Option("--model", help="The model's name; by default the only one for the task.", rich_help_panel=_SERVER),
]
ModelVersion = Annotated[
    int | None, typer.Option("--model-version", help="Its version; by default the highest.", rich_help_panel=_SERVER)
]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the answer.", rich_help_panel=_SERVER)]

MaxNewTokens = Annotated[
    int | None, typer.Option("--max-new-tokens", help="Stop after so many tokens.", rich_help_panel=_DECODING)
]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", help="Stop before this text; up to four times.", rich_help_panel=_DECODING)
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Draw tokens at random, at (0, 10].", rich_help_panel=_DECODING)
]
TopK = Annotated[
    int | None, typer.Option("--top-k", help="Draw from so many tokens; 0 for all.", rich_help_panel=_DECODING)
]
TopP = Annotated[
    float | None, typer.Option("--top-p", help="Draw from the nucleus of this mass, (0, 1].", rich_help_panel=_DECODING)
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Draw the same text again with the same seed.", rich_help_panel=_DECODING)
]

Explain = Annotated[
    Path | None,
    typer.Option("--explain", metavar="OUT.png", help="Draw what the model looked at.", rich_help_panel=_OUTPUT),
]
Streamed = Annotated[bool, typer.Option("--stream", help="Print the text as it comes.", rich_help_panel=_OUTPUT)]
Scores = Annotated[bool, typer.Option("--scores", help="Print probabilities too.", rich_help_panel=_OUTPUT)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.", rich_help_panel=_OUTPUT)]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print model, tokens and timings on stderr.", rich_help_panel=_OUTPUT)
]
