"""The graph that scores given answers: as torch does, whatever stands beside a row, and without weights of its own."""

import shutil

import numpy as np
import onnx
import pytest
import torch
from google.protobuf import json_format
from onnx import numpy_helper
from samples import WRITERS, sample
from tiny import CHECKPOINTS, INT8

from weft_export.errors import ParityError
from weft_export.quantization.integer_products import quantised
from weft_export.verification.parity import check_parity
from weft_export.verification.session import open_session
from weft_proto.bundle_rules import MAX_TOP_TOKENS
from weft_proto.v1 import bundle_pb2

# One that answers questions has none: ScoreService takes none.
SCORED = [name for name in WRITERS if sample(name).model.scores]
ALL = [*SCORED, *(f"{name}-int8" for name in INT8 if name in SCORED)]
ROWS, WIDTH, SIZE = 5, 16, 8
SOURCE_LENGTHS = np.array([12, 1, 7, 3, 12], np.int32)
RNG = np.random.default_rng(0)


def opened(bundle):
    """A session of the bundle's SCORE graph, and the manifest."""
    session = open_session(bundle / "score.onnx")
    return session, json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())


def integer_products(graph):
    """The products in 8 bits of a graph and of the bodies in it, each with its own graph."""
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat":
            yield graph, node
        for attribute in node.attribute:
            yield from integer_products(attribute.g)


@pytest.mark.parametrize("name", [name for name in ALL if name.endswith("-int8")])
def test_columns_lie_in_the_graph_of_their_product(name, tiny_bundle):
    """Otherwise ONNX Runtime would not make them unsigned where signed 8 bits overflow: on x86 without VNNI.

    Those of a tied projection are turned from a table, which lies there then.
    """
    bundle = tiny_bundle(name)
    model = onnx.load(bundle / "score.onnx", load_external_data=False)
    products = list(integer_products(model.graph))
    assert len(products) > 1
    for graph, node in products:
        turned = {each.output[0]: each.input[0] for each in graph.node if each.op_type == "Transpose"}
        columns = turned.get(node.input[1], node.input[1])
        assert columns in {tensor.name for tensor in graph.initializer}, node.name


def drawn(manifest):
    """Sources and answers of ROWS, by port, and the tokens to score [ROWS, WIDTH]."""
    vocab = manifest.text.target_vocab_size
    feeds = {}
    if manifest.HasField("image"):
        shape = (ROWS, manifest.image.channels, manifest.image.height, manifest.image.width)
        feeds["pixel_values"] = RNG.standard_normal(shape).astype(np.float32)
    elif manifest.audio.min_samples:
        feeds["waveform"] = RNG.standard_normal((ROWS, 1500)).astype(np.float32)
    elif manifest.HasField("audio"):
        shape = (ROWS, manifest.audio.num_mels, manifest.audio.num_frames)
        feeds["input_features"] = RNG.standard_normal(shape).astype(np.float32)
    elif manifest.text.HasField("start_id"):
        feeds["input_ids"] = RNG.integers(0, manifest.text.source_vocab_size, (ROWS, SOURCE_LENGTHS.max()))
        feeds["lengths"] = SOURCE_LENGTHS
    fed = "target_ids" if feeds else "input_ids"
    feeds[fed] = RNG.integers(0, vocab, (ROWS, min(WIDTH, manifest.text.max_total_tokens)))
    return feeds, RNG.integers(0, vocab, feeds[fed].shape)


def scored(session, feeds, rows, scored_ids):
    """Every position of some rows: log_probs [rows, width], then ids and log-probabilities of the best."""
    parts = {name: value[rows] for name, value in feeds.items()}
    ids = scored_ids[rows]
    places = np.arange(ids.size).reshape(-1, SIZE)
    outputs = session.run(None, {**parts, "places": places, "scored_ids": ids.reshape(-1, SIZE)})
    return [output.reshape(*ids.shape, *output.shape[2:]) for output in outputs]


