"""A decoder whose prompts may hold pictures: LLaVA, Idefics 3. What sees a picture is the families' own.

In the prompt, what it makes of a picture stands where words' vectors would: no other part of the decoder knows of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.decoder_only import DecoderOnly, DecoderOnlyConfig
from weft_export.layers.run import Run


@dataclass(frozen=True, kw_only=True)
class PicturedDecoderConfig(DecoderOnlyConfig):
    """A decoder, and what sees pictures for it: a config with `num_places`, those of a picture in a prompt."""

    sight: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens < self.sight.num_places + 2:
            raise ValueError(
                f"model.max_tokens ({self.max_tokens}) has no room for the {self.sight.num_places} places of a picture,"
                " a word and an answer"
            )


class PicturedDecoder(DecoderOnly):
    """The id vocab_size, which is no token, stands for a place of a picture. A family has a `see`."""

    sees = True
    mixes = False
    # ScoreService takes no pictures.
    scores = False

    config: PicturedDecoderConfig

    @property
    def unpaged(self) -> str | None:
        """See Writer."""
        return "its prompts may hold pictures, which a packed run does not read"

    def placed(self, ids: Tensor, features: Tensor | None) -> Tensor:
        """See Writer. A prompt may be cut within its last picture."""
        placed = torch.zeros(*ids.shape, self.feature_width)
        if features is None:
            return placed
        is_seen = ids == self.config.vocab_size
        return placed.masked_scatter(is_seen[..., None], features.flatten(0, 1).float()[: int(is_seen.sum())])

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] of prompts with the pictures of `source`, see `shown`."""
        features = self.placed(target_ids, self.shown(*source) if source else None)
        return self.logits(self.through(self._read(target_ids, None, features)))

    def embed_run(self, run: Run) -> Tensor:
        """See CausalTransformer."""
        assert run.features is not None, "a run without features. This is a bug."
        return self._read(run.input_ids, run.past_lengths, run.features)

    def embed_behind(self, ids: Tensor, *beside: Tensor) -> Tensor:
        """See CausalTransformer. beside: the features of the prompt, as a run has them."""
        features = beside[0]
        behind = features.new_zeros(1, ids.shape[1] - features.shape[1], features.shape[2])
        return self._read(ids, None, torch.cat((features, behind), dim=1))

    def added_of(self, run: Run) -> Sequence[Tensor | None]:
        """See CausalTransformer."""
        assert run.features is not None, "a run without features. This is a bug."
        return self._added(run.input_ids, run.features)

    def added_behind(self, ids: Tensor, *beside: Tensor) -> Sequence[Tensor | None]:
        """See CausalTransformer."""
        return self._added(ids, nn.functional.pad(beside[0], (0, 0, 0, ids.shape[1] - beside[0].shape[1])))

    def _added(self, ids: Tensor, features: Tensor) -> Sequence[Tensor | None]:  # noqa: ARG002 - most add nothing
        """Return what is added behind each layer: of places of a picture, some of what is seen there."""
        return (None,) * len(self.layers)

    def _read(self, ids: Tensor, past_lengths: Tensor | None, features: Tensor) -> Tensor:
        size = self.config.vocab_size
        words = self.embed(ids.clamp(max=size - 1), past_lengths)
        seen = features[..., : words.shape[-1]].to(words.dtype)
        if self.embeddings.positions is not None:
            seen = seen + self.embeddings.places(ids.shape[1], past_lengths)
        return torch.where((ids == size)[..., None], seen, words)
