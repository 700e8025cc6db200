"""Whether a model that is not exported yet would fit. `weft up` waits for the answer, so little is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.checks.finding import ERROR, Finding, gigabytes
from weft_server.config import ConfigError
from weft_server.runtime.device import devices_of, verify_build
from weft_server.runtime.memory import free_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_server.config import Reading, ServerConfig


def look_at_weights(reading: Reading, num_bytes: int) -> Iterator[Finding]:
    """Refuse weights that are larger than what is free. Slots and graphs take more, which is not known before."""
    try:
        free = _free(reading.config)
    except ConfigError:  # the settings say so
        return
    if free is not None and num_bytes > free:
        says = f"the model's weights take {gigabytes(num_bytes)}; {gigabytes(free)} are free"
        yield Finding(ERROR, "room", says, "another precision takes less: int8 a quarter of fp32")


def _free(config: ServerConfig) -> int | None:
    """Return how many bytes are free where weights go: in memory, or on the device that has most."""
    if config.device == "cpu":
        return free_memory()
    devices = devices_of(config)
    verify_build(devices[0])
    from weft_server.runtime.cudart import free_on  # noqa: PLC0415 - late: it needs NumPy

    known = [free for device in devices if (free := free_on(device)) is not None]
    return max(known, default=None)
