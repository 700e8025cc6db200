"""Why a connection fails that gRPC gives no good reason for: looked at once more, after the failure, by the command."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    context = ssl.create_default_context(cafile=ca)
    if cert:
        context.load_cert_chain(cert, key)
    try:
        with _shaken(target, context) as connection:
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
