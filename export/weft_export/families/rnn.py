"""RNN encoder-decoder with a fixed context: the whole source must fit into one state.

"Sequence to Sequence Learning with Neural Networks" (Sutskever et al. 2014), with any of three cells. The GRU is of
"Learning Phrase Representations using RNN Encoder-Decoder" (Cho et al. 2014). There the decoder sees the context at
every step. Here, as in Sutskever et al., the context is only the state to start from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from weft_export.families.sizes import require_among, require_sizes
from weft_export.families.writer import RECURRENT, State, Writer
from weft_export.layers.recurrent import CELLS, Hidden, Recurrence, parts_of
from weft_export.layers.run import Run


@dataclass(frozen=True)
class RnnConfig:
    """Sizes. Lengths are in tokens; reverse_source reads the source from its end (Sutskever et al., section 3.3)."""

    source_vocab_size: int
    target_vocab_size: int
    max_source_tokens: int
    max_target_tokens: int
    cell: str
    d_embedding: int
    d_hidden: int
    num_layers: int
    reverse_source: bool = True

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("cell", self.cell, CELLS)


class Rnn(Writer):
    """Each decoder layer starts where the encoder's layer ended; nothing else passes between them.

    States: what each decoder layer carries. They do not grow with the length of anything.
    """

    scores = True

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        self.config = config
        widths = (config.d_embedding, *(config.d_hidden,) * (config.num_layers - 1))
        self.source_embedding = nn.Embedding(config.source_vocab_size, config.d_embedding)
        # Any: torch does not type the items of a ModuleList.
        self.encoder: Any = nn.ModuleList(Recurrence(config.cell, width, config.d_hidden) for width in widths)
        self.embedding = nn.Embedding(config.target_vocab_size, config.d_embedding)
        self.decoder: Any = nn.ModuleList(Recurrence(config.cell, width, config.d_hidden) for width in widths)
        self.output = nn.Linear(config.d_hidden, config.target_vocab_size)
        self.parts = parts_of(config.cell)
        self.states = tuple(
            State(RECURRENT, f"{layer}.{part}", (config.d_hidden,), encoded=True)
            for layer in range(config.num_layers)
            for part in self.parts
        )

    def encode_states(self, *source: Tensor) -> tuple[Tensor, ...]:
        """Read (source_ids int64 [batch, source] right-padded, lengths int32 [batch])."""
        source_ids, lengths = source
        x = self.source_embedding(source_ids)
        carried = []
        for layer in self.encoder:
            x, last = layer.encode(x, lengths, reverse=self.config.reverse_source)
            carried += [part[0] for part in last]
        return tuple(carried)

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits [batch, vocab] and the present states."""
        x = self.embedding(run.input_ids[:, 0])
        presents = []
        for layer, hidden in zip(self.decoder, self._by_layer(states), strict=True):
            present = layer.step(x, hidden)
            x = present[0]
            presents += present
        return self.output(x), presents

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] of the whole target, teacher-forced."""
        x = self.embedding(target_ids)
        for layer, hidden in zip(self.decoder, self._by_layer(self.encode_states(*source)), strict=True):
            x = layer(x, hidden)
        logits: Tensor = self.output(x)
        return logits

    def _by_layer(self, states: Sequence[Tensor]) -> list[Hidden]:
        size = len(self.parts)
        return [tuple(states[first : first + size]) for first in range(0, len(states), size)]
