"""Answers of a bundle's graphs to many requests at once: in torch, or wherever else the same graphs run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.framing import positions_of
from weft_export.checkpoints.tokenizer import encode, read_tokenizer
from weft_export.errors import CheckpointError
from weft_export.families.writer import Writer
from weft_export.graphs.graphs import Graph, states_of, zeros_of
from weft_proto.bundle_rules import FEATURES, MASK_POSITIONS, POSITION_OFFSETS
from weft_proto.questions import begins_filled, picture_places
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

if TYPE_CHECKING:
    from weft_export.checkpoints.held_out import Example

Run = Callable[[bundle_pb2.GraphRole.ValueType, Mapping[str, Tensor]], dict[str, Tensor]]
"""Runs the graph of a role on named inputs, in the order of its ports, and returns its outputs by name."""


def torch_run(graphs: Sequence[Graph]) -> Run:
    """Run graphs as the modules that they are traced from."""
    by_role = {graph.role: graph for graph in graphs}

    def run(role: bundle_pb2.GraphRole.ValueType, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs = by_role[role].module(*inputs.values())
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        return dict(zip(by_role[role].outputs, outputs, strict=True))

    return run


@dataclass
class Row:
    """One request to a model that writes text: its source, and the tokens so far.

    The given tokens are fed as they are. `guesses` holds what the model would have written in their place.
    """

    source: Tensor | None
    tokens: list[int]
    guesses: list[int] = field(default_factory=list)
    asked: Tensor | None = None
    """The ids [seq] of a question that an encoder reads behind its picture."""
    features: Tensor | None = None
    """What a model that sees gave for the pictures of the prompt; see Writer.placed."""
    offsets: Tensor | None = None
    """Of the given tokens, and of those behind them; see Writer.offsets."""
    num_given: int | None = None
    """How many of the tokens are the start or the prompt. None: all that are there before more are written."""


def row_of(checkpoint: Checkpoint, example: "Example") -> Row:
    """Return a held-out example's request to a model that writes text."""
    text = checkpoint.text_spec
    if text.HasField("start_id"):
        asked = torch.tensor(example.asked_ids) if example.asked_ids else None
        return Row(example.source, [text.start_id, *example.prefix_ids], asked=asked)
    return Row(None, example.source.tolist())


def reference_ids(checkpoint: Checkpoint, tokenizer: Tokenizer, example: "Example") -> list[int]:
    """Return what an example wants written, in tokens of the target tokenizer. With a start token it has an end token.

    Raises:
        CheckpointError: it cannot be written in tokens that the model has.
    """
    text = checkpoint.text_spec
    try:
        ids: list[int] = encode(tokenizer, example.reference, special=False).ids
    except CheckpointError as error:
        raise CheckpointError(f"the reference {example.reference!r} {error}") from error
    if (highest := max(ids, default=0)) >= text.target_vocab_size:
        size = f"text.target_vocab_size is {text.target_vocab_size}"
        raise CheckpointError(f"the reference {example.reference!r} has the token {highest}; {size}")
    return [*ids, text.end_ids[0]] if text.HasField("start_id") else ids


