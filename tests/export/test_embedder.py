"""What makes one vector of a text's places."""

from dataclasses import replace

import onnx
import pytest
import torch
from tiny_embed import embedder_config, tiny_embed, tiny_match
from tiny_parts import randomised

from weft_export.bundle import manifest_of
from weft_export.families.text_embedder import Dense, TextEmbedder, TokenWeights
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.layers.pooling import POOLINGS
from weft_export.layers.positions import Rope
from weft_export.quantization.quantized import quantized
from weft_export.verification.session import open_session
from weft_proto.v1 import bundle_pb2

IDS = torch.tensor([[5, 9, 4, 0, 0, 0, 0, 0], [7, 8, 9, 10, 11, 12, 13, 14], [6, 0, 0, 0, 0, 0, 0, 0]])
LENGTHS = torch.tensor([3, 8, 1], dtype=torch.int32)
POOLED = {
    "first": lambda places: places[0],
    "mean": lambda places: places.mean(dim=0),
    "last": lambda places: places[-1],
    "max": lambda places: places.max(dim=0).values,
}


@torch.inference_mode()
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_real_places_are_pooled(pooling, normalized):
    """As the definition says, over each text alone; then the dense layers; then the length 1."""
    config = embedder_config(
        pooling=pooling, normalized=normalized, dense=(Dense(8, "tanh"), Dense(6, None, bias=False))
    )
    model = randomised(TextEmbedder(config))
    vectors = model(IDS, LENGTHS)

    assert 6 == config.dimensions
    assert (3, 6) == vectors.shape
    for ids, length, vector in zip(IDS, LENGTHS.tolist(), vectors, strict=True):
        places = model.body(ids[None, :length], None)[0]
        expected = model.dense[1](torch.tanh(model.dense[0](POOLED[pooling](places))))
        expected = expected / expected.norm() if normalized else expected
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("normalized", [True, False])
def test_a_vector_that_is_cut_has_no_length_of_its_own(normalized):
    """Its first numbers stay as they are, and the manifest says so: a request that cuts more gets these, too."""
    whole, cut = (randomised(TextEmbedder(embedder_config(normalized=normalized, cut=each))) for each in (None, 5))
    checkpoint = replace(tiny_embed(), model=cut)
    spec = manifest_of(checkpoint, bundle_pb2.PRECISION_FP32, bundle_pb2.Golden()).embedding

    assert torch.equal(whole(IDS, LENGTHS)[:, :5], cut(IDS, LENGTHS))
    assert (5, False) == (spec.dimensions, spec.normalized)


@torch.inference_mode()
@pytest.mark.parametrize("pooling", ["max"])  # the mean is that of a tiny checkpoint, and the others only pick
def test_bits_do_not_depend_on_the_batch(pooling, tmp_path):
    """In ONNX Runtime a row alone has the bits that it has beside others, whatever stands in the padding."""
    checkpoint = replace(tiny_embed(), model=randomised(TextEmbedder(embedder_config(pooling=pooling))))
    graph, *_ = graphs_of(checkpoint, bundle_pb2.PRECISION_FP32)
    write_graph(graph, tmp_path)
    session = open_session(tmp_path / graph.file_name)
    (together,) = session.run(None, {"input_ids": IDS.numpy(), "lengths": LENGTHS.numpy()})

    torch.testing.assert_close(torch.from_numpy(together), graph.module(IDS, LENGTHS), atol=1e-5, rtol=1e-5)
    for row in range(3):
        ids = IDS[row : row + 1].clone()
        ids[0, LENGTHS[row] :] = 17
        (alone,) = session.run(None, {"input_ids": ids.numpy(), "lengths": LENGTHS[row : row + 1].numpy()})
        assert together[row].tobytes() == alone[0].tobytes()


@pytest.mark.parametrize(
    ("precision", "operator", "opset"),
    [
        (bundle_pb2.PRECISION_FP32, ("", "Attention"), 24),
        (bundle_pb2.PRECISION_FP16, ("com.microsoft", "MultiHeadAttention"), 21),
    ],
)
def test_texts_attend_with_the_faster_operator(precision, operator, opset, tmp_path):
    """On a CPU that is ONNX's own, which is younger than the rest of the graph. Half precision is for a device."""
    graph, *_ = graphs_of(tiny_embed(), precision)
    write_graph(graph, tmp_path)
    model = onnx.load(tmp_path / graph.file_name)

    assert [operator] == [*{(each.domain, each.op_type) for each in model.graph.node if "Attention" in each.op_type}]
    opsets = {each.domain: each.version for each in model.opset_import}
    assert opset == opsets.pop("")
    assert opsets.keys() <= {"com.microsoft"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"pooling": "sum"}, "pooling must be one of"),
        ({"dense": (Dense(0),)}, "d_out must be"),
        ({"normalized": 1}, "true or false"),
        ({"cut": 0}, "cut must be"),
        ({"weighs": TokenWeights((0,)), "pooling": "mean"}, "weighs is for pooling first"),
        ({"weighs": TokenWeights((0,)), "pooling": "first", "cut": 4}, "weighs is for pooling first"),
        ({"weighs": TokenWeights((0,)), "pooling": "first", "dense": (Dense(4),)}, "weighs is for pooling first"),
        ({"weighs": TokenWeights((0,)), "pooling": "first", "normalized": False}, "weighs is for pooling first"),
        ({"weighs": TokenWeights((0, 10**5)), "pooling": "first"}, "unweighted are tokens of the vocabulary"),
        ({"weighs": TokenWeights((-1,)), "pooling": "first"}, r"unweighted\[0\] must be a whole number in \[0, "),
        ({"weighs": TokenWeights(()), "pooling": "first"}, "unweighted must have between 1 and 12 numbers"),
    ],
)
def test_what_cannot_be_is_refused(change, complaint):
    """The field is named."""
    with pytest.raises(ValueError, match=complaint):
        embedder_config(**change)


def test_both_towers_are_rounded():
    """Each product is told of by its tower, and the scale between the towers stays."""
    checkpoint = tiny_match()
    changed = quantized(checkpoint, bundle_pb2.PRECISION_INT4)
    names = [product.name for product in changed.rounding.products]

    assert changed.rounding.num_products == len(names)
    assert {"pictures", "texts"} == {name.partition(".")[0] for name in names}
    assert checkpoint.model.scale == changed.model.scale
    assert all(type(changed.model.get_submodule(name)) is not torch.nn.Linear for name in names)


@pytest.mark.parametrize(
    "more", [{"causal": True}, {"rotations": (Rope((1.0,) * 8),), "rotation_of": (0, 0), "windows": (2, 0)}]
)
def test_what_is_added_to_scores_is_of_their_type(more):
    """ONNX Runtime's operator wants that, and a body of half precision has float16 there."""
    body = TextEmbedder(embedder_config(**more)).body.half()
    (_, bias), _ = body.encoder._seen(torch.zeros(1, 5, 32, dtype=torch.float16))
    assert torch.float16 == bias.dtype
    assert (1, 1, 5, 5) == bias.shape
