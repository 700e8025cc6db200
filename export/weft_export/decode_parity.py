"""A decoder in torch beside the same decoder in ONNX Runtime: prefill in chunks, then ragged and growing batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from weft_export.errors import ParityError
from weft_export.gauge import Gauge
from weft_export.golden import next_logits
from weft_export.graphs import CANDIDATE_PORTS
from weft_export.random_requests import RandomRequest
from weft_proto.v1 import bundle_pb2

MAX_STEPS = 32
PREFILL_SEQ = 16

Array = NDArray[Any]
Memories = list[tuple[Sequence[Tensor], Sequence[Array]]]
"""For each request what the encoder gave in torch and in ONNX Runtime, [1, heads, memory_length, head_dim] each."""


class DecodeParity:
    """Both decoders over slot-major states; request i lives in slot i.

    In ONNX Runtime, past and present are bound to the same memory, as a server does.
    """

    def __init__(
        self,
        gauge: Gauge,
        reference: nn.Module,
        runtime: Any,
        session: Any,
        states: list[bundle_pb2.StateTensor],
        requests: list[RandomRequest],
    ) -> None:
        self.gauge = gauge
        self.reference = reference
        self.runtime = runtime
        self.session = session
        self.states = states
        self.requests = requests
        self.num_given = [len(request.tokens) for request in requests]
        self.capacity = states[0].shape[1]
        dtype = np.float16 if states[0].data_type == bundle_pb2.DATA_TYPE_FLOAT16 else np.float32
        self.arrays = [np.zeros((len(requests), *state.shape), dtype) for state in states]
        self.tensors = [torch.zeros(len(requests), *state.shape) for state in states]
        self.logits: list[list[Array]] = [[] for _ in requests]

    def check(self, memories: Memories) -> int:
        """Admit one more request before each step, decode all that are admitted, and return the number of steps."""
        room = self.capacity - max(self.num_given)
        num_steps = min(MAX_STEPS, room)
        for step in range(num_steps):
            if step < len(self.requests):
                self._admit(step, memories)
            self._run(0, min(step + 1, len(self.requests)), 1)
        return num_steps

    def check_greedy(self, model: nn.Module) -> None:
        """Hold every step's logits and token to a full recomputation in torch, without any cache."""
        for request, num_given, logits in zip(self.requests, self.num_given, self.logits, strict=True):
            expected = next_logits(model, request.source, request.tokens[:-1])[num_given - 1 :]
            self.gauge.compare("decoder.onnx against full recomputation: logits", expected, np.stack(logits))
            produced = torch.tensor(request.tokens[num_given:])
            shortfall = expected.max(dim=-1).values - expected.gather(1, produced[:, None])[:, 0]
            # Two logits that rounding may swap are both the greedy choice.
            if bool((shortfall > 2 * self.gauge.tolerance).any()):
                raise ParityError("decoder.onnx produces other greedy tokens than a full recomputation in torch")

    def _admit(self, slot: int, memories: Memories) -> None:
        if memories:
            expected, actual = memories[slot]
            length = self.requests[slot].memory_length
            first = len(self.states) - len(actual)
            for index, tensor, array in zip(range(first, len(self.states)), expected, actual, strict=True):
                self.tensors[index][slot, :, :length] = tensor[0]
                self.arrays[index][slot, :, :length] = array[0]
        # All given tokens but the last, which the first decode step takes.
        while self.requests[slot].past < self.num_given[slot] - 1:
            self._run(slot, slot + 1, min(PREFILL_SEQ, self.capacity - self.requests[slot].past))

    def _run(self, first: int, stop: int, seq: int) -> None:
        """Run slots first to stop on their next tokens, at most seq each, and compare everything."""
        requests = self.requests[first:stop]
        fed = [request.tokens[request.past : request.past + seq] for request in requests]
        inputs = {
            "input_ids": torch.tensor([tokens + [0] * (seq - len(tokens)) for tokens in fed]),
            "past_lengths": torch.tensor([request.past for request in requests], dtype=torch.int32),
            "lengths": torch.tensor([len(tokens) for tokens in fed], dtype=torch.int32),
            "total_length": torch.tensor([self.capacity], dtype=torch.int32),
        }
        if any(state.kind == bundle_pb2.STATE_KIND_MEMORY for state in self.states):
            inputs["memory_lengths"] = torch.tensor([request.memory_length for request in requests], dtype=torch.int32)
        expected = self.reference(*inputs.values(), *(tensor[first:stop] for tensor in self.tensors))
        actual = self._run_bound(inputs, first, stop)
        for request, tokens in zip(requests, fed, strict=True):
            request.past += len(tokens)
        self._compare(expected, actual, first, stop)
        for row, request in enumerate(requests):
            if request.past == len(request.tokens):
                request.tokens.append(int(actual["topk_ids"][row, 0]))
                self.logits[first + row].append(actual["logits"][row])

    def _run_bound(self, inputs: dict[str, Tensor], first: int, stop: int) -> dict[str, Array]:
        value_of = self.runtime.OrtValue.ortvalue_from_numpy
        binding = self.session.io_binding()
        for name, tensor in inputs.items():
            binding.bind_ortvalue_input(name, value_of(tensor.numpy()))
        for name in CANDIDATE_PORTS:
            binding.bind_output(name)
        for state, array in zip(self.states, self.arrays, strict=True):
            shared = value_of(array[first:stop])
            binding.bind_ortvalue_input(state.past, shared)
            binding.bind_ortvalue_output(state.present, shared)
        self.session.run_with_iobinding(binding)
        outputs = binding.get_outputs()[: len(CANDIDATE_PORTS)]
        return {name: value.numpy() for name, value in zip(CANDIDATE_PORTS, outputs, strict=True)}

    def _compare(self, expected: Sequence[Tensor], actual: dict[str, Array], first: int, stop: int) -> None:
        for name, tensor in zip(CANDIDATE_PORTS, expected, strict=False):
            # Equal logits may swap ids; that ids name their logits is the law.
            if name != "topk_ids":
                self.gauge.compare(f"decoder.onnx output {name}", tensor, actual[name])
        named = np.take_along_axis(actual["logits"], actual["topk_ids"], axis=1)
        if not np.array_equal(named, actual["topk_logits"]):
            raise ParityError("decoder.onnx output topk_ids does not name the tokens of topk_logits")
        presents = expected[len(CANDIDATE_PORTS) :]
        for state, tensor, store, array in zip(self.states, presents, self.tensors, self.arrays, strict=True):
            store[first:stop] = tensor
            for slot in range(first, stop):
                request = self.requests[slot]
                valid = request.past if state.kind == bundle_pb2.STATE_KIND_KV_CACHE else request.memory_length
                self.gauge.compare(f"state {state.present}", store[slot, :, :valid], array[slot, :, :valid])
