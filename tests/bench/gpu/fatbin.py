"""CUDA code in a library: containers with machine code for several architectures, of which one is enough on one device.

A container is a header (magic number, version, its own size, bytes behind it) and entries. An entry is a header (kind,
its own size, bytes behind it, architecture) and machine code or PTX. NVIDIA has not written this down: it is what
`cuobjdump` reads, and what libraries have. What does not look like it is left alone.
"""

import struct

_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ")
_MAGIC, _VERSION = 0xBA55ED50, 1
_MACHINE_CODE = 2
# Where in an entry's header its architecture stands.
_ARCH = 28
_LEAST_ENTRY = _ARCH + 4


def keep(data, arch):
    """Overwrite with zeros what a device of `arch` (90: Hopper) does not run, in a writable buffer with `find`.

    A container without machine code of that architecture is kept whole: its PTX may be compiled for the device.
    Nothing moves, so that the library stays as long as it was; zeros compress to nothing. Returns how many bytes were
    overwritten.
    """
    cleared, start = 0, 0
    while (start := data.find(struct.pack("<I", _MAGIC), start)) >= 0:
        entries = _entries(data, start)
        if not entries:
            start += 4
            continue
        wanted = [(_MACHINE_CODE, arch) == (kind, other) for kind, other, _, _ in entries]
        for (_, _, first, size), is_wanted in zip(entries, wanted, strict=True):
            if any(wanted) and not is_wanted:
                data[first : first + size] = bytes(size)
                cleared += size
        start = entries[-1][2] + entries[-1][3]
    return cleared


def _entries(data, start):
    """Kind, architecture, first byte and size of each entry of the container that begins at `start`, if one does."""
    if start + _CONTAINER.size > len(data):
        return []
    _, version, header, size = _CONTAINER.unpack_from(data, start)
    place, end = start + header, start + header + size
    if version != _VERSION or header != _CONTAINER.size or end > len(data):
        return []
    entries = []
    while place < end:
        if place + _LEAST_ENTRY > end:
            return []
        kind, _, header, size = _ENTRY.unpack_from(data, place)
        (arch,) = struct.unpack_from("<I", data, place + _ARCH)
        if header < _LEAST_ENTRY or place + header + size > end:
            return []
        entries.append((kind, arch, place + header, size))
        place += header + size
    return entries
