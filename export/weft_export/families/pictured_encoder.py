"""What families share whose encoder reads a picture and then a question about it: Florence-2, BLIP-2 with T5.

The memory has the places of the picture, and behind them those of the question's tokens. A decoder is told how many.
"""

import torch
from torch import Tensor

from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.layers.attention import padding_mask
from weft_export.layers.explaining import Explanation, over_source


class PicturedEncoder(SequenceToSequence):
    """A family says what it sees (`see`), and how both are read (`read`). Its config has `sight`."""

    reads_question = True
    # ScoreService takes no question.
    scores = False

    @property
    def unadapted(self) -> str | None:
        """See Writer."""
        return "models whose encoder reads pictures and questions"

    def read(self, seen: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return the encoded source [batch, places + seq, d_model].

        seen is what `see` gave, [batch, places, d_model], ids int64 [batch, seq] is right-padded, and lengths [batch]
        count the places too.
        """
        raise NotImplementedError

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode (pixel_values [batch, C, H, W], ids int64 [batch, seq] right-padded, lengths [batch] of these)."""
        pixel_values, ids, lengths = source
        seen = self.see(pixel_values)
        real = lengths + seen.shape[1]
        return self.read(seen, ids, real), padding_mask(real, seen.shape[1] + ids.shape[1])

    def forward(self, pixel_values: Tensor, ids: Tensor, lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits [batch, target, vocab], as EncoderDecoder does."""
        return self.decode(target_ids, pixel_values, ids, lengths)

    def _over_memory(self, weights: Tensor) -> Explanation:
        """Part weights [target, memory] into those over the picture, and those over the question.

        Where a picture has a grid, its other places are left out.
        """
        sight = self.config.sight
        first = sight.num_class_tokens if min(sight.grid) else 0
        return *over_source(weights[:, first : sight.num_places]), weights[:, sight.num_places :]


def joined(seen: Tensor, words: Tensor) -> Tensor:
    """Put the vectors of words [batch, seq, d_model] behind what is seen, in their type."""
    return torch.cat((seen.to(words.dtype), words), dim=1)
