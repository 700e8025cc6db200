"""Files as torch.save writes them, of any pickle: for those that torch.save would never write."""

import io
import pickle
import zipfile
from collections import OrderedDict

import torch
from torch._utils import _rebuild_tensor_v2

# A mark, a version, and the machine.
OLD_BEGINNING = b"".join(
    pickle.dumps(each, protocol=2)
    for each in (torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, {"little_endian": True})
)


class Call:
    """A call that a pickle asks for."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        """Return what is called."""
        return self.call


class Storage:
    """A storage of so many numbers, by its key."""

    def __init__(self, key, numbers, kind=torch.FloatStorage, location="cpu"):
        self.id = "storage", kind, key, location, numbers


def tensor(storage, shape, stride):
    """What a pickle says of a tensor."""
    return Call(_rebuild_tensor_v2, storage, 0, shape, stride, False, OrderedDict())


def pickled(content, *, old=False):
    """Pickle content, with storages as torch.save names them."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=2)
    pickler.persistent_id = lambda each: (*each.id, *[None] * old) if isinstance(each, Storage) else None
    pickler.dump(content)
    return file.getvalue()


def write_zip(path, pickle_bytes, storages=(), *, compression=zipfile.ZIP_STORED, more=()):
    """Write a file of torch.save's newer kind; storages are bytes."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a/data.pkl", pickle_bytes)
        for key, content in enumerate(storages):
            archive.writestr(f"a/data/{key}", content)
        for name, content in (("a/version", b"3\n"), *more):
            archive.writestr(name, content)


def write_old(path, pickle_bytes, keys=(), storages=()):
    """Write a file of its older kind; storages are bytes, of float32."""
    listed = [(len(content) // 4).to_bytes(8, "little") + content for content in storages]
    path.write_bytes(b"".join([OLD_BEGINNING, pickle_bytes, pickle.dumps(list(keys), protocol=2), *listed]))
