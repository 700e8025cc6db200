"""Converted models as graphs: ONNX Runtime answers as torch does, and a row's bits do not depend on its batch."""

import numpy as np
import pytest
import torch
from captioner_kinds import CAPTIONERS
from encoder_kinds import CLASSIFIERS, TAGGERS
from hf_models import VOCAB, converted, made
from picture_kinds import SIGLIP_ALONE
from seq2seq_kinds import SEQ2SEQ
from test_captioners import with_processor
from test_pictures import made_with_processor

from weft_export.export import export_checkpoint
from weft_export.graphs.graphs import graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.verification.session import open_session
from weft_proto.v1 import bundle_pb2

BY_NAME = {kind.name: kind for kind in (*CLASSIFIERS, *TAGGERS, *CAPTIONERS, *SEQ2SEQ)}
LENGTHS = np.array([16, 2, 9, 5, 12], np.int32)
PROBABILITIES = 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modernbert", "debertav2-tags", "albert"])
def test_encoders_of_new_kinds_keep_rows_alone(name, tmp_path):
    """The graph of an encoder that rotates, looks around itself or goes by offsets: torch's answers, rows alone."""
    made(BY_NAME[name], 3, tmp_path)
    checkpoint = converted(tmp_path)
    graph = graphs_of(checkpoint, bundle_pb2.PRECISION_FP32)[0]
    write_graph(graph, tmp_path)
    session = open_session(tmp_path / graph.file_name)
    ids = np.random.default_rng(0).integers(2, VOCAB, (len(LENGTHS), 16))

    def run(rows):
        (out,) = session.run(None, {"input_ids": ids[rows], "lengths": LENGTHS[rows]})
        return out

    together = run([0, 1, 2, 3, 4])
    with torch.inference_mode():
        expected = graph.module(torch.tensor(ids), torch.tensor(LENGTHS)).numpy()
    for rows in ([4, 3, 2, 1, 0], [1, 3], [0], [1], [2], [3], [4]):
        for row, alone in zip(rows, run(rows), strict=True):
            real = slice(LENGTHS[row]) if alone.ndim == 2 else slice(None)
            assert np.array_equal(together[row][real], alone[real]), f"row {row} of {rows}"
            assert PROBABILITIES >= np.abs(expected[row][real] - alone[real]).max()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SIGLIP_ALONE], ids=lambda kind: kind.name)
def test_encoders_of_pictures_of_new_kinds_keep_rows_alone(kind, tmp_path):
    """The same of a picture that a learned query reads."""
    made_with_processor(kind, 3, tmp_path)
    checkpoint = converted(tmp_path)
    graph = graphs_of(checkpoint, bundle_pb2.PRECISION_FP32)[0]
    write_graph(graph, tmp_path)
    session = open_session(tmp_path / graph.file_name)
    sides = (checkpoint.image.channels, checkpoint.image.height, checkpoint.image.width)
    pixels = np.random.default_rng(0).standard_normal((5, *sides)).astype(np.float32)
    together = session.run(None, {"pixel_values": pixels})[0]
    with torch.inference_mode():
        assert PROBABILITIES >= np.abs(graph.module(torch.tensor(pixels)).numpy() - together).max()
    for rows in ([4, 3, 2, 1, 0], [1, 3], [0], [1], [2], [3], [4]):
        assert np.array_equal(together[rows], session.run(None, {"pixel_values": pixels[rows]})[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["blip", pytest.param("marian", marks=pytest.mark.long), pytest.param("t5", marks=pytest.mark.long)]
)
def test_a_converted_directory_becomes_a_bundle(name, tmp_path):
    """A whole export of a Hugging Face directory: parity, golden answer, manifest."""
    directory = tmp_path / name
    made(BY_NAME[name], 1, directory)
    if name == "blip":
        with_processor(directory)
    report = export_checkpoint(directory, tmp_path / "models" / name / "1")

    assert {"marian": "bart", "t5": "t5", "blip": "vision_encoder_decoder"}[name] == report.manifest.family
    assert 0 < len(report.manifest.golden.token_ids)
    assert report.manifest.parity.max_abs_error <= report.manifest.parity.tolerance
