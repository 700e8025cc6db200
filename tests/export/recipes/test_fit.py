"""The training loop that all recipes share."""

import pytest
import torch
from torch import nn

from weft_recipes.shared.training import fit, prepare


@pytest.mark.parametrize("muon_lr", [None, 3e-2])
def test_what_is_trained_learns_and_what_is_frozen_stays(muon_lr):
    """AdamW alone, and Muon for the linear layers, fit a small network to a sum of its inputs."""
    given = torch.randn(64, 8, generator=prepare(1))
    wanted = given.sum(dim=1)
    model = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
    model[0].weight.requires_grad = False
    before = {name: weight.clone() for name, weight in model.named_parameters()}

    def loss_of(_: int) -> torch.Tensor:
        return nn.functional.mse_loss(model(given)[:, 0], wanted)

    first = loss_of(0).item()
    fit(model, loss_of, num_steps=200, peak_lr=1e-2, muon_lr=muon_lr, on_progress=lambda *_: None)

    assert first / 10 > loss_of(0).item()
    same = {name for name, weight in model.named_parameters() if torch.equal(weight, before[name])}
    assert {"0.weight"} == same
