"""Where the numbers of another checkpoint's heads lie in ours: rows of its projections, in another order or padded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from weft_export.converters.rope import rope_dim
from weft_export.converters.sources import Source, rows
from weft_export.families.decoder_only import DecoderOnlyConfig

Split = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class HeadLayout:
    """Two things may differ from ours, and scores see neither of them.

    1. We turn number i of a head with i + size / 2. Who turns only the first r numbers turns i with i + r / 2, or
       neighbours: 2 i with 2 i + 1.
    2. Our heads may be longer, with zeros: the attention operator of ONNX Runtime takes no heads of 100 numbers.

    stored, size: numbers of a head of theirs, and of ours.
    turned: how many of theirs are turned.
    neighbours: whether these are turned in pairs of neighbours.
    """

    num_heads: int
    num_kv_heads: int
    stored: int
    size: int
    turned: int
    neighbours: bool = False

    @property
    def turned_order(self) -> list[int]:
        """Return the number of theirs for each of ours, in queries and keys; -1 for a zero."""
        pairs = range(self.turned // 2)
        still, step, apart = (self.stored - self.turned) // 2, *((2, 1) if self.neighbours else (1, len(pairs)))
        first = [*(step * pair for pair in pairs), *range(self.turned, self.turned + still)]
        second = [*(step * pair + apart for pair in pairs), *range(self.turned + still, self.stored)]
        return self._filled(first, self.size // 2) + self._filled(second, self.size - self.size // 2)

    @property
    def order(self) -> list[int]:
        """Return the same for values."""
        return self._filled(list(range(self.stored)), self.size)

    def qkv(self, *names: str, split: Split | None = None) -> Source:
        """Put queries, keys and values below each other.

        split takes them out of the one tensor they lie in. Without it, one tensor has them below each other already.
        """
        if split is None and self._is_ours:
            return Source(names) if len(names) == 1 else rows(*names)

        def make(*parts: Tensor) -> Tensor:
            query, key, value = parts if len(parts) == 3 else (split or self._below)(*parts)
            return torch.cat(
                (
                    self._placed(query, self.turned_order, self.num_heads),
                    self._placed(key, self.turned_order, self.num_kv_heads),
                    self._placed(value, self.order, self.num_kv_heads),
                )
            )

        return Source(names, make)

    def plain(self, name: str) -> Source:
        """Return one projection of as many heads, which are not turned."""
        if self.size == self.stored:
            return Source((name,))
        return Source((name,), lambda tensor: self._placed(tensor, self.order, self.num_heads))

    def output(self, name: str, *, transposed: bool = False) -> Source:
        """Return the projection of what was attended to, whose columns are values. transposed: they are rows."""
        if self.size == self.stored and not transposed:
            return Source((name,))

        def make(matrix: Tensor) -> Tensor:
            return self._placed(matrix if transposed else matrix.t(), self.order, self.num_heads).t()

        return Source((name,), make)

    def grouped(self, per_group: int) -> Split:
        """Take apart rows that lie in groups: `per_group` heads of queries, one of keys, and one of values."""

        def split(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            groups = tensor.reshape(-1, per_group + 2, self.stored, *tensor.shape[1:])
            parts = groups[:, :per_group], groups[:, per_group], groups[:, per_group + 1]
            query, key, value = (part.reshape(-1, *tensor.shape[1:]) for part in parts)
            return query, key, value

        return split

    @property
    def _is_ours(self) -> bool:
        return self.turned_order == list(range(self.size))

    def _below(self, tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        numbers = [number * self.stored for number in (self.num_heads, self.num_kv_heads, self.num_kv_heads)]
        query, key, value = torch.split(tensor, numbers)
        return query, key, value

    def _placed(self, tensor: Tensor, order: Sequence[int], num_heads: int) -> Tensor:
        """Return the rows of `num_heads` heads in an order."""
        if len(tensor) != num_heads * self.stored:
            raise ValueError(f"{num_heads} heads of {self.stored} have not {len(tensor)} rows")
        nothing = len(tensor)
        index = [nothing if n < 0 else head * self.stored + n for head in range(num_heads) for n in order]
        padded = torch.cat((tensor, tensor.new_zeros(1, *tensor.shape[1:])))
        return padded.index_select(0, torch.tensor(index, device=tensor.device))

    @staticmethod
    def _filled(order: list[int], size: int) -> list[int]:
        return order + [-1] * (size - len(order))


def heads_of(config: DecoderOnlyConfig, *, neighbours: bool = False) -> HeadLayout:
    """Return how a checkpoint's heads lie in those of a config."""
    return HeadLayout(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        stored=config.head_dim - (config.padding or 0),
        size=config.head_dim,
        turned=rope_dim(config.rotations[0]) if config.rotations else 0,
        neighbours=neighbours,
    )
