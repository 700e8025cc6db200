"""A decoder in torch beside the same decoder in ONNX Runtime: prefill in chunks, then ragged and growing batches."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from weft_export.checkpoints.random_requests import RandomRequest
from weft_export.errors import ParityError
from weft_export.families.writer import Writer
from weft_export.graphs.graphs import Graph, zeros_of
from weft_export.verification.golden import next_logits
from weft_export.verification.runtime import run_in_place
from weft_export.verification.tolerance import SpreadTolerance, Tolerance
from weft_export.verification.tolerances import num_passes
from weft_proto.bundle_rules import CANDIDATE_PORTS, FEATURES, POSITION_OFFSETS, READS_ALL
from weft_proto.questions import begins_filled
from weft_proto.v1 import bundle_pb2

MAX_STEPS = 32
PREFILL_SEQ = 16
# For the candidates and the normaliser, compared with those that follow from the graph's own logits.
OWN_TOLERANCE = 1e-4

Array = NDArray[Any]
Encoded = list[tuple[Sequence[Tensor], Sequence[Array]]]
"""For each request, what the encoder wrote in torch and in ONNX Runtime: the states of one slot, up to its source."""
Values = TypeVar("Values", Tensor, Array)


class DecodeParity:
    """Both decoders over slot-major states. Request i lives in slot i.

    In ONNX Runtime, past and present are bound to the same memory, as in a server. A recurrent state is not.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        graph: Graph,
        session: Any,
        states: list[bundle_pb2.StateTensor],
        requests: list[RandomRequest],
        *,
        reads_prefix: bool = False,
        both_ways: tuple[Graph, Any] | None = None,
    ) -> None:
        """With `reads_prefix`, what is given behind the start token is read in chunks, as a prompt is.

        both_ways: the graph that reads stretches of prompts in both directions, and a session of it.
        """
        self.tolerance = tolerance
        self.own = Tolerance(OWN_TOLERANCE)
        self.reference = graph.module
        self.inputs = [port.name for port in graph.inputs]
        # One that reads several tokens of a row has a name for how many.
        self.steps = 1 not in next(port.axes for port in graph.inputs if port.name == "input_ids")
        self.session = session
        self.both_ways = both_ways
        self.states = states
        self.requests = requests
        example = next(port.example for port in graph.inputs if port.name == "total_length")
        self.capacity = int(example[0])
        self.reads_prefix = reads_prefix
        self.is_begun = begins_filled(states)
        # A slot may hold what its last sequence left. Torch computes in float32 whatever the states are in. It keeps as
        # much of a cache or a memory as these requests use.
        self.arrays = [zeros_of(state, len(requests)).numpy() for state in states]
        self.tensors = [torch.ones(len(requests), *self._used(state)) for state in states]
        for array, tensor in zip(self.arrays, self.tensors, strict=True):
            array[tuple(map(slice, tensor.shape))] = 1
        self.logits: list[list[Array]] = [[] for _ in requests]
        defers = READS_ALL in {port.name for port in session.get_inputs()}
        # What a run is given besides that asks for all outputs.
        self.asking = {READS_ALL: np.ones(1, np.int32)} if defers else {}

    def _used(self, state: bundle_pb2.StateTensor) -> list[int]:
        """Return the shape of what the requests use of a slot of a state."""
        shape = list(state.shape)
        if state.kind == bundle_pb2.STATE_KIND_KV_CACHE:
            longest = max(self.begun(request) + request.num_given for request in self.requests)
            shape[state.length_axis] = min(shape[state.length_axis], longest + MAX_STEPS + PREFILL_SEQ)
        elif state.kind == bundle_pb2.STATE_KIND_MEMORY:
            shape[state.length_axis] = max(request.memory_length for request in self.requests)
        return shape

    @property
    def model(self) -> Writer:
        """The model of the reference."""
        model = self.reference.model
        assert isinstance(model, Writer)
        return model

    def begun(self, request: RandomRequest) -> int:
        """Return how many places its caches begin with."""
        return request.memory_length if self.is_begun else 0

    def longest_piece(self, request: RandomRequest) -> int:
        """Return how many tokens a run reads. Who attends to a memory takes no more than that has places."""
        return min(PREFILL_SEQ, request.memory_length) if "memory_lengths" in self.inputs else PREFILL_SEQ

    def check(self, encoded: Encoded) -> int:
        """Admit one more request before each step, decode all that are admitted, and return the number of steps.

        Where there are fewer steps than requests, the first step admits the rest.
        """
        longest = max(self.begun(request) + request.num_given for request in self.requests)
        # A prompt lies in the cache after prefill. A lone start token does not: the first step feeds it.
        num_steps = min(num_passes(self.reference, MAX_STEPS), self.capacity - (longest if longest > 1 else 0))
        admitted = max(0, len(self.requests) - num_steps)
        for slot in range(admitted):
            self._admit(slot, encoded)
        for _ in range(num_steps):
            if admitted < len(self.requests):
                self._admit(admitted, encoded)
                admitted += 1
            self._run(0, admitted, 1)
        return num_steps

    def close(self) -> None:
        """Let go of the session and of all states, which are large; only check_greedy may follow."""
        del self.session
        self.both_ways = None
        self.tensors.clear()
        self.arrays.clear()

    def check_greedy(self, model: nn.Module) -> None:
        """Hold every step's logits and token to a full recomputation in torch, without any cache."""
        for request, logits in zip(self.requests, self.logits, strict=True):
            tokens, num_given = request.tokens[:-1], request.num_given
            expected = next_logits(model, request.source, tokens, num_given)[num_given - 1 :]
            for row, array in zip(expected, logits, strict=True):
                self.tolerance.compare_logits("decoder.onnx against full recomputation: logits", row, array)
            produced = torch.tensor(request.tokens[request.num_given :])
            shortfall = expected.max(dim=-1).values - expected.gather(1, produced[:, None])[:, 0]
            # Two logits that rounding may swap are both the greedy choice.
            if bool((shortfall > self.tolerance.near_tie(expected)).any()):
                raise ParityError("decoder.onnx produces other greedy tokens than a full recomputation in torch")

    def compare_candidates(self, expected: dict[str, Tensor], actual: dict[str, Array]) -> None:
        """Compare what the next token is chosen from."""
        logits = torch.from_numpy(actual["logits"])
        if isinstance(self.tolerance, SpreadTolerance):
            # That rounding changed the best few is no error. They must be the best few of the graph's own logits.
            best = logits.topk(actual["topk_logits"].shape[1], dim=-1).values
            self.own.compare("decoder.onnx output topk_logits", best, actual["topk_logits"])
            self.own.compare("decoder.onnx output logsumexp", logits.logsumexp(dim=-1), actual["logsumexp"])
        else:
            for name in ("topk_logits", "logsumexp"):
                for row, array, all_logits in zip(expected[name], actual[name], expected["logits"], strict=True):
                    self.tolerance.compare_logits(f"decoder.onnx output {name}", row, array, all_logits)
        for row, array in zip(expected["logits"], actual["logits"], strict=True):
            self.tolerance.compare_logits("decoder.onnx output logits", row, array)
        # Equal logits may swap their ids. But each id must name its logit.
        if not np.array_equal(np.take_along_axis(actual["logits"], actual["topk_ids"], axis=1), actual["topk_logits"]):
            raise ParityError("decoder.onnx output topk_ids does not name the tokens of topk_logits")

    def _admit(self, slot: int, encoded: Encoded) -> None:
        request = self.requests[slot]
        written = 0
        for state, tensors, arrays in zip(self.states, self.tensors, self.arrays, strict=True):
            if state.encoder_output:
                expected, actual = encoded[slot]
                head(tensors[slot], state, request.memory_length)[...] = expected[written]
                head(arrays[slot], state, request.memory_length)[...] = actual[written]
                written += 1
            elif state.kind == bundle_pb2.STATE_KIND_RECURRENT:
                tensors[slot], arrays[slot] = 0, 0
        # A prompt is read in chunks, if a run can. A prefix behind a start token is read token by token.
        # The last of what is given is fed by the first decode step.
        writes = any(state.encoder_output for state in self.states)
        longest = 1 if self.steps or (writes and not self.reads_prefix) else self.longest_piece(request)
        stretches = dict(self.model.stretches(request.tokens, request.num_given))
        while request.past < request.num_given - 1:
            if stop := stretches.get(request.past):
                self._run(slot, slot + 1, stop - request.past, self.both_ways)
                continue
            begins = min((start for start in stretches if start > request.past), default=self.capacity)
            room = min(self.capacity - self.begun(request), begins) - request.past
            self._run(slot, slot + 1, min(longest, room))

    def _run(self, first: int, stop: int, seq: int, both_ways: tuple[Graph, Any] | None = None) -> None:
        """Run slots first to stop on their next tokens, at most seq each, and compare everything.

        both_ways: what they are run with, if it is not the decoder. All that follow are fed seq tokens then.
        """
        requests = self.requests[first:stop]
        fed = [request.tokens[request.past : request.past + seq] for request in requests]
        inputs = {
            "input_ids": torch.tensor([tokens + [0] * (seq - len(tokens)) for tokens in fed]),
            "past_lengths": torch.tensor([self.begun(each) + each.past for each in requests], dtype=torch.int32),
            "lengths": torch.tensor([len(tokens) for tokens in fed], dtype=torch.int32),
            "total_length": torch.tensor([self.capacity], dtype=torch.int32),
        }
        if "memory_lengths" in self.inputs:
            inputs["memory_lengths"] = torch.tensor([request.memory_length for request in requests], dtype=torch.int32)
        if FEATURES in self.inputs:
            inputs[FEATURES] = torch.cat([self._features(request, seq) for request in requests])
        if POSITION_OFFSETS in self.inputs:
            inputs[POSITION_OFFSETS] = torch.cat([self._offsets(request, seq) for request in requests])
        reference, session, asking = self.reference, self.session, self.asking
        if both_ways is not None:
            reference, session, asking = both_ways[0].module, both_ways[1], {}
        expected = reference(*inputs.values(), *(tensor[first:stop] for tensor in self.tensors))
        feeds = {name: tensor.numpy() for name, tensor in inputs.items()} | asking
        feeds |= {state.past: array[first:stop] for state, array in zip(self.states, self.arrays, strict=True)}
        actual = run_in_place(session, feeds, self.states)
        for state, array in zip(self.states, self.arrays, strict=True):
            if state.kind == bundle_pb2.STATE_KIND_RECURRENT:
                array[first:stop] = actual[state.present]
        for request, tokens in zip(requests, fed, strict=True):
            request.past += len(tokens)
        self._compare(expected, actual, first, stop)
        for row, request in enumerate(requests):
            if request.past == len(request.tokens):
                request.tokens.append(int(actual["topk_ids"][row, 0]))
                self.logits[first + row].append(actual["logits"][row])

    def no_features(self, seq: int) -> Tensor:
        """Return what a run of seq tokens has in the place of pictures, if there are none, [1, seq, width]."""
        return self.model.placed(torch.zeros(1, seq, dtype=torch.int64), None)

    def _features(self, request: RandomRequest, seq: int) -> Tensor:
        """Return what the next tokens of a request have in the place of pictures, [1, seq, width]."""
        features = self.model.see(*request.source) if request.source else None
        own = self.model.placed(torch.tensor([request.tokens]), features)[:, request.past : request.past + seq]
        return nn.functional.pad(own, (0, 0, 0, seq - own.shape[1]))

    def _offsets(self, request: RandomRequest, seq: int) -> Tensor:
        """Return the position offsets of the next tokens of a request, [1, seq, 3]: 0 for padding."""
        offsets = self.model.offsets(torch.tensor([request.tokens]), *request.source)
        own = offsets[:, request.past : min(request.past + seq, len(request.tokens))]
        return nn.functional.pad(own, (0, 0, 0, seq - own.shape[1]))

    def _compare(self, expected: Sequence[Tensor], actual: dict[str, Array], first: int, stop: int) -> None:
        self.compare_candidates(dict(zip(CANDIDATE_PORTS, expected, strict=False)), actual)
        presents = iter(expected[len(CANDIDATE_PORTS) :])
        for state, store, array in zip(self.states, self.tensors, self.arrays, strict=True):
            if not state.present:
                continue
            store[first:stop] = next(presents)
            for slot in range(first, stop):
                request = self.requests[slot]
                is_cache = state.kind == bundle_pb2.STATE_KIND_KV_CACHE
                valid = self.begun(request) + request.past if is_cache else request.memory_length
                tensor, values = head(store[slot], state, valid), head(array[slot], state, valid)
                self.tolerance.compare(f"state {state.present}", tensor, values)


def head(values: Values, state: bundle_pb2.StateTensor, length: int) -> Values:
    """Return the valid part of one slot's state: its first length entries, or all of a recurrent one."""
    if state.kind == bundle_pb2.STATE_KIND_RECURRENT:
        return values
    return values[(slice(None),) * state.length_axis + (slice(length),)]
