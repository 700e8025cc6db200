"""A value that is made of files: when it is made again, and what happens to one that cannot be read."""

from pathlib import Path

import pytest

from weft_server.auth import file_watch
from weft_server.auth.file_watch import FileWatch, contents_of, wait_until_still


@pytest.fixture
def path(tmp_path):
    """A file that says `one`."""
    file = tmp_path / "words"
    file.write_text("one")
    return file


def test_a_change_that_two_looks_have_seen_makes_the_value_again(path):
    """Once. The first look may have seen a half of what is being written."""
    watch = FileWatch([path], path.read_text)
    assert ("one", False) == (watch.value, watch.refresh())
    path.write_text("tw")
    assert ("one", False) == (watch.value, watch.refresh())
    path.write_text("two")
    assert [False, True, False] == [watch.refresh() for _ in range(3)]
    assert "two" == watch.value


def test_what_cannot_be_made_is_told_once_and_the_old_value_stays(path):
    """Until the files change again."""

    def make():
        if "wrong" in path.read_text():
            raise ValueError("wrong")
        return path.read_text()

    watch = FileWatch([path], make)
    path.write_text("wrong")
    watch.refresh()
    with pytest.raises(ValueError, match="wrong"):
        watch.refresh()
    assert ("one", False) == (watch.value, watch.refresh())
    path.write_text("three")
    assert [False, True] == [watch.refresh() for _ in range(2)]
    assert "three" == watch.value


def test_a_file_that_changes_while_it_is_read_is_read_again(path):
    """The value may be of what is no longer there."""
    texts = iter(["one", "three", "four"])

    def make():
        path.write_text(text := next(texts))
        return text

    watch = FileWatch([path], make)
    path.write_text("two")
    assert [False, False, False, False] == [watch.refresh() for _ in range(4)]
    assert "one" == watch.value


def test_what_cannot_be_read_has_no_content(path, tmp_path, monkeypatch):
    """Who makes the value says why. Of a file that is too long there is as much as shows that."""
    # It is a file to who asks, and reading its first byte is an error.
    assert [b"one", None, None, None] == contents_of([path, tmp_path, tmp_path / "none", Path("/proc/self/mem")])
    monkeypatch.setattr(file_watch, "MAX_BYTES", 2)
    path.write_text("four")
    assert [b"fou"] == contents_of([path])


def test_a_start_waits_while_files_change(path, monkeypatch):
    """Until two looks see the same, and not for ever."""
    monkeypatch.setattr(file_watch, "STILL_S", 1.5)
    monkeypatch.setattr(file_watch, "_age_s", lambda _: 0.0)
    texts, looks = ["two", "three", "three"], []

    def sleep(seconds):
        looks.append(seconds)
        path.write_text(texts[len(looks) - 1])

    monkeypatch.setattr(file_watch.time, "sleep", sleep)
    assert wait_until_still([path], 1e9)
    assert [1.5, 1.5, 1.5] == looks
    texts, looks = ["four"], []
    assert not wait_until_still([path], -1.0)
    assert 1 == len(looks)


def test_nobody_waits_for_files_that_are_old(path, monkeypatch):
    """Or are not there."""
    monkeypatch.setattr(file_watch.time, "time", lambda: path.stat().st_ctime + file_watch.STILL_S)
    monkeypatch.setattr(file_watch.time, "sleep", None)
    assert wait_until_still([path, path / "none"], 0.0)
