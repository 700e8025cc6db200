"""The golden request and its answer: clear, greedy, and what a server will ask for."""

from dataclasses import replace

import pytest
import torch
from tiny import CHECKPOINTS, save_tiny, tiny_generate
from tiny_parts import END
from tokenizers import Tokenizer, models

from weft_export.errors import CheckpointError, ExportError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import torch_run
from weft_export.graphs.graphs import graphs_of
from weft_export.options import ExportOptions
from weft_export.verification import golden as golden_module
from weft_export.verification.golden import GoldenRequest, check_golden, clear_margin, next_logits
from weft_export.verification.golden_inputs import made_files, made_for, parts_of
from weft_proto.bundle_rules import GOLDEN_TOLERANCE
from weft_proto.v1 import bundle_pb2

FP32, FP16, INT8 = bundle_pb2.PRECISION_FP32, bundle_pb2.PRECISION_FP16, bundle_pb2.PRECISION_INT8


@pytest.mark.parametrize("name", ["tiny-translate", "tiny-caption", "tiny-generate"])
def test_golden_answer_is_greedy_and_clear(name):
    """Each golden token beats the second best by a clear margin under full recomputation."""
    checkpoint = CHECKPOINTS[name]()
    tokens = list(GoldenRequest(checkpoint, FP32).answer().token_ids)

    assert 1 <= len(tokens) <= checkpoint.max_new_tokens
    if name == "tiny-generate":
        prompt = [int(token) for token in _encode(checkpoint)]
        logits = next_logits(checkpoint.model, (), prompt + tokens[:-1])[len(prompt) - 1 :]
        best = logits.topk(2)
        assert best.indices[:, 0].tolist() == tokens
        margins = torch.tensor([clear_margin(float(row.detach().std(correction=0)), FP32, 0.0) for row in logits])
        assert ((best.values[:, 0] - best.values[:, 1]) > margins).all()


def test_golden_answer_is_cut_before_a_close_call():
    """fp16, which needs wider margins, keeps a prefix of the fp32 answer."""
    checkpoint = tiny_generate()
    wide, narrow = (
        GoldenRequest(checkpoint, FP32).answer().token_ids,
        GoldenRequest(checkpoint, FP16).answer().token_ids,
    )

    assert list(wide[: len(narrow)]) == list(narrow)
    assert len(narrow) < len(wide)


def test_golden_margin_grows_with_the_parity_error():
    """An error of five times the spread, which no first token wins by, leaves no clear one."""
    complaint = (
        r"no clear first token \(nor have 8 parts of it, nor 32 texts of random tokens\): "
        r"token \d+ \(.+\) and token \d+ \(.+\) are .+ apart in"
        r" their logits, more than \d+ is needed.*give another text with --golden"
    )
    with pytest.raises(ExportError, match=complaint):
        GoldenRequest(tiny_generate(), INT8).answer(parity_error=5.0)


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-image"])
def test_golden_answer_is_computed_once(name):
    """The answer that is asked for again, and cut shorter, needs nothing of the model."""
    checkpoint = CHECKPOINTS[name]()
    request = GoldenRequest(checkpoint, FP32)
    first = request.answer()
    next(checkpoint.model.parameters()).data.fill_(float("nan"))
    again = request.answer(parity_error=1e-2)

    assert list(first.probabilities) == list(again.probabilities)
    assert list(first.token_ids)[: len(again.token_ids)] == list(again.token_ids)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_golden_margin_goes_with_the_scale_of_the_model(scale):
    """Rounding goes with the size of the logits: a model of small ones has a clear answer too, and the same one."""
    checkpoint = tiny_generate()
    expected = GoldenRequest(checkpoint, FP32).answer().token_ids
    checkpoint.model.norm.weight.data *= scale

    few = min(len(expected), len(GoldenRequest(checkpoint, FP32).answer().token_ids))
    assert few > 0
    assert expected[:few] == GoldenRequest(checkpoint, FP32).answer().token_ids[:few]


def test_a_part_of_the_golden_text_stands_in_for_it(monkeypatch):
    """Where the whole text has no clear answer, the longest part that begins it and has one is the golden text."""
    checkpoint = tiny_generate()
    real = GoldenRequest._greedy

    def greedy(request, asked, golden, *more):
        return ([], "two are close") if golden.text == asked.golden.text else real(request, asked, golden, *more)

    monkeypatch.setattr(GoldenRequest, "_greedy", greedy)
    found = GoldenRequest(checkpoint, FP32).answer()
    assert ("the cat in the", "the cat in the house") == (found.text, checkpoint.golden.text)
    check_golden(checkpoint, found, torch_run(graphs_of(checkpoint, FP32)), FP32)


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate", "tiny-t5"])
def test_random_tokens_stand_in_for_a_text_without_a_clear_part(name, monkeypatch):
    """Where no part has a clear answer either, a text of random tokens does it: another model would be noticed."""
    checkpoint = CHECKPOINTS[name]()
    made = [golden.text for golden in made_for(checkpoint)]
    real = GoldenRequest._greedy

    def greedy(request, asked, golden, *given):
        return real(request, asked, golden, *given) if golden.text in made else ([], "two are close")

    monkeypatch.setattr(GoldenRequest, "_greedy", greedy)
    found = GoldenRequest(checkpoint, FP32).answer()
    assert found.text in made
    assert made == [golden.text for golden in made_for(checkpoint)]
    assert found.text.startswith(tuple(checkpoint.text.prefixes) or "")
    check_golden(checkpoint, found, torch_run(graphs_of(checkpoint, FP32)), FP32)


