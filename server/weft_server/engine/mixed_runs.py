"""Runs of a MIXED graph: a token for each of the first rows, and several tokens of the slot behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.bundle_rules import PROMPT

if TYPE_CHECKING:
    from weft_server.engine.slots import Slots
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.buffers import Columns
    from weft_server.runtime.next_tokens import NextTokens
    from weft_server.runtime.session import BoundSession, Session
    from weft_server.runtime.states import States

_PROMPT_COLUMNS = {"input_ids": "prompt_ids", "past_lengths": "prompt_past_lengths", "lengths": "prompt_lengths"}


class MixedRuns:
    """The graph, bound to one lane's slots for each size of a run."""

    def __init__(self, session: Session, states: States, columns: Columns, following: NextTokens, slots: Slots) -> None:
        """`columns` are those of the rows. What a run says about next tokens is written to `following`."""
        self._session = session
        self._states = states
        self._columns = columns
        self._next = following
        self._slots = slots
        self._bound: dict[tuple[int, int, int, bool], BoundSession] = {}

    def run(
        self,
        num_rows: int,
        columns: dict[str, Block],
        told: dict[str, Block],
        *,
        size: int,
        num_ends: int,
        reads_all: bool,
    ) -> None:
        """Give the first rows a token each, and read `size` tokens of the slot behind; `num_ends` of them are asked.

        `columns` are those of that slot, and `told` is what every run reads on the host.
        """
        key = (num_rows, size, num_ends, reads_all)
        if key not in self._bound:
            inputs, written = self._states.blocks(0, num_rows)
            prompt_inputs, prompt_written = self._states.blocks(num_rows, num_rows + 1)
            inputs |= {PROMPT + name: block for name, block in prompt_inputs.items()}
            written |= {PROMPT + name: block for name, block in prompt_written.items()}
            inputs |= self._columns.rows(0, num_rows) | told
            inputs |= {_PROMPT_COLUMNS[name]: block for name, block in columns.items()}
            written |= self._next.blocks(num_rows + num_ends, reads_all=reads_all)
            self._bound[key] = self._session.bind(inputs, written)
        bound = self._bound[key]
        if self._slots.stack:
            # In this graph, each token of that slot is a row.
            self._slots.stack.give(bound, self._slots.adapters[: num_rows + 1].repeat([*[1] * num_rows, size]), 1)
        bound.run()
        self._slots.past_lengths[:num_rows] += 1
