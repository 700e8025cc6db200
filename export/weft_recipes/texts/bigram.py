"""A bigram model to compare a language model with."""

import torch
from torch import Tensor

_DISCOUNT = 0.75


class Bigram:
    """Interpolated Kneser-Ney of order 2, discount 0.75.

    "An empirical study of smoothing techniques for language modeling", Chen and Goodman 1999.
    """

    def __init__(self, stream: Tensor, vocab_size: int) -> None:
        """Count the pairs in a row of token ids."""
        pairs = stream[:-1] * vocab_size + stream[1:]
        counts = torch.bincount(pairs, minlength=vocab_size**2).view(vocab_size, vocab_size).double()
        seen = counts > 0
        totals = counts.sum(dim=1, keepdim=True).clamp(min=1)
        # How many different tokens a token follows; one is added, so that what was never seen has a chance.
        continuation = seen.sum(dim=0).double() + 1
        continuation /= continuation.sum()
        spared = (_DISCOUNT * seen.sum(dim=1, keepdim=True) / totals).where(counts.sum(dim=1, keepdim=True) > 0, 1.0)
        self._log_probability = ((counts - _DISCOUNT).clamp(min=0) / totals + spared * continuation).log()

    def loss(self, stream: Tensor) -> float:
        """Return the summed negative log-likelihood, in nats, of a row's tokens after the first."""
        return -self._log_probability[stream[:-1], stream[1:]].sum().item()
