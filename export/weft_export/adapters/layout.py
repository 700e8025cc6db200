"""Holds each product with an adapter to what PEFT computes of it: x A^T B^T, of what the base's own product reads.

Merged weights cannot show that B A was added the wrong way round: torch and ONNX Runtime would agree about them. But a
product's inputs are one axis of ours, whatever a file calls them or in which order it stores them. What is added must
read A there: each of its rows is a combination of the rows of A.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from weft_export.adapters.peft import Change
from weft_export.errors import ParityError
from weft_export.verification.session import Pairs

# What float32 rounds of the sum of a weight and an adapter, as a share of the weight's size.
_NOISE = 2.0**-20
_SHARE = 1e-3


def check_layout(
    base: nn.Module, pairs: Pairs, by_weight: Mapping[str, Change], made_of: Mapping[str, Sequence[str]]
) -> None:
    """Hold A and B of each product of ours to the A of PEFT.

    by_weight: what PEFT adds, by the stored weights. made_of: the stored weights that each of ours is made of.

    Raises:
        ParityError: something else is read. This is a bug.
    """
    for layer, pair in pairs.items():
        stored = made_of.get(f"{layer}.weight", (f"{layer}.weight",))
        weight = base.get_parameter(f"{layer}.weight").detach()
        a, b = (torch.from_numpy(matrix).double() for matrix in pair)
        read = torch.cat([by_weight[name].a.double() for name in stored if name in by_weight])
        added = (a @ b).t()
        if a.shape[0] != read.shape[1]:
            # Heads of ours may be longer than theirs, with zeros.
            added = added[:, (weight != 0).any(0)]
        bound = _NOISE * float(weight.double().norm()) + _SHARE * float(added.norm())
        if added.shape[1] != read.shape[1] or float(_beyond(added, read).norm()) > bound:
            raise ParityError(f"what the adapter adds to {layer} does not read what PEFT's reads. This is a bug.")


def _beyond(rows: Tensor, others: Tensor) -> Tensor:
    """Return what rows have that no combination of others has."""
    basis: Tensor = torch.linalg.qr(others.t()).Q
    return rows - rows @ basis @ basis.t()
