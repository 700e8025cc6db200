"""Which of the inputs admitted together an encoder reads in one run, and how long it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.engine.run_shapes import EXACT
from weft_server.source import SHORT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.engine.run_shapes import RunShapes
    from weft_server.sequence import Sequence

# A run costs something by itself, because it reads all weights. This many tokens cost as much. Measured:
# - an encoder's run, Transformer-base: 8 tokens at fp32, 25 at int8;
# - a prefill run, Llama's shape: 16 tokens at both.
RUN_COST = 16
# The same on a device. Measured on an H200, Llama's shape with 100 million weights: a prefill run of 768 tokens takes
# as long as one of 2. Nobody has measured a model so large that computing so many tokens takes longer than its weights.
DEVICE_RUN_COST = 512


def computed_tokens(run: Many[Sequence], shapes: RunShapes = EXACT) -> int:
    """Return how many tokens a run of `runs_of` computes, padding included."""
    return shapes.num_rows(len(run)) * shapes.width(run[-1].source)


def runs_of(sequences: Iterable[Sequence], shapes: RunShapes = EXACT) -> list[list[Sequence]]:
    """Sort sequences into runs by length. A run is padded to the length of its last sequence.

    A sequence joins the run before it where the padding costs less than another run.
    """
    runs: list[list[Sequence]] = []
    for sequence in sorted(sequences, key=lambda sequence: sequence.num_input_tokens):
        if runs and _joins(sequence, runs[-1], shapes):
            runs[-1].append(sequence)
        else:
            runs.append([sequence])
    return runs


def _joins(sequence: Sequence, run: list[Sequence], shapes: RunShapes) -> bool:
    """Whether a sequence, which is no shorter than those of a run, should be read with them.

    There are two cases in which it should, unless the run is full:

    1. They are as long as it, padded: it costs nothing.
    2. Padding them to its length costs no more than another run, and lengths may share a run. On a device they always
       may: there, bits depend on the batch anyway.
    """
    width = shapes.width(sequence.source)
    padding = len(run) * (width - shapes.width(run[-1].source))
    is_full = len(run) >= shapes.limit(sequence.source)
    is_worth_it = padding <= RUN_COST and width <= SHORT if shapes.in_place else padding <= DEVICE_RUN_COST
    return not is_full and (padding == 0 or is_worth_it)
