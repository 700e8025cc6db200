"""Fixtures that several test folders share."""

import fcntl
import hashlib
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
# What tiny bundles are made of: the exporter, the manifest's definition, the checkpoints, the versions of libraries.
SOURCES = (
    "export/weft_export/**/*.py",
    "proto/weft_proto/*.py",
    "proto/weft_proto/v1/bundle.proto",
    "tests/export/tiny*.py",
    "constraints.txt",
)

# No test of a law is about time: a machine may stand still for a while.
settings.register_profile("weft", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("weft")

# Tests are no packages; the few modules that they share are found by name.
sys.path.insert(0, str(Path(__file__).parent / "export"))


def pytest_configure():
    """Let Ctrl-C reach the processes that tests start."""
    # Background jobs of a shell ignore it, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Begin with the files that hold slow tests: begun last, one would keep a single worker busy at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def demo_repository():
    """The demo models, as `make models` leaves them."""
    repository = ROOT / "build" / "models"
    assert 8 == len(list(repository.glob("*/1/bundle.json"))), "run `make models` first"
    return repository


@pytest.fixture(scope="session")
def tiny_repository():
    """The tiny random checkpoints of tiny.CHECKPOINTS, exported: a model repository with tiny-*/1.

    It outlives the tests: copy what you mean to change.
    """
    from tiny import CHECKPOINTS

    return _exported(CHECKPOINTS, "fp32")


@pytest.fixture(scope="session")
def int8_repository():
    """Those of tiny.INT8 at int8: a model repository with tiny-*-int8/1; it outlives the tests too."""
    from tiny import INT8

    return _exported(INT8, "int8")


@pytest.fixture(scope="session")
def int4_repository():
    """Those of tiny.INT4 at int4: a model repository with tiny-*-int4/1; it outlives the tests too."""
    from tiny import INT4

    return _exported(INT4, "int4")


def _exported(names, precision):
    """Their bundles in build/tiny, exported again only when one of SOURCES has changed."""
    repository, digest = ROOT / "build" / "tiny" / precision, _digest()
    repository.parent.mkdir(parents=True, exist_ok=True)
    # Of several pytests (xdist's workers are some) one exports, and the others wait.
    with repository.with_suffix(".sha256").open("a+") as made_of:
        fcntl.flock(made_of, fcntl.LOCK_EX)
        made_of.seek(0)
        if made_of.read() != digest:
            made_of.truncate(0)
            shutil.rmtree(repository, ignore_errors=True)
            _export(names, precision, repository)
            made_of.write(digest)
    return repository


def _digest():
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _export(names, precision, repository):
    from tiny import export_tiny

    # In processes of their own, since torch's tracing keeps the interpreter to itself.
    with (
        tempfile.TemporaryDirectory() as checkpoints,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes,
    ):
        for _ in processes.map(partial(export_tiny, Path(checkpoints), repository, precision=precision), names):
            pass
