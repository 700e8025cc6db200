"""Memory for states, and huge pages: they change where memory lies, and nothing else."""

import ctypes
import mmap
import re
from pathlib import Path

import numpy as np

from weft_server.runtime import huge_pages


def test_it_is_zeroed_and_writable():
    """An array of any shape is zeros, contiguous, and keeps what is written."""
    array = huge_pages.zeros((3, 5, 7), np.dtype(np.float16))

    assert (3, 5, 7) == array.shape
    assert not array.any()
    array[1] = 2
    assert 70 == array.sum()
    assert (0, 4) == huge_pages.zeros((0, 4), np.dtype(np.float32)).shape


def test_a_kernel_without_huge_pages_is_no_error(monkeypatch):
    """Where the advice is refused, the memory is there all the same."""

    class Refusing(mmap.mmap):
        def madvise(self, *_):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(huge_pages.mmap, "mmap", Refusing)

    assert not huge_pages.zeros((4, 4), np.dtype(np.float32)).any()


def test_collapsing_keeps_what_is_there():
    """Memory in use keeps its bytes and lies in huge pages afterwards, where the system can; unused memory stays so."""
    probe, filled = (filled_memory(bytes([number]) * 4 * huge_pages.HUGE) for number in (1, 2))
    unused = mmap.mmap(-1, 64 * huge_pages.HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    unused.madvise(mmap.MADV_DONTFORK)  # so that the system keeps it apart from its neighbours
    unused[0] = 1
    inside = -(-address_of(probe) // huge_pages.HUGE) * huge_pages.HUGE
    can = ctypes.CDLL(None).madvise(ctypes.c_void_p(inside), ctypes.c_size_t(huge_pages.HUGE), 25) == 0

    num_bytes = huge_pages.collapse()

    assert b"\2" * 4 * huge_pages.HUGE == filled[:]
    assert (num_bytes > 0) == can
    assert huge_kib(address_of(filled) + huge_pages.HUGE) >= (3 * huge_pages.HUGE >> 10) * can
    assert 0 == huge_kib(address_of(unused) + huge_pages.HUGE)


def test_a_system_without_proc_collapses_nothing(monkeypatch):
    """Elsewhere than on Linux a server starts all the same."""

    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(huge_pages.Path, "read_text", missing)

    assert 0 == huge_pages.collapse()


def filled_memory(content):
    """Memory of its own mapping, which nobody has asked huge pages for: numpy would."""
    memory = mmap.mmap(-1, len(content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = content
    return memory


def address_of(memory):
    """Where it lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def huge_kib(address):
    """How much of the mapping around an address lies in huge pages."""
    maps = Path("/proc/self/smaps").read_text()
    mapping = r"^([0-9a-f]+)-([0-9a-f]+) .*\n(?:\w+: .*\n)*?AnonHugePages: +([0-9]+) kB$"
    for first, end, kib in re.findall(mapping, maps, re.MULTILINE):
        if int(first, 16) <= address < int(end, 16):
            return int(kib)
    raise AssertionError("not mapped")
