"""The options that say where the server is, how it is reached, and who asks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, TypedDict

import grpc
import typer

from weft._async.client import AsyncClient
from weft._channel import CallSettings
from weft._connection import why_no_tls, why_tls
from weft._credentials import read_token, tls_credentials
from weft._sync.client import Client
from weft.exceptions import Unavailable


@dataclass(frozen=True)
class Server:
    """Where the server is, and how long to wait for it."""

    HEADING: ClassVar = "Server"

    target: Annotated[
        str, typer.Option("--target", "-t", metavar="HOST:PORT", envvar="WEFT_TARGET", help="Where the server is.")
    ] = "localhost:7070"
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the answer.")] = (
        60.0
    )
    tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            envvar="WEFT_TLS",
            help="Speak TLS. Without --ca, gRPC's own list of authorities is trusted.",
        ),
    ] = False
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            envvar="WEFT_CA",
            help="Speak TLS, and trust only the authorities in this PEM file.",
        ),
    ] = None
    cert: Annotated[
        Path | None,
        typer.Option(
            "--cert", metavar="FILE", envvar="WEFT_CERT", help="Speak TLS, and show this certificate, with --key."
        ),
    ] = None
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", envvar="WEFT_KEY", help="The private key of that certificate."),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            envvar="WEFT_TOKEN_FILE",
            help="Send the bearer token in this file. WEFT_TOKEN may hold the token itself.",
        ),
    ] = None

    priority: Annotated[
        str | None,
        typer.Option(
            "--priority",
            metavar="CLASS",
            envvar="WEFT_PRIORITY",
            help="high, normal or low: which requests go on first where some wait. By default normal. For high, a "
            "token needs the role high.",
        ),
    ] = None

    proxy: Annotated[
        str | None,
        typer.Option(
            "--proxy",
            metavar="URL",
            envvar="WEFT_PROXY",
            help="Go through this HTTP proxy, http://HOST:PORT. By default that of the environment, and none to this "
            "machine.",
        ),
    ] = None

    def client(self) -> Client:
        """Return a client of that server."""
        return Client(self.target, priority=self.priority, **self._way())

    def async_client(self) -> AsyncClient:
        """Return a client of that server for the event loop that runs."""
        return AsyncClient(self.target, priority=self.priority, **self._way())

    def settings(self) -> CallSettings:
        """Return what the calls of those clients have in common."""
        return CallSettings.of(self.target, priority=self.priority, **self._way())

    def look_again(self) -> None:
        """Raise Unavailable with a better reason, if a look at the connection gives one."""
        why = why_no_tls(self.target, self.ca, self.cert, self.key) if self._speaks_tls else why_tls(self.target)
        if why:
            raise Unavailable(f"{self.target}: {why}", reason="TLS")

    @property
    def _speaks_tls(self) -> bool:
        return bool(self.tls or self.ca or self.cert or self.key)

    def _way(self) -> "Way":
        """Return what all kinds of clients take."""
        credentials = tls_credentials(self.ca, self.cert, self.key) if self._speaks_tls else None
        token = read_token(self.token_file)
        return {"timeout": self.timeout, "credentials": credentials, "token": token, "wait": 0.0, "proxy": self.proxy}


@dataclass(frozen=True)
class PatientServer(Server):
    """Where the server is, and how long to wait for it, if it is not there or has no room."""

    HEADING: ClassVar = "Server"

    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            help="How long to wait, within --timeout, for a server that is not there or has no room. By default it is "
            "an error at once.",
            show_default=False,
        ),
    ] = 0.0

    def _way(self) -> "Way":
        """Return what all kinds of clients take."""
        return {**super()._way(), "wait": self.wait}


class Way(TypedDict):
    """The arguments that clients of both ports take."""

    timeout: float
    credentials: grpc.ChannelCredentials | None
    token: str | None
    wait: float
    proxy: str | None