def target_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Return the tokenizer of what a model writes."""
    return read_tokenizer(checkpoint, checkpoint.text_spec.target_tokenizer)


def values(run: Run, checkpoint: Checkpoint, sources: Sequence[Tensor]) -> list[Tensor]:
    """Return each source's probabilities [labels], of a tagger [seq, labels], or its vector [dimensions], or vectors.

    Of a text with masks they are logits [masks, vocab]. All texts have the same number of masks.
    """
    task = TASKS[checkpoint.task]
    (role,) = task.needs
    inputs = _stacked(sources)
    if task.fills_masks:
        positions = [positions_of(source, checkpoint.text_spec.mask_id) for source in sources]
        inputs[MASK_POSITIONS] = torch.stack(positions)
    (out,) = run(role, inputs).values()
    return [row[: len(source)] if checkpoint.gives_rows else row for row, source in zip(out, sources, strict=True)]


def write(run: Run, checkpoint: Checkpoint, rows: Sequence[Row], max_new_tokens: int) -> None:
    """Go through each row's tokens, then write on greedily, until an end token or max_new_tokens more.

    The last of max_new_tokens is the forced end, if the model has one. At each step all rows are at the same position.
    A row that has ended is fed padding. Recordings of other lengths, which are not padded, are read one after another.
    """
    for group in _alike(rows):
        _write(run, checkpoint, group, max_new_tokens)


def _write(run: Run, checkpoint: Checkpoint, rows: Sequence[Row], max_new_tokens: int) -> None:
    text = checkpoint.text_spec
    states = states_of(checkpoint.model, bundle_pb2.PRECISION_FP32)
    begun = picture_places(checkpoint.image) if checkpoint.image is not None and begins_filled(states) else 0
    longest = max((len(row.tokens) for row in rows), default=0) + max_new_tokens
    values, memory_lengths = _admit(run, states, rows, min(begun + longest, text.max_total_tokens))
    given = [len(row.tokens) for row in rows]
    sight = _features_of(checkpoint, rows)
    stretches = _Stretches(checkpoint, states, rows, sight)
    ones = torch.ones(len(rows), dtype=torch.int32)
    for position in range(text.max_total_tokens - begun):
        open_rows = [position < len(row.tokens) for row in rows]
        if not any(open_rows):
            break
        fed = [row.tokens[position] if is_open else 0 for row, is_open in zip(rows, open_rows, strict=True)]
        inputs = {
            "input_ids": torch.tensor(fed)[:, None],
            "past_lengths": ones * (begun + position),
            "lengths": ones,
            "total_length": torch.tensor([text.max_total_tokens], dtype=torch.int32),
        }
        if memory_lengths is not None:
            inputs["memory_lengths"] = memory_lengths
        if sight is not None:
            inputs[FEATURES] = sight[:, min(position, sight.shape[1] - 1), None]
        offsets = [
            each.offsets[:, min(position, each.offsets.shape[1] - 1)] for each in rows if each.offsets is not None
        ]
        if offsets:
            inputs[POSITION_OFFSETS] = torch.stack(offsets)
        out = run(bundle_pb2.GRAPH_ROLE_DECODER, {**inputs, **values})
        values |= {state.past: out[state.present] for state in states if state.present}
        bests = out["topk_ids"][:, 0].tolist()
        for index, best in stretches.read(run, position, values):
            bests[index] = best
        for row, num_given, is_open, best in zip(rows, given, open_rows, bests, strict=True):
            if is_open:
                row.guesses.append(best)
                produced = row.tokens[num_given:]
                ended = len(produced) == max_new_tokens or (produced and produced[-1] in text.end_ids)
                if position + 1 == len(row.tokens) and not ended:
                    is_last = len(produced) + 1 == max_new_tokens and text.HasField("forced_end_id")
                    row.tokens.append(text.forced_end_id if is_last else best)


def _alike(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows whose sources may share a run: samples of one length, or all others."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        has_samples = row.source is not None and row.source.dim() == 1 and row.source.is_floating_point()
        groups.setdefault(row.source.numel() if has_samples and row.source is not None else 0, []).append(row)
    return list(groups.values())


class _Stretches:
    """Those of the rows' prompts that a model reads in both directions."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        states: Sequence[bundle_pb2.StateTensor],
        rows: Sequence[Row],
        sight: Tensor | None,
    ) -> None:
        """`sight` is what a model that sees reads at each place of each row."""
        self._states, self._rows, self._sight = states, rows, sight
        self._capacity = torch.tensor([checkpoint.text_spec.max_total_tokens], dtype=torch.int32)
        # Where each begins, by where it ends.
        self._starts: list[dict[int, int]] = []
        assert isinstance(checkpoint.model, Writer)
        for row in rows:
            num_given = len(row.tokens) if row.num_given is None else row.num_given
            found = checkpoint.model.stretches(row.tokens, num_given)
            self._starts.append({stop: start for start, stop in found})

    def read(self, run: Run, position: int, values: Mapping[str, Tensor]) -> Iterator[tuple[int, int]]:
        """Read those that end with a position anew, over what a decoder has made of them token by token.

        values: the states of all rows, into which it is written.
        Yields which row has one there, and the best token behind it.
        """
        for index, (row, starts) in enumerate(zip(self._rows, self._starts, strict=True)):
            if position + 1 not in starts:
                continue
            assert self._sight is not None, "a stretch of a model that sees nothing. This is a bug."
            places = slice(starts[position + 1], position + 1)
            ids = torch.tensor([row.tokens[places]])
            inputs = {
                "input_ids": ids,
                "past_lengths": torch.tensor([places.start], dtype=torch.int32),
                "lengths": torch.tensor([ids.shape[1]], dtype=torch.int32),
                "total_length": self._capacity,
                FEATURES: self._sight[index : index + 1, places],
            }
            lone = {state.past: values[state.past][index : index + 1] for state in self._states}
            told = run(bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL, inputs | lone)
            for state in self._states:
                lone[state.past][...] = told[state.present]
            yield index, int(told["topk_ids"][0, 0])


