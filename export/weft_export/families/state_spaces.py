"""A decoder without attention, of Mamba's layers alone.

"Mamba" (Gu and Dao 2023), or Mamba 2: "Transformers are SSMs" (Dao and Gu 2024).

All that a sequence keeps is a state of constant size in each layer. A token costs the same after ten and after a
million.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from weft_export.families.sizes import require_sizes
from weft_export.families.writer import RECURRENT, State, Writer, flat
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.pooling import last_position
from weft_export.layers.run import Run
from weft_export.layers.selective_state_space import SelectiveSizes, SelectiveStateSpace
from weft_export.layers.state_space import StateSpace, StateSpaceSizes
from weft_export.layers.style import RmsNorm


@dataclass(frozen=True, kw_only=True)
class StateSpacesConfig:
    """Sizes and choices. max_tokens is prompt and continuation together: of these layers none has such a bound.

    state_space: of each layer, if they are Mamba 2's. selective: the same, if they are Mamba's.
    """

    vocab_size: int
    max_tokens: int
    d_model: int
    num_layers: int
    state_space: StateSpaceSizes | None = None
    selective: SelectiveSizes | None = None
    norm_eps: float = 1e-5
    embeddings: EmbeddingStyle = field(default_factory=EmbeddingStyle)
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        if (self.state_space is None) == (self.selective is None):
            raise ValueError("model must have one of state_space and selective: they say what a layer is")


class StateSpaceLayer(nn.Module):
    """x + state_space(norm(x)). There is no feed-forward network: the gate of a state space does its work."""

    def __init__(self, config: StateSpacesConfig) -> None:
        super().__init__()
        self.norm = RmsNorm(config.d_model, config.norm_eps)
        self.recurrence = _recurrence(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map the whole of x [batch, seq, d_model] to the same shape."""
        out: Tensor = x + self.dropout(self.recurrence(self.norm(x)))
        return out

    def step(self, x: Tensor, past: tuple[Tensor, ...], lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map the next positions, of which lengths int32 [batch] are real; returns them and the present state."""
        out, present = self.recurrence.step(self.norm(x), past, lengths)
        return x + out, present


def _recurrence(config: StateSpacesConfig) -> StateSpace | SelectiveStateSpace:
    if config.state_space is not None:
        return StateSpace(config.d_model, config.state_space, config.norm_eps)
    assert config.selective is not None, "a layer of no kind. This is a bug."
    return SelectiveStateSpace(config.d_model, config.selective)


class StateSpaces(Writer):
    """Layers of a state each, and a last norm."""

    max_candidates = 64  # as of others that go on from a prompt
    reads_pieces = True
    scores = True

    config: StateSpacesConfig

    def __init__(self, config: StateSpacesConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config.vocab_size, config.max_tokens, config.d_model, config.embeddings)
        layers = [StateSpaceLayer(config) for _ in range(config.num_layers)]
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(layers)
        self.norm = RmsNorm(config.d_model, config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.states = tuple(
            State(RECURRENT, f"{index}.{part}", shape)
            for index, layer in enumerate(layers)
            for part, shape in layer.recurrence.state_shapes.items()
        )

    @property
    def unpaged(self) -> str | None:
        """See Writer."""
        return "its layers keep a state of constant size, which has no blocks"

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab] for input_ids [batch, seq]; padding may only follow a row's tokens."""
        x = self.dropout(self.embeddings(input_ids))
        for layer in self.layers:
            x = layer(x)
        return self.embeddings.logits(self.norm(x))

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:  # noqa: ARG002 - there is no source
        """See Writer."""
        return self.forward(target_ids)

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """See Writer."""
        x = self.embeddings(run.input_ids, run.past_lengths)
        presents: list[tuple[Tensor, ...]] = []
        of_layer = len(states) // len(self.layers)
        for index, layer in enumerate(self.layers):
            past = tuple(states[index * of_layer : (index + 1) * of_layer])
            x, present = layer.step(x, past, run.lengths)
            presents.append(present)
        logits: Tensor = self.embeddings.logits(self.norm(last_position(x, run.lengths)))
        return logits, list(flat(presents))
