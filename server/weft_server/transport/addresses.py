"""The addresses of a host, and how a server takes its port at all of them.

A name may have several: `localhost` is 127.0.0.1 and ::1. If a server took those that are free, callers would reach it
by one address, and another server by the other.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOOPBACK = ("127.0.0.1", "::1")
# What binding says of an address, or a whole family, that this machine does not have.
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
# How many ports are tried until one is free at all addresses.
_TRIES = 16


class NotFree(Exception):
    """A port cannot be taken at an address.

    Attributes:
        where: address and port.
    """

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


def addresses_of(host: str) -> list[str]:
    """Return what a host stands for on this machine, each in numbers.

    Raises:
        OSError: nobody knows the host (socket.gaierror), or none of its addresses is this machine's.
        UnicodeError: it is no name at all.
    """
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    names = [socket.getnameinfo(each[4], socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0] for each in found]
    if host.lower() == "localhost":
        names += _LOOPBACK  # gRPC knows both, whatever the machine's list of hosts says
    here, fault = [], OSError(errno.EADDRNOTAVAIL, "no address")
    for name in dict.fromkeys(names):
        try:
            bound(name, 0).close()
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            fault = error
        else:
            here.append(name)
    if not here:
        raise fault
    return here


def bound(address: str, port: int) -> socket.socket:
    """Return a socket that has a place as a server would have it, and does not listen. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    place = socket.getaddrinfo(address, port, family, socket.SOCK_STREAM)[0][4]
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port is free again while connections of the last server linger.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(place)
    except OSError:
        taken.close()
        raise
    return taken


def free_port(addresses: Sequence[str]) -> int:
    """Return a port that was free at all addresses a moment ago. Raises OSError."""
    for left in reversed(range(_TRIES)):
        with ExitStack() as sockets:
            port = 0
            try:
                for address in addresses:
                    port = sockets.enter_context(bound(address, port)).getsockname()[1]
            except OSError:
                if not left:
                    raise
            else:
                return int(port)
    raise AssertionError("no try was made. This is a bug.")


def place(address: str, port: int) -> str:
    """Return address and port as one word, an IPv6 address in brackets (RFC 3986, section 3.2.2)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def take(host: str, port: int, listen: Callable[[str], int]) -> int:
    """Let a gRPC server `listen` at every address of a host, and return the port. Port 0 takes a free one.

    Each address is given alone: of a name, gRPC takes what it gets. Nothing is told to anybody before all are taken.

    Raises:
        NotFree: another server has one of them.
    """
    addresses = addresses_of(host)
    if not port and len(addresses) > 1:
        port = free_port(addresses)
    for address in addresses:
        try:
            port = listen(place(address, port))
        except RuntimeError as error:
            raise NotFree(place(address, port)) from error
    return port
