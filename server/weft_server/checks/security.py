"""Whether certificates and tokens can be used, and what about them is probably not meant."""

import time
from collections.abc import Iterator

from weft_server.auth.credentials import Credentials
from weft_server.checks.finding import ERROR, OK, WARNING, Finding
from weft_server.config import ConfigError, ServerConfig, both_names
from weft_server.telemetry.metrics import Metrics

# A certificate that ends sooner than this is told of, in days. Those that are renewed by themselves last for 45 or 90.
_SOON = 14
_DAY_S = 86_400


def look_at_credentials(config: ServerConfig) -> Iterator[Finding]:
    """Refuse files that cannot be used. Warn of what others may read, of plain text, and of a certificate's time."""
    try:
        credentials = Credentials(config, Metrics())
    except ConfigError as error:
        yield from (Finding(ERROR, "credentials", line) for line in str(error).splitlines())
        return
    yield from (Finding(WARNING, "credentials", oddity) for oddity in credentials.oddities())
    if credentials.certificates and credentials.certificates.expires:
        yield from _look_at_end(credentials.certificates.expires)
    speaks = "TLS" if credentials.certificates else "plain text"
    asks = "certificates" if credentials.shows_certificates else ""
    asks = " and ".join(filter(None, (asks, "tokens" if credentials.tokens else ""))) or "nothing"
    yield Finding(OK, "credentials", f"speaks {speaks}, asks callers for {asks}")


def _look_at_end(expires: float) -> Iterator[Finding]:
    """Say when the certificate ends. That it has ended is one of the oddities."""
    days = (expires - time.time()) / _DAY_S
    says = f"the certificate ends on {time.strftime('%Y-%m-%d', time.gmtime(expires))}"
    if days > _SOON:
        yield Finding(OK, "credentials", says)
    elif days > 0:
        says = f"{both_names('tls_cert')}: {says}, days left: {int(days)}"
        yield Finding(WARNING, "credentials", says, "renew it: a running server takes the new file by itself")
