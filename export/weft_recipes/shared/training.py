"""The training loop that all recipes share."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from weft_export.console import OnProgress


def prepare(seed: int) -> torch.Generator:
    """Seed torch, hold it to two threads as the recipes' times assume, and return a generator for drawing batches."""
    torch.set_num_threads(2)
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def fit(
    model: nn.Module,
    loss_of: Callable[[int], Tensor],
    *,
    num_steps: int,
    peak_lr: float,
    muon_lr: float | None = None,
    weight_decay: float = 0.01,
    on_progress: OnProgress,
) -> None:
    """Train with AdamW: linear warm-up over 5 % of the steps, cosine decay to zero, gradient norm clipped at 1.

    `loss_of` takes the step's number and returns the loss of that step's batch. Leaves the model in evaluation mode.
    muon_lr: the peak rate of Muon (Jordan et al. 2024), which trains the weights of linear layers instead.
    """
    optimizers = _optimizers(model, peak_lr, muon_lr, weight_decay)
    scale = partial(_scale, num_steps=num_steps)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, scale) for optimizer in optimizers]
    model.train()
    smooth = 0.0
    for step in range(num_steps):
        model.zero_grad(set_to_none=True)
        loss = loss_of(step)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        smooth = loss.item() if step == 0 else 0.98 * smooth + 0.02 * loss.item()
        on_progress(step + 1, num_steps, f"loss {smooth:.3f}")
    model.eval()


def _optimizers(
    model: nn.Module, peak_lr: float, muon_lr: float | None, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Return what trains a model: AdamW, and with a muon_lr also Muon for linear layers."""
    linear = [module.weight for module in model.modules() if isinstance(module, nn.Linear)] if muon_lr else []
    elsewhere = {id(weight) for weight in linear}
    rest = [weight for weight in model.parameters() if id(weight) not in elsewhere]
    groups = [
        {"params": [weight for weight in rest if weight.ndim > 1], "weight_decay": weight_decay},
        {"params": [weight for weight in rest if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=peak_lr, betas=(0.9, 0.98), fused=True)
    if muon_lr is None:
        return [adamw]
    # The rate means what it means to AdamW.
    muon = torch.optim.Muon(linear, lr=muon_lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    return [adamw, muon]


def _scale(step: int, num_steps: int) -> float:
    """Return the share of the peak rate that a step has."""
    warmup = max(1, num_steps // 20)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (num_steps - warmup)))


def shuffled(count: int, batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of indices below `count` for ever, each pass in a new order and without its incomplete batch."""
    while True:
        order = torch.randperm(count, generator=generator)
        yield from order[: count - count % batch].view(-1, batch)


def pad(rows: list[list[int]], value: int) -> Tensor:
    """Return rows of token ids as int64 [rows, longest], padded on the right."""
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])
