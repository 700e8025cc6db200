"""Whom to ask of a mutant: the files of tests that are nearest to its module, by what they import."""

import ast
from collections import defaultdict

from parts import HELPERS, PACKAGES, ROOT, TESTS

_MOST_FILES = 8
# What makes a file of tests near to a module. The nearest comes first, and of equally near ones the smaller one.
_NAMED_FOR_IT, _IMPORTS_IT, _BY_A_HELPER, _IMPORTS_ITS_USER, _A_HELPER_DOES = 8, 6, 3, 2, 1


class Who:
    """What each module of the product is imported by: of the checkout, as it is on the disk."""

    def __init__(self):
        modules = {_module_of(path): path for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
        helpers = {path.stem: path for pattern in HELPERS for path in ROOT.glob(pattern)}
        self._tests = {path: _imports(path) for pattern in TESTS for path in sorted(ROOT.glob(pattern))}
        by_helper = {name: _imports(path) for name, path in helpers.items()}
        self._by_helpers = {
            path: set().union(*(by_helper[name] for name in names & by_helper.keys()))
            for path, names in self._tests.items()
        }
        self._users = defaultdict(set)
        for user, path in modules.items():
            for name in _imports(path) & modules.keys():
                self._users[name].add(user)

    def of(self, path):
        """The files of tests that are asked of a file of the product, the nearest first: relative paths."""
        module = _module_of(ROOT / path)
        nearness = {test: self._nearness(test, module) for test in self._tests}
        near = sorted((test for test in nearness if nearness[test]), key=lambda test: (-nearness[test], _size(test)))
        return [str(test.relative_to(ROOT)) for test in near[:_MOST_FILES]]

    def _nearness(self, test, module):
        name, stem = test.stem.removeprefix("test_"), module.rpartition(".")[2].strip("_")
        users = self._users[module]
        return (
            _NAMED_FOR_IT * (stem.rstrip("s") in name)
            + _IMPORTS_IT * (module in self._tests[test])
            + _BY_A_HELPER * (module in self._by_helpers[test])
            + min(_IMPORTS_ITS_USER * len(users & self._tests[test]), _IMPORTS_IT - 1)
            + _A_HELPER_DOES * bool(users & self._by_helpers[test])
        )


def _size(path):
    return path.stat().st_size


def _module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path):
    """Modules that a file imports anywhere, and what may be modules."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names