@pytest.mark.parametrize("name", ALL)
def test_log_probabilities_are_those_of_torch(name, tiny_bundle):
    """Each token's is torch's log_softmax at its place, and the best are the best there, in order."""
    session, manifest = opened(tiny_bundle(name))
    feeds, scored_ids = drawn(manifest)
    log_probs, top_ids, top_log_probs = scored(session, feeds, list(range(ROWS)), scored_ids)

    checkpoint = CHECKPOINTS[name.removesuffix("-int8")]()
    model = (quantised(checkpoint) if name.endswith("-int8") else checkpoint).model.eval()
    *source, fed = map(torch.from_numpy, feeds.values())
    with torch.inference_mode():
        expected = model.decode(fed, *source).log_softmax(dim=-1).numpy()

    # int8: where a rounded value lay between two levels, it is the other one. Fewer than one in a hundred are.
    # fp32: the error follows the spread of the scores (T5's are not divided by the width's root), as in proofs.
    far = 0.2 if name.endswith("-int8") else max(2e-5, 5e-6 * float(np.ptp(expected)))
    chosen = np.take_along_axis(expected, scored_ids[..., None], axis=-1)[..., 0]
    assert np.abs(log_probs - chosen).max() < far
    assert np.abs(np.take_along_axis(expected, top_ids, axis=-1) - top_log_probs).max() < far
    assert top_log_probs.shape[-1] == min(MAX_TOP_TOKENS, expected.shape[-1])
    assert (np.diff(top_log_probs, axis=-1) <= 0).all()
    assert np.abs(np.sort(expected, axis=-1)[..., ::-1][..., : top_ids.shape[-1]] - top_log_probs).max() < far


@pytest.mark.parametrize("name", ALL)
def test_bits_do_not_depend_on_the_rows_beside(name, tiny_bundle):
    """A row has the same bits in any order, in part of the batch and alone, whatever stands behind its end."""
    session, manifest = opened(tiny_bundle(name))
    feeds, scored_ids = drawn(manifest)
    fed = list(feeds)[-1]

    whole = scored(session, feeds, list(range(ROWS)), scored_ids)
    for rows in ([4, 3, 2, 1, 0], [2, 0], *([row] for row in range(ROWS))):
        for one, other in zip(whole, scored(session, feeds, rows, scored_ids), strict=True):
            assert np.array_equal(one[rows], other)
    ends = feeds[fed].shape[1] // 2
    other_ends = feeds[fed].copy()
    other_ends[:, ends:] = RNG.integers(0, manifest.text.target_vocab_size, other_ends[:, ends:].shape)
    changed = scored(session, feeds | {fed: other_ends}, list(range(ROWS)), scored_ids)
    for one, other in zip(whole, changed, strict=True):
        assert np.array_equal(one[:, :ends], other[:, :ends])


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate-int8", "tiny-attention-rnn"])
def test_which_places_share_a_turn_does_not_show(name, tiny_bundle):
    """A place has the same bits in turns of any size, beside any others, and twice in one."""
    session, manifest = opened(tiny_bundle(name))
    feeds, scored_ids = drawn(manifest)
    flat, whole = scored_ids.reshape(-1), scored(session, feeds, list(range(ROWS)), scored_ids)

    for places in (np.array([[3]]), np.array([[7, 1, 7, 0, 2]]), np.arange(flat.size)[::-1].reshape(1, -1)):
        outputs = session.run(None, {**feeds, "places": places, "scored_ids": flat[places]})
        for one, other in zip(whole, outputs, strict=True):
            assert np.array_equal(one.reshape(flat.size, *one.shape[2:])[places], other)


@pytest.mark.parametrize("name", ALL)
def test_it_has_no_weights_of_its_own(name, tiny_bundle):
    """All that is large lies in the files of the graphs that it is made of."""
    bundle = tiny_bundle(name)
    model = onnx.load(bundle / "score.onnx", load_external_data=False)
    places = {entry.value for t in model.graph.initializer for entry in t.external_data if entry.key == "location"}
    own = sum(tensor.ByteSize() for tensor in model.graph.initializer)
    others = sum(
        tensor.ByteSize()
        for file in ("encoder.onnx", "decoder.onnx")
        if (bundle / file).exists()
        for tensor in onnx.load(bundle / file, load_external_data=False).graph.initializer
    )

    assert places <= {"encoder.onnx.data", "decoder.onnx.data"}
    assert not (bundle / "score.onnx.data").exists()
    assert own < others + 5000


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-rnn"])
def test_parity_finds_a_wrong_graph(name, tiny_repository, tmp_path):
    """A SCORE graph that gives something else than torch is refused, and the message names it."""
    bundle = shutil.copytree(tiny_repository / name / "1", tmp_path / "1")
    path = bundle / "score.onnx"
    model = onnx.load(path, load_external_data=False)
    # It scores other tokens.
    for node in model.graph.node:
        node.input[:] = ["shifted" if each == "scored_ids" else each for each in node.input]
    model.graph.initializer.append(numpy_helper.from_array(np.array(1), "shift"))
    model.graph.node.insert(0, onnx.helper.make_node("Sub", ["scored_ids", "shift"], ["before"]))
    model.graph.node.insert(1, onnx.helper.make_node("Abs", ["before"], ["shifted"]))
    onnx.save(model, path)

    with pytest.raises(ParityError, match=r"score\.onnx output log_probs"):
        check_parity(CHECKPOINTS[name](), bundle, bundle_pb2.PRECISION_FP32, scores=True)
