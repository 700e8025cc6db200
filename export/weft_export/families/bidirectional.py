"""A decoder that reads stretches of its prompts in both directions: Gemma 3's pictures, PaliGemma's prompts.

Places of a stretch see each other whatever their order, and what stands before it. All else sees what came before.
"""

import torch
from torch import Tensor

from weft_export.families.pictured_decoder import PicturedDecoder
from weft_proto.sight import stretches
from weft_proto.v1 import bundle_pb2


class BidirectionalDecoder(PicturedDecoder):
    """A family says with `bidirectional` which stretches these are, and has a `see`."""

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """See PicturedDecoder. All of target_ids is a prompt."""
        return self.decode_behind(target_ids.shape[1], target_ids, *source)

    def decode_behind(self, num_given: int, target_ids: Tensor, *source: Tensor) -> Tensor:
        """See Writer."""
        read = self._read(target_ids, None, self.placed(target_ids, self.shown(*source) if source else None))
        return self.logits(self.through(read, together=self.together(target_ids, num_given)))

    def together(self, ids: Tensor, num_given: int) -> Tensor:
        """See CausalTransformer."""
        if self.bidirectional == bundle_pb2.BIDIRECTIONAL_PROMPT:
            given = torch.arange(ids.shape[1]) < num_given
            return (given & given[:, None])[None, None]
        seen = ids == self.config.vocab_size
        number = (seen.long().cumsum(dim=1) - 1) // self.config.sight.num_places
        together: Tensor = (number[:, None] == number[..., None]) & (seen[:, None] & seen[..., None])
        return together[:, None]

    def stretches(self, tokens: list[int], num_given: int) -> list[tuple[int, int]]:
        """See Writer."""
        seen = [place for place, each in enumerate(tokens[:num_given]) if each == self.config.vocab_size]
        size = self.config.sight.num_places
        parts = [seen[first : first + size] for first in range(0, len(seen), size)]
        return stretches(self.bidirectional, num_given, [(part[0], part[-1] + 1) for part in parts])
