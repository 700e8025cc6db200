"""A decoder-only model of which some layers attend, and all others carry a state of constant size: LFM2, Granite 4.

A layer that attends keeps all of a text, and each token costs more the longer it is. The others keep as much after a
million tokens as after ten.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from weft_export.families.decoder_only import DecoderOnly, DecoderOnlyConfig
from weft_export.families.sizes import require_each_layer
from weft_export.families.writer import RECURRENT, State
from weft_export.layers.run import Run
from weft_export.layers.short_convolution import ShortConvolution
from weft_export.layers.state_space import StateSpace, StateSpaceSizes
from weft_export.layers.style import Style, StyledLayer


@dataclass(frozen=True)
class HybridConfig(DecoderOnlyConfig):
    """Sizes and choices, and which layers attend.

    attends: 1 for each layer that attends, 0 for each that does not.
    state_space: what the others are. None: a ShortConvolution.
    convolution_taps: how many positions a ShortConvolution sees, its own included.
    convolution_bias: whether it and the products around it have biases.
    """

    attends: tuple[int, ...] = ()
    convolution_taps: int = 3
    convolution_bias: bool = False
    state_space: StateSpaceSizes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_each_layer("attends", self.attends, self.num_layers, 0, 1)
        if 1 not in self.attends:
            raise ValueError("model.attends must have a 1: a model without any attention is of another family")
        if self.convolution_taps == 1:
            raise ValueError("model.convolution_taps must be at least 2: with one there is nothing to remember")


Recurrence = ShortConvolution | StateSpace


class RecurrentLayer(StyledLayer):
    """A layer of a causal Transformer with a recurrence in the place of attention. It has that layer's methods."""

    attends = False

    def __init__(self, d_model: int, d_ff: int, dropout: float, style: Style, recurrence: Recurrence) -> None:
        super().__init__(style, dropout)
        self.recurrence_norm = style.norm(d_model)
        self.recurrence = recurrence
        self.feed_forward_norm = style.norm(d_model)
        self.feed_forward = style.feed_forward(d_model, d_ff)

    def forward(self, x: Tensor, *seen: object) -> Tensor:  # noqa: ARG002 - what attention goes by is nothing here
        """Map the whole of x [batch, seq, d_model] to the same shape."""
        return self._feed(x, self.recurrence(self.before(self.recurrence_norm, x)))

    def step(
        self,
        x: Tensor,
        past: tuple[Tensor, ...],
        run: Run,
        *seen: object,  # noqa: ARG002 - as above
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Map the next positions x [batch, seq, d_model]; returns them and the present state."""
        out, present = self.recurrence.step(self.before(self.recurrence_norm, x), past, run.lengths)
        return self._feed(x, out), present

    def _feed(self, x: Tensor, out: Tensor) -> Tensor:
        return self.fed(self.feed_forward_norm, self.feed_forward, x, self.after(self.recurrence_norm, x, out))


class Hybrid(DecoderOnly):
    """Layers in a style, each of which mixes positions by attention or by a state."""

    mixes = False
    # A state does not go back where a draft is wrong.
    verifies = False
    reads_pieces = True

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        caches = self.states
        states: list[State] = []
        for index, attends in enumerate(config.attends):
            if attends:
                states += caches[2 * index : 2 * index + 2]
                continue
            recurrence = _recurrence(config)
            self.layers[index] = RecurrentLayer(config.d_model, config.d_ff, config.dropout, config.style, recurrence)
            states += [State(RECURRENT, f"{index}.{part}", shape) for part, shape in recurrence.state_shapes.items()]
        self.states = tuple(states)
        self.attention_heads = (config.num_heads,) * sum(config.attends)

    @property
    def unpaged(self) -> str | None:
        """See Writer."""
        return "some of its layers keep a state of constant size, which has no blocks"

    def by_layer(self, states: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """See CausalTransformer."""
        rest = iter(states)
        sizes = [2 if layer.attends else len(layer.recurrence.state_shapes) for layer in self.layers]
        return [tuple(next(rest) for _ in range(size)) for size in sizes]


def _recurrence(config: HybridConfig) -> Recurrence:
    if config.state_space is not None:
        return StateSpace(config.d_model, config.state_space, config.style.norm_eps)
    return ShortConvolution(config.d_model, config.convolution_taps, bias=config.convolution_bias)
