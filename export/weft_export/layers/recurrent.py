"""Recurrent layers: one step by its formula, and whole ragged sequences by torch's layer or ONNX's operator."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CELLS = ("rnn", "gru", "lstm")
Hidden = tuple[Tensor, ...]
"""What a cell carries from step to step, each [batch, d_hidden]: h, and for an LSTM c."""

_LAYERS: dict[str, Any] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
# Where ONNX's gates (z, r, n; i, o, f, g) stand among torch's (r, z, n; i, f, g, o).
_ONNX_ORDER = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}
# A sigmoid of this is 1, of its negative 0, to the last bit that matters.
_OPEN = 100.0


def parts_of(cell: str) -> tuple[str, ...]:
    """Name what a cell carries."""
    return ("hidden", "cell") if cell == "lstm" else ("hidden",)


class Recurrence(nn.Module):
    """One recurrent layer, forwards or both ways; the weights are those of torch's layer of the same name.

    With x_t the input and h the state before:

    - rnn: h' = tanh(W x + U h + b).
      Elman 1990.
    - gru: r = s(W_r x + U_r h), z = s(W_z x + U_z h), n = tanh(W x + r * (U h)), h' = (1 - z) * n + z * h.
      "Learning Phrase Representations using RNN Encoder-Decoder", Cho et al. 2014, eqs. 5 to 8. Here r multiplies U h
      and not h, and z keeps the old state. torch and cuDNN do the same.
    - lstm: i, f, o = s(W x + U h), g = tanh(W x + U h), c' = f * c + i * g, h' = o * tanh(c').
      Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.

    s is the sigmoid, * is elementwise; every W x and U h has a bias.
    """

    def __init__(self, cell: str, d_input: int, d_hidden: int, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.cell = cell
        self.d_hidden = d_hidden
        self.num_directions = 2 if bidirectional else 1
        self.layer = _LAYERS[cell](d_input, d_hidden, batch_first=True, bidirectional=bidirectional)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of what this layer carries."""
        return parts_of(self.cell)

    def step(self, x: Tensor, hidden: Hidden) -> Hidden:
        """Take one input x [batch, d_input] forwards."""
        layer = self.layer
        h = hidden[0]
        from_x = functional.linear(x, layer.weight_ih_l0, layer.bias_ih_l0)
        from_h = functional.linear(h, layer.weight_hh_l0, layer.bias_hh_l0)
        if self.cell == "rnn":
            return ((from_x + from_h).tanh(),)
        if self.cell == "gru":
            size = 2 * self.d_hidden
            r, z = (from_x[:, :size] + from_h[:, :size]).sigmoid().chunk(2, dim=-1)
            n = (from_x[:, size:] + r * from_h[:, size:]).tanh()
            return ((1 - z) * n + z * h,)
        i, f, g, o = (from_x + from_h).chunk(4, dim=-1)
        c = f.sigmoid() * hidden[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def forward(self, x: Tensor, hidden: Hidden) -> Tensor:
        """Return h after each input of the whole x [batch, seq, d_input], forwards: [batch, seq, d_hidden]."""
        first = tuple(part[None] for part in hidden)
        out: Tensor = self.layer(x, first if self.cell == "lstm" else first[0])[0]
        return out

    def encode(self, x: Tensor, lengths: Tensor, *, reverse: bool = False) -> tuple[Tensor, Hidden]:
        """Read right-padded x [batch, seq, d_input] of lengths int32 [batch]; each row starts from zero.

        reverse reads each row from its end to its beginning. With two directions the second one does that anyway.

        Returns h at each position, [batch, seq, directions * d_hidden], and what is carried after each row's last
        input, [directions, batch, d_hidden] each. What h is in the padding is not defined.
        """
        if torch.onnx.is_in_onnx_export():
            return self._emit_encode(x, lengths, reverse=reverse)
        rows = lengths.long()
        if reverse:
            x = _turned(x, rows)
        packed = pack_padded_sequence(x, rows.cpu(), batch_first=True, enforce_sorted=False)
        packed_out, last = self.layer(packed)
        out, _ = pad_packed_sequence(packed_out, batch_first=True, total_length=x.shape[1])
        if reverse:
            out = _turned(out, rows)
        return out, last if self.cell == "lstm" else (last,)

    def _emit_encode(self, x: Tensor, lengths: Tensor, *, reverse: bool) -> tuple[Tensor, Hidden]:
        # ONNX's operators take ragged rows, also backwards. In ONNX Runtime the bits of GRU and LSTM do not depend on
        # the batch, but those of RNN do. So a plain RNN is emitted as a GRU: with r = 1 and z = 0 they are the same.
        operator = "LSTM" if self.cell == "lstm" else "GRU"
        seq, batch = x.shape[1], x.shape[0]
        attributes: dict[str, int | str] = {
            "hidden_size": self.d_hidden,
            "direction": "bidirectional" if self.num_directions == 2 else "reverse" if reverse else "forward",
        }
        if operator == "GRU":
            attributes["linear_before_reset"] = 1
        last_shape = (self.num_directions, batch, self.d_hidden)
        out, *last = torch.onnx.ops.symbolic_multi_out(
            f"::{operator}",
            (x.transpose(0, 1), *self._onnx_weights(), lengths),
            {**attributes},
            dtypes=(x.dtype,) * (1 + len(self.parts)),
            shapes=((seq, *last_shape), *(last_shape for _ in self.parts)),
        )
        return out.permute(2, 0, 1, 3).flatten(2), tuple(last)

    def _onnx_weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return W, R and B of ONNX's operator, with a first axis for the directions."""
        suffixes = ("", "_reverse")[: self.num_directions]
        w, r, b_w, b_r = (
            torch.stack([self._in_onnx_order(getattr(self.layer, f"{name}_l0{suffix}")) for suffix in suffixes])
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        return w, r, torch.cat((b_w, b_r), dim=-1)

    def _in_onnx_order(self, weight: Tensor) -> Tensor:
        if self.cell in _ONNX_ORDER:
            order = _ONNX_ORDER[self.cell]
            gates = weight.reshape(len(order), self.d_hidden, *weight.shape[1:])
            return gates[torch.tensor(order)].flatten(0, 1)
        gate = torch.zeros_like(weight) if weight.ndim > 1 else torch.full_like(weight, _OPEN)
        return torch.cat((-gate, gate, weight))


def _turned(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the first lengths[b] positions of each row of x [batch, seq, width]."""
    index = torch.arange(x.shape[1]).expand(x.shape[0], -1)
    index = torch.where(index < lengths[:, None], lengths[:, None] - 1 - index, index)
    return x.gather(1, index[:, :, None].expand_as(x))