def test_random_texts_are_of_tokens_that_the_model_knows():
    """A tokenizer may have tokens behind them."""
    checkpoint = tiny_generate()
    checkpoint.text.source_vocab_size = 4  # <pad>, <end>, ! and "
    assert {"!", '"'} == set("".join(golden.text for golden in made_for(checkpoint)))


@pytest.mark.parametrize(
    ("chosen", "why", "expected"),
    [
        ([7, 8], "", ([7, 8, END], "")),
        ([7, END], "", ([7, END], "")),
        ([7], "two are close", ([7, END], "two are close")),
        ([], "two are close", ([], "two are close")),
        ([END], "", ([], "nothing comes before the end, which is forced")),
    ],
)
def test_a_forced_end_is_the_last_golden_token_and_never_the_only_one(chosen, why, expected, monkeypatch):
    """Any model would answer the forced end alone."""
    checkpoint = CHECKPOINTS["tiny-translate"]()
    checkpoint.text.forced_end_id = END
    monkeypatch.setattr(GoldenRequest, "_chosen", lambda *_: (chosen, why))
    request = GoldenRequest(checkpoint, FP32)
    assert expected == request._greedy(checkpoint, checkpoint.golden, 0.0)


@pytest.mark.parametrize(("name", "ending"), [("tiny-caption", "png"), ("tiny-answer", "png"), ("tiny-speech", "wav")])
def test_the_clearest_of_made_files_stands_in_for_one_without_a_clear_answer(name, ending, monkeypatch):
    """Of pictures and recordings that the exporter makes, the one with the most clear tokens is asked, and kept."""
    checkpoint = CHECKPOINTS[name]()
    own = checkpoint.golden.image_path or checkpoint.golden.audio_path
    clear = {own: 0, **{made: number % 3 for number, (made, _) in enumerate(made_files(checkpoint))}}
    real = GoldenRequest._greedy

    def greedy(request, asked, golden, *given):
        path = golden.image_path or golden.audio_path
        return real(request, asked, golden, *given)[0][: clear[path]], "two are close"

    monkeypatch.setattr(GoldenRequest, "_greedy", greedy)
    request = GoldenRequest(checkpoint, FP32)
    found = request.answer()
    assert (f"golden-2.{ending}", 2) == (found.image_path or found.audio_path, len(found.token_ids))
    assert (True, False) == (f"golden-2.{ending}" in request.files, own in request.files)
    asked = replace(checkpoint, golden=found, files=request.files)
    check_golden(asked, found, torch_run(graphs_of(checkpoint, FP32)), FP32)
    with pytest.raises(ExportError, match=r"give another (picture|question|recording) with --golden"):
        GoldenRequest(checkpoint, FP32, may_make=False).answer()


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate", "tiny-caption", "tiny-rnn", "tiny-t5"])
def test_a_golden_answer_takes_two_passes(name, monkeypatch):
    """Behind its first token, an answer is drafted over caches and computed once: not once for each token."""
    checkpoint = CHECKPOINTS[name]()
    one_by_one = GoldenRequest(checkpoint, FP32)
    monkeypatch.setattr(one_by_one, "_ahead", lambda *given: GoldenRequest._ahead(one_by_one, *given[:-1], 1))
    expected = one_by_one.answer()
    passes = []
    real = golden_module.next_logits
    monkeypatch.setattr(golden_module, "next_logits", lambda *given: passes.append(given) or real(*given))

    assert expected == GoldenRequest(checkpoint, FP32).answer()
    assert len(expected.token_ids) > 2 >= len(passes)


