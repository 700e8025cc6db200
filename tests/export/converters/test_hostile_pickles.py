"""Files of pickles that no torch.save wrote: each is refused by what is wrong with it, before memory is taken."""

import pickle
import zipfile

import pytest
import torch
from hostile_pickles import OLD_BEGINNING, Call, Storage, pickled, tensor, write_old, write_zip

from weft_export.converters.pickles import read_pickle
from weft_export.errors import CheckpointError

FOUR = torch.arange(4.0).numpy().tobytes()
GOOD = {"a": tensor(Storage("0", 4), (2, 2), (2, 1))}


def content(*, numbers=4, shape=(2, 2), stride=(2, 1), location="cpu"):
    """One tensor, otherwise than its storage of four numbers has it."""
    return {"a": tensor(Storage("0", numbers, location=location), shape, stride)}


def nested(depth):
    """A tuple in a tuple, so many times, as the key of a dictionary."""
    return b"\x80\x02})" + b"\x85" * depth + b"Ns."


# what the pickle holds, what the error says
CONTENTS = {
    "expanded": (content(shape=(30_000, 30_000), stride=(0, 0)), "would take 3600000000 bytes, and the file has"),
    "larger than its storage": (content(shape=(30_000, 30_000), stride=(30_000, 1)), "without running code: "),
    "expanded by a number": (content(shape=(10**9,), stride=(0,)), "has the number 1000000000, and the file has"),
    "a bytearray": ({"a": Call(bytearray, 10**12)}, "asks for .*bytearray, which is no tensor"),
    "sparse": ({"a": torch.zeros(9, 9).to_sparse()}, "asks for torch._utils._rebuild_sparse_tensor"),
    "meta": ({"a": torch.zeros(9, 9, device="meta")}, "asks for torch._utils._rebuild_meta_tensor_no_storage"),
    "code": ({"a": Call(open, "it-ran", "w")}, "asks for .*open, which is no tensor"),
    "no arguments": ({"a": Call(torch._utils._rebuild_tensor_v2)}, "without running code: .*missing"),
    "no storage": ({"a": tensor(5, (2, 2), (2, 1))}, "without running code: "),
    "a storage of no key": ({"a": tensor(Storage("7", 4), (2, 2), (2, 1))}, "without running code: "),
    "numbers": ({"a": 5}, "something else than named tensors"),
    "no names": ({5: GOOD["a"]}, "something else than named tensors"),
    "a list": ([GOOD["a"]], "something else than named tensors"),
}  # fmt: skip


@pytest.mark.parametrize("old", [False, True], ids=["zip", "old"])
@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_named_tensor_is_refused(name, old, tmp_path):
    """A pickle may name anything, and may say any number. Nothing of it is run or made."""
    held, said = CONTENTS[name]
    path = tmp_path / "pytorch_model.bin"
    if name in ("sparse", "meta"):
        torch.save(held, path, _use_new_zipfile_serialization=not old)
    elif old:
        pickle_bytes = pickled(held, old=True)
        keys = ["0"] if b"storage" in pickle_bytes else []
        write_old(path, pickle_bytes, keys, [FOUR])
    else:
        write_zip(path, pickled(held), [FOUR])
    with pytest.raises(CheckpointError, match=said):
        read_pickle(path)
    assert not (tmp_path / "it-ran").exists()


# the bytes of a pickle, what the error says
BYTES = {
    "cut short": (pickled(GOOD)[:-9], "without running code: "),
    "nothing on its stack": (b"\x80\x020.", "without running code: "),
    "what it never kept": (b"\x80\x02h\x09.", "without running code: "),
    "a name that is never read": (b"\x80\x02cbuiltins\neval\n0}.", "asks for builtins.eval, which is no tensor"),
    "a newer protocol": (pickle.dumps({"a": print}, protocol=4), "without running code: "),
    "a string of 2^60 bytes": (b"\x80\x04\x8d" + (2**60).to_bytes(8, "little") + b".", "without running code: "),
    "tuples in tuples": (nested(10**6), "has 1000000 tuples; 65536 are read"),
    "nothing": (b"", "without running code: "),
}


