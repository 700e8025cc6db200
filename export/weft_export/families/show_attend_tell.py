"""A convolutional encoder and an LSTM with soft attention, for captions ("Show, Attend and Tell", Xu et al. 2015)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.families.attentive_rnn import AttentiveRnn, Memory
from weft_export.families.sizes import require_divisible, require_sizes
from weft_export.layers.additive_attention import AdditiveAttention
from weft_export.layers.convolution import ConvolutionStack
from weft_export.layers.pooling import mean_over_positions
from weft_export.layers.recurrent import Hidden, Recurrence


@dataclass(frozen=True)
class ShowAttendTellConfig:
    """Sizes; the paper's symbols stand beside them. Lengths are in tokens, image sizes in pixels.

    The image is halved once for each width of the convolutions. The last width is that of the annotations (D).
    """

    target_vocab_size: int  # K
    max_target_tokens: int
    channels: int
    image_height: int
    image_width: int
    convolution_widths: tuple[int, ...]
    d_embedding: int  # m
    d_hidden: int  # n
    d_attention: int

    def __post_init__(self) -> None:
        require_sizes(self)
        scale = 2 ** len(self.convolution_widths)
        require_divisible("image_height", self.image_height, "2 ** len(convolution_widths)", scale)
        require_divisible("image_width", self.image_width, "2 ** len(convolution_widths)", scale)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of annotations."""
        scale = 2 ** len(self.convolution_widths)
        return self.image_height // scale, self.image_width // scale


class ShowAttendTell(AttentiveRnn):
    """Section 3.1 and 4.2 of the paper, with learned positions added to the annotations of its small encoder.

    States: the annotations a_i in reading order and their keys, h and c.
    """

    def __init__(self, config: ShowAttendTellConfig) -> None:
        super().__init__()
        self.config = config
        rows, columns = config.grid
        d_annotation = config.convolution_widths[-1]  # D
        self.num_positions = rows * columns  # L
        self.convolutions = ConvolutionStack(config.channels, config.convolution_widths)
        self.positions = nn.Parameter(torch.randn(self.num_positions, d_annotation) * 0.02)
        self.first_hidden = nn.Linear(d_annotation, config.d_hidden)  # f_init,h
        self.first_cell = nn.Linear(d_annotation, config.d_hidden)  # f_init,c
        self.embedding = nn.Embedding(config.target_vocab_size, config.d_embedding)  # E
        self.attention = AdditiveAttention(config.d_hidden, d_annotation, config.d_attention)  # f_att
        self.gate = nn.Linear(config.d_hidden, 1)  # f_beta
        self.recurrence = Recurrence("lstm", config.d_embedding + d_annotation, config.d_hidden)
        self.from_hidden = nn.Linear(config.d_hidden, config.d_embedding)  # L_h
        self.from_context = nn.Linear(d_annotation, config.d_embedding)  # L_z
        self.output = nn.Linear(config.d_embedding, config.target_vocab_size)  # L_o
        self._remember(self.num_positions, d_annotation, config.d_attention)

    def annotate(self, *source: Tensor) -> tuple[Tensor, Tensor, Hidden]:
        """See (pixel_values [batch, channels, height, width],); h_0 and c_0 come from the mean annotation."""
        (pixel_values,) = source
        annotations = self.convolutions(pixel_values.to(self.positions.dtype)) + self.positions
        mean = mean_over_positions(annotations)
        lengths = torch.tensor([self.num_positions], dtype=torch.int32)
        return annotations, lengths, (self.first_hidden(mean).tanh(), self.first_cell(mean).tanh())

    def look(self, state: Tensor, memory: Memory, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the context scaled by beta = s(f_beta(h_{t-1})) (section 4.2.1), and the weights."""
        context, weights = super().look(state, memory, mask)
        return self.gate(state).sigmoid() * context, weights

    def predict(self, word: Tensor, state: Tensor, context: Tensor) -> Tensor:
        """Return L_o (E y_{t-1} + L_h h_t + L_z z_t) (eq. 7)."""
        logits: Tensor = self.output(word + self.from_hidden(state) + self.from_context(context))
        return logits