def test_parts_of_a_golden_text_keep_its_prefix():
    """A text that begins with a prefix of the model does so in all its parts; a single word is cut into letters."""
    checkpoint = CHECKPOINTS["tiny-t5"]()
    prefix = checkpoint.text.prefixes[0]
    for text, expected in (("a b c", {"a b", "a", "b c", "c"}), ("abc", {"ab", "a", "bc", "c"}), ("a", set())):
        checkpoint.golden.text = prefix + text
        assert {prefix + part for part in expected} == {part.text for part in parts_of(checkpoint)}


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-image"])
def test_a_model_whose_answer_is_no_number_is_named(name):
    """NaN in a weight that the golden request meets is the checkpoint's fault, and no close call."""
    checkpoint = CHECKPOINTS[name]()
    next(checkpoint.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(CheckpointError, match="the golden request is not finite: look for NaN"):
        GoldenRequest(checkpoint, FP32).answer()


@pytest.mark.parametrize("name", ["tiny-generate", "tiny-translate", "tiny-image", "tiny-tags"])
def test_golden_answer_of_other_graphs_is_refused(name):
    """Graphs that answer the golden request as torch did pass, and a golden answer of another model is refused."""
    checkpoint = CHECKPOINTS[name]()
    golden, run = GoldenRequest(checkpoint, FP32).answer(), torch_run(graphs_of(checkpoint, FP32))
    check_golden(checkpoint, golden, run, FP32)

    if golden.probabilities:
        golden.probabilities[0] += 2 * GOLDEN_TOLERANCE[FP32]
    else:
        golden.token_ids[0] += 1
    with pytest.raises(ExportError, match="the golden answer of the graphs differs"):
        check_golden(checkpoint, golden, run, FP32)


def test_a_bundle_has_the_file_that_was_asked(tmp_path, monkeypatch):
    """Where a made picture stands in for the golden one, the bundle holds it in its place, and the export says so."""
    real = GoldenRequest._greedy

    def greedy(request, asked, golden, *given):
        return real(request, asked, golden, *given) if golden.image_path == "golden-3.png" else ([], "two are close")

    monkeypatch.setattr(GoldenRequest, "_greedy", greedy)
    bundle, notes = tmp_path / "models" / "m" / "1", []
    source = save_tiny("tiny-caption", tmp_path / "checkpoint")
    manifest = export_checkpoint(
        source, bundle, ExportOptions(no_explain=True, no_score=True), on_note=notes.append
    ).manifest
    assert ["golden-3.png"] == [path.name for path in bundle.glob("golden*")]
    assert "golden-3.png" == manifest.golden.image_path
    assert ["the golden request has no clear answer: the bundle has one that the exporter made"] == notes


def test_golden_text_must_fit():
    """A golden text without tokens, or with too many, is refused."""
    checkpoint = tiny_generate()
    for text, complaint in (("", "is blank"), (" \n", "is blank"), ("x" * 200, "has 2.. tokens")):
        checkpoint.golden.text = text
        with pytest.raises(CheckpointError, match=f"golden text {complaint}"):
            GoldenRequest(checkpoint, FP32).answer()


@pytest.mark.parametrize("text", ["the big dog", "translate : "])
def test_a_golden_text_has_a_prefix_of_the_model(text):
    """A server refuses a text without one, or with nothing behind it; so does the exporter."""
    checkpoint = CHECKPOINTS["tiny-t5"]()
    checkpoint.golden.text = text
    with pytest.raises(CheckpointError, match="golden text"):
        GoldenRequest(checkpoint, FP32).answer()


def test_a_start_may_be_an_end_too():
    """Some decoders begin with their end token; what was given does not end the answer."""
    checkpoint = CHECKPOINTS["tiny-translate"]()
    wanted = list(GoldenRequest(checkpoint, FP32).answer().token_ids)
    checkpoint.text.end_ids.append(checkpoint.text.start_id)

    assert wanted == list(GoldenRequest(checkpoint, FP32).answer().token_ids)


def test_a_golden_text_that_cannot_be_tokenized_is_named():
    """An unknown word, and no token for such."""
    checkpoint = CHECKPOINTS["tiny-text"]()
    strict = Tokenizer(models.WordLevel({"the": 0}, unk_token="none")).to_str().encode()
    with pytest.raises(CheckpointError, match="the golden text cannot be tokenized"):
        GoldenRequest(
            replace(checkpoint, files={**checkpoint.files, checkpoint.text.source_tokenizer: strict}), FP32
        ).answer()


def test_a_tokenizers_own_limits_do_not_reach_the_golden_request():
    """A file that pads to 16 and cuts at 2 is read as a server reads it: neither."""
    checkpoint = CHECKPOINTS["tiny-text"]()
    name = checkpoint.text.source_tokenizer
    padding = Tokenizer.from_buffer(checkpoint.files[name])
    padding.enable_padding(length=16)
    padding.enable_truncation(2)
    padded = replace(checkpoint, files={**checkpoint.files, name: padding.to_str().encode()})

    assert GoldenRequest(checkpoint, FP32).answer() == GoldenRequest(padded, FP32).answer()


def _encode(checkpoint):
    tokenizer = Tokenizer.from_buffer(checkpoint.files["tokenizer.json"])
    return tokenizer.encode(checkpoint.golden.text).ids
