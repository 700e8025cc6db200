"""`weft health`: whether a server serves."""

from typing import Annotated

import typer

from weft import _show as show
from weft._server import Server
from weft._types import Health


def health(
    service: Annotated[
        str, typer.Argument(help="A health service: live, accepting or model/NAME. By default the whole server.")
    ] = "",
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the server is ready, at most --timeout seconds.")
    ] = False,
    server: Server,
) -> None:
    """Say whether the server serves.

    For example: weft health --wait

    The exit code is 1 if it does not.
    """
    with server.client() as client, show.patience("waiting for the server"):
        if wait:
            client.wait_until_ready()
        state = client.health(service)
    show.emit(state)
    if state is not Health.SERVING:
        raise typer.Exit(1)
