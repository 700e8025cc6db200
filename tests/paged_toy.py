"""A decoder over a paged cache, small enough to recompute by hand, in whole numbers: so every order of sums is exact.

It keeps E[id] P[place] of each token. What follows is argmax(H (sum mod 17)), the sum being over all tokens of the row.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft_proto.v1 import bundle_pb2, common_pb2

VOCAB, WIDTH, MAX_TOTAL, END, NUM_CANDIDATES = 40, 8, 60, 2, 12
_MODULUS = 17
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


class PagedToy:
    """Its graph as a file, its manifest, and its definition in numpy."""

    def __init__(self, directory, block_tokens=4, seed=0):
        rng = np.random.default_rng(seed)
        self.embedding = rng.integers(-8, 9, (VOCAB, WIDTH)).astype(np.float32)
        self.places = rng.integers(1, 5, (MAX_TOTAL, WIDTH)).astype(np.float32)
        self.head = rng.integers(-8, 9, (WIDTH, VOCAB)).astype(np.float32)
        self.path = directory / "paged.onnx"
        self._save(block_tokens)
        self.manifest = self._manifest(block_tokens)

    def logits(self, token_ids):
        """What the model says of the token behind these, [VOCAB]."""
        kept = self.embedding[token_ids] * self.places[: len(token_ids)]
        return np.fmod(kept.sum(axis=0), _MODULUS) @ self.head

    def greedy(self, prompt, max_new):
        """What follows a prompt, without blocks, batches or graphs."""
        answer = []
        while len(answer) < max_new:
            answer.append(int(np.argmax(self.logits([*prompt, *answer]))))
            if answer[-1] == END:
                break
        return answer

    def _save(self, block_tokens):
        def node(kind, inputs, *outputs, **attributes):
            return helper.make_node(kind, inputs, list(outputs), **attributes)

        nodes = [
            # Write: what each token keeps, where slot_mapping says, if anywhere.
            node("Gather", ["embedding", "input_ids"], "embedded"),
            node("Gather", ["places", "positions"], "at_place"),
            node("Mul", ["embedded", "at_place"], "kept"),
            node("Cast", ["slot_mapping"], "slots", to=INT64),
            node("GreaterOrEqual", ["slots", "zero"], "real"),
            node("Compress", ["slots", "real"], "onto", axis=0),
            node("Compress", ["kept", "real"], "written", axis=0),
            node("Unsqueeze", ["onto", "last"], "onto_2"),
            node("Reshape", ["past_kept", "flat"], "before"),
            node("ScatterND", ["before", "onto_2", "written"], "after"),
            node("Shape", ["past_kept"], "shape"),
            node("Reshape", ["after", "shape"], "present_kept"),
            # Read: the places of each row's blocks, as far as it goes.
            node("Cast", ["block_table"], "table", to=INT64),
            node("Unsqueeze", ["table", "last"], "table_3"),
            node("Mul", ["table_3", "size"], "begins"),
            node("Add", ["begins", "offsets"], "spots_3"),
            node("Reshape", ["spots_3", "rows_shape"], "spots"),
            node("Gather", ["after", "spots"], "seen"),
            node("Cast", ["cumulative_lengths"], "limits", to=INT64),
            node("Slice", ["limits", "one", "far"], "ends"),
            node("Slice", ["limits", "zeros", "last"], "starts"),
            node("Sub", ["ends", "starts"], "new"),
            node("Cast", ["past_lengths"], "past", to=INT64),
            node("Add", ["past", "new"], "total"),
            node("Unsqueeze", ["total", "last"], "total_2"),
            node("Shape", ["spots"], "spots_shape"),
            node("Gather", ["spots_shape", "second"], "num_spots"),
            node("Range", ["zero", "num_spots", "step"], "place"),
            node("Less", ["place", "total_2"], "is_own"),
            node("Unsqueeze", ["is_own", "last"], "is_own_3"),
            node("Where", ["is_own_3", "seen", "nothing"], "own"),
            node("ReduceSum", ["own", "one"], "sum", keepdims=0),
            node("Mod", ["sum", "modulus"], "state", fmod=1),
            node("MatMul", ["state", "head"], "logits"),
            node("TopK", ["logits", "k"], "topk_logits", "topk_ids"),
            node("ReduceLogSumExp", ["logits", "one"], "logsumexp", keepdims=0),
        ]
        constants = {
            "embedding": self.embedding,
            "places": self.places,
            "head": self.head,
            "zero": np.array(0),
            "step": np.array(1),
            "second": np.array(1),
            "zeros": np.array([0]),
            "one": np.array([1]),
            "last": np.array([-1]),
            "far": np.array([2**62]),
            "flat": np.array([-1, WIDTH]),
            "size": np.array(block_tokens),
            "offsets": np.arange(block_tokens)[None, None],
            "rows_shape": np.array([0, -1]),
            "nothing": np.array(0, np.float32),
            "modulus": np.array(_MODULUS, np.float32),
            "k": np.array([NUM_CANDIDATES]),
        }
        cache = ["blocks", block_tokens, 1, WIDTH]
        inputs = [
            ("input_ids", INT64, ["tokens"]),
            ("positions", INT64, ["tokens"]),
            ("cumulative_lengths", INT32, ["limits"]),
            ("past_lengths", INT32, ["rows"]),
            ("block_table", INT32, ["rows", "width"]),
            ("slot_mapping", INT32, ["tokens"]),
            ("attention_bounds", INT32, [3]),
            ("reads_all", INT32, [1]),
            ("past_kept", FLOAT, cache),
        ]
        outputs = [
            ("topk_logits", FLOAT, ["rows", NUM_CANDIDATES]),
            ("topk_ids", INT64, ["rows", NUM_CANDIDATES]),
            ("logsumexp", FLOAT, ["rows"]),
            ("logits", FLOAT, ["rows", VOCAB]),
            ("present_kept", FLOAT, cache),
        ]
        graph = helper.make_graph(
            nodes,
            "paged_toy",
            [helper.make_tensor_value_info(*port) for port in inputs],
            [helper.make_tensor_value_info(*port) for port in outputs],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(model, str(self.path))

    def _manifest(self, block_tokens):
        best = bundle_pb2.Port(name="topk_ids", shape=["rows", str(NUM_CANDIDATES)])
        return bundle_pb2.BundleManifest(
            format_version=1,
            task=common_pb2.TASK_GENERATE,
            graphs=[bundle_pb2.Graph(role=bundle_pb2.GRAPH_ROLE_DECODER, path="paged.onnx", outputs=[best])],
            states=[
                bundle_pb2.StateTensor(
                    kind=bundle_pb2.STATE_KIND_PAGED_CACHE,
                    past="past_kept",
                    present="present_kept",
                    data_type=bundle_pb2.DATA_TYPE_FLOAT32,
                    shape=[block_tokens, 1, WIDTH],
                )
            ],
            text=bundle_pb2.TextSpec(
                source_vocab_size=VOCAB,
                target_vocab_size=VOCAB,
                end_ids=[END],
                max_total_tokens=MAX_TOTAL,
                max_new_tokens=MAX_TOTAL,
            ),
        )
