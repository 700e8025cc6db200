"""Tests ask objects what anybody may ask them. So a class may change inside, and its tests still hold."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {"tests", "tests/server", "tests/e2e", "tests/matrix", "tests/wire"}
FILES = [path for path in (ROOT / "tests").rglob("*.py") if path.parent.relative_to(ROOT).as_posix() in FOLDERS]
# The object that has them, and what Python documents in spite of its name.
OWN, DOCUMENTED = {"self", "cls"}, {"_replace", "_asdict", "_fields", "_make"}


def test_no_test_asks_another_object_s_private_names():
    """It may replace those of a module or a class: what the process is made of, and no object of the product's."""
    texts = {path.relative_to(ROOT): path.read_text() for path in FILES}
    trees = {path: ast.parse(text) for path, text in texts.items() if re.search(r"\._(?!_)|attr\(", text)}
    assert [] == [f"{path}:{line}" for path, tree in trees.items() for line in asked(tree)]
    assert len(trees) > 10


def asked(tree):
    """The lines on which a private name of an object stands."""
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        owner, name = named(node)
        if re.match("_(?!_)", name) and name not in DOCUMENTED and not is_open(owner, imported | OWN):
            yield node.lineno


def named(node):
    """Whose name an expression asks for, or `setattr` and its like by a string, and which."""
    match node:
        case ast.Attribute(owner, name):
            return owner, name
        case ast.Call(ast.Name(asks) | ast.Attribute(attr=asks), [owner, ast.Constant(str(name)), *_]):
            return (owner, name) if asks in {"getattr", "setattr", "delattr", "hasattr"} else (None, "")
    return None, ""


def is_open(owner, known):
    """Whether it is known by its name, a class, or what a test's own class is made of."""
    match owner:
        case ast.Name(name):
            return name in known
        case ast.Attribute(attr=name):
            return name[:1].isupper()
    return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and "super" == owner.func.id


def test_what_is_asked_is_found():
    """An attribute, a chain and a call; not what belongs to the asker, a class or a module."""
    lines = ["import os", "os._exit(1)", "self._own", "a._b", "a.c._d()", "f()._e", "a._replace(x=1)", "a.__class__"]
    lines += ["super()._f()", "module.Class._g", "mp.setattr(a, '_h', 1)", "setattr(os, '_i', 1)", "getattr(a.b, '_j')"]
    assert [4, 5, 6, 11, 13] == sorted(asked(ast.parse("\n".join(lines))))