@pytest.mark.parametrize("old", [False, True], ids=["zip", "old"])
@pytest.mark.parametrize("name", BYTES)
def test_a_broken_pickle_is_refused(name, old, tmp_path):
    """However it is broken, one sentence says that the file is at fault."""
    held, said = BYTES[name]
    path = tmp_path / "pytorch_model.bin"
    if old:
        write_old(path, held)
    else:
        write_zip(path, held)
    with pytest.raises(CheckpointError, match=said):
        read_pickle(path)


DEFLATED = {"compression": zipfile.ZIP_DEFLATED}
ZIPS = {
    "a deflated pickle": ((pickled(GOOD), [], DEFLATED), "a/data.pkl is compressed in its zip"),
    "a pickle twice": ((pickled(GOOD), [FOUR], {"more": [("a/DATA.PKL", b"")]}), "its zip has a name twice"),
    "a large pickle": ((pickled(GOOD) + bytes(2**23), [FOUR], {}), "a/data.pkl has .* bytes; 8388608 are read"),
    "no pickle": ((b"", [FOUR], {}), "without running code: "),
}


@pytest.mark.parametrize("name", ZIPS)
def test_a_zip_that_unpacks_to_more_is_refused(name, tmp_path):
    """An archive holds what it says, once, and as it is."""
    (held, storages, options), said = ZIPS[name]
    path = tmp_path / "pytorch_model.bin"
    write_zip(path, held, storages, **options)
    with pytest.raises(CheckpointError, match=said):
        read_pickle(path)


def test_a_deflated_storage_is_refused(tmp_path):
    """A megabyte of zeros in a file of a thousand bytes is not read, and neither are a thousand gigabytes."""
    path = tmp_path / "pytorch_model.bin"
    write_zip(path, pickled(GOOD), [FOUR])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a/data/1", bytes(2**20), compress_type=zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="a/data/1 is compressed in its zip"):
        read_pickle(path)


@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_zip_with_something_around_it_is_refused(where, tmp_path):
    """Two readers of zips may find two lists of entries there, and only one of them would be looked through."""
    path = tmp_path / "pytorch_model.bin"
    write_zip(path, pickled(GOOD), [FOUR])
    whole = path.read_bytes()
    if where == "before":
        path.write_bytes(b"PK\3\4" + whole)
    else:
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = b"PK\1\2"
    with pytest.raises(CheckpointError, match="there is something around its zip"):
        read_pickle(path)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"", "does not begin as torch.save's files do"),
        (b"GGUF" + bytes(99), "does not begin as torch.save's files do"),
        (pickle.dumps({"a": print}), "does not begin as torch.save's files do"),
        (b"PK\3\4" + bytes(99), "without running code: "),
        (OLD_BEGINNING[:-30], "without running code: "),
    ],
    ids=["nothing", "another kind", "a pickle alone", "no zip", "cut short"],
)
def test_another_file_by_that_name_is_refused(held, said, tmp_path):
    """The name says nothing: the first bytes do."""
    (tmp_path / "pytorch_model.bin").write_bytes(held)
    with pytest.raises(CheckpointError, match=said):
        read_pickle(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize("old", [False, True], ids=["zip", "old"])
def test_views_and_shared_storages_are_read(old, tmp_path):
    """The doors are not shut to what torch.save does write: parts, transposes, other types, and one table twice."""
    table = torch.randn(40, 6)
    parameter = torch.nn.Parameter(table)
    held = {"whole": table, "again": table, "part": table[3:7], "turned": table.t(), "parameter": parameter}
    held |= {"half": table.half(), "mask": table > 0, "one": torch.tensor(2), "none": torch.empty(0)}
    torch.save(held, tmp_path / "m.bin", _use_new_zipfile_serialization=not old)
    found = read_pickle(tmp_path / "m.bin")

    assert list(held) == list(found)
    assert all(torch.equal(held[name], found[name]) for name in held)
    assert not any(each.requires_grad for each in found.values())
