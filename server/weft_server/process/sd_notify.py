"""Tells systemd how the server is: https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(*states: str) -> None:
    """Send states, such as READY=1. Without systemd, or if it does not listen, nothing happens, and nobody waits."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    # One of a virtual machine's kind, such as vsock:2:1234, is none of ours.
    if not address.startswith(("/", "@")):
        return
    # An abstract one begins with a zero byte.
    address = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto("\n".join(states).encode(), address)
