"""A request's bits do not depend on its batch: the graphs in ONNX Runtime, row by row."""

from dataclasses import replace

import numpy as np
import pytest
from google.protobuf import json_format
from samples import WRITERS, sample
from tiny import CHECKPOINTS, INT4, INT8
from tiny_parts import randomised

from few import few_of
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import read_ports, write_graph
from weft_export.quantization.integer_products import quantised
from weft_export.verification.session import open_session
from weft_proto.bundle_rules import FEATURES, MASK_POSITIONS, POSITION_OFFSETS, READS_ALL
from weft_proto.sight import NUM_AXES
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.source import SHORT

ROWS = 7
READERS = [name for name in CHECKPOINTS if sample(name).task != common_pb2.TASK_GENERATE or sample(name).sees]
TRANSLATORS = [name for name in CHECKPOINTS if sample(name).task == common_pb2.TASK_TRANSLATE]
# Of those that read texts by an encoder whose graph computes no padding, each kind.
UNPADDED = [
    *("tiny-text", "tiny-bert-int8", "tiny-tags", "tiny-extract-int8", "tiny-masks", "tiny-masks-int8", "tiny-embed"),
    *("tiny-embed-int8", "tiny-m3"),
]
RNG = np.random.default_rng(0)
READ_ALL = {READS_ALL: np.ones(1, np.int32)}


def open_graph(bundle, file_name):
    """Open a session and the manifest of a bundle."""
    session = open_session(bundle / file_name)
    return session, json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())


def assert_rows_are_alone(session, feeds, shared=(), least=1):
    """Each row's outputs are, bit for bit, the same in any order, in part of the batch, and alone.

    Alone, a row comes `least` times. At int4 that is twice: see loading/lone_rows.py.
    """

    def run(rows):
        return session.run(None, {name: value if name in shared else value[rows] for name, value in feeds.items()})

    everything = run(list(range(ROWS)))
    for rows in ([*range(ROWS)][::-1], [3, 1, 4], *([row] * least for row in range(ROWS))):
        for name, whole, part in zip(session.get_outputs(), everything, run(rows), strict=True):
            assert np.array_equal(whole[rows], part), f"{name.name} of rows {rows}"


def assert_padding_is_not_read(session, feeds, vocab_size):
    """Other ids behind each row's end give the same bits, wherever an output has no row for each position."""
    ids, lengths = feeds["input_ids"], feeds["lengths"]
    behind = np.arange(ids.shape[1]) >= lengths[:, None]
    changed = np.where(behind, RNG.integers(0, vocab_size, ids.shape), ids)
    outputs = (session.run(None, feeds), session.run(None, {**feeds, "input_ids": changed}))
    for port, before, after in zip(session.get_outputs(), *outputs, strict=True):
        axis = next((axis for axis in range(1, before.ndim) if before.shape[axis] == ids.shape[1]), None)
        for row, length in enumerate(lengths):
            valid = np.arange(length) if axis is not None else slice(None)
            one, other = (np.take(out[row], valid, axis - 1) if axis else out[row] for out in (before, after))
            assert np.array_equal(one, other), f"{port.name} of row {row}"


@pytest.mark.parametrize("name", [*READERS, *(f"{name}-int8" for name in INT8 if name in READERS)])
def test_what_runs_in_batches_without_states(name, tiny_bundle):
    """Rows of a graph without states do not influence each other, whatever is in the padding."""
    bundle = tiny_bundle(name)
    roles = TASKS[sample(name.removesuffix("-int8")).task].needs - {bundle_pb2.GRAPH_ROLE_DECODER}
    files = [bundle_pb2.GraphRole.Name(role).removeprefix("GRAPH_ROLE_").lower() for role in roles]
    if sample(name.removesuffix("-int8")).sees:
        files.append("image_encoder")
    found = [f"{each}.onnx" for each in files if (bundle / f"{each}.onnx").exists()]
    assert found
    for file_name in found:
        check_rows(*open_graph(bundle, file_name))


