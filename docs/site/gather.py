"""Gathers the manual for its site into a folder: `python docs/site/gather.py build/manual`.

Its pages come from where they are read in a clone: docs/, the README.md of each folder, and what the code says of
itself. Beside them is the site's mkdocs.yml.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from reference import REFERENCE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# [text](target#part), and the same behind a ! for a picture.
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def gather(folder):
    """Write the site's configuration into an empty folder, and all pages and their pictures into its `pages`."""
    shutil.rmtree(folder, ignore_errors=True)
    into = folder / "pages"
    for name in pages():
        _write(into / name, _linked(name, (ROOT / name).read_text()))
        for picture in _pictures(name):
            (into / picture).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / picture, into / picture)
    for name, page in REFERENCE.items():
        _write(into / "reference" / name, page())
    order = yaml.safe_load((HERE / "nav.yml").read_text())
    nav = [{title: [page for entry in entries for page in _below(into, entry)]} for title, entries in order.items()]
    site = {"INHERIT": str(HERE / "mkdocs.yml"), "docs_dir": "pages", "site_dir": "site", "nav": nav}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(site, sort_keys=False))


def _below(into, entry):
    """Return what an entry of the order stands for. The pages of a folder are under its own page, if it has one."""
    if not entry.endswith("/"):
        return [entry]
    index = f"{entry}README.md"
    below = sorted({path.relative_to(into).as_posix() for path in (into / entry).rglob("*.md")} - {index})
    if not (into / index).exists():
        return below
    title = (into / index).read_text().splitlines()[0].removeprefix("# ")
    return [{title: [index, *below]}]


def pages():
    """Return the path of each page of the repository."""
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    return tracked.stdout.split()


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _from_root(name, target):
    """Return the path from the root of what a page links to, and None of what lies elsewhere."""
    return None if "://" in target else (ROOT / name).parent.joinpath(target).resolve().relative_to(ROOT)


def _pictures(name):
    for mark, _, target, _ in LINK.findall((ROOT / name).read_text()):
        if mark and (path := _from_root(name, target)):
            yield path


def _linked(name, text):
    """Return a page whose links lead to pages alone: a file of the source is named by its path, as it has no page.

    A picture leads to itself, as on GitHub: on a telephone it is opened to be read.
    """

    def shown(link):
        mark, words, target, part = link.groups(default="")
        path = _from_root(name, target)
        if mark and path:
            return f"[{link.group()}]({target})"
        if path is None or path.suffix == ".md":
            return link.group()
        if (ROOT / path / "README.md").is_file():
            return f"[{words}]({target.rstrip('/')}/README.md{part})"
        return words if path.name in words else f"{words} (`{path}`)"

    return LINK.sub(shown, text)


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
