"""Fixtures that several test folders share."""

import fcntl
import gc
import hashlib
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import few
import nightly

ROOT = Path(__file__).parents[1]
# What tiny bundles are made of: the exporter, the manifest's definition, the checkpoints, the versions of libraries.
SOURCES = (
    "export/weft_export/**/*.py",
    "proto/weft_proto/*.py",
    "proto/weft_proto/v1/bundle.proto",
    "tests/export/tiny*.py",
    "tests/quick_tracing.py",
    "constraints.txt",
)

# No test of a law is about time: a machine may stand still for a while.
settings.register_profile("weft", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("weft")

# Tests are no packages; the few modules that they share are found by name.
sys.path.insert(0, str(Path(__file__).parent / "export"))


def pytest_configure(config):
    """Say whether all cases run, and let Ctrl-C and a hang-up reach the processes that tests start."""
    few.all_cases = "not whole" not in config.option.markexpr
    # What is collected stays: looking through it again and again takes a tenth of the time.
    gc.disable()
    # Background jobs of a shell ignore the one, nohup the other, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(config, items):
    """Mark what durations.tsv says as slow and nightly.tsv as whole, and begin with the files that take longest.

    Begun last, one of them would keep a single worker busy at the end.
    """
    nightly.mark(items, is_part=any("::" in arg for arg in config.args))
    seconds, by_file = {}, Counter()
    for line in (ROOT / "tests" / "durations.tsv").read_text().splitlines():
        taken, function = line.split("\t")
        seconds[function] = float(taken)
        by_file[function.partition("::")[0]] += float(taken)
    for item in items:
        if item.nodeid.partition("[")[0] in seconds:
            item.add_marker("slow")
    items.sort(key=lambda item: -by_file[item.nodeid.partition("::")[0]])


def pytest_collection_finish():
    """Spare the tests what is the same for all of them."""
    if "torch.onnx" in sys.modules:
        from quick_tracing import trace_quickly

        trace_quickly()
    # Modules and tests are millions of objects, which live to the end: no collection looks through them again.
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Begin each test with one thread of torch, whatever a recipe left in the one before.

    A second one gains nothing on tiny tensors. Where others want the cores too, both wait for each other busily: ten
    times as long, and of the processor too.
    """
    torch = sys.modules.get("torch")
    if torch and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.hookimpl(trylast=True)  # when fixtures are gone
def pytest_runtest_teardown(item, nextitem):
    """After each file, collect what it left, and look through what stays no more.

    Thousands of tests leave millions of objects, and each collection that a test asks for would take seconds.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def demo_repository():
    """The demo models, as `make models` leaves them."""
    repository = ROOT / "build" / "models"
    assert 8 == len(list(repository.glob("*/1/bundle.json"))), "run `make models` first"
    return repository


@pytest.fixture(scope="session")
def tiny_repository(tiny_bundles_of):
    """The tiny random checkpoints of tiny.CHECKPOINTS, exported: a model repository with tiny-*/1.

    It outlives the tests: copy what you mean to change. A bundle is made when it is asked for.
    """
    return tiny_bundles_of("fp32")


@pytest.fixture(scope="session")
def whole_tiny_repository(tiny_repository, tmp_path_factory):
    """The path of a repository with all bundles of tiny_repository that this run has."""
    folder = tmp_path_factory.mktemp("whole")
    for bundle in tiny_repository.whole():
        (folder / bundle.name).symlink_to(bundle)
    return folder


@pytest.fixture(scope="session")
def int8_repository(tiny_bundles_of):
    """Those of tiny.INT8 at int8: a model repository with tiny-*-int8/1; it outlives the tests too."""
    return tiny_bundles_of("int8")


@pytest.fixture(scope="session")
def int4_repository(tiny_bundles_of):
    """Those of tiny.INT4 at int4: a model repository with tiny-*-int4/1; it outlives the tests too."""
    return tiny_bundles_of("int4")


@pytest.fixture(scope="session")
def tiny_bundle(tiny_repository, int8_repository, int4_repository):
    """A function: the folder of one of their bundles, whose name ends with its precision if that is not fp32."""
    repositories = {"int8": int8_repository, "int4": int4_repository}
    return lambda name: repositories.get(name.rpartition("-")[2], tiny_repository) / name / "1"


@pytest.fixture(scope="session")
def tiny_bundles_of():
    """A function: the repository of a precision."""
    from tiny import export_tiny

    from quick_tracing import trace_quickly

    digest = _digest()
    # torch's tracing keeps the interpreter to itself, so there are processes for it. They begin with the first bundle.
    # Each needs seconds until it knows torch: xdist's workers, which know it and are several, export themselves.
    if "PYTEST_XDIST_WORKER" in os.environ:
        trace_quickly()
        yield lambda precision: TinyBundles(precision, digest, 1, export_tiny, has_all=few.all_cases)
        return
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=trace_quickly) as processes:

        def export(*arguments):
            processes.submit(export_tiny, *arguments).result()

        yield lambda precision: TinyBundles(precision, digest, 2, export, has_all=few.all_cases)


class TinyBundles:
    """A model repository in build/tiny. `/ name` is the folder of a model, whose bundle is made if it has to be.

    A bundle is exported again when one of SOURCES has changed. `export` is called num_at_once times at once.
    """

    def __init__(self, precision, digest, num_at_once, export, *, has_all):
        self._precision, self._digest, self._has_all = precision, digest, has_all
        self._num_at_once, self._export = num_at_once, export
        self.folder = ROOT / "build" / "tiny" / precision

    def __truediv__(self, name):
        if name in self._names():
            self._make(name)
        return self.folder / name

    def whole(self):
        """The folders of its bundles, all made: in `make test` those alone that nightly.tsv leaves to it."""
        names = [name for name in self._names() if self._has_all or nightly.is_made(name)]
        with ThreadPoolExecutor(self._num_at_once) as threads:
            list(threads.map(self._make, names))
        return [self.folder / name for name in names]

    def _names(self):
        """The checkpoint of each bundle, by the bundle's name."""
        import tiny

        if self._precision == "fp32":
            return {name: name for name in tiny.CHECKPOINTS}
        return {f"{name}-{self._precision}": name for name in getattr(tiny, self._precision.upper())}

    def _make(self, name):
        stamps = ROOT / "build" / "tiny" / "stamps"
        stamps.mkdir(parents=True, exist_ok=True)
        # Of several pytests (xdist's workers are some) one exports, and the others wait.
        with (stamps / name).open("a+") as made_of:
            fcntl.flock(made_of, fcntl.LOCK_EX)
            made_of.seek(0)
            if made_of.read() == self._digest:
                return
            made_of.truncate(0)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            with tempfile.TemporaryDirectory() as checkpoints:
                arguments = Path(checkpoints), self.folder, self._names()[name], self._precision
                self._export(*arguments)
            made_of.write(self._digest)


def _digest():
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
