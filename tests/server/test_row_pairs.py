"""Laws of weights in larger blocks: runs have even numbers of rows, and with them nobody's company shows."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from tiny_decoder import tiny_decoder
from tiny_parts import randomised

from crowd import answers_of, requests_for
from few import few_of
from loaded import Loaded
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_export.quantization import choice
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine.prefill_chunks import PrefillChunks
from weft_server.engine.run_shapes import RunShapes
from weft_server.engine.score_lane import GivenAnswer
from weft_server.errors import BundleError
from weft_server.loading import lone_rows
from weft_server.loading.lone_rows import keep_lone_decodes
from weft_server.runtime.device import HOST, Device
from weft_server.runtime.session import Session
from weft_server.source import Ids

# Odd, so that the last place of a cache has none beside it.
MAX_TOKENS = 51
PAIRS = replace(HOST, row_multiple=2)


def wide_decoder():
    """A generator whose products read 128 and 256 numbers."""
    checkpoint = tiny_decoder()
    config = replace(checkpoint.model.config, d_model=128, d_ff=256, max_tokens=MAX_TOKENS)
    text = bundle_pb2.TextSpec()
    text.CopyFrom(checkpoint.text)
    text.max_total_tokens, text.max_new_tokens = MAX_TOKENS, MAX_TOKENS - 1
    return replace(checkpoint, model=randomised(type(checkpoint.model)(config)), text=text)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function: the bundle of wide_decoder at a precision, however far its answers move."""
    folder = tmp_path_factory.mktemp("pairs")
    save_checkpoint(folder / "checkpoint", wide_decoder())

    def export(precision):
        bundle = folder / precision / "1"
        if not bundle.is_dir():
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(choice, "MAX_BLOCK_EFFECT", 100.0)
                export_checkpoint(
                    folder / "checkpoint", bundle, ExportOptions(precision=precision, mixed_runs=True, no_explain=True)
                )
        return bundle

    return export


@pytest.mark.slow
@pytest.mark.parametrize("precision", few_of(["int4", "int8-weights"], ["int4"]))
def test_company_does_not_show(precision, exported):
    """Answers alone are those in a crowd, with prompts of all lengths, in runs of their own and beside other rows."""
    directory = exported(precision)
    manifest = load_bundle(directory).manifest
    asked = requests_for(manifest, 60, seed=3)
    assert {2} == {graph.row_multiple for graph in manifest.graphs}
    assert {128} <= {product.block_size for product in manifest.rounding.products}
    alone, crowded = (asyncio.run(answers_of(directory, asked, range(60), crowd=crowd)) for crowd in (False, True))

    assert alone == crowded


@pytest.mark.slow
def test_each_run_has_an_even_number_of_rows(exported, monkeypatch):
    """Of slots that are no even number, too: then there is one more."""
    seen = []
    run = Session.bind

    def bind(self, inputs, outputs):
        rows = sum(int(np.prod(block.shape)) for name, block in inputs.items() if name in {"input_ids", "prompt_ids"})
        seen.append((rows, self.device.row_multiple))
        return run(self, inputs, outputs)

    monkeypatch.setattr(Session, "bind", bind)
    asked = requests_for(load_bundle(exported("int4")).manifest, 30, seed=4)
    asyncio.run(answers_of(exported("int4"), asked, range(30), crowd=True))

    assert {2} == {multiple for _, multiple in seen}
    assert {0} == {rows % 2 for rows, _ in seen}
    assert {rows for rows, _ in seen} > {2, 4, 6, 8, 10}


def test_slots_are_even(exported):
    """Three slots are four, so that three rows and one that fills up have one each."""

    async def run():
        async with Loaded(exported("int4"), slots=3, lanes=1) as model:
            return [lane.slots.num_slots for lane in model.engine.lanes]

    assert [4] == asyncio.run(run())


@pytest.mark.parametrize("num_rows", range(4))
def test_a_piece_of_a_prompt_and_its_company_are_even(num_rows):
    """Wherever it begins and however long it is, it has room, and no bucket is left where rows are even."""
    chunks = PrefillChunks(PAIRS, max_total=MAX_TOKENS, pad_id=0, one_by_one=False, has_memory=False)
    plain = PrefillChunks(HOST, max_total=MAX_TOKENS, pad_id=0, one_by_one=False, has_memory=False)
    for past in range(MAX_TOKENS - 1):
        for length in range(1, MAX_TOKENS - past):
            bucket = chunks.bucket(length, past, num_rows)
            assert length <= bucket <= MAX_TOKENS - past
            assert 0 == (bucket + num_rows) % 2
            assert bucket >= 2 or num_rows
            assert 1 >= abs(bucket - plain.bucket(length, past))


def test_inputs_of_a_run_are_even():
    """Of a graph without states."""
    shapes = RunShapes(PAIRS, lambda source: source.bucket, {}, most=8, budget=64)

    assert [2, 2, 4, 4] == [shapes.num_rows(number) for number in (1, 2, 3, 4)]
    assert 4 == len(shapes.feeds([Ids(np.arange(3))] * 3, 0)["lengths"])
    assert [0, 2, 2, 4, 4, 5] == Device.batches(PAIRS, 5)


@pytest.mark.parametrize("max_total", [50, 51])
def test_what_is_scored_is_even(max_total):
    """The longest answer too, whose last token is not read."""
    answers = [GivenAnswer(np.arange(length), None, np.arange(1), max_total) for length in range(1, max_total)]

    assert {0} == {answer.width % 2 for answer in answers}
    assert all(len(answer.array) <= answer.width <= max_total for answer in answers)


def test_a_processor_with_other_bits_is_refused(exported, monkeypatch):
    """Where two rows have other bits than four, nothing is served, and the advice is what an export takes."""
    bundle = load_bundle(exported("int4"))
    decoder = Session(bundle.path("decoder.onnx"), 1, PAIRS)
    keep_lone_decodes(decoder, bundle)
    assert 1 == decoder.device.least_rows
    monkeypatch.setattr(lone_rows, "_is_same", lambda fewer, more: False)

    with pytest.raises(BundleError, match="export with --max-block-size 32"):
        keep_lone_decodes(decoder, bundle)
