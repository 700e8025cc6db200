"""Whether certificates and tokens can be used, and what about them is probably not meant."""

from collections.abc import Iterator

from weft_server.checks.finding import ERROR, OK, WARNING, Finding
from weft_server.config import ConfigError, ServerConfig
from weft_server.door.credentials import Credentials
from weft_server.telemetry.metrics import Metrics


def look_at_credentials(config: ServerConfig) -> Iterator[Finding]:
    """Refuse files that cannot be used. Warn of what others may read, of plain text, and of a certificate's time."""
    try:
        credentials = Credentials(config, Metrics())
    except ConfigError as error:
        yield from (Finding(ERROR, "credentials", line) for line in str(error).splitlines())
        return
    yield from (Finding(WARNING, "credentials", oddity) for oddity in credentials.oddities())
    speaks = "TLS" if credentials.certificates else "plain text"
    asks = "certificates" if credentials.shows_certificates else ""
    asks = " and ".join(filter(None, (asks, "tokens" if credentials.tokens else ""))) or "nothing"
    yield Finding(OK, "credentials", f"speaks {speaks}, asks callers for {asks}")
