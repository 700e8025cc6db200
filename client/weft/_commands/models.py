"""`weft models`: lists a server's models, and changes them on its admin port."""

from dataclasses import dataclass
from typing import Annotated

import typer

from weft import _show as show
from weft._model import Model
from weft._options import AsJson
from weft._server import PatientServer
from weft._sync.admin import AdminClient
from weft._tables import model_table
from weft.exceptions import InvalidRequest


@dataclass(frozen=True)
class AdminServer(PatientServer):
    """Where the server's admin port is, and how long to wait for it."""

    target: Annotated[
        str,
        typer.Option(
            "--target", "-t", metavar="HOST:PORT", envvar="WEFT_ADMIN_TARGET", help="Where the server's admin port is."
        ),
    ] = "localhost:7072"
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the change.")] = (
        600.0
    )

    def client(self) -> AdminClient:
        """Return a client of that port."""
        return AdminClient(self.target, **self._way())


Name = Annotated[str, typer.Argument(metavar="MODEL", show_default=False, help="Name of the model.")]
Version = Annotated[int, typer.Argument(min=1, metavar="VERSION", show_default=False, help="Its version.")]
MaybeVersion = Annotated[
    int | None,
    typer.Argument(
        min=1, metavar="[VERSION]", show_default=False, help="Its version. By default the highest in the repository."
    ),
]
Share = Annotated[
    float | None,
    typer.Option("--share", metavar="SHARE", help="For a canary: its share of requests, from 0 to 1. By default 0."),
]


def models(ctx: typer.Context, *, server: PatientServer, as_json: AsJson = False) -> None:
    """List the server's models, or change them.

    For example: weft models --json

    A change needs a server with --admin. Its admin port is another one: give --target behind the subcommand.
    """
    if ctx.invoked_subcommand is not None:
        if any(getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE" for name in ctx.params):
            raise InvalidRequest(f"put the options behind the subcommand: weft models {ctx.invoked_subcommand} ...")
        return
    with server.client() as client, show.patience("asking"):
        found = client.list_models()
    if as_json:
        for model in found:
            show.emit_json(model)
    else:
        model_table(found)


def load(
    name: Name,
    version: MaybeVersion = None,
    *,
    label: Annotated[
        str, typer.Option("--label", metavar="LABEL", help="Put this label on it: stable or canary.")
    ] = "",
    share: Share = None,
    server: AdminServer,
    as_json: AsJson = False,
) -> None:
    """Load a version of the server's repository.

    For example: weft models load en-es 2

    It answers when the command ends. If it is refused, nothing has changed.
    """
    with server.client() as client, show.patience("loading"):
        model = client.load_model(name, version, version_label=label, share=share)
    _tell(model, as_json=as_json)


def unload(name: Name, version: Version, *, server: AdminServer) -> None:
    """Take a version away.

    For example: weft models unload en-es 1

    The requests that it has are finished. Its memory is free when the command ends.
    """
    with server.client() as client, show.patience("unloading"):
        client.unload_model(name, version)
    show.emit(f"{name} {version} unloaded")


def swap(name: Name, version: MaybeVersion = None, *, server: AdminServer, as_json: AsJson = False) -> None:
    """Load a version, and unload all others.

    For example: weft models swap en-es 2

    It takes over when it is ready, and no request is lost. If it is refused, nothing has changed.
    """
    with server.client() as client, show.patience("swapping"):
        model = client.swap_model(name, version)
    _tell(model, as_json=as_json)


def label(
    name: Name,
    label: Annotated[str, typer.Argument(metavar="LABEL", show_default=False, help="stable or canary.")],
    version: Annotated[
        int | None,
        typer.Argument(
            min=1,
            metavar="[VERSION]",
            show_default=False,
            help="The version that gets it. Without one, it is taken away.",
        ),
    ] = None,
    *,
    share: Share = None,
    server: AdminServer,
) -> None:
    """Put a label on a version, or take it away.

    For example: weft models label en-es canary 2

    Requests that name no version go to the stable one, and the canary's share of them to the canary.
    """
    with server.client() as client, show.patience("labelling"):
        client.set_label(name, label, version, share=share)
    show.emit(f"no version of {name} is {label}" if version is None else f"{name} {version} is {label}")


def _tell(model: Model, *, as_json: bool) -> None:
    if as_json:
        show.emit_json(model)
    else:
        show.emit(" ".join([f"{model.name} {model.version} {model.state}", *model.version_labels]))
