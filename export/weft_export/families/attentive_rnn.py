"""What the two recurrent families with attention share: a decoder that looks at a memory before each step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan

from weft_export.families.writer import MEMORY, RECURRENT, State, Writer
from weft_export.layers.additive_attention import AdditiveAttention, mask_of
from weft_export.layers.explaining import Explanation, over_source, pick_head, pick_layer
from weft_export.layers.recurrent import Hidden, Recurrence
from weft_export.layers.run import Run

Memory = tuple[Tensor, Tensor]
"""Annotations [batch, source, d_annotation] and their keys [batch, source, d_attention]."""


class AttentiveRnn(Writer):
    """s_i = f([E y_{i-1}; c_i], s_{i-1}), where c_i is what s_{i-1} looks at.

    A family says how a source becomes annotations and a first state, and how a word is predicted.
    """

    embedding: nn.Embedding
    attention: AdditiveAttention
    recurrence: Recurrence
    attention_heads = (1,)
    scores = True

    def _remember(self, capacity: int, d_annotation: int, d_attention: int) -> None:
        """Declare the states: a memory of so many annotations and their keys, and what the decoder's cell carries."""
        self.capacity = capacity
        self.states = (
            State(MEMORY, "annotations", (capacity, d_annotation), encoded=True, returned=False),
            State(MEMORY, "keys", (capacity, d_attention), encoded=True, returned=False),
            *(State(RECURRENT, part, (self.recurrence.d_hidden,), encoded=True) for part in self.recurrence.parts),
        )

    def annotate(self, *source: Tensor) -> tuple[Tensor, Tensor, Hidden]:
        """Return the annotations, how many are real ([batch], [1] if all alike), and the decoder's first state."""
        raise NotImplementedError

    def look(self, state: Tensor, memory: Memory, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return c_i [batch, d_annotation] and alpha_i [batch, source] for s_{i-1} [batch, d_hidden]."""
        seen: tuple[Tensor, Tensor] = self.attention(state, *memory, mask)
        return seen

    def predict(self, word: Tensor, state: Tensor, context: Tensor) -> Tensor:
        """Return logits [..., vocab] from E y_{i-1}, s_i and c_i, each [..., width]."""
        raise NotImplementedError

    def encode_states(self, *source: Tensor) -> tuple[Tensor, ...]:
        """Return annotations, keys and the first state."""
        annotations, _, hidden = self.annotate(*source)
        return annotations, self.attention.key(annotations), *hidden

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits [batch, vocab] and the present recurrent states."""
        annotations, keys, *hidden = states
        word = self.embedding(run.input_ids[:, 0])
        mask = mask_of(run.lengths_of_memory, keys.shape[1])
        present, context, _ = self._turn(word, tuple(hidden), (annotations, keys), mask)
        return self.predict(word, present[0], context), list(present)

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] of the whole target, teacher-forced."""
        return self.decode_and_align(target_ids, *source)[0]

    def decode_and_align(self, target_ids: Tensor, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [batch, target, vocab] and the weights [batch, target, source] behind them."""
        annotations, lengths, hidden = self.annotate(*source)
        memory, mask = (annotations, self.attention.key(annotations)), mask_of(lengths, annotations.shape[1])
        words = self.embedding(target_ids)
        turns = []
        for word in words.unbind(1):
            hidden, context, weights = self._turn(word, hidden, memory, mask)
            turns.append((hidden[0], context, weights))
        states, contexts, alignment = (torch.stack(parts, dim=1) for parts in zip(*turns, strict=True))
        return self.predict(words, states, contexts), alignment

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return the alignment [target, source]; there is one layer with one head."""
        alignment = self._align(target_ids, *source)
        return over_source(pick_layer([pick_head(alignment[None], head)], layer))

    def _align(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return the weights [target, source] of a batch of one."""
        if not torch.onnx.is_in_onnx_export():
            return self.decode_and_align(target_ids, *source)[1][0]
        annotations, lengths, hidden = self.annotate(*source)
        source_length = annotations.shape[1]
        # In a scan's body every size must be known now. So the memory is as long as it may ever be.
        index = torch.minimum(torch.arange(self.capacity), lengths - 1)
        annotations = annotations.index_select(1, index)
        memory = (annotations, self.attention.key(annotations))
        mask = mask_of(lengths, self.capacity)

        def turn(hidden: Hidden, word: Tensor) -> tuple[Hidden, Tensor]:
            hidden, _, weights = self._turn(word, hidden, memory, mask)
            return hidden, weights

        # A loop over as many tokens as there are is an operator of its own in a graph.
        _, alignment = scan(turn, hidden, self.embedding(target_ids[0])[:, None])
        weights: Tensor = alignment[:, 0, :source_length]
        return weights

    def _turn(self, word: Tensor, hidden: Hidden, memory: Memory, mask: Tensor) -> tuple[Hidden, Tensor, Tensor]:
        context, weights = self.look(hidden[0], memory, mask)
        return self.recurrence.step(torch.cat((word, context), dim=-1), hidden), context, weights
