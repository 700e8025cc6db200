"""Reads short prompts together, each whole: a run reads all weights once for them, and not once for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.engine.run_shapes import RUN_COST
from weft_server.source import SHORT, Ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.engine.decode_runner import DecodeRunner
    from weft_server.engine.rows import Rows
    from weft_server.engine.slots import Slots
    from weft_server.sequence import Sequence


class PromptJoiner:
    """Which prompts of one lane share a run."""

    def __init__(self, slots: Slots, rows: Rows, runner: DecodeRunner) -> None:
        self._slots = slots
        self._rows = rows
        self._runner = runner

    def choose(self, budget: int, take: Callable[[], bool]) -> list[Sequence]:
        """Return prompts to read together: the first that is held, and others that `take` takes, one at a time.

        They have `budget` padded tokens together, and no more than a run of one prompt may have: so no run takes more
        memory. Who is taken and cannot join them is held, and read behind them. With less than two there is no company.
        """
        prompts, joined, width = self._rows.prompts, 0, 0
        chunks = self._runner.chunks
        budget = min(budget, chunks.buckets[-1])
        while joined < len(prompts) or (budget - joined * width >= chunks.buckets[0] and take()):
            own = self._width(prompts[joined], self._slots.num_running + joined)
            wider = max(width, own)
            # What is padded costs less than another run.
            padding = joined * (wider - width) + wider - own
            if not own or (joined + 1) * wider > budget or padding > RUN_COST:
                break
            joined, width = joined + 1, wider
        return prompts[:joined]

    def read(self, prompts: list[Sequence]) -> tuple[int, int]:
        """Read the first prompts that are held, and give each its first token.

        Returns the number of tokens computed, padding included, and without it.
        """
        token_ids = [prompt.source.piece(0, prompt.num_input_tokens) for prompt in prompts]
        padded, candidates = self._runner.join(self._slots.num_running, token_ids)
        for _ in prompts:
            self._rows.end_prompt()
        self._rows.start(candidates, len(prompts))
        return padded, sum(map(len, token_ids))

    def _width(self, prompt: Sequence, slot: int) -> int:
        """Padded length of a run that reads a prompt whole; 0 if no other may share it.

        That is so of a long one, of what is left of one, of one with several answers, and of one that holds pictures.
        """
        if type(prompt.source) is not Ids or len(prompt.ranks_left) > 1 or self._slots.past_lengths[slot]:
            return 0
        length = prompt.num_input_tokens
        return next((bucket for bucket in self._runner.chunks.buckets if length <= bucket <= SHORT), 0)