def check_rows(session, manifest):
    """Hold one graph to the law."""
    if session.get_inputs()[0].name == "pixel_values":
        cells = (3, 5) if manifest.image.tiling.max_pixels else ()
        shape = (ROWS, *cells, manifest.image.channels, manifest.image.height, manifest.image.width)
        feeds = {"pixel_values": RNG.standard_normal(shape).astype(np.float32)}
    elif manifest.audio.ctc.HasField("mel"):
        shape = (ROWS, 37, manifest.audio.ctc.mel.num_mels)
        feeds = {"input_features": RNG.standard_normal(shape).astype(np.float32)}
    elif TASKS[manifest.task].labels_frames or manifest.audio.min_samples:
        feeds = {"waveform": RNG.standard_normal((ROWS, 1500)).astype(np.float32)}
    elif manifest.HasField("audio"):
        shape = (ROWS, manifest.audio.num_mels, manifest.audio.num_frames)
        feeds = {"input_features": RNG.standard_normal(shape).astype(np.float32)}
    else:
        feeds = {
            "input_ids": RNG.integers(0, manifest.text.source_vocab_size, (ROWS, 16)),
            "lengths": np.array([16, 1, 9, 5, 12, 2, 8], np.int32),
        }
    if TASKS[manifest.task].fills_masks:
        feeds[MASK_POSITIONS] = RNG.integers(0, feeds["lengths"][:, None], (ROWS, 2))
    assert_rows_are_alone(session, feeds)
    if "lengths" in feeds:
        assert_padding_is_not_read(session, feeds, manifest.text.source_vocab_size)


def wide_graph(name, role, directory):
    """A graph of a tiny checkpoint whose model has been made wide enough for texts of SHORT tokens, written and opened.

    Returns what the manifest says of it too, and how many words there are.
    """
    checkpoint, precision = CHECKPOINTS[name.removesuffix("-int8")](), bundle_pb2.PRECISION_FP32
    sizes = {"max_source_tokens": SHORT, "max_tokens": SHORT, "d_model": 128, "d_ff": 192}
    config = checkpoint.model.config
    config = replace(config, **{name: size for name, size in sizes.items() if hasattr(config, name)})
    text = bundle_pb2.TextSpec()
    text.CopyFrom(checkpoint.text)
    text.max_source_tokens = SHORT
    checkpoint = replace(checkpoint, model=randomised(type(checkpoint.model)(config)), text=text)
    if name.endswith("-int8"):
        checkpoint, precision = quantised(checkpoint), bundle_pb2.PRECISION_INT8
    (graph,) = (graph for graph in graphs_of(checkpoint, precision) if graph.role == role)
    write_graph(graph, directory)
    path = directory / graph.file_name
    return open_session(path), read_ports(path, role), checkpoint.text.source_vocab_size


@pytest.mark.parametrize("name", [*TRANSLATORS, *(f"{name}-int8" for name in INT8 if name in TRANSLATORS)])
def test_encoders_of_mixed_lengths(name, tmp_path):
    """Up to SHORT tokens it does not show how far a source is padded, so that a server may encode lengths together."""
    session, graph, vocab_size = wide_graph(name, bundle_pb2.GRAPH_ROLE_ENCODER, tmp_path)
    assert graph.unpadded == ("rnn" not in name)
    lengths = np.arange(1, SHORT + 1, dtype=np.int32)
    ids = RNG.integers(0, vocab_size, (SHORT, SHORT))
    for width in (24, 39, SHORT):
        rows = slice(0, width)
        together = session.run(None, {"input_ids": ids[rows, :width], "lengths": lengths[rows]})
        for row, length in enumerate(lengths[rows].tolist()):
            alone = session.run(None, {"input_ids": ids[row : row + 1, :length], "lengths": lengths[row : row + 1]})
            for port, one, many in zip(session.get_outputs(), alone, together, strict=True):
                valid = tuple(slice(size) for size in one.shape[1:])
                assert np.array_equal(one[0], many[row][valid]), f"{port.name} of {length} tokens in {width}"


