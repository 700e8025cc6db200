"""Products with low-rank adapters beside them: y = x W + x A B + b ("LoRA", Hu et al. 2022, section 4.1).

W may be rounded, as in "QLoRA" (Dettmers et al. 2023, section 3). Then what is added to it is still float32: it reads x
before any rounding, and A and B are never rounded.

Rows with different adapters, and with none, are in one run. They are put into groups of one adapter each, so A and B
are read once for each group. What a row gets does not depend on its company: its group is a product of its own, and has
two rows or more. A row without an adapter is in no group, and is not touched.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.layers.block_linear import BlockLinear
from weft_export.layers.nf4_linear import Nf4Linear
from weft_export.layers.quantized_linear import QuantisedLinear

OPERATOR = "weft::Adapt"
"""Stands in a traced graph for what is added. graphs/adapting.py puts operators of ONNX in its place: torch's exporter
would take minutes over the sizes of as many tensors, all of which are symbolic."""


@dataclass(frozen=True)
class Adapters:
    """Those of one run, over the rows of its first axis.

    members: int64 [groups, members], the rows of each group; any may fill a place that is left.
    rows: int64 [adapted], the rows that have an adapter.
    places: int64 [adapted], where these stand in members laid end to end.
    pairs: by layer A [groups, inputs, rank] and B [groups, rank, outputs].
    """

    members: Tensor
    rows: Tensor
    places: Tensor
    pairs: Mapping[str, tuple[Tensor, Tensor]]


_given: list[Adapters] = []
_asked: list[list[str]] = []


@contextmanager
def adapting(adapters: Adapters) -> Iterator[None]:
    """Let the products inside add what the adapters say."""
    _given.append(adapters)
    try:
        yield
    finally:
        _given.pop()


def is_adapting() -> bool:
    """Whether products are computed for rows of which each may have an adapter."""
    return bool(_given)


@contextmanager
def noting_layers() -> Iterator[list[str]]:
    """Collect the names of the products that are computed inside, each once, in their order."""
    names: list[str] = []
    _asked.append(names)
    try:
        yield names
    finally:
        _asked.pop()


Product = nn.Linear | QuantisedLinear | BlockLinear | Nf4Linear
"""What an adapter can stand beside."""


def multiplied(linear: Product, x: Tensor) -> Tensor:
    """Return x [..., inputs] times the weights of a product, without its bias: [..., outputs]."""
    return functional.linear(x, linear.weight) if isinstance(linear, nn.Linear) else linear.product(x)


class FixedAdapter(nn.Module):
    """Stands for a product too. All rows have one adapter: A [inputs, rank] and B [rank, outputs]."""

    a: Tensor
    b: Tensor

    def __init__(self, linear: Product, a: Tensor, b: Tensor) -> None:
        super().__init__()
        self.linear = linear
        self.register_buffer("a", a)
        self.register_buffer("b", b)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., inputs] to [..., outputs]."""
        out = multiplied(self.linear, x) + x @ self.a @ self.b
        return out if self.linear.bias is None else out + self.linear.bias


class AdaptedLinear(nn.Module):
    """Stands for a product, over its weights. Each row has an adapter of its own, or none."""

    def __init__(self, linear: Product, name: str) -> None:
        super().__init__()
        self.linear, self.name = linear, name

    def forward(self, x: Tensor) -> Tensor:
        """Map x [rows, seq, inputs] to [rows, seq, outputs]."""
        out = multiplied(self.linear, x)
        for names in _asked:
            if self.name not in names:
                names.append(self.name)
        if _given:
            out = self._added(_given[-1], x, out)
        # Behind it: ONNX Runtime makes one operator of a bias and what follows it.
        return out if self.linear.bias is None else out + self.linear.bias

    def _added(self, adapters: Adapters, x: Tensor, out: Tensor) -> Tensor:
        a, b = adapters.pairs[self.name]
        if torch.onnx.is_in_onnx_export():
            given = (out, x, adapters.members, adapters.rows, adapters.places, a, b)
            added: Tensor = torch.onnx.ops.symbolic(OPERATOR, given, dtype=out.dtype, shape=out.shape, version=1)
            return added
        num_groups, num_members = adapters.members.shape
        mine = x.index_select(0, adapters.members.flatten()).reshape(num_groups, num_members * x.shape[1], x.shape[2])
        delta = (mine @ a @ b).reshape(num_groups * num_members, x.shape[1], out.shape[2])
        return out.index_add(0, adapters.rows, delta.index_select(0, adapters.places))
