"""What holds of every layer with a recurrent state: its steps are its recurrence, however a text is cut and padded."""

import torch


def started(layer, batch):
    """The states before a first token."""
    return tuple(torch.zeros(batch, *shape) for shape in layer.state_shapes.values())


@torch.inference_mode()
def check_pieces(layer, recurrence, x, size):
    """Read in pieces of `size`, x [batch, seq, d_model] gives what the recurrence gives, and its state at the end."""
    past, found = started(layer, x.shape[0]), []
    for first in range(0, x.shape[1], size):
        piece = x[:, first : first + size]
        out, past = layer.step(piece, past, torch.full((x.shape[0],), piece.shape[1], dtype=torch.int32))
        found.append(out)
    expected, state = recurrence(layer, x)
    torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(past[1], state, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def check_padding(layer, recurrence, x, lengths):
    """Rows of other lengths share a run, and each state is what it is behind its own last real token."""
    _, states = layer.step(x, started(layer, x.shape[0]), torch.tensor(lengths, dtype=torch.int32))
    for row, length in enumerate(lengths):
        _, state = recurrence(layer, x[row : row + 1, :length])
        torch.testing.assert_close(states[1][row], state[0], atol=1e-5, rtol=1e-5)
