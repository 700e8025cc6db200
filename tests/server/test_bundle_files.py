"""A bundle has the files that its manifest lists, as it lists them, and no other."""

import os

import pytest

from drafts import refused, translate


def _flip_a_bit(directory):
    (directory / "weights.data").write_bytes(b"\1" + bytes(15))


def _replace_by_symlink(directory):
    (directory / "weights.data").rename(directory.parent / "elsewhere")
    (directory / "weights.data").symlink_to("../elsewhere")


def _replace_by_fifo(directory):
    (directory / "weights.data").unlink()
    os.mkfifo(directory / "weights.data")


def _grow_tokenizer(directory):
    path = directory / "bundle.json"
    path.write_text(path.read_text().replace('"sizeBytes": "2"', '"sizeBytes": "67108865"'))


FILES = {
    "a missing file": (lambda d: (d / "weights.data").unlink(), "weights.data is missing"),
    "a missing manifest": (lambda d: (d / "bundle.json").unlink(), "bundle.json is missing"),
    "a wrong digest": (_flip_a_bit, "weights.data has sha256"),
    "a wrong size": (lambda d: (d / "weights.data").write_bytes(bytes(15)), "15 bytes; the manifest says 16"),
    "a symbolic link": (_replace_by_symlink, "weights.data is a symbolic link"),
    "a hard link": (lambda d: os.link(d / "weights.data", d.parent / "twin"), "weights.data is a hard link"),
    "a tokenizer too large": (_grow_tokenizer, "tokenizer.json has 67,108,865 bytes; of such a file at most"),
    "a manifest too large": (
        lambda d: (d / "bundle.json").write_text('{"labels": [' + '"",' * 5_500_000 + '""]}'),
        "bundle.json has 16500016 bytes; at most 8388608 are read",
    ),
    "too many entries": (
        lambda d: (d / "bundle.json").write_text('{"golden": {"probabilities": [' + "1, " * 2_700_000 + "1]}}"),
        "bundle.json has more than 400,000 entries",
    ),
    "a number too long": (lambda d: (d / "bundle.json").write_text("1" * 5000), "not a BundleManifest in JSON"),
    "a fifo": (_replace_by_fifo, "weights.data is not a regular file"),
    "a file too many": (lambda d: (d / "libcustom.so").touch(), "libcustom.so is not listed"),
    "a folder too many": (lambda d: (d / "more").mkdir(), "more is not listed"),
    "no JSON": (lambda d: (d / "bundle.json").write_text("{"), "not a BundleManifest in JSON"),
    "no UTF-8": (lambda d: (d / "bundle.json").write_bytes(b"\xff"), "not a BundleManifest in JSON"),
    "endless nesting": (lambda d: (d / "bundle.json").write_text("[" * 100_000), "not a BundleManifest in JSON"),
    "an unknown field": (
        lambda d: (d / "bundle.json").write_text('{"formatVersion": 1, "sessionOptions": {}}'),
        "sessionOptions",
    ),
    "another format": (lambda d: (d / "bundle.json").write_text('{"formatVersion": 2}'), "format_version 2"),
}


@pytest.mark.parametrize(("change", "text"), FILES.values(), ids=FILES)
def test_files_that_differ_are_refused(tmp_path, change, text):
    """A bundle whose files are not exactly the listed ones is refused, and the sentence names the file."""
    directory = translate(tmp_path / "tiny" / "1").write()
    change(directory)
    assert text in refused(directory)


@pytest.mark.parametrize("name", ["../weights.data", "/etc/passwd", "a/b", "", ".", "..", "bundle.json", "a\n", "ä"])
def test_file_names_are_plain(tmp_path, name):
    """A listed name that is a path, is special or has other characters is refused before anything is opened."""
    draft = translate(tmp_path / "tiny" / "1")
    draft.write()
    draft.manifest.files.add(path=name, sha256="0" * 64)
    draft.write_manifest()
    assert f"file name {name!r} is not allowed" in refused(draft.directory)


def test_a_file_is_listed_once(tmp_path):
    """A file listed twice is refused: two digests cannot both be meant."""
    draft = translate(tmp_path / "tiny" / "1")
    draft.write()
    draft.manifest.files.append(draft.manifest.files[0])
    draft.write_manifest()
    assert "is listed twice" in refused(draft.directory)
