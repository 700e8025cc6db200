"""A decoder small enough to recompute by hand: an RNN whose state is a `recurrent` tensor, h' = tanh(E[id] + W h).

One that attends adds softmax(M h) M within the tanh, M being the source's embeddings: a `memory` that steps only read.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft_proto.v1 import bundle_pb2, common_pb2

VOCAB, WIDTH, MAX_SOURCE, MAX_TOTAL, START, END = 50, 8, 16, 24, 1, 2
FLOAT, INT32, INT64 = bundle_pb2.DATA_TYPE_FLOAT32, bundle_pb2.DATA_TYPE_INT32, bundle_pb2.DATA_TYPE_INT64
_ONNX = {FLOAT: TensorProto.FLOAT, INT32: TensorProto.INT32, INT64: TensorProto.INT64}
NUM_CANDIDATES = 8


class Toy:
    """The toy's weights, its graph as a file, its manifest, and its definition in numpy."""

    def __init__(self, directory, seed=0, *, attends=False):
        self.attends = attends
        rng = np.random.default_rng(seed)
        self.embedding = rng.normal(0, 1, (VOCAB, WIDTH)).astype(np.float32)
        self.recurrence = rng.normal(0, 0.6, (WIDTH, WIDTH)).astype(np.float32)
        self.head = rng.normal(0, 1.5, (WIDTH, VOCAB)).astype(np.float32)
        # The encoder's part: the first token of a source starts the state.
        self.path, self.encoder_path = directory / "decoder.onnx", directory / "encoder.onnx"
        self.inputs = [
            ("input_ids", INT64, ["batch", "1"]),
            ("past_lengths", INT32, ["batch"]),
            ("lengths", INT32, ["batch"]),
            ("total_length", INT32, ["1"]),
            ("past_state", FLOAT, ["batch", str(WIDTH)]),
        ]
        self.outputs = [
            ("topk_logits", FLOAT, ["batch", str(NUM_CANDIDATES)]),
            ("topk_ids", INT64, ["batch", str(NUM_CANDIDATES)]),
            ("logsumexp", FLOAT, ["batch"]),
            ("logits", FLOAT, ["batch", str(VOCAB)]),
            ("present_state", FLOAT, ["batch", str(WIDTH)]),
        ]
        self.encoder_inputs = [("input_ids", INT64, ["batch", "seq"]), ("lengths", INT32, ["batch"])]
        self.encoder_outputs = [("first_state", FLOAT, ["batch", str(WIDTH)])]
        if attends:
            self.inputs.insert(4, ("memory_lengths", INT32, ["batch"]))
            self.inputs.append(("memory", FLOAT, ["batch", str(MAX_SOURCE), str(WIDTH)]))
            self.encoder_outputs.append(("memory_out", FLOAT, ["batch", "seq", str(WIDTH)]))
        self._save(self.path, self._decoder_nodes(), self.inputs, self.outputs)
        self._save(self.encoder_path, self._encoder_nodes(), self.encoder_inputs, self.encoder_outputs)
        self.manifest = self._manifest()

    def next_state(self, state, token_id, memory):
        """One step of the definition; memory is [source, WIDTH]."""
        inner = self.embedding[token_id] + state @ self.recurrence
        if self.attends:
            weights = np.exp(memory @ state)
            inner = inner + weights / weights.sum() @ memory
        return np.tanh(inner)

    def greedy(self, source, max_new, prefix=()):
        """The answer to a source by the definition, without slots, batches or graphs; it begins behind a prefix."""
        memory = self.embedding[source]
        state = np.tanh(memory[0])
        *read, last = (START, *prefix)
        for token_id in read:
            state = self.next_state(state, token_id, memory)
        return self._answer(state, last, max_new, memory)

    def continued(self, prompt, max_new):
        """What follows a prompt when nothing came before it."""
        state = np.zeros(WIDTH, np.float32)
        for token_id in prompt[:-1]:
            state = self.next_state(state, token_id, None)
        return self._answer(state, prompt[-1], max_new)

    def _answer(self, state, token_id, max_new, memory=None):
        answer = []
        while len(answer) < max_new:
            state = self.next_state(state, token_id, memory)
            token_id = int(np.argmax(state @ self.head))
            answer.append(token_id)
            if token_id == END:
                break
        return answer

    def _decoder_nodes(self):
        return [
            helper.make_node("Squeeze", ["input_ids", "axis"], ["ids"]),
            helper.make_node("Gather", ["embedding", "ids"], ["x"]),
            helper.make_node("MatMul", ["past_state", "recurrence"], ["h"]),
            helper.make_node("Add", ["x", "h"], ["own"]),
            *(self._attention_nodes() if self.attends else [helper.make_node("Identity", ["own"], ["sum"])]),
            helper.make_node("Tanh", ["sum"], ["present_state"]),
            helper.make_node("MatMul", ["present_state", "head"], ["logits"]),
            helper.make_node("TopK", ["logits", "k"], ["topk_logits", "topk_ids"]),
            helper.make_node("ReduceLogSumExp", ["logits", "axis"], ["logsumexp"], keepdims=0),
        ]

    def _attention_nodes(self):
        return [
            helper.make_node("Unsqueeze", ["past_state", "last"], ["query"]),
            helper.make_node("MatMul", ["memory", "query"], ["column"]),
            helper.make_node("Squeeze", ["column", "last"], ["scores"]),
            helper.make_node("Unsqueeze", ["memory_lengths", "axis"], ["real"]),
            helper.make_node("Less", ["places", "real"], ["mask"]),
            helper.make_node("Where", ["mask", "scores", "never"], ["masked"]),
            helper.make_node("Softmax", ["masked"], ["weights"]),
            helper.make_node("Unsqueeze", ["weights", "axis"], ["row"]),
            helper.make_node("MatMul", ["row", "memory"], ["read"]),
            helper.make_node("Squeeze", ["read", "axis"], ["context"]),
            helper.make_node("Add", ["own", "context"], ["sum"]),
        ]

    def _encoder_nodes(self):
        memory = [helper.make_node("Gather", ["embedding", "input_ids"], ["memory_out"])] if self.attends else []
        return [
            *memory,
            helper.make_node("Gather", ["input_ids", "first"], ["ids"], axis=1),
            helper.make_node("Gather", ["embedding", "ids"], ["x"]),
            helper.make_node("Tanh", ["x"], ["first_state"]),
        ]

    def _save(self, path, nodes, inputs, outputs):
        constants = {
            "embedding": self.embedding,
            "recurrence": self.recurrence,
            "head": self.head,
            "axis": np.array([1]),
            "first": np.array(0),
            "last": np.array([2]),
            "places": np.arange(MAX_SOURCE, dtype=np.int32)[None],
            "never": np.array(-np.inf, np.float32),
            "k": np.array([NUM_CANDIDATES]),
        }
        used = {name for node in nodes for name in node.input}
        graph = helper.make_graph(
            nodes,
            "toy",
            [_value(*port) for port in inputs],
            [_value(*port) for port in outputs],
            [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))

    def _manifest(self):
        memory = bundle_pb2.StateTensor(
            kind=bundle_pb2.STATE_KIND_MEMORY,
            past="memory",
            data_type=FLOAT,
            shape=[MAX_SOURCE, WIDTH],
            encoder_output="memory_out",
        )
        return bundle_pb2.BundleManifest(
            format_version=1,
            task=common_pb2.TASK_TRANSLATE,
            precision=bundle_pb2.PRECISION_FP32,
            graphs=[
                bundle_pb2.Graph(
                    role=bundle_pb2.GRAPH_ROLE_ENCODER,
                    path="encoder.onnx",
                    inputs=_ports(self.encoder_inputs),
                    outputs=_ports(self.encoder_outputs),
                ),
                bundle_pb2.Graph(
                    role=bundle_pb2.GRAPH_ROLE_DECODER,
                    path="decoder.onnx",
                    inputs=_ports(self.inputs),
                    outputs=_ports(self.outputs),
                ),
            ],
            states=[
                bundle_pb2.StateTensor(
                    kind=bundle_pb2.STATE_KIND_RECURRENT,
                    past="past_state",
                    present="present_state",
                    data_type=FLOAT,
                    shape=[WIDTH],
                    encoder_output="first_state",
                ),
                *([memory] if self.attends else []),
            ],
            text=bundle_pb2.TextSpec(
                source_vocab_size=VOCAB,
                target_vocab_size=VOCAB,
                start_id=START,
                end_ids=[END],
                max_source_tokens=MAX_SOURCE,
                max_total_tokens=MAX_TOTAL,
                max_new_tokens=MAX_TOTAL,
            ),
        )


def _value(name, kind, shape):
    return helper.make_tensor_value_info(name, _ONNX[kind], [int(d) if d.isdigit() else d for d in shape])


def _ports(ports):
    return [bundle_pb2.Port(name=name, data_type=kind, shape=shape) for name, kind, shape in ports]
