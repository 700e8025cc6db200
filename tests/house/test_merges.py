"""No file keeps what a merge left."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "deploy", "docs", "export", "proto", "server", "tests")
KINDS = {
    ".css",
    ".html",
    ".js",
    ".json",
    ".md",
    ".mjs",
    ".proto",
    ".py",
    ".svg",
    ".toml",
    ".tsv",
    ".txt",
    ".yaml",
    ".yml",
}


def test_no_file_has_the_markers_of_a_conflict():
    """The console's scripts are run in a browser alone, so nothing else of each day would find them there."""
    paths = [*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths if path.suffix in KINDS and path.is_file()}

    assert len(texts) > 1000
    assert [] == [path for path, text in texts.items() if "\n<<<<<<< " in text or "\n>>>>>>> " in text]
