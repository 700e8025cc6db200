"""What ONNX Runtime is told of this processor wherever a graph is opened, by the server and by the exporter."""

from collections.abc import Iterable
from pathlib import Path

# How Linux calls the instructions that add up products of uint8 and int8 in 32 bits.
_VNNI = {"avx512_vnni", "avx_vnni"}


def session_entries(cpuinfo: Iterable[str]) -> dict[str, str]:
    """Return session options by name for the processor that the lines of a /proc/cpuinfo describe.

    x86 processors without VNNI add up products of uint8 and int8 in pairs of 16 bits, which overflow: sums of integers
    would be wrong. The option makes weights unsigned there. With VNNI it would do so too, and products of 8 bits would
    take twice as long. On other kinds of processors it changes nothing.
    """
    flags = next((line for line in cpuinfo if line.startswith("flags")), "")
    return {} if _VNNI & set(flags.split()) else {"session.x64quantprecision": "1"}


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


SESSION_ENTRIES = session_entries(_cpuinfo())
