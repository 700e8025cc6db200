"""The documentation strings of the Python that runs, read from its sources; nothing is imported."""

import ast
import importlib.util
import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "ensurepip", "pydoc_data"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Docstring:
    """A text and the file it stands in, relative to the library: "json/decoder.py"."""

    path: str
    text: str

    @property
    def module(self) -> str:
        """The top-level module or package."""
        return self.path.split("/")[0].removesuffix(".py")


@cache
def read_docstrings() -> tuple[Docstring, ...]:
    """Read all docstrings, in the order of their files; of equal texts only the first."""
    library = Path(sysconfig.get_path("stdlib"))
    seen: set[str] = set()
    found = []
    for file in sorted(library.rglob("*.py")):
        path = file.relative_to(library)
        if _SKIPPED.isdisjoint(path.parts):
            for text in _texts(file):
                if text not in seen:
                    seen.add(text)
                    found.append(Docstring(path.as_posix(), text))
    return tuple(found)


@cache
def read_words(shortest: int, longest: int) -> tuple[str, ...]:
    """Return the lower-case words of so many letters that the docstrings have three times or more, commonest first."""
    pattern = re.compile(rf"(?<![\w.])[a-z]{{{shortest},{longest}}}(?![\w(])")
    counts = Counter(word for docstring in read_docstrings() for word in pattern.findall(docstring.text))
    return tuple(word for word, count in counts.most_common() if count >= 3)


def read_topics() -> list[Docstring]:
    """Read the language reference that `help()` shows, one text for each topic."""
    spec = importlib.util.find_spec("pydoc_data.topics")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            return [Docstring(f"pydoc_data/{name}", text) for name, text in sorted(topics.items())]
    raise AssertionError("pydoc_data.topics holds no dictionary. This is a bug.")


def is_held_out(path: str, one_in: int) -> bool:
    """Whether a file is kept from training: one in so many, by a hash of its path."""
    return zlib.crc32(path.encode()) % one_in == 0


def _texts(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # lib2to3 and others carry sources of other Pythons
        return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node)
            if text and text.strip():
                yield text.strip()
