"""The graphs of a bundle as modules: one for each GraphRole of bundle.proto, all over the same weights."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.classifier import IDENTITY, SIGMOID, Classifier
from weft_export.families.writer import MEMORY, Writer
from weft_export.layers.explaining import Explanation, watching
from weft_export.layers.run import PackedRun, Run
from weft_proto.bundle_rules import MAX_TOP_TOKENS
from weft_proto.paging import PAGED_PORTS

# With more candidates, or fewer tokens, TopK over everything is as fast.
_FEW, _MANY, _GROUP = 16, 4096, 64


class EncoderView(nn.Module):
    """A source to the states that an encoder writes."""

    def __init__(self, model: Writer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *source: Tensor) -> tuple[Tensor, ...]:
        """Return one tensor for each encoded state."""
        return self.model.encode_states(*source)


class DecoderView(nn.Module):
    """One run of a decoder over its states. With `verifies`, it may be asked for several positions of a row.

    bidirectional: each token sees all others of the run.
    """

    def __init__(self, model: Writer, *, verifies: bool = False, bidirectional: bool = False) -> None:
        super().__init__()
        self.model = model
        self.verifies = verifies
        self.bidirectional = bidirectional
        self.has_memory = any(state.kind == MEMORY for state in model.states)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the candidates and the present states. A graph also has inside what last_position takes and gives.

        inputs are input_ids, past_lengths, lengths, total_length, memory_lengths if there is a memory, features if the
        model sees, position_offsets if it is told them, then the states.
        """
        input_ids, past_lengths, lengths, total_length, *states = inputs
        memory_lengths = states.pop(0) if self.has_memory else None
        features = states.pop(0) if self.model.sees else None
        offsets = states.pop(0) if self.model.offsets_positions else None
        with watching() as inner:
            run = Run(
                input_ids,
                past_lengths,
                lengths,
                total_length,
                memory_lengths,
                self.verifies,
                features,
                offsets,
                self.bidirectional,
            )
            logits, presents = self.model.step(run, states)
        # A graph that scores is made of the one that reads in one direction.
        inside = inner if torch.onnx.is_in_onnx_export() and not self.bidirectional else ()
        return (*candidates(logits, self.model.max_candidates), *presents, *inside)


class SightView(nn.Module):
    """A picture to what a prompt has in its place."""

    def __init__(self, model: Writer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *source: Tensor) -> Tensor:
        """Return features float32 [batch, places, width]."""
        return self.model.see(*source).float()


