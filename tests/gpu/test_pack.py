"""What `make pack-gpu` leaves of a library's CUDA code."""

import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench" / "gpu"))
from fatbin import keep


def entry(kind, arch, body):
    """One entry of a container: a header of 64 bytes and its code."""
    return (struct.pack("<HHIQ", kind, 0, 64, len(body)).ljust(28, b"\0") + struct.pack("<I", arch)).ljust(
        64, b"\0"
    ) + body


def container(*entries):
    """A container of such entries."""
    inner = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(inner)) + inner


def test_one_architecture_is_kept_in_place():
    """Machine code for others, and PTX, become zeros; what stands around them stays where it is."""
    other, own, ptx = entry(2, 80, b"a" * 24), entry(2, 90, b"b" * 16), entry(1, 90, b"c" * 8)
    library = b"\x7fELF" + container(other, own, ptx) + b"text"
    data = bytearray(library)
    assert 24 + 8 == keep(data, 90)
    assert bytes(data) == library.replace(b"a" * 24, bytes(24)).replace(b"c" * 8, bytes(8))


def test_a_container_without_the_architecture_is_kept_whole():
    """A device may compile its PTX, so nothing of it may go. The container behind it is looked at all the same."""
    alone = container(entry(2, 80, b"a" * 24), entry(1, 80, b"c" * 8))
    data = bytearray(alone + container(entry(2, 80, b"d" * 8), entry(2, 90, b"b" * 8)))
    assert 8 == keep(data, 90)
    assert data.startswith(alone)
    assert b"d" * 8 not in data


@pytest.mark.parametrize(
    "inner", [bytes(64), bytes(8), entry(2, 80, b"g" * 8)[:60], entry(2, 80, b"g" * 80)[:-40]], ids=len
)
def test_a_container_whose_entries_do_not_fit_is_left_alone(inner):
    """It ends, also where an entry says that it has no size, and nothing is cleared, in it or behind it."""
    data = bytearray(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(inner)) + inner)
    before = bytes(data)
    assert 0 == keep(data, 90)
    assert before == bytes(data)


@pytest.mark.parametrize("version", [1, 2])
def test_what_only_begins_like_a_container_is_left_alone(version):
    """The magic number may stand in any code, before other numbers or at the very end, and there are other versions."""
    strange = (
        struct.pack("<IHHQ", 0xBA55ED50, version, 16, 1 << 40)
        if version == 1
        else container(entry(2, 90, b"e" * 8), entry(2, 80, b"f" * 8)).replace(
            struct.pack("<IH", 0xBA55ED50, 1), struct.pack("<IH", 0xBA55ED50, version)
        )
    )
    data = bytearray(strange + container(entry(2, 90, b"b" * 8), entry(2, 80, b"a" * 8)) + strange[:4])
    assert 8 == keep(data, 90)
    assert data.startswith(strange)
    assert data.endswith(strange[:4])
