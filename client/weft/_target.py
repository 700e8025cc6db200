"""Whom a client calls: host and port, or a target of gRPC's naming schemes, checked before gRPC guesses the rest."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Any

from weft.exceptions import InvalidRequest

# gRPC's own, with what may stand before the name. It takes everything else for a host, and the port that is missing
# for 443.
_SCHEME = re.compile(r"(?P<scheme>dns|ipv4|ipv6|unix|unix-abstract|vsock|xds|google-c2p):(?P<authority>//[^/]*/)?")
_WEB = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# What hosts files call this machine.
_LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
_PORT = re.compile(r"[0-9]{1,5}")
MAX_PORT = 65535


def checked_target(target: Any) -> str:
    """Return a target that names a server; raises InvalidRequest that says what is expected."""
    if not isinstance(target, str):
        raise _refuse(f"must be a str such as 'localhost:7070', not {type(target).__name__}")
    if not (target and target.isprintable() and " " not in target):
        raise _refuse("must name a server, host:port")
    if not (known := _SCHEME.match(target)):
        if web := _WEB.match(target):
            raise _refuse(f"must be host:port, without {web[0]}")
        _check_address(target, target)
        return target
    name = target[known.end() :]
    if not name:
        raise _refuse(f"must name a server behind {target!r}")
    match known["scheme"]:
        case "dns":
            _check_address(name, target)
        case "ipv4" | "ipv6" as kind:
            for address in name.split(","):
                _check_address(address, address)
                _check_number(kind, address.rpartition(":")[0])
    return target


def is_local(target: str) -> bool:
    """Whether a checked target names nothing but this machine, so that what is sent there crosses no network."""
    known = _SCHEME.match(target)
    if known and known["scheme"].startswith("unix"):
        return True
    if known and known["scheme"] not in {"dns", "ipv4", "ipv6"}:
        return False
    name = target[known.end() :] if known else target
    return all(_is_loopback(address) for address in name.split(","))


def checked_proxy(proxy: Any) -> str | None:
    """Return the address of a proxy, or None. What is wrong with one is said without it: it may hold a password."""
    if proxy is None:
        return None
    address = proxy.rpartition("@")[2].removeprefix("http://") if isinstance(proxy, str) else ""
    if not (isinstance(proxy, str) and proxy.startswith("http://") and proxy.isprintable() and " " not in proxy):
        raise InvalidRequest("proxy: must be http://host:port", reason="INVALID_FIELD")
    try:
        _check_address(address, "proxy")
    except InvalidRequest:
        raise InvalidRequest("proxy: must be http://host:port", reason="INVALID_FIELD") from None
    return proxy


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0] if "]" not in address else address[1:].partition("]")[0]
    name = (host or address).lower().removesuffix(".")
    try:
        number = ip_address(name)
    except ValueError:
        return name in _LOOPBACK_NAMES
    number = getattr(number, "ipv4_mapped", None) or number
    return number.is_loopback


def _check_address(address: str, shown: str) -> None:
    """Refuse what is not host:port; `shown` is what the caller wrote."""
    host, colon, port = address.rpartition(":")
    if address.endswith("]") or not (colon or not address):
        raise _refuse(f"needs a port: {shown}:7070")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        if not host.startswith("[") and set(address) <= set("0123456789abcdefABCDEF:."):
            raise _refuse(f"an IPv6 address stands in brackets: [{address}]:7070")
        host, _, port = address.partition(":")
    if not host:
        raise _refuse("must name a server, host:port")
    if not (_PORT.fullmatch(port) and 1 <= int(port) <= MAX_PORT):
        raise _refuse(f"its port must be 1..{MAX_PORT}, not {port or 'empty'}")


def _check_number(kind: str, host: str) -> None:
    """Refuse a name where gRPC takes numbers only."""
    try:
        if kind == "ipv4":
            IPv4Address(host)
        else:
            IPv6Address(host.removeprefix("[").removesuffix("]"))
    except AddressValueError:
        form = "IPv4 address" if kind == "ipv4" else "IPv6 address in brackets"
        raise _refuse(f"{host!r} is no {form}; dns: takes names") from None


def _refuse(why: str) -> InvalidRequest:
    return InvalidRequest(f"target: {why}", reason="INVALID_FIELD")
