"""Why a connection fails that gRPC gives no good reason for: looked at once more, after the failure, by the command."""

import socket
import ssl
from pathlib import Path

SECONDS = 5.0


def why_tls(target: str) -> str:
    """Return what to do if the server speaks TLS, which the caller does not. Empty: it does not."""
    try:
        _shake_hands(target, _trusting_all())
    except OSError:
        return ""
    return "the server speaks TLS: --tls, or --ca FILE with its authority"


def why_no_tls(target: str, ca: Path | None, *, shows: bool) -> str:
    """Return what keeps a caller who speaks TLS from the server. Empty: nothing, or nobody is there.

    `shows` is whether the caller has a certificate.
    """
    try:
        _shake_hands(target, ssl.create_default_context(cafile=ca))
    except ssl.SSLCertVerificationError as error:
        return f"the server's certificate is not trusted: {error.verify_message}"
    except ssl.SSLError:
        return "the server does not speak TLS: leave out --tls, --ca, --cert and --key"
    except OSError:
        return ""
    return "" if shows else "the server hangs up; it may want a certificate: --cert FILE and --key FILE"


def _trusting_all() -> ssl.SSLContext:
    """Only to see whether TLS is spoken: nothing is sent."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _shake_hands(target: str, context: ssl.SSLContext) -> None:
    """Raise OSError if there is no host and port, nobody there, or no TLS of that kind."""
    host, _, port = target.rpartition("/")[2].rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isdigit()):
        raise OSError(f"{target} is no host and port")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        pass
