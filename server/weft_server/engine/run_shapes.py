"""How many inputs an encoder or a classifier reads in a run, how wide they are padded, and which go together."""

from __future__ import annotations

import sys
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from weft_server.runtime.device import HOST
from weft_server.source import SHORT, Ids, Masked, Whole, feeds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from collections.abc import Sequence as Many

    from weft_server.runtime.device import Device
    from weft_server.sequence import Sequence
    from weft_server.source import Source

# Of what is padded on a device, the smallest width. Each next one is twice as wide.
LEAST_WIDTH = 16


class RunShapes:
    """On the host a run has the rows and the width of its inputs, and as many more as its device says.

    On a device, widths are 16, 32, 64 and so on up to that of the longest input. Numbers are 1, 2, 4, to `most`.

    Of several inputs, no more padded tokens are in a run than `budget`.
    """

    def __init__(
        self,
        device: Device,
        own: Callable[[Source], int],
        longest: Mapping[str, Source],
        *,
        most: int,
        budget: int,
        unpadded: bool = False,
    ) -> None:
        """`own` is the width of an input on the host. `longest` has the longest input, by the port that reads it.

        `unpadded` says that a text's padding costs next to nothing: see Graph in bundle.proto.
        """
        self.unpadded = unpadded
        self.in_place = device.in_place
        self._filled = device.filled
        self._own = own
        self._longest = longest
        self._most = most
        self._budget = budget
        self._numbers = _doubled(1, most)
        self._widths = {
            port: _doubled(LEAST_WIDTH, own(source)) if isinstance(source, Ids) else [own(source)]
            for port, source in longest.items()
        }

    def width(self, source: Source) -> int:
        """How wide a run is in which this input is the longest."""
        own = self._own(source)
        if self.in_place or isinstance(source, Whole):
            return own
        return next(width for width in self._widths[source.port] if width >= own)

    def num_rows(self, num_inputs: int) -> int:
        """How many rows a run of so many inputs has."""
        if self.in_place:
            return self._filled(num_inputs)
        return next(number for number in self._numbers if number >= num_inputs)

    def alike(self, source: Source) -> Hashable:
        """What is equal of inputs that may share a batch."""
        if self._is_mixed(source):
            return source.port, source.num_masks
        if self.in_place or isinstance(source, Whole):
            return source.alike
        return source.port, self.width(source), source.num_masks

    def limit(self, source: Source) -> int:
        """How many inputs a run has at most in which this one is the longest, or one of those that it is alike."""
        width = SHORT if self._is_mixed(source) else self.width(source)
        # A row of the vocabulary for each mask may be a megabyte. A run has no more of them than inputs with one mask.
        most = min(self._most // max(1, source.num_masks), self._budget // width)
        if self.in_place:
            return max(1, most)
        return max([number for number in self._numbers if number <= most], default=1)

    def _is_mixed(self, source: Source) -> bool:
        """Whether it shares runs with texts of other lengths because no padding is computed."""
        return self.unpadded and isinstance(source, Ids) and self._own(source) <= SHORT

    def computed_tokens(self, sources: Many[Source]) -> int:
        """How many tokens a run of these computes, padding included."""
        if self.unpadded:
            return sum(source.num_tokens for source in sources)
        return self.num_rows(len(sources)) * max(self.width(source) for source in sources)

    def feeds(self, sources: Many[Source], pad_id: int) -> dict[str, np.ndarray]:
        """Return what a graph reads of inputs that share a run. Nobody reads what rows give that are too many."""
        fed = feeds_of(sources, max(self.width(source) for source in sources), pad_id)
        missing = self.num_rows(len(sources)) - len(sources)
        if not missing:
            return fed
        return {name: np.concatenate([array, array[-1:].repeat(missing, axis=0)]) for name, array in fed.items()}

    def trials(self) -> Iterator[list[Source]]:
        """Yield inputs for each shape that a run on a device can have, from large to small.

        On the host there is none to be tried.
        """
        for port, widths in self._widths.items() if not self.in_place else ():
            longest = self._longest[port]
            for width in reversed(widths):
                source = _cut(longest, width) if isinstance(longest, Ids) else longest
                most = self.limit(source)
                yield from ([source] * number for number in reversed(self._numbers) if number <= most)


def _cut(longest: Ids, width: int) -> Ids:
    """Return the beginning of a text. The positions of its masks are in it."""
    ids = longest.array[:width]
    return Masked(ids, longest.positions) if isinstance(longest, Masked) else Ids(ids)


def _doubled(first: int, last: int) -> list[int]:
    """Return `first`, twice that, and so on below `last`, and `last`."""
    return [*takewhile(lambda size: size < last, (first << power for power in range(last.bit_length()))), last]


# As on the host, whatever the device.
EXACT = RunShapes(HOST, attrgetter("width"), {}, most=sys.maxsize, budget=sys.maxsize)
# The same of an encoder that computes no padding.
UNPADDED = RunShapes(HOST, attrgetter("width"), {}, most=sys.maxsize, budget=sys.maxsize, unpadded=True)


# A run costs something by itself, because it reads all weights. This many tokens cost as much. Measured:
# - an encoder's run, Transformer-base: 8 tokens at fp32, 25 at int8;
# - a prefill run, Llama's shape: 16 tokens at both.
RUN_COST = 16
# The same on a device. Measured on an H200, Llama's shape with 100 million weights: a prefill run of 768 tokens takes
# as long as one of 2. Nobody has measured a model so large that computing so many tokens takes longer than its weights.
DEVICE_RUN_COST = 512


def runs_of(sequences: Iterable[Sequence], shapes: RunShapes = EXACT) -> list[list[Sequence]]:
    """Sort sequences into runs by length. A run is padded to the length of its last sequence.

    A sequence joins the run before it where the padding costs less than another run.
    """
    runs: list[list[Sequence]] = []
    # Of recordings that have equally many places, those of one length stand beside each other.
    for sequence in sorted(sequences, key=lambda each: (each.num_input_tokens, len(each.source.array))):
        if runs and _joins(sequence, runs[-1], shapes):
            runs[-1].append(sequence)
        else:
            runs.append([sequence])
    return runs


def _joins(sequence: Sequence, run: list[Sequence], shapes: RunShapes) -> bool:
    """Whether a sequence, which is no shorter than those of a run, should be read with them.

    There are two cases in which it should, unless the run is full:

    What is not padded goes with its like alone.

    1. They are as long as it, padded: it costs nothing.
    2. Padding them to its length costs no more than another run, and lengths may share a run. On a device they always
       may: there, bits depend on the batch anyway.
    """
    if isinstance(sequence.source, Whole) and sequence.source.alike != run[-1].source.alike:
        return False
    width = shapes.width(sequence.source)
    padding = len(run) * (width - shapes.width(run[-1].source))
    is_full = len(run) >= shapes.limit(sequence.source)
    is_cheap = shapes.unpadded or padding <= (RUN_COST if shapes.in_place else DEVICE_RUN_COST)
    is_worth_it = is_cheap and (width <= SHORT or not shapes.in_place)
    return not is_full and (padding == 0 or is_worth_it)


def first_run_order(sizes: Iterable[int], device: Device) -> list[int]:
    """Return sizes of runs in the order of their first runs.

    On a device large ones come first. Small ones then find room in what these leave, and it gives less memory.
    """
    return sorted(sizes, reverse=not device.in_place)