@pytest.mark.parametrize("name", few_of(UNPADDED, ["tiny-text", "tiny-m3", "tiny-tags", "tiny-embed-int8"]))
def test_graphs_without_padding_of_mixed_lengths(name, tmp_path):
    """Up to SHORT tokens it does not show in any answer how far a text is padded, by a multiple of eight."""
    task = TASKS[sample(name.removesuffix("-int8")).task]
    (role,) = task.needs
    session, graph, vocab_size = wide_graph(name, role, tmp_path)
    assert graph.unpadded
    lengths = np.arange(1, SHORT + 1, dtype=np.int32)
    ids = RNG.integers(0, vocab_size, (SHORT, SHORT))
    feeds = {"input_ids": ids, "lengths": lengths}
    if task.fills_masks:
        feeds[MASK_POSITIONS] = RNG.integers(0, lengths[:, None], (SHORT, 2))
    (together,) = session.run(None, feeds)
    for row, length in enumerate(lengths.tolist()):
        width = -(-length // 8) * 8
        own = {name: value[row : row + 1] for name, value in feeds.items()}
        (alone,) = session.run(None, own | {"input_ids": own["input_ids"][:, :width]})
        valid = (slice(length),) if together.shape[1:2] == (SHORT,) and alone.ndim > 2 else ()
        assert np.array_equal(alone[0][valid], together[row][valid]), f"{length} tokens"


@pytest.mark.parametrize("width", [66, 70, 76])
@pytest.mark.parametrize("name", ["tiny-bert", "tiny-tags"])
def test_long_inputs_at_padded_lengths_of_no_multiple_of_eight(name, width, tiny_repository):
    """Beyond 64 tokens, where a server pads to a multiple of two, rows do not influence each other either."""
    file_name = "classifier.onnx" if name == "tiny-bert" else "tagger.onnx"
    session, manifest = open_graph(tiny_repository / name / "1", file_name)
    feeds = {
        "input_ids": RNG.integers(0, manifest.text.source_vocab_size, (ROWS, width)),
        "lengths": np.array([width, width - 1] * 3 + [width], np.int32),
    }
    assert_rows_are_alone(session, feeds)
    assert_padding_is_not_read(session, feeds, manifest.text.source_vocab_size)


@pytest.mark.parametrize("rounded", [False, True], ids=["fp32", "int8"])
def test_long_rows_with_a_thread_for_each_head(rounded, tmp_path):
    """Rows of over 512 tokens have the same bits alone and together, as long as no thread is without a head."""
    checkpoint = CHECKPOINTS["tiny-generate"]()
    config = replace(checkpoint.model.config, max_tokens=640, d_model=512, num_heads=8, num_kv_heads=4)
    text = bundle_pb2.TextSpec()
    text.CopyFrom(checkpoint.text)
    text.max_total_tokens = 640
    checkpoint = replace(checkpoint, model=randomised(type(checkpoint.model)(config)), text=text)
    precision = bundle_pb2.PRECISION_INT8 if rounded else bundle_pb2.PRECISION_FP32
    checkpoint = quantised(checkpoint) if rounded else checkpoint
    (graph,) = (g for g in graphs_of(checkpoint, precision) if g.role == bundle_pb2.GRAPH_ROLE_DECODER)
    write_graph(graph, tmp_path)
    session = open_session(tmp_path / graph.file_name, config.num_heads)
    feeds = {
        "input_ids": RNG.integers(0, text.target_vocab_size, (ROWS, 1)),
        "past_lengths": np.array([600, 513, 639, 5, 520, 580, 620], np.int32),
        "lengths": np.ones(ROWS, np.int32),
        "total_length": np.array([640], np.int32),
    }
    for port in graph.inputs[4:]:
        values = RNG.standard_normal((ROWS, *port.example.shape[1:]))
        feeds[port.name] = (values * 40).astype(np.int8) if rounded else values.astype(np.float32)
    assert_rows_are_alone(session, feeds | READ_ALL, shared=("total_length", READS_ALL))


# At int4 one token alone may have other bits. A server reads two or more of a prompt at once.
CUTS = [
    ("tiny-generate-int8", [8, 16]),
    ("tiny-generate-int8", [2] * 12),
    ("tiny-generate-int8", [1] * 24),
    ("tiny-generate-int4", [8, 16]),
    ("tiny-generate-int4", [2] * 12),
    ("tiny-hybrid-int8", [8, 16]),
    ("tiny-hybrid-int8", [1] * 24),
    ("tiny-hybrid", [3, 8, 13]),
    # A state space reads blocks of eight.
    ("tiny-state-space", [8, 16]),
    ("tiny-state-space", [16, 5]),
    ("tiny-mamba", [16, 5]),
    # What a token does to its state does not hang on the others of its run.
    ("tiny-selective", [3, 1, 17]),
    ("tiny-rwkv", [3, 1, 17]),
    ("tiny-rwkv-int8", [1, 9, 1]),
    ("tiny-state-space-int8", [8, 8, 7]),
]


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(("name", "chunks"), CUTS)
def test_prompts_cut_anywhere(name, chunks, padding, tiny_bundle):
    """Where a prompt is cut, and how far each piece is padded, shows neither in the states nor in the logits.

    At int8 also when tokens come one by one.
    """
    session, manifest = open_graph(tiny_bundle(name), "decoder.onnx")
    tokens = RNG.integers(0, manifest.text.source_vocab_size, (1, sum(chunks)))

    def prefill(sizes, padding=0):
        kinds = {bundle_pb2.DATA_TYPE_INT8: np.int8, bundle_pb2.DATA_TYPE_FLOAT32: np.float32}
        states, past = {s.past: np.zeros((1, *s.shape), kinds[s.data_type]) for s in manifest.states}, 0
        for size in sizes:
            read = tokens[:, past : past + size]
            feeds = {
                "input_ids": np.pad(read, ((0, 0), (0, padding)), constant_values=7),
                "past_lengths": np.array([past], np.int32),
                "lengths": np.array([size], np.int32),
                "total_length": np.array([manifest.text.max_total_tokens], np.int32),
            }
            names = [port.name for port in session.get_outputs()]
            out = dict(zip(names, session.run(None, feeds | READ_ALL | states), strict=True))
            states, past = {s.past: out[s.present] for s in manifest.states}, past + size
        valid = {
            s.past: np.s_[:, :, :past] if s.kind == bundle_pb2.STATE_KIND_KV_CACHE else ... for s in manifest.states
        }
        return out["logits"], [values[valid[name]] for name, values in states.items()]

    logits, states = prefill([sum(chunks)])
    cut_logits, cut_states = prefill(chunks, padding)
    assert np.array_equal(logits, cut_logits)
    assert all(np.array_equal(one, other) for one, other in zip(states, cut_states, strict=True))


ROUNDED_WRITERS = [*(f"{name}-int8" for name in INT8 if name in WRITERS), *(f"{name}-int4" for name in INT4)]


@pytest.mark.parametrize("name", [*WRITERS, *ROUNDED_WRITERS])
def test_decoders(name, tiny_bundle):
    """A decoder's rows do not influence each other, at any mixture of lengths, and leave other slots alone."""
    session, manifest = open_graph(tiny_bundle(name), "decoder.onnx")
    capacity = manifest.text.max_total_tokens
    feeds = {
        "input_ids": RNG.integers(0, manifest.text.target_vocab_size, (ROWS, 1)),
        "past_lengths": np.array([0, 3, 11, capacity - 1, 7, 1, 15], np.int32),
        "lengths": np.ones(ROWS, np.int32),
        "total_length": np.array([capacity], np.int32),
    }
    for state in manifest.states:
        values = RNG.standard_normal((ROWS, *state.shape))
        rounded = state.data_type == bundle_pb2.DATA_TYPE_INT8
        feeds[state.past] = (values * 40).astype(np.int8) if rounded else values.astype(np.float32)
        if state.kind == bundle_pb2.STATE_KIND_MEMORY:
            longest = state.shape[state.length_axis]
            feeds["memory_lengths"] = RNG.integers(1, longest + 1, ROWS).astype(np.int32)
    if any(port.name == READS_ALL for port in session.get_inputs()):
        feeds |= READ_ALL
    if sample(name.removesuffix("-int8").removesuffix("-int4")).sees:
        # Three rows read a place of a picture, and what the others are given is not read.
        width = next(port.shape[2] for port in session.get_inputs() if port.name == FEATURES)
        feeds[FEATURES] = RNG.standard_normal((ROWS, 1, width)).astype(np.float32)
        feeds["input_ids"][::3] = manifest.text.source_vocab_size
    if manifest.image.tiling.max_pixels:
        feeds[POSITION_OFFSETS] = -RNG.integers(0, 1 + feeds["past_lengths"][:, None, None], (ROWS, 1, NUM_AXES))
    assert_rows_are_alone(session, feeds, ("total_length", READS_ALL), least=1 + name.endswith("-int4"))
