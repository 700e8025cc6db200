"""What the command shows a server: certificates and a token, out of files that are checked before."""

import os
import ssl
from pathlib import Path

import grpc

from weft.exceptions import InvalidRequest

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
