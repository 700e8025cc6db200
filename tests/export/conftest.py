"""Torch for tiny models."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    # What a test draws is the same in every run and any order.
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # A second thread gains nothing on tiny tensors, and loses much when it waits for a core.
    torch.set_num_threads(1)
