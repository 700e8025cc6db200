"""Whether the server can listen where its settings say, tried by taking the place for a moment."""

import errno
import socket
from collections.abc import Iterator

from weft_server.checks.finding import ERROR, OK, WARNING, Finding
from weft_server.config import LOOPBACK, ServerConfig, both_names, flag_name
from weft_server.transport.addresses import addresses_of, bound, place

_FIRST_FREE_TO_ALL = 1024


def look_at_host(config: ServerConfig) -> Iterator[Finding]:
    """Refuse a host that nobody knows, or that is not this machine."""
    if why := _why_not_host(config.host):
        yield Finding(ERROR, "host", f"{both_names('host')}: {why}")


def look_at_grpc_port(config: ServerConfig) -> Iterator[Finding]:
    """Refuse a port of gRPC that is taken or forbidden."""
    yield from _look_at(config, "port", "gRPC")


def look_at_http_port(config: ServerConfig) -> Iterator[Finding]:
    """Refuse a port of HTTP that is taken or forbidden."""
    yield from _look_at(config, "http_port", "HTTP")


def look_at_api_port(config: ServerConfig) -> Iterator[Finding]:
    """Refuse a port of HTTP calls that is taken or forbidden. Warn of what is of no effect without such a port."""
    if config.api_port is not None:
        yield from _look_at(config, "api_port", "calls by HTTP")
        return
    for field, what in {"cors_origins": "to call", "console": "to show it at"}.items():
        if getattr(config, field):
            yield Finding(WARNING, "ports", f"{both_names(field)}: there is no {flag_name('api_port')} {what}")


def look_at_admin_port(config: ServerConfig) -> Iterator[Finding]:
    """Refuse an admin port that is taken or forbidden, or an address that is not this machine's."""
    if not config.admin:
        return
    if why := _why_not_host(config.admin_host):
        yield Finding(ERROR, "host", f"{both_names('admin_host')}: {why}")
    elif config.tls_client_ca and not config.tokens:
        says = f"{both_names('admin')}: a certificate alone has no role `admin`, so nobody may change the models"
        yield Finding(WARNING, "host", says, f"{flag_name('tokens')} gives roles")
    elif config.admin_host not in LOOPBACK and not config.tokens:
        says = f"{both_names('admin_host')}: whoever reaches {config.admin_host} may change the models"
        yield Finding(WARNING, "host", says, f"{flag_name('tokens')} asks who calls")
    yield from _look_at(config, "admin_port", "admin", config.admin_host)


def look_at_all_ports(config: ServerConfig) -> Iterator[Finding]:
    """Refuse one port for two servers."""
    taken = {config.port: "gRPC"}
    ports = {"http_port": "HTTP", "api_port": "calls by HTTP"} | ({"admin_port": "admin"} if config.admin else {})
    for field, what in ports.items():
        if not (port := getattr(config, field)):
            continue
        if port in taken:
            yield Finding(ERROR, "ports", f"{both_names(field)}: {port} is the port of {taken[port]} too")
        taken.setdefault(port, what)


def _look_at(config: ServerConfig, field: str, what: str, host: str | None = None) -> Iterator[Finding]:
    host = host or config.host
    if _why_not_host(host):
        return
    port = getattr(config, field)
    for address in addresses_of(host):
        try:
            bound(address, port).close()
        except OSError as error:
            where = place(address, port)
            yield Finding(ERROR, "ports", f"{both_names(field)}: cannot listen on {where}: {_why_not(error, port)}")
            return
    which = config.address(port, host) if port else f"any free port of {host}"
    yield Finding(OK, "ports", f"{which} for {what}")


def _why_not_host(host: str) -> str:
    try:
        addresses_of(host)
    except socket.gaierror as error:
        return f"{host!r} is not known: {error.strerror}"
    except UnicodeError:  # a part of it has no letters, or too many
        return f"{host!r} is no name of a host"
    except OSError as error:
        is_others = error.errno == errno.EADDRNOTAVAIL
        return f"{host} is no address of this machine" if is_others else f"{host}: {error.strerror}"
    return ""


def _why_not(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process does; end it, or give another port"
    if error.errno == errno.EACCES and port < _FIRST_FREE_TO_ALL:
        return f"ports below {_FIRST_FREE_TO_ALL} are the system's; give a higher one"
    return str(error.strerror)
