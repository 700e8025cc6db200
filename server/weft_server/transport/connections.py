"""The connections of the ports of calls as the system sees them: gRPC says neither how many there are nor ends one."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DESCRIPTORS = Path("/proc/self/fd")
# tcpi_bytes_received of Linux's struct tcp_info (linux/tcp.h).
_TCP_INFO_BYTES = 136
_BYTES_RECEIVED = struct.Struct("=128xQ")


class Connections:
    """Those whose own end is one of `ports`. Each is known by its peer: address and port, as `peer_key` spells them.

    Where there is no /proc, none is found: then nothing is ended early, and what a connection has sent is not known.
    """

    def __init__(self) -> None:
        # The ports of calls that this process listens on.
        self.ports: set[int] = set()

    def may_be(self, count: int) -> bool:
        """Whether so many may be open. It costs less than to count them: other files are not told apart."""
        try:
            return len(os.listdir(_DESCRIPTORS)) >= count  # noqa: PTH208 - paths would cost three times as much
        except OSError:
            return False

    def count(self) -> int:
        """Return how many are open. Any thread may ask."""
        return sum(1 for _ in self._open())

    def by_port(self) -> dict[int, list[str]]:
        """Return the peers of those that are open, by the port that they came to."""
        found: dict[int, list[str]] = {}
        for peer, connection in self._open():
            found.setdefault(int(connection.getsockname()[1]), []).append(peer)
        return found

    def bytes_received(self, peers: Iterable[str]) -> dict[str, int]:
        """Return how many bytes each of these peers has sent since it connected. Who has gone is left out."""
        wanted, received = set(peers), {}
        for peer, connection in self._open():
            if peer in wanted:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                if len(info) >= _BYTES_RECEIVED.size:
                    (received[peer],) = _BYTES_RECEIVED.unpack_from(info)
        return received

    def hang_up(self, peers: Iterable[str]) -> int:
        """End connections: whatever is on its way on them is dropped. Return how many were ended."""
        wanted, ended = set(peers), 0
        for peer, connection in self._open():
            if peer in wanted:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # it has gone
                    continue
                ended += 1
        return ended

    def _open(self) -> Iterator[tuple[str, socket.socket]]:
        """Yield each with its peer. The socket is a second descriptor of it, closed when the next one is asked for."""
        try:
            descriptors = [int(path.name) for path in _DESCRIPTORS.iterdir()]
        except OSError:
            return
        for descriptor in descriptors:
            try:
                if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    continue
                # The first one may be closed meanwhile, and its number be another file's.
                copy = socket.socket(fileno=os.dup(descriptor))
            except OSError:
                continue
            with copy:
                try:
                    own, far = copy.getsockname(), copy.getpeername()
                except OSError:  # it listens, or has gone
                    continue
                if copy.family in {socket.AF_INET, socket.AF_INET6} and own[1] in self.ports:
                    yield _key(far[0], far[1]), copy


def peer_key(peer: str) -> str:
    """Return the key of a peer as gRPC spells it: `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    host, _, port = unquote(peer.partition(":")[2]).rpartition(":")
    return _key(host.strip("[]"), port)


def peer_of(host: str, port: int) -> str:
    """Return a peer as gRPC spells it, see `peer_key`."""
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _key(host: str, port: int | str) -> str:
    # Where a socket speaks both, the system spells 127.0.0.1 as ::ffff:127.0.0.1.
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"{host}:{port}"
    return f"{getattr(address, 'ipv4_mapped', None) or address}:{port}"
