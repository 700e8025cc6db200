"""GGUF files that are wrong, or that lie: each is refused with a typed error, and takes next to no memory or time."""

import struct
from contextlib import suppress

import pytest
from gguf_files import BY_NAME, model_of, write_gguf

from weft_export.converters.gguf.config import config_of
from weft_export.converters.gguf.convert_file import convert_file
from weft_export.converters.gguf.header import read_header
from weft_export.converters.gguf.values import MAX_HEADER_BYTES
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions

FLOAT, STRING, LIST = 6, 8, 9
HUGE = 2**60


def text(content: bytes) -> bytes:
    """A string as a file has it."""
    return struct.pack("<Q", len(content)) + content


def tensor(name=b"t", shape=(4,), kind=0, offset=0) -> bytes:
    """What a header says of a tensor."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def file_of(*keys: bytes, tensors=(), data=64, version=3, num_keys=None, num_tensors=None) -> bytes:
    """A whole file. Its counts may lie."""
    counts = [len(tensors) if num_tensors is None else num_tensors, len(keys) if num_keys is None else num_keys]
    header = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32 + data)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "it has 0 bytes"),
        (b"GGML" + bytes(100), "does not begin with the letters GGUF"),
        (file_of(version=1), "it has the version 1; versions 2 and 3 are read"),
        (file_of(version=3 << 24), "highest byte first"),
        (file_of(num_keys=HUGE), "keys and"),
        (file_of(num_tensors=HUGE), "keys and"),
        (file_of(num_keys=4000), "a name has 0 characters"),
        (file_of(struct.pack("<Q", HUGE)), "cut short"),
        (file_of(text(b"k") + struct.pack("<IQ", STRING, HUGE)), "cut short"),
        (file_of(text(b"k") + struct.pack("<IIQ", LIST, FLOAT, HUGE)), "a list has"),
        (file_of(text(b"k") + struct.pack("<IIQ", LIST, FLOAT, 2**20)), "cut short"),
        (file_of(text(b"k") + struct.pack("<IIQ", LIST, STRING, 2**20)), "cut short"),
        (file_of(text(b"k") + struct.pack("<IIQ", LIST, LIST, 1)), "a list of lists"),
        (file_of(text(b"k") + struct.pack("<I", 77)), "a value is of the type 77"),
        (file_of(text(b"k\xff") + struct.pack("<I", 0)), "utf-8"),
        (file_of(text(b"") + struct.pack("<IB", 0, 0)), "a name has 0 characters"),
        (file_of(*[text(b"k") + struct.pack("<IB", 0, 0)] * 2), "the key k twice"),
        (file_of(text(b"general.alignment") + struct.pack("<II", 4, 3)), "not a power of two"),
        (file_of(tensors=[tensor()] * 2), "the tensor t twice"),
        (file_of(tensors=[tensor(shape=())]), "0 axes"),
        (file_of(tensors=[tensor(shape=(1,) * 5)]), "5 axes"),
        (file_of(tensors=[tensor(shape=(0,))]), "the lengths"),
        (file_of(tensors=[tensor(shape=(2**63,))]), "the lengths"),
        (file_of(tensors=[tensor(shape=(2**39, 2**39, 2**39))]), "would end behind the file"),
        (file_of(tensors=[tensor(shape=(17,))]), "would end behind the file"),
        (file_of(tensors=[tensor(offset=HUGE)]), "would end behind the file"),
        (file_of(tensors=[tensor(offset=4)]), "does not begin where one may"),
        (file_of(tensors=[tensor(kind=2, shape=(33,))]), "which are no blocks of 32"),
        (file_of(tensors=[tensor(kind=39)]), "of the type MXFP4; these are read"),
        (file_of(tensors=[tensor(kind=99)]), "of the type number 99; these are read"),
        (file_of(tensors=[tensor(b"%d" % each, (256,)) for each in range(9)], data=1024), "more bytes than it has"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_header_that_lies_is_refused(content, complaint, tmp_path):
    """Counts, lengths, places and types are believed only as far as the file has bytes for them."""
    path = tmp_path / "model.gguf"
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=complaint):
        read_header(path)


def test_a_header_has_a_bound(tmp_path):
    """A file of gigabytes may be all header: it is not read to its end."""
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(file_of(text(b"k") + struct.pack("<IQ", STRING, MAX_HEADER_BYTES)))
        file.truncate(2**32)

    with pytest.raises(CheckpointError, match=f"its header may have {MAX_HEADER_BYTES} bytes"):
        read_header(path)


def test_a_file_that_ends_early_or_has_a_wrong_byte_is_refused_or_read(tmp_path):
    """Cut anywhere it is refused. With any byte of its header changed it is refused with a typed error, or is read."""
    kind, path = BY_NAME["llama"], tmp_path / "model.gguf"
    write_gguf(kind, model_of(kind, tmp_path, num_hidden_layers=1), path)
    whole, broken = path.read_bytes(), tmp_path / "broken.gguf"
    data = min(place.first for place in read_header(path).tensors.values())
    for length in range(0, len(whole), len(whole) // 50):
        broken.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_header(broken)
    for place in range(0, data, max(1, data // 150)):
        broken.write_bytes(whole[:place] + bytes([whole[place] ^ 0x81]) + whole[place + 1 :])
        with suppress(CheckpointError):
            config_of(read_header(broken))
            if place % 8 == 0:
                convert_file(broken, ExportOptions(max_tokens=96), filled=False)
