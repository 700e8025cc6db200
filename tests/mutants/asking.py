"""Runs tests with a change in one module. Each mutant has a process of its own, which ends with all that it started."""

import ast
import contextlib
import importlib
import os
import signal
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

import pytest

from draw import Mutant
from mutations import mutations_of
from parts import PACKAGES

# What tests import and nobody changes. A process that is forked has it already.
_SHARED = "numpy grpc.aio onnx onnxruntime tokenizers torch pydantic structlog prometheus_client typer rich hypothesis"
LIMIT_S = 300.0
_RESULTS = {0: "survived", 1: "killed", 2: "killed"}


class Asking:
    """`of` asks. A context manager: it works in the folder of the copy, whose packages come before installed ones."""

    def __init__(self, tree: Path, log: Path) -> None:
        self._tree = tree
        self._log = log

    def __enter__(self) -> "Asking":
        for name in _SHARED.split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        folders = [str(self._tree / name) for name in PACKAGES]
        sys.path[:0] = folders
        # For the processes that tests start. They run without the change.
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
        os.chdir(self._tree)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def of(self, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
        """What becomes of a mutant, and the test that killed it."""
        if not tests:
            return "no test", ""
        child = os.fork()
        if not child:
            self._run(mutant, tests)
        code = _ended(child)
        if code is None:
            return "timed out", ""
        if code not in _RESULTS:
            raise SystemExit(f"{mutant.key}: pytest ends with {code}; see {self._log}")
        failed = [line for line in self._log.read_text(errors="replace").splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return _RESULTS[code], failed[0].split()[1] if failed else ""

    def _run(self, mutant: Mutant, tests: list[str]) -> None:
        """Be the process of a mutant."""
        code = 70
        try:
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.meta_path.insert(0, _Changed(mutant, self._tree))
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=short", *tests]))
        finally:
            os._exit(code)


class _Changed(MetaPathFinder):
    """Finds one module, with its change. No file is written, so no compiled one can be out of date."""

    def __init__(self, mutant: Mutant, tree: Path) -> None:
        path = Path(mutant.path)
        self._name = ".".join(path.relative_to(path.parts[0]).with_suffix("").parts)
        self._number, self._path = mutant.number, tree / path

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> object:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path)
        spec.loader = _Loader(fullname, str(self._path))
        spec.loader.number = self._number
        return spec


class _Loader(SourceFileLoader):
    number: int

    def get_code(self, fullname: str) -> object:
        tree = ast.parse(self.get_data(self.path))
        mutations_of(tree)[self.number].apply()
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


def _ended(child: int) -> int | None:
    """Wait for a process, and end what it has started. None if it takes too long."""
    give_up = time.monotonic() + LIMIT_S
    ended = 0
    while not ended and time.monotonic() < give_up:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.0 if ended else 0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)
