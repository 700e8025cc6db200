"""A bundle whose prompts may hold pictures: its two graphs and what the manifest says of them fit each other."""

import pytest

from drafts import (
    CACHE_STATE,
    DECODER_IN,
    DECODER_OUT,
    IMAGE_IN,
    TARGET,
    TARGET_IN,
    Draft,
    _with_decoder,
    _with_explain,
    _with_image,
    _with_text,
    classify_image,
    generate,
    refused,
)
from weft_proto.v1 import bundle_pb2 as pb
from weft_proto.v1 import common_pb2
from weft_server.bundle.load import load_bundle

WIDTH = 6
FEATURES_IN = {"features": ("f", ["batch", "seq", WIDTH])}


def seeing(directory, beside=FEATURES_IN, pixels=IMAGE_IN, places=12):
    """A decoder that reads features beside ids, and an encoder of pictures of 12 places."""
    draft = _with_text(Draft(directory, common_pb2.TASK_GENERATE), **TARGET)
    _with_decoder(draft, CACHE_STATE, more=beside)
    _with_image(draft)
    draft.manifest.text.image_id = 3
    draft.manifest.golden.question = "what"
    features = {"features": ("f", ["batch", places, WIDTH])}
    draft.graph(pb.GRAPH_ROLE_IMAGE_ENCODER, "image_encoder.onnx", pixels, features)
    return draft


def explaining(directory):
    """The same with an EXPLAIN graph, which reads the features of a prompt."""
    draft = seeing(directory)
    given = {"input_ids": ("l", [1, "seq"]), "lengths": ("i", [1]), "features": ("f", [1, "seq", WIDTH])}
    return _with_explain(draft, given | TARGET_IN, "rows", "seq", default_layer=1)


def celled(directory):
    """The same of pictures of any size: cells go in, and the decoder and EXPLAIN are told where places stand."""
    beside = {**FEATURES_IN, "position_offsets": ("l", ["batch", "seq", 3])}
    draft = seeing(directory, beside, {"pixel_values": ("f", ["batch", "rows", "columns", 1, 8, 8])}, "places")
    image = draft.manifest.image
    image.grid_rows = image.grid_columns = 1
    image.tiling.max_pixels = image.tiling.min_pixels = 4 * image.height**2
    given = {"input_ids": ("l", [1, "seq"]), "lengths": ("i", [1]), "features": ("f", [1, "seq", WIDTH])}
    offsets = {"position_offsets": ("l", [1, "seq", 3])}
    return _with_explain(draft, given | offsets | TARGET_IN, "rows", "seq", default_layer=1)


def both_ways(directory):
    """The first with a graph that reads the places of a picture in both directions."""
    draft = seeing(directory)
    state = {CACHE_STATE.past: ("f", [1, *CACHE_STATE.shape])}
    inputs = {name: (kind, [1, *shape[1:]]) for name, (kind, shape) in (DECODER_IN | FEATURES_IN).items()}
    outputs = DECODER_OUT | {CACHE_STATE.present: ("f", [1, *CACHE_STATE.shape])}
    draft.graph(pb.GRAPH_ROLE_BIDIRECTIONAL, "bidirectional.onnx", inputs | state, outputs)
    draft.manifest.text.bidirectional = pb.BIDIRECTIONAL_PICTURES
    return draft


