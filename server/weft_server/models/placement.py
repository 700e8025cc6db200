"""Which models are on which devices. A lane goes to the device that has the most memory left."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from weft_server.config import flag_name
from weft_server.errors import BundleError
from weft_server.runtime.cudart import free_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Sequence as Many

    from weft_server.runtime.device import Device

_log = structlog.get_logger(__name__)
_GIGABYTE = 10**9


class Claim:
    """What one model takes of its devices, from before it loads until it is released."""

    def __init__(self, placement: Placement, num_bytes: dict[Device, int]) -> None:
        self._placement = placement
        self.num_bytes = num_bytes
        # From then on, CUDA counts all that it takes.
        self.is_loaded = False

    @property
    def devices(self) -> list[Device]:
        """Those of the lanes, in their order."""
        return list(self.num_bytes)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Load the model within. If that fails, the claim is released."""
        try:
            yield
        except BaseException:
            self.release()
            raise
        self.is_loaded = True

    def release(self) -> None:
        """Let others have what it took. Once is enough."""
        self._placement.release(self)


class Placement:
    """The devices of a server, and the claims of its models. Any thread may ask: models load in threads of their own.

    What a device has left is the less of two figures:

    1. By our books: what was free when the server started, less the claims of the models that are there.
    2. By CUDA: what is free now. Other processes take memory too, and a run takes more than a claim. This figure says
       nothing while a model loads there, which has only taken a part of its claim.
    """

    def __init__(self, devices: Many[Device], free: Callable[[Device], int | None] = free_on) -> None:
        """`free` says how many bytes of a device are free, or None where nobody knows."""
        self.devices = list(devices)
        self._free = free
        self._at_first = {device: free(device) for device in devices}
        self._claims: list[Claim] = []
        self._lock = threading.Lock()

    def claim(self, who: str, sizes: Many[int]) -> Claim:
        """Take a device for each of `sizes`, which are bytes, the largest first. No two are on one device.

        Each goes to the device with the most bytes left; of two that have the same, to the first.

        Raises:
            BundleError: a device does not have so much. Nothing is taken.
        """
        assert len(sizes) <= len(self.devices), f"{len(sizes)} lanes on {len(self.devices)} devices. This is a bug."
        with self._lock:
            left = {device: self._left(device) for device in self.devices}
            order = sorted(self.devices, key=lambda device: self._rank(device, left[device]))
            num_bytes = dict(zip(order, sizes, strict=False))
            for device, size in num_bytes.items():
                has = left[device]
                if has is not None and size > has:
                    raise BundleError(_why_not(sizes, left))
            claim = Claim(self, num_bytes)
            self._claims.append(claim)
        if any(device.kind == "cuda" for device in num_bytes):
            _log.info("model placed", model=who, devices=[device.name for device in num_bytes])
        return claim

    def release(self, claim: Claim) -> None:
        """Forget a claim."""
        with self._lock:
            if claim in self._claims:
                self._claims.remove(claim)

    def claimed(self) -> dict[str, int]:
        """Bytes that models take of each CUDA device by our books, by its number."""
        with self._lock:
            return {str(each.index): self._claimed(each) for each in self.devices if each.kind == "cuda"}

    def _claimed(self, device: Device) -> int:
        """Bytes of the claims on a device."""
        return sum(claim.num_bytes.get(device, 0) for claim in self._claims)

    def _left(self, device: Device) -> int | None:
        """Bytes that a device has left, or None where nobody knows. Then a claim is only tried."""
        at_first = self._at_first[device]
        if at_first is None:
            return None
        by_books = at_first - self._claimed(device)
        loads = any(device in claim.num_bytes and not claim.is_loaded for claim in self._claims)
        now = None if loads else self._free(device)
        return by_books if now is None else min(by_books, now)

    def _rank(self, device: Device, left: int | None) -> int:
        return self._claimed(device) if left is None else -left


def _why_not(sizes: Many[int], left: dict[Device, int | None]) -> str:
    wants = " and ".join(f"{size / _GIGABYTE:.1f} GB" for size in sizes)
    where = "of a device" if len(sizes) == 1 else f"of {len(sizes)} devices"
    has = ", ".join(f"{device.name} {(most or 0) / _GIGABYTE:.1f} GB" for device, most in left.items())
    flags = f"{flag_name('slots')} or {flag_name('cache_gb')}"
    return f"its weights and caches take {wants} {where}, and left are: {has}; a smaller {flags} takes less"
