"""Fixtures that several test folders share."""

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

# Tests are no packages; the few modules that they share are found by name.
sys.path.insert(0, str(Path(__file__).parent / "export"))


@pytest.fixture(scope="session")
def tiny_repository(tmp_path_factory):
    """Export the tiny random checkpoints of tiny.CHECKPOINTS once: a model repository with tiny-*/1.

    Copy what you mean to change.
    """
    from tiny import CHECKPOINTS

    return _exported(tmp_path_factory, CHECKPOINTS, "fp32")


@pytest.fixture(scope="session")
def int8_repository(tmp_path_factory):
    """Export those of tiny.INT8 once at int8: a model repository with tiny-*-int8/1."""
    from tiny import INT8

    return _exported(tmp_path_factory, INT8, "int8")


def _exported(tmp_path_factory, names, precision):
    from tiny import export_tiny

    checkpoints = tmp_path_factory.mktemp("checkpoints")
    repository = tmp_path_factory.mktemp("repository")
    # In processes of their own, since torch's tracing keeps the interpreter to itself.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        for _ in processes.map(partial(export_tiny, checkpoints, repository, precision=precision), names):
            pass
    return repository