OF_CELLS = "i = m.image; i.grid_rows = i.grid_columns = 1; i.tiling.max_pixels = i.tiling.min_pixels = 64"
LONG = "m.text.bidirectional = 2; m.text.max_total_tokens = 8194"
FAULTS = [
    (seeing, "m.ClearField('image')", "image is for tasks that take one"),
    (seeing, "m.text.ClearField('image_id')", "text.image_id is for bundles with an IMAGE_ENCODER graph"),
    (seeing, "m.text.image_id = 20", "text.image_id 20 is outside the source vocabulary"),
    (seeing, "m.golden.question = ''", "golden.question is for who is asked about pictures"),
    (seeing, "m.golden.text = 'a'", "golden image '' is not a file of the bundle"),
    (seeing, "m.golden.image_path = 'x.png'", "golden image 'x.png' is not a file of the bundle"),
    (seeing, "m.image.num_class_tokens = 3", "a picture alone has 15 places"),
    (seeing, "m.image.grid_rows = m.image.grid_columns = 0", "image.grid_rows and grid_columns are missing"),
    (seeing, "i = m.image; i.grid_rows = 0; i.num_class_tokens = 3", "image.grid_rows and grid_columns are missing"),
    (seeing, "m.graphs[1].outputs[0].shape[2] = 'width'", "no output 'features' [batch, places, width] of one fixed"),
    (seeing, "m.graphs[1].outputs[0].shape[2] = '7'", "'features' has shape ['batch', 'seq', '6']"),
    (seeing, "m.graphs[1].outputs[0].shape[1] = '11'", "'features' has shape ['batch', '11', '6']"),
    (seeing, "m.graphs[1].outputs[0].name = 'seen'", "no output 'features'"),
    (seeing, "m.graphs[1].inputs[0].shape[2] = '9'", "'pixel_values' has shape"),
    (seeing, "del m.graphs[0].inputs[4]", "decoder.onnx has no input 'features'"),
    (seeing, "del m.graphs[1]", "image is for tasks that take one"),
    (explaining, "del m.graphs[2].inputs[2]", "explain.onnx has no input 'features'"),
    (explaining, "m.graphs[2].inputs[2].shape[2] = '7'", "'features' has shape ['1', 'seq', '7']"),
    (explaining, "m.graphs[2].inputs[2].shape[0] = '2'", "'features' has shape ['2', 'seq', '6']"),
    (generate, "m.graphs[1].inputs.add(name='features', data_type=1)", "that its role does not know"),
    (seeing, "m.graphs.add(role=7)", "a bundle with an IMAGE_ENCODER graph has no SCORE graph"),
    (seeing, "m.graphs.add(role=6)", "a bundle with an IMAGE_ENCODER graph has no MIXED graph"),
    (celled, "m.image.tiling.min_pixels = 0", "min_pixels is missing, or larger than max_pixels"),
    (celled, "m.image.tiling.max_tiles = 2", "image.tiling.max_pixels is set, and so is max_tiles"),
    (celled, "del m.graphs[0].inputs[5]", "decoder.onnx has no input 'position_offsets'"),
    (celled, "m.graphs[0].inputs[5].shape[2] = '2'", "'position_offsets' has shape ['batch', 'seq', '2']"),
    (celled, "m.graphs[0].inputs[5].data_type = 1", "'position_offsets' has the wrong data_type"),
    (celled, "m.graphs[1].inputs[0].shape[4] = '9'", "'pixel_values' has shape"),
    (celled, "m.graphs[2].inputs[3].shape[0] = '2'", "'position_offsets' has shape ['2', 'seq', '3']"),
    (celled, "m.image.ClearField('tiling')", "'position_offsets' that its role does not know"),
    (both_ways, "m.text.bidirectional = 0", "text.bidirectional is for bundles with a BIDIRECTIONAL graph"),
    (both_ways, "m.text.bidirectional = 7", "text.bidirectional 7 is unknown"),
    (both_ways, "del m.graphs[2]", "text.bidirectional is for bundles with a BIDIRECTIONAL graph"),
    (both_ways, "m.precision = 2", "a BIDIRECTIONAL graph is not for fp16, bf16 and int4-fp16"),
    (both_ways, "m.states[0].kind = 3", "a BIDIRECTIONAL graph is for models whose states are all of kind KV_CACHE"),
    (both_ways, OF_CELLS, "a BIDIRECTIONAL graph is not for pictures of any size"),
    (both_ways, LONG, "text.bidirectional has stretches of up to 8,193 places; at most 8,192 are allowed"),
    (both_ways, "del m.graphs[2].inputs[4]", "bidirectional.onnx has no input 'features'"),
    (both_ways, "m.graphs[2].inputs.add(name='reads_all', data_type=3, shape='1')", "that its role does not know"),
    (both_ways, "m.graphs[2].outputs[0].shape[1] = '3'", "topk_logits and topk_ids are not of one fixed width"),
    (generate, "m.text.bidirectional = 1", "text.bidirectional is for bundles with a BIDIRECTIONAL graph"),
    (seeing, "m.image.tiling.max_tiles = 2", "image.tiling.grids are missing"),
    (seeing, "m.image.tiling.max_tiles = 257", "image.tiling.max_tiles is 257"),
    (classify_image, "m.image.tiling.max_tiles = 2", "image.tiling is for generate"),
    (generate, "m.text.image_id = 3", "text.image_id is for bundles with an IMAGE_ENCODER graph"),
    (generate, "m.golden.question = 'what'", "golden.question is for who is asked about pictures"),
]


@pytest.mark.parametrize(("make", "change", "text"), FAULTS, ids=[f"{m.__name__}: {c}" for m, c, _ in FAULTS])
def test_a_bundle_that_sees_and_contradicts_itself_is_refused(tmp_path, make, change, text):
    """One part of it does not fit another."""
    draft = make(tmp_path / "tiny" / "1")
    exec(change, {"m": draft.manifest})
    assert text in refused(draft.write())


@pytest.mark.parametrize("make", [seeing, explaining, celled, both_ways])
def test_the_draft_itself_is_a_bundle(tmp_path, make):
    """So each fault above is the only one."""
    assert load_bundle(make(tmp_path / "tiny" / "1").write()).manifest.text.HasField("image_id")
