"""Which of the inputs admitted together an encoder reads in one run, and how long it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.sequence import SHORT, padded_length

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.sequence import Sequence

# Tokens that cost what a run costs by itself, because it reads all weights: an encoder's 8 of Transformer-base at fp32
# and 25 at int8, a prefill run's 16 of Llama's shape at both.
RUN_COST = 16


def width_of(num_tokens: int) -> int:
    """Return how long a run is made whose longest input has `num_tokens`."""
    return num_tokens if num_tokens <= SHORT else padded_length(num_tokens)


def computed_tokens(run: Many[Sequence]) -> int:
    """Return how many tokens a run of `runs_of` computes, padding included; pictures have none."""
    longest = run[-1]
    return len(run) * (longest.bucket if longest.inputs.ndim > 1 else width_of(longest.num_input_tokens))


def runs_of(sequences: Iterable[Sequence]) -> list[list[Sequence]]:
    """Sort sequences into runs; each is padded to its last one's length, where that costs less than another run."""
    runs: list[list[Sequence]] = []
    for sequence in sorted(sequences, key=lambda sequence: sequence.num_input_tokens):
        if runs and _joins(sequence, runs[-1]):
            runs[-1].append(sequence)
        else:
            runs.append([sequence])
    return runs


def _joins(sequence: Sequence, run: list[Sequence]) -> bool:
    width = width_of(sequence.num_input_tokens)
    padding = len(run) * (width - width_of(run[-1].num_input_tokens))
    return padding == 0 or (padding <= RUN_COST and width <= SHORT)
