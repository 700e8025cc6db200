"""Torch for tiny models."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    # What a test draws is the same in every run and any order.
    torch.manual_seed(0)
