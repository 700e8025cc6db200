"""The certificates and tokens of a server, as their files are now."""

from __future__ import annotations

import stat
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from weft_server.auth.accounts import Accounts
from weft_server.auth.certificates import Certificates, CertificatesError
from weft_server.auth.file_watch import MAX_BYTES, FileWatch, wait_until_still
from weft_server.auth.tokens import Tokens, TokensError
from weft_server.config import LOOPBACK, ConfigError, ServerConfig, both_names

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    import grpc.aio

    from weft_server.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
# Seconds that the start waits for files that somebody is still writing.
START_S = 10.0
# What each file of TLS holds, as its first line in PEM ends.
_HOLDS = {"tls_cert": "CERTIFICATE", "tls_key": "PRIVATE KEY", "tls_client_ca": "CERTIFICATE"}

T = TypeVar("T")


class Credentials:
    """Read at the start, and again by `refresh`. May be asked from any thread."""

    def __init__(self, config: ServerConfig, metrics: Metrics) -> None:
        """Read the files that `config` names. Raises ConfigError, with a line for each that cannot be used."""
        self._config = config
        self._metrics = metrics
        faults = _lone_settings(config)
        paths = [path for field in (*_HOLDS, "tokens") if (path := getattr(config, field))]
        if not faults and not wait_until_still(paths, START_S):
            raise ConfigError(f"{', '.join(map(str, paths))}: one of these still changes after {START_S:g} s")
        self._certificates = None if faults else _first(self._watch_certificates, faults)
        self._tokens = _first(self._watch_tokens, faults)
        if faults:
            raise ConfigError("\n".join(faults))
        self._tell_expiry()
        self.accounts = Accounts(lambda: self.tokens.rates if self.tokens else ())
        metrics.tenant_usage = self.accounts.usage

    @property
    def certificates(self) -> Certificates | None:
        """What to speak TLS with. None: both ports speak plain text."""
        return self._certificates.value if self._certificates else None

    @property
    def tokens(self) -> Tokens | None:
        """Who is known. None: nobody is asked for a token."""
        return self._tokens.value if self._tokens else None

    @property
    def shows_certificates(self) -> bool:
        """Whether callers show certificates."""
        return self._config.tls_client_ca is not None

    def add_port(self, server: grpc.aio.Server, target: str) -> int:
        """Let a gRPC server listen, with TLS if there is a certificate. Returns the port. Raises RuntimeError."""
        given = self.certificates
        if given is None:
            return server.add_insecure_port(target)

        def fetch() -> Any:
            """Called by gRPC before each handshake, on a thread of its own. None: nothing has changed."""
            nonlocal given
            if given is self.certificates:
                return None
            given = self.certificates
            return given.grpc if given else None

        import grpc  # noqa: PLC0415 - late: `weft up` looks at settings, and waits for it

        credentials = grpc.dynamic_ssl_server_credentials(given.grpc, fetch, self.shows_certificates)
        return server.add_secure_port(target, credentials)

    def calls_context(self) -> ssl.SSLContext | None:
        """What the port of HTTP calls speaks TLS with, always with the files of now. None: it speaks plain text."""
        if (given := self.certificates) is None:
            return None

        def renew(handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            """Called in each handshake, whether or not its caller names a host."""
            if self.certificates:
                handshake.context = self.certificates.calls

        given.calls.sni_callback = renew
        return given.calls

    def refresh(self) -> None:
        """Read again what has changed. What cannot be used is logged and counted, and the old is kept."""
        for what, watched in (("certificates", self._certificates), ("tokens", self._tokens)):
            if watched is None:
                continue
            try:
                changed = watched.refresh()
            except Exception as error:  # noqa: BLE001 - whatever a file holds, the next one is looked at too
                self._metrics.count_reload("refused")
                bug = None if isinstance(error, ConfigError) else error
                _log.error("kept the old credentials", what=what, why=str(error), exc_info=bug)
                continue
            if changed:
                self._metrics.count_reload("taken")
                _log.info("took new credentials", what=what)
                self._tell_expiry()
                for oddity in self.certificates.oddities if self.certificates else ():
                    _log.warning("certificate", oddity=oddity)

    def oddities(self) -> list[str]:
        """What works, and is probably not meant. A line for each, with flag and variable."""
        config = self._config
        found = [
            _fault(field, f"{path} can be read by everybody on this machine; `chmod 600 {path}`")
            for field in ("tls_key", "tokens")
            if (path := getattr(config, field)) and path.stat().st_mode & stat.S_IROTH
        ]
        hosts = {config.host, config.admin_host} if config.admin else {config.host}
        if config.tokens and not config.tls_cert and not hosts <= LOOPBACK:
            found.append(_fault("tokens", "tokens travel in plain text, because there is no certificate"))
        if self.tokens and self.tokens.names_certificates and not self.shows_certificates:
            found.append(
                _fault("tokens", "callers by `cert:` are never known, because nobody is asked for a certificate")
            )
        if config.tenant_weights and not (config.tokens or config.tls_client_ca or config.tenant_key):
            found.append(_fault("tenant_weights", "no call has a tenant: there are no tokens, and no --tenant-key"))
        if self.certificates:
            found += [_fault("tls_cert", f"{config.tls_cert} {oddity}") for oddity in self.certificates.oddities]
        return found

    def _watch_certificates(self) -> FileWatch[Certificates] | None:
        config = self._config
        if config.tls_cert is None or config.tls_key is None:
            return None
        paths = [path for path in (config.tls_cert, config.tls_key, config.tls_client_ca) if path]
        return FileWatch(paths, lambda: _read_certificates(config))

    def _watch_tokens(self) -> FileWatch[Tokens] | None:
        path = self._config.tokens
        return FileWatch([path], lambda: read_tokens(path)) if path else None

    def _tell_expiry(self) -> None:
        if self.certificates:
            self._metrics.certificate_expiry = self.certificates.expires


def _first(make: Callable[[], T], faults: list[str]) -> T | None:
    try:
        return make()
    except ConfigError as error:
        faults.append(str(error))
        return None


def _lone_settings(config: ServerConfig) -> list[str]:
    """What is said of settings that lack the setting they belong to."""
    needs = (("tls_cert", "tls_key"), ("tls_key", "tls_cert"), ("tls_client_ca", "tls_cert"))
    return [
        _fault(field, f"needs {both_names(other)} too")
        for field, other in needs
        if getattr(config, field) and not getattr(config, other)
    ]


def _read_certificates(config: ServerConfig) -> Certificates:
    assert config.tls_cert, "certificates without a setting. This is a bug."
    assert config.tls_key, "certificates without a setting. This is a bug."
    faults: list[str] = []
    for field in _HOLDS:
        _first(partial(_refuse_other_content, config, field), faults)
    if faults:
        raise ConfigError("\n".join(faults))
    try:
        return Certificates(config.tls_cert, config.tls_key, config.tls_client_ca)
    except CertificatesError as error:
        raise ConfigError(_fault(error.field, f"{getattr(config, error.field)}: {error}")) from error
    except OSError as error:  # it went between two looks, or TLS has an error of its own
        raise ConfigError(_fault("tls_cert", f"{error.filename or config.tls_cert}: {error.strerror}")) from error
    except ValueError as error:
        raise ConfigError(_fault("tls_cert", f"{config.tls_cert}: it holds something that is no PEM")) from error


def _refuse_other_content(config: ServerConfig, field: str) -> None:
    path, holds = getattr(config, field), _HOLDS[field]
    content = _read(field, path) if path else b""
    if path and f"{holds}-----".encode() not in content:
        raise ConfigError(_fault(field, f"{path}: it holds no {holds.lower()} as PEM"))
    if content.count(b"-----BEGIN ") != content.count(b"-----END "):
        raise ConfigError(_fault(field, f"{path}: it is not whole as PEM: a part of it has no end"))


def read_tokens(path: Path) -> Tokens:
    """Read a file of tokens. Raises ConfigError."""
    content = _read("tokens", path)
    try:
        tokens = Tokens(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(_fault("tokens", f"{path}: it is not UTF-8 text")) from error
    except TokensError as error:
        raise ConfigError(_fault("tokens", f"{path}: {error}")) from error
    # A token of which the end has not come may be a token too.
    if not content.endswith(b"\n"):
        raise ConfigError(
            _fault("tokens", f"{path}: it is not whole: its last line has no end; put a line break there")
        )
    return tokens


def _read(field: str, path: Path) -> bytes:
    """What a file holds. Raises ConfigError."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            raise ConfigError(_fault(field, f"{path}: it is no file"))
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(_fault(field, f"{path}: {error.strerror}")) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(_fault(field, f"{path}: it has more than {MAX_BYTES} bytes"))
    return content


def _fault(field: str, sentence: str) -> str:
    return f"{both_names(field)}: {sentence}"
