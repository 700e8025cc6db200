"""Memory for states."""

import mmap

import numpy as np

from weft_server import pages


def test_it_is_zeroed_and_writable():
    """An array of any shape is zeros, contiguous, and keeps what is written."""
    array = pages.zeros((3, 5, 7), np.dtype(np.float16))

    assert (3, 5, 7) == array.shape
    assert not array.any()
    array[1] = 2
    assert array.sum() == 70
    assert (0, 4) == pages.zeros((0, 4), np.dtype(np.float32)).shape


def test_a_kernel_without_huge_pages_is_no_error(monkeypatch):
    """Where the advice is refused, the memory is there all the same."""

    class Refusing(mmap.mmap):
        def madvise(self, *_):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(pages.mmap, "mmap", Refusing)

    assert not pages.zeros((4, 4), np.dtype(np.float32)).any()
