"""A folder's print is another one when somebody has changed a file, and only then."""

import os

from weft_server.bundle.files import fingerprint_of


def test_each_change_of_a_file_shows(tmp_path):
    """Its size, its time, its name, that it is there; and a repair that keeps size and time."""
    path = tmp_path / "a"
    path.write_text("one")
    prints = [fingerprint_of(tmp_path)]
    assert prints == [fingerprint_of(tmp_path)]

    def changed():
        prints.append(fingerprint_of(tmp_path))

    path.write_text("three")
    changed()
    os.utime(path, ns=(1, 1))
    changed()
    path.write_text("seven")
    os.utime(path, ns=(1, 1))
    changed()
    (tmp_path / "b").touch()
    changed()
    path.rename(tmp_path / "c")
    changed()
    assert len(prints) == len(set(prints))
    assert ["b", "c"] == [name for name, *_ in prints[-1]]


def test_a_folder_that_cannot_be_listed_has_an_empty_print(tmp_path):
    """It may have left, or be no folder."""
    (tmp_path / "file").touch()
    assert ((), ()) == (fingerprint_of(tmp_path / "gone"), fingerprint_of(tmp_path / "file"))
