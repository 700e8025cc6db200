"""Whom to ask of a mutant: of the files of tests that run its line, the nearest."""

import ast
import re

from parts import ROOT, tests_of

_MOST_FILES = 8


def who(mutant, ran) -> list[str]:
    """The files of tests that are asked, the nearest first.

    Near is one that is named for the module or for words of the line, or imports the module. Of equally near ones
    that which runs the fewest lines comes first.
    """
    run = [test for test in tests_of(mutant.path) if set(mutant.mutation.lines) & set(ran.lines(test, mutant.path))]
    return sorted(run, key=lambda test: (-_nearness(test, mutant), ran.size(test)))[:_MOST_FILES]


def _nearness(test, mutant):
    parts = mutant.path.removesuffix(".py").removesuffix("/__init__").split("/")[1:]
    of_test = _words(test.rpartition("/test_")[2].removesuffix(".py"))
    of_line = _words(f"{mutant.mutation.within} {mutant.mutation.before}")
    return 2 * len(_words(parts[-1]) & of_test) + len(of_line & of_test) + (".".join(parts) in _imports(test))


def _words(name):
    """Of names, without the plural."""
    return {word.rstrip("s") for word in re.findall("[a-z]+", name.lower())}


def _imports(test):
    """Modules that a file imports anywhere, and what may be modules."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / test).read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names
