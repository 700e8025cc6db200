"""How often a proof runs a model: less often where the model is large, because each run reads all of its weights."""

from torch import nn

# A proof reads so many weights, or runs so often.
_MAX_WEIGHTS_READ = 1 << 34
_FEWEST = 16


def num_passes(model: nn.Module, most: int) -> int:
    """Return `most`, or fewer: 16 of a model of a thousand million weights.

    Any model of up to 67 million weights may run 256 times.
    """
    # Rounded weights are buffers.
    num_weights = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    return min(most, max(_FEWEST, _MAX_WEIGHTS_READ // max(1, num_weights)))