def _features_of(checkpoint: Checkpoint, rows: Sequence[Row]) -> Tensor | None:
    """Return what a model that sees reads at each place of rows, and behind the longest, [rows, seq, width]."""
    model = checkpoint.model
    if not isinstance(model, Writer) or not model.sees:
        return None
    placed = [model.placed(torch.tensor([row.tokens]), row.features)[0] for row in rows]
    width = 1 + max(map(len, placed))
    return torch.stack([nn.functional.pad(each, (0, 0, 0, width - len(each))) for each in placed])


def _admit(
    run: Run, states: Sequence[bundle_pb2.StateTensor], rows: Sequence[Row], longest: int
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return the states' first values, slot-major, and how long each row's memory is, if there is one.

    A cache has so many places as the longest row will have. Whoever runs a graph that wants all of its context makes it
    longer.
    """
    values = {state.past: zeros_of(_cut(state, longest), len(rows)) for state in states}
    sources = [row.source for row in rows if row.source is not None]
    if not sources:
        return values, None
    inputs = _stacked(sources)
    asked = [row.asked for row in rows if row.asked is not None]
    questions = _stacked(asked) if asked else {}
    out = run(bundle_pb2.GRAPH_ROLE_ENCODER, {**inputs, **questions})
    lengths = None
    for state in states:
        if not state.encoder_output:
            continue
        if state.kind == bundle_pb2.STATE_KIND_RECURRENT:
            values[state.past] = out[state.encoder_output]
            continue
        encoded = out[state.encoder_output]
        axis = 1 + state.length_axis
        length = min(encoded.shape[axis], values[state.past].shape[axis])
        values[state.past].narrow(axis, 0, length).copy_(encoded.narrow(axis, 0, length))
        if asked and state.kind == bundle_pb2.STATE_KIND_MEMORY:
            num_places = encoded.shape[axis] - questions["input_ids"].shape[1]
            lengths = questions["lengths"] + num_places
        elif state.kind == bundle_pb2.STATE_KIND_MEMORY:
            real = [length if source.is_floating_point() else len(source) for source in sources]
            lengths = torch.tensor(real, dtype=torch.int32)
    return values, lengths


def _cut(state: bundle_pb2.StateTensor, length: int) -> bundle_pb2.StateTensor:
    """Return a cache of fewer places, and any other state as it is."""
    if state.kind != bundle_pb2.STATE_KIND_KV_CACHE:
        return state
    shorter = bundle_pb2.StateTensor()
    shorter.CopyFrom(state)
    shorter.shape[state.length_axis] = length
    return shorter


def _stacked(sources: Sequence[Tensor]) -> dict[str, Tensor]:
    if sources[0].dim() == 2:
        return {"input_features": torch.stack(tuple(sources))}
    if sources[0].dim() > 1:
        return {"pixel_values": torch.stack(tuple(sources))}
    if sources[0].is_floating_point():
        return {"waveform": torch.stack(tuple(sources))}
    lengths = [len(source) for source in sources]
    width = -(-max(lengths) // 8) * 8
    ids = torch.stack([nn.functional.pad(source, (0, width - len(source))) for source in sources])
    return {"input_ids": ids, "lengths": torch.tensor(lengths, dtype=torch.int32)}