class MixedView(nn.Module):
    """One run of a decoder's rows and of a prompt beside them."""

    def __init__(self, model: Writer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the candidates of the rows and the prompt, the rows' present states and the prompt's.

        inputs are input_ids, past_lengths, prompt_ids, prompt_past_lengths, prompt_lengths, total_length, the rows'
        states, then the prompt's.
        """
        input_ids, past_lengths, prompt_ids, prompt_past_lengths, prompt_lengths, total_length, *states = inputs
        run = Run(input_ids, past_lengths, torch.ones_like(past_lengths), total_length, None)
        prompt = Run(prompt_ids, prompt_past_lengths, prompt_lengths, total_length, None)
        own, others = states[: len(states) // 2], states[len(states) // 2 :]
        logits, presents, prompt_presents = self.model.mixed_step(run, own, prompt, others)
        return (*candidates(logits, self.model.max_candidates), *presents, *prompt_presents)


class PackedView(nn.Module):
    """One run of a decoder whose caches lie in blocks."""

    def __init__(self, model: Writer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the candidates of each row and the present caches. inputs are those of PackedRun, then the caches."""
        given = len(PAGED_PORTS)
        logits, presents = self.model.packed_step(PackedRun(*inputs[:given]), inputs[given:])
        return (*candidates(logits, self.model.max_candidates), *presents)


class ScoreView(nn.Module):
    """Given answers to how probable their tokens are. No graph is traced of it: see score_graph.py."""

    def __init__(self, model: Writer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log_probs [runs, size], topk_ids [runs, size, k] and topk_log_probs.

        inputs are the source if there is an encoder, what the decoder reads [batch, target], places and scored_ids.
        """
        *source, fed, places, scored_ids = inputs
        log_probs = self.model.decode(fed, *source).float().log_softmax(dim=-1).flatten(0, 1)[places]
        best, ids = log_probs.topk(min(MAX_TOP_TOKENS, log_probs.shape[-1]), dim=-1)
        return log_probs.gather(-1, scored_ids[..., None])[..., 0], ids, best


class ClassifierView(nn.Module):
    """A text or an image, or tokens of a text, to probabilities or to logits."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, *source: Tensor) -> Tensor:
        """Return probabilities float32 [batch, labels], of a tagger [batch, seq, labels]; or other scores.

        Of a masked language model they are logits [batch, masks, vocab].
        """
        logits: Tensor = self.model(*source)
        return scores_of(logits.float(), self.model.scoring)


def scores_of(logits: Tensor, scoring: str) -> Tensor:
    """Return what the labels of logits [..., labels] score."""
    if scoring == IDENTITY:
        return logits
    if scoring == SIGMOID:
        # As a softmax beside 0: ONNX Runtime's Sigmoid rounds a row by its place in a batch.
        return functional.pad(logits[..., None], (0, 1)).softmax(dim=-1)[..., 0]
    return logits.softmax(dim=-1)


class CtcView(nn.Module):
    """A recording to the log-probabilities of the labels of each moment."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, *source: Tensor) -> Tensor:
        """Return log-probabilities float32 [batch, frames, labels]."""
        logits: Tensor = self.model(*source)
        return logits.float().log_softmax(dim=-1)


class EmbedderView(nn.Module):
    """A text or an image to its vector."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, *source: Tensor) -> Tensor:
        """Return vectors float32 [batch, dimensions]."""
        vectors: Tensor = self.model(*source)
        return vectors.float()


class ExplainView(nn.Module):
    """A source, a finished answer if it is text, a layer and a head to what was attended to.

    Behind that come all layers' attentions, which that was picked from. The graph has them inside, for who proves it.
    """

    def __init__(self, model: Writer | Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return what the model's explain gives for a batch of one, an Explanation, then the attentions."""
        *given, layer, head = inputs
        with watching() as attentions:
            explanation = self._explain(layer, head, given)
        return (*explanation, *attentions)

    def _explain(self, layer: Tensor, head: Tensor, given: Sequence[Tensor]) -> Explanation:
        if isinstance(self.model, Classifier):
            return self.model.explain(layer, head, *given)
        *source, target_ids = given
        return self.model.explain(layer, head, target_ids, *source)


def candidates(logits: Tensor, max_candidates: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the best of logits [batch, vocab], their ids, logsumexp and the logits, in float32 at any precision."""
    logits = logits.float()
    best, ids = _largest(logits, min(max_candidates, logits.shape[-1]))
    # x - log_softmax(x) is logsumexp(x) at every token but one that is ruled out, and the best is none. ONNX Runtime's
    # ReduceLogSumExp takes ten times as long, and its ReduceSum of exponentials has other bits in other batches.
    logsumexp = best[:, 0] - logits.log_softmax(dim=-1).gather(1, ids[:, :1])[:, 0]
    return best, ids, logsumexp, logits


def _largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of logits [batch, vocab] and their ids, in descending order, equal ones by their ids.

    They lie in the `count` groups that have the largest maxima. To look only there takes a third of the time of TopK
    over all, if few are wanted of many. For 16 candidates of 32 rows of 32,000 it is 0.17 ms instead of 0.61 ms.
    """
    if count > _FEW or logits.shape[-1] < _MANY:
        return _first(logits, count)
    if rest := -logits.shape[-1] % _GROUP:
        logits = functional.pad(logits, (0, rest), value=-math.inf)
    groups = logits.view(logits.shape[0], -1, _GROUP)
    # Of groups with equal maxima the first ones hold the lower ids. In ascending order the groups keep ids in order.
    chosen = _first(groups.amax(dim=2), count)[1].topk(count, dim=1, largest=False).values
    rows = chosen + torch.arange(logits.shape[0])[:, None] * groups.shape[1]
    best, places = _first(groups.flatten(0, 1)[rows.flatten()].view(-1, count * _GROUP), count)
    return best, chosen.gather(1, places // _GROUP) * _GROUP + places % _GROUP


def _first(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of values [batch, n] and their places, in descending order, equal ones by place."""
    if torch.onnx.is_in_onnx_export():
        # ONNX's TopK puts equal ones in order. torch's own leaves that open.
        best, places = values.topk(count, dim=1)
    else:
        best, places = (ranked[:, :count] for ranked in values.sort(dim=1, descending=True, stable=True))
    return best, places
