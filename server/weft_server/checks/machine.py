"""What the machine gives: CPUs, memory, huge pages, the clock, and open files."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from weft_server.checks.finding import OK, WARNING, Finding, gigabytes
from weft_server.runtime.cpus import cpu_quota
from weft_server.runtime.memory import free_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

# Each connection takes one, and so does each file and each worker's pipe.
_FEW_FILES = 4096
_LITTLE_MEMORY = 10**9
# adjtimex(2): how many bytes its struct takes at most, where its status stands, and the bit of a clock nobody sets.
_TIMEX_BYTES, _STATUS_AT, _STA_UNSYNC = 256, 40, 0x40


def look_at_machine() -> Iterator[Finding]:
    """Say how it stands with each."""
    yield _python()
    if sys.platform != "linux":
        yield Finding(WARNING, "system", f"{platform.system()} is not tested", "serve on Linux, or in a container")
        return
    yield Finding(OK, "system", f"Linux {platform.release()}, {platform.machine()}")
    yield _cpus()
    yield from _memory()
    yield _pages()
    yield _files()
    yield _clock()


def _python() -> Finding:
    says = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if not hasattr(sys, "_is_gil_enabled") or sys._is_gil_enabled():  # noqa: SLF001 - Python documents it so
        return Finding(OK, "python", says)
    return Finding(WARNING, "python", f"{says}, without a global lock: not tested", "use the usual build")


def _cpus() -> Finding:
    quota, num_cpus = cpu_quota(), os.cpu_count() or 1
    says = f"{quota:g} of the machine's {num_cpus} may be used"
    if quota < 1:
        mend = "give the container at least one, such as `cpu: 1` in Kubernetes"
        return Finding(WARNING, "cpus", f"{says}: threads stand still for a part of the time", mend)
    if quota != int(quota):
        return Finding(WARNING, "cpus", f"{says}: the part of one is not made use of", "give a whole number")
    return Finding(OK, "cpus", says)


def _memory() -> Iterator[Finding]:
    free = free_memory()
    if free is None:
        yield Finding(WARNING, "memory", "the system does not say how much is free", "mount /proc")
    elif free < _LITTLE_MEMORY:
        mend = "end other processes, or give the container more"
        yield Finding(WARNING, "memory", f"{gigabytes(free)} are free: enough for small models only", mend)
    else:
        yield Finding(OK, "memory", f"{gigabytes(free)} are free")


def _pages() -> Finding:
    place = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    try:
        setting = place.read_text(encoding="ascii")
    except OSError:
        return Finding(OK, "huge pages", f"the system has none, only pages of {mmap.PAGESIZE >> 10} KiB")
    if "[never]" in setting:
        says = "they are switched off, and steps of large models take longer"
        return Finding(WARNING, "huge pages", says, f"as root on the host: echo madvise > {place}")
    return Finding(OK, "huge pages", setting[setting.index("[") + 1 : setting.index("]")])


def _files() -> Finding:
    # A server raises its own limit as far as this.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return Finding(OK, "open files", "no limit")
    if most >= _FEW_FILES:
        return Finding(OK, "open files", f"at most {most}")
    says = f"at most {most}, and each connection takes one"
    return Finding(WARNING, "open files", says, "ulimit -n 65536 as root; LimitNOFILE=65536 in a unit of systemd")


def _clock() -> Finding:
    """Certificates have dates. Deadlines need no clock: they travel as durations."""
    says = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    # Nobody installs a package before it is made.
    made = max((path.stat().st_mtime for path in Path(__file__).parent.iterdir()), default=0.0)
    if time.time() < made:
        return Finding(WARNING, "clock", f"{says}, which is before this package was installed", "set the clock")
    state = ctypes.create_string_buffer(_TIMEX_BYTES)
    failed = ctypes.CDLL(None).adjtimex(state) < 0
    if not failed and struct.unpack_from("i", state, _STATUS_AT)[0] & _STA_UNSYNC:
        mend = "run chronyd or systemd-timesyncd, here or on the host"
        return Finding(WARNING, "clock", f"{says}; the system says that no service sets it", mend)
    return Finding(OK, "clock", says)
