"""The training loop that all recipes share."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from weft_export.console.progress import OnProgress


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
    weight_decay: float = 0.01,
    on_progress: OnProgress,
) -> None:
    """Train with AdamW: linear warm-up over 5 % of the steps, cosine decay to zero, gradient norm clipped at 1.

    `loss_of` takes the step's number and returns the loss of that step's batch. Leaves the model in evaluation mode.
    """
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak_lr, betas=(0.9, 0.98), fused=True)
    warmup = max(1, num_steps // 20)

    def scale(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (num_steps - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, scale)
    model.train()
    smooth = 0.0
    for step in range(num_steps):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(step)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        smooth = loss.item() if step == 0 else 0.98 * smooth + 0.02 * loss.item()
        on_progress(step + 1, num_steps, f"loss {smooth:.3f}")
    model.eval()


def shuffled(count: int, batch: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield batches of indices below `count` for ever, each pass in a new order and without its incomplete batch."""
    while True:
        order = torch.randperm(count, generator=generator)
        yield from order[: count - count % batch].view(-1, batch)


def pad(rows: list[list[int]], value: int) -> Tensor:
    """Return rows of token ids as int64 [rows, longest], padded on the right."""
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])
