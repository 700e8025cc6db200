"""The options of `--file`, and the run that they make."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from weft.exceptions import InvalidRequest

if TYPE_CHECKING:
    from weft._files.kind import Kind
    from weft._server import Server


@dataclass(frozen=True)
class Files:
    """Where many inputs come from, and where their answers go."""

    HEADING: ClassVar = "Many inputs"

    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Ask about each line of this file: a text, the path of a picture or of a recording, or, in a .jsonl "
            "file, an object. A dash (-) reads stdin.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write a line for each into this file, a .jsonl one as JSON. Else on stdout."
        ),
    ] = None
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="How many are asked at once.  [default: 16]")
    ] = None
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Lines are JSON, whatever the files' names are.")] = False
    resume: Annotated[bool, typer.Option("--resume", help="Go on behind the last line of --out.")] = False
    force: Annotated[bool, typer.Option("--force", help="Write --out anew.")] = False

    def is_asked(self, given: Mapping[str, Any]) -> bool:
        """Whether lines of a file are asked about; raises InvalidRequest for what does not go together.

        Args:
            given: The other inputs, by what they are called; of them and a file one is given.
        """
        named = [name for name, value in given.items() if value is not None]
        if self.file is None:
            for name in ("out", "concurrency", "jsonl", "resume", "force"):
                if getattr(self, name):
                    raise InvalidRequest(f"--{name} needs --file")
            if len(named) > 1:
                raise InvalidRequest(f"give only one of {', '.join(named)}")
            if not named:
                raise InvalidRequest(f"give {' or '.join([*given, '--file'])}")
            return False
        if named:
            raise InvalidRequest(f"--file does not go with {named[0]}")
        return True

    def run(
        self,
        kind: "Kind",
        server: "Server",
        options: Mapping[str, Any],
        *,
        as_json: bool,
        are_pictures: bool = False,
        wants_json: Mapping[str, Any],
        never: Mapping[str, Any],
    ) -> None:
        """Ask about each line; exits with 1 if one failed.

        Args:
            kind: What each line asks.
            server: Which is asked.
            options: What the verb takes besides its input.
            as_json: Whether answers are JSON, whatever the name of their file.
            are_pictures: Whether lines are paths of pictures, where they are not JSON.
            wants_json: Options, by name, whose answers only JSON can hold.
            never: Options, by name, that are for one input.
        """
        from weft._files.asking import Asking  # noqa: PLC0415 - `weft translate TEXT` stays light
        from weft._files.lines import Source  # noqa: PLC0415
        from weft._files.out import Out  # noqa: PLC0415
        from weft._files.run import Run, is_jsonl  # noqa: PLC0415

        path, out_path = self.file or Path("-"), self.out or Path("-")
        for name in (name for name, value in never.items() if value):
            raise InvalidRequest(f"{name} does not go with --file")
        reads_json, writes_json = (self.jsonl or is_jsonl(each) for each in (path, out_path))
        writes_json = writes_json or as_json
        for name in (name for name, value in wants_json.items() if value and not writes_json):
            raise InvalidRequest(f"{name} with --file needs lines of JSON: --json, or --out with a name in .jsonl")
        asking = Asking(kind, options, reads_json, are_pictures)
        asking.check()
        source = Source(path)
        with Out(out_path, source, resume=self.resume, force=self.force) as out:
            code = Run(server.async_client, asking, source, out, writes_json, self.concurrency or 16).go()
        raise typer.Exit(code)
