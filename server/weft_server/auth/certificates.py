"""The server's certificate, its key and the authorities of callers, for gRPC and for HTTP."""

from __future__ import annotations

import ssl
import time
from binascii import a2b_base64
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which `ssl` has no name for.
_AT_ANY_TIME = 0x200000
_TURNS = 8
# Object identifiers of Ed25519 and Ed448.
_EDWARDS = (bytes.fromhex("06032b6570"), bytes.fromhex("06032b6571"))
_WORDS = {
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate",
    "NO_START_LINE": "it holds no PEM of the right kind",
    "PEM_LIB": "it holds no PEM of the right kind",
    "NO_CERTIFICATE_OR_CRL_FOUND": "it holds no certificate as PEM",
}


class CertificatesError(Exception):
    """Certificate, key or authorities cannot be used.

    Attributes:
        field: the setting that names the file.
    """

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


class Certificates:
    """What the files held when they were read.

    Attributes:
        grpc: for gRPC's handshakes.
        calls: for those of calls by HTTP. A caller has to show a certificate where one of gRPC has to.
        http: for those of probes and metrics. A caller's certificate is verified if one is shown: probes show none.
        expires: Unix time at which the server's certificate ends. 0 when that could not be found out.
        oddities: what callers may not like about it, each to go on from its name.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        """Read PEM files. Raises CertificatesError, and OSError when one cannot be read."""
        import grpc  # noqa: PLC0415 - late: `weft up` looks at settings, and waits for it

        authorities = client_ca.read_bytes() if client_ca else None
        self.grpc = grpc.ssl_server_certificate_configuration([(key.read_bytes(), cert.read_bytes())], authorities)
        self.calls, self.http = _server_context(cert, key), _server_context(cert, key)
        if client_ca:
            for context, mode in ((self.calls, ssl.CERT_REQUIRED), (self.http, ssl.CERT_OPTIONAL)):
                _load_authorities(context, client_ca)
                context.verify_mode = mode
        self.expires, self.oddities = _judge(cert, key)


def _server_context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without an answer of ours, OpenSSL would ask on the terminal for the passphrase of a key that has one.
        context.load_cert_chain(cert, key, password=_refuse_passphrase)
    except ssl.SSLError as error:
        raise CertificatesError("tls_key", _in_words(error)) from error
    _refuse_kind(key.read_bytes())
    return context


def _refuse_kind(key: bytes) -> None:
    """Raise CertificatesError for a kind of key with which gRPC would listen, and then fail in each handshake."""
    body = key.partition(b"PRIVATE KEY-----")[2].partition(b"-----END")[0]
    if any(kind in a2b_base64(body) for kind in _EDWARDS):
        raise CertificatesError("tls_key", "gRPC takes no Ed25519 key; use RSA or ECDSA")


def _refuse_passphrase() -> str:
    raise CertificatesError("tls_key", "it has a passphrase; a server cannot ask for one")


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise CertificatesError("tls_client_ca", _in_words(error)) from error


def _judge(cert: Path, key: Path) -> tuple[float, list[str]]:
    """When the certificate ends, and what callers may not like: found out by a handshake with ourselves."""
    try:
        seen = _shake_hands(cert, key)
    except ssl.SSLCertVerificationError as error:
        return 0.0, [f"may be refused by callers: {error.verify_message}"]
    except ssl.SSLError as error:
        raise CertificatesError("tls_key", _in_words(error)) from error
    starts, expires = (ssl.cert_time_to_seconds(str(seen[name])) for name in ("notBefore", "notAfter"))
    now = time.time()
    oddities = [f"expired on {seen['notAfter']}"] if expires < now else []
    oddities += [f"is not valid before {seen['notBefore']}"] if starts > now else []
    return float(expires), oddities


def _shake_hands(cert: Path, key: Path) -> Mapping[str, object]:
    """Have a client that trusts just this certificate, at any time, read it in a handshake in memory."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(cert)
    client.verify_flags |= ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _AT_ANY_TIME)
    ways = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(ways[0], ways[1])
    answering = _server_context(cert, key).wrap_bio(ways[1], ways[0], server_side=True)
    for _ in range(_TURNS):
        for side in (asking, answering):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return asking.getpeercert() or {}


def _in_words(error: ssl.SSLError) -> str:
    reason = (error.reason or "").replace(" ", "_").upper()
    return _WORDS.get(reason, f"OpenSSL says {reason.replace('_', ' ').lower() or error}")
