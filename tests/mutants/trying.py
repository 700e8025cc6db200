"""Runs tests with a change in one module. Each mutant has a process of its own, which ends with all that it started."""

import ast
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

import coverage
import pytest
from operators import mutations_of
from parts import PACKAGES

# What tests import and nobody changes. A process that is forked has it already.
_SHARED = (
    *("numpy", "grpc.aio", "onnx", "onnxruntime", "tokenizers", "torch", "pydantic", "structlog", "prometheus_client"),
    *("typer", "rich", "jinja2", "PIL.Image", "weft_proto.tasks", "weft_proto.bundle_rules"),
    *("hypothesis.strategies", "_hypothesis_pytestplugin", "pytest_timeout", "xdist.plugin"),
)
# Of a mutant that ends nothing. Tests take a fraction of it.
LIMIT_S = 240.0
_LOOK_S = 0.05
# No further file of tests is asked after so many seconds of processor time.
ENOUGH_S = 40.0
_SURVIVED, _KILLED, _BROKEN = 0, 1, 70
_NOT_ASKED = "not slow and not e2e and not long and not whole and not gpu"
# The second file of a process finds pytest's plugins imported.
_KNOWN = "ignore::pytest.PytestAssertRewriteWarning"


class Trying:
    """Asks in the folder of a copy, whose packages come before installed ones. One for a process, which it changes."""

    def __init__(self, tree: Path, log: Path) -> None:
        self._tree = tree
        self._log = log
        folders = [str(tree / name) for name in PACKAGES]
        sys.path[:0] = folders
        for name in _SHARED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        # Those are millions of objects, and each run of pytest begins with a collection.
        gc.collect()
        gc.freeze()
        # For the processes that tests start. They run without the change.
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
        os.chdir(tree)

    def of(self, mutant, tests):
        """What becomes of a mutant, and the test that killed it."""
        if not tests:
            return "no test", ""
        code = self._code_of(lambda: _asked(tests), _Changed(mutant))
        if code is None:
            return "timed out", ""
        if code == _SURVIVED:
            return "survived", ""
        assert code == _KILLED, f"{mutant.key} cannot be tried: see {self._log}"
        lines = self._log.read_text(errors="replace").splitlines()
        failed = [line.split()[1] for line in lines if line.startswith(("FAILED tests", "ERROR tests"))]
        return "killed", failed[0] if failed else ""

    def watched(self, test):
        """The lines that a file of tests runs of each file of the product: none if that takes too long to be near."""
        seen = self._log.with_suffix(".json")
        code = self._code_of(lambda: self._watch(test, seen))
        if code is None:
            return {}
        assert code == _SURVIVED, f"{test} fails without a change: see {self._log}"
        return json.loads(seen.read_text())

    def _watch(self, test, seen):
        folders = [f"{self._tree / name}/*" for name in PACKAGES]
        watching = coverage.Coverage(data_file=None, config_file=False, include=folders)
        watching.start()
        code = _asked([test])
        watching.stop()
        data = watching.get_data()
        lines = {str(Path(name).relative_to(self._tree)): data.lines(name) for name in data.measured_files()}
        seen.write_text(json.dumps(lines))
        return code

    def _code_of(self, work, *finders):
        """The exit code of a process of its own that works, or None if that takes too long."""
        child = os.fork()
        if child:
            return _ended(child)
        code = _BROKEN
        try:
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.meta_path[:0] = finders
            code = work()
        except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _asked(tests):
    """Run files of tests until one fails."""
    for test in tests:
        options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=short", "-W", _KNOWN, "-m", _NOT_ASKED]
        code = pytest.main([*options, test])
        if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return _KILLED
        if time.process_time() > ENOUGH_S:
            break
    return _SURVIVED


class _Changed(MetaPathFinder):
    """Finds one module, with its change. No file is written, so no compiled one can be out of date."""

    def __init__(self, mutant):
        path = Path(mutant.path)
        parts = path.relative_to(path.parts[0]).with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._number = mutant.number

    def find_spec(self, fullname, path, target=None):
        """Take the place of what finds modules otherwise, for this one."""
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path)
        spec.loader = _Loader(fullname, spec.origin)
        spec.loader.number = self._number
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname):
        """Compile the module with its change."""
        tree = ast.parse(self.get_data(self.path))
        mutations_of(tree)[self.number].apply()
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


def _ended(child):
    """Wait for a process, and end what it has started. Its exit code, or None if it takes too long."""
    waited, ended, status = 0.0, 0, 0
    while not ended and waited < LIMIT_S:
        ended, status = os.waitpid(child, os.WNOHANG)
        begun = time.monotonic()
        time.sleep(0.0 if ended else _LOOK_S)
        # While the machine stands still, nobody has taken long.
        waited += min(time.monotonic() - begun, 2 * _LOOK_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)
