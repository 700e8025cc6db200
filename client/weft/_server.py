"""The command's server: where it is, what it is shown, and why it cannot be reached."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, TypedDict

import grpc
import typer

from weft._async.client import AsyncClient
from weft._channel import CallSettings
from weft._sync.client import Client
from weft.exceptions import InvalidRequest, Unavailable

# A bundle of all authorities of the world has a quarter of a megabyte.
MAX_BYTES = 4 * 1024 * 1024
TOKEN = "WEFT_TOKEN"  # noqa: S105 - the variable's name


def tls_credentials(ca: Path | None, cert: Path | None, key: Path | None) -> grpc.ChannelCredentials:
    """Return credentials for TLS. None: gRPC's own list of authorities, and no certificate."""
    for given, lacking, flags in ((cert, key, ("--cert", "--key")), (key, cert, ("--key", "--cert"))):
        if given and not lacking:
            raise InvalidRequest(f"{flags[0]} needs {flags[1]}")
    authorities = _read(ca, "--ca") if ca else None
    pair = (_read(key, "--key"), _read(cert, "--cert")) if cert and key else (None, None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # gRPC would say of a broken file no more than that it cannot connect.
    try:
        if ca:
            context.load_verify_locations(ca)
    except ssl.SSLError:
        raise InvalidRequest(f"--ca: {str(ca)!r} holds no certificate as PEM") from None
    try:
        if cert:
            context.load_cert_chain(cert, key, password=_refuse_passphrase)
    except ssl.SSLError as error:
        why = "do not belong together" if error.reason == "KEY_VALUES_MISMATCH" else "are no certificate and key as PEM"
        raise InvalidRequest(f"--cert and --key: {str(cert)!r} and {str(key)!r} {why}") from None
    return grpc.ssl_channel_credentials(authorities, *pair)


def read_token(path: Path | None) -> str | None:
    """Return the token in a file, or that of WEFT_TOKEN, or None. What is wrong with one is said without it."""
    if path is None:
        if (token := os.environ.get(TOKEN)) == "":
            raise InvalidRequest(f"{TOKEN}: is set and empty; unset it to send none")
        return token
    try:
        token = _read(path, "--token-file").decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not (token and token.isprintable() and " " not in token):
        raise InvalidRequest(f"--token-file: {str(path)!r} must hold one token, in printable ASCII without spaces")
    return token


def _refuse_passphrase() -> str:
    raise InvalidRequest("--key: has a passphrase; `openssl pkey -in FILE` writes it without one")


def _read(path: Path, flag: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{flag}: {str(path)!r}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise InvalidRequest(f"{flag}: {str(path)!r}: it has more than {MAX_BYTES} bytes")
    return content


SECONDS = 5.0
# OpenSSL's numbers for a certificate that was signed by nobody who is trusted.
_NO_AUTHORITY = (7, 18, 19, 20, 21)


def why_tls(target: str) -> str:
    """Return what to do if the server speaks TLS, which the caller does not. Empty: it does not."""
    try:
        with _shaken(target, _trusting_all()):
            return "the server speaks TLS: --tls, or --ca FILE with its authority"
    except OSError:
        return ""


def why_no_tls(target: str, ca: Path | None, cert: Path | None, key: Path | None) -> str:
    """Return what keeps a caller who speaks TLS from the server. Empty: nothing, or nobody is there."""
    try:
        with _shaken(target, trusting(ca, cert, key)) as connection:
            # In TLS 1.3 a server judges the caller after the handshake. If all is well, it speaks first in HTTP/2.
            if connection.recv(1):
                return ""
    except ssl.SSLCertVerificationError as error:
        mend = "; --ca FILE names the authority to trust" if error.verify_code in _NO_AUTHORITY else ""
        return f"the server's certificate is not trusted: {error.verify_message}{mend}"
    except ssl.SSLError:
        return "the server does not speak TLS: leave out --tls, --ca, --cert and --key"
    except OSError:
        return ""
    if cert:
        return "the server hangs up; it may not trust the authority of --cert, or its time is over"
    return "the server hangs up; it may want a certificate: --cert FILE and --key FILE"


def trusting(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return what speaks TLS, trusts these authorities or else the system's, and shows this certificate."""
    context = ssl.create_default_context(cafile=ca)
    if cert:
        context.load_cert_chain(cert, key)
    return context


def _trusting_all() -> ssl.SSLContext:
    """Only to see whether TLS is spoken: nothing is sent."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def _shaken(target: str, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """Give a connection with TLS. Raise OSError if there is no host and port, nobody there, or no TLS of that kind."""
    host, _, port = target.rpartition("/")[2].rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isdigit()):
        raise OSError(f"{target} is no host and port")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=host) as secured,
    ):
        yield secured


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

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what HTTP speaks TLS with, or None. The files are those that `settings` has checked."""
        return trusting(self.ca, self.cert, self.key) if self._speaks_tls else None

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
