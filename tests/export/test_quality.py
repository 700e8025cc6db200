"""The quality gate of int8: what is scored, what passes, and what is refused."""

import base64
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from google.protobuf import json_format
from tiny import CHECKPOINTS, save_tiny
from tiny_parts import SOURCE_WORDS, picture
from tokenizers import Tokenizer, models
from typer.testing import CliRunner

from weft_export.__main__ import export_app
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_export.checkpoints.held_out import Example, read_held_out, write_held_out
from weft_export.checkpoints.spans import spans_of
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_export.errors import CheckpointError, ExportError, QualityError
from weft_export.export import export_checkpoint
from weft_export.graphs.answering import Row, reference_ids, torch_run, values, write
from weft_export.graphs.graphs import graphs_of
from weft_export.options import ExportOptions
from weft_export.quantization import choice
from weft_export.quantization.integer_products import quantised
from weft_export.verification import quality
from weft_export.verification.quality import MIN_SHARE, check_quality, score_of
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.manifest import _verify_quality

FP32 = bundle_pb2.PRECISION_FP32
TRAINED = Path(__file__).parents[2] / "export" / "checkpoints"
TEXTS = ["the big dog eats", "and or not", "bird", "here"]  # three of the labels, by tiny-text's word


def run_of(checkpoint):
    """Answer with a checkpoint's own modules."""
    return torch_run(graphs_of(checkpoint, FP32))


def read_lines(lines, checkpoint, directory):
    """Read held-out examples from objects, by a file."""
    file = directory / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_held_out(file, checkpoint)


def write_own_answers(checkpoint, texts, directory):
    """Write held-out examples whose references are what the checkpoint says at fp32."""
    examples = read_lines([{"input": text, "reference": checkpoint.labels[0]} for text in texts], checkpoint, directory)
    with torch.inference_mode():
        rows = values(run_of(checkpoint), checkpoint, [example.source for example in examples])
    write_held_out(directory, zip(texts, [checkpoint.labels[int(row.argmax())] for row in rows], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "en-es", "pydocs", "scenes", "tags", "topics"])
def test_demo_models_keep_their_quality(name):
    """Each demo model at int8 keeps MIN_SHARE of its score on its own held-out examples (here, on some of them)."""
    checkpoint = load_checkpoint(TRAINED / name)
    examples = read_held_out(TRAINED / name / HELD_OUT_FILE, checkpoint)[:100]
    report = check_quality(checkpoint, run_of(checkpoint), run_of(quantised(checkpoint, examples)), examples)

    assert len(examples) == report.num_examples
    assert MIN_SHARE * report.fp32_score <= report.score + 1e-9
    assert report.fp32_score > 0.25


def test_the_nearest_of_embedders_counts(tmp_path):
    """An example counts if the one that is nearest to it has its reference: the same text does, and itself never."""
    checkpoint = CHECKPOINTS["tiny-embed"]()
    lines = [{"input": text, "reference": name} for text in TEXTS[:2] for name in (text, text)]
    examples = read_lines([*lines, {"input": TEXTS[2], "reference": "alone"}], checkpoint, tmp_path)

    with torch.inference_mode():
        assert 4 / 5 == score_of(run_of(checkpoint), checkpoint, examples, checkpoint.scored_by)


def with_outliers(checkpoint):
    """Make one channel of what each product is given 10,000 times larger; what the model says at fp32 is the same."""
    for layer in checkpoint.model.encoder.layers:
        with torch.no_grad():
            for norm, linear in (
                (layer.attention_norm, layer.attention.qkv),
                (layer.feed_forward_norm, layer.feed_forward.up_proj),
            ):
                norm.weight[0] *= 1e4
                norm.bias[0] *= 1e4
                linear.weight[:, 0] /= 1e4
    return checkpoint


def test_a_model_that_rounding_ruins_is_refused(tmp_path, monkeypatch):
    """One huge channel leaves the others no levels where it is not smoothed: int8 is refused with both scores."""
    checkpoint = with_outliers(CHECKPOINTS["tiny-text"]())
    save_checkpoint(tmp_path / "checkpoint", checkpoint)
    words = ["the", "big", "small", "dog", "cat", "eats", "and", "finds", "house"]
    texts = [" ".join(words[(i * k) % len(words)] for k in range(1, 9)) for i in range(40)]
    write_own_answers(checkpoint, texts, tmp_path / "checkpoint")

    bundle = tmp_path / "models" / "topics" / "1"
    # Nothing is smoothed then, and nothing left in float32.
    monkeypatch.setattr(choice, "MAX_EFFECT", math.inf)
    refusal = r"int8 costs too much: accuracy 0\.\d+ on 40 .* 1\.0000 at fp32; 99% of"
    with pytest.raises(QualityError, match=refusal):
        export_checkpoint(tmp_path / "checkpoint", bundle, ExportOptions(precision="int8", no_explain=True))
    assert not (tmp_path / "models").exists()


def test_the_figure_is_in_the_manifest_and_on_the_command_line(tmp_path):
    """`weft export --precision int8 --held-out FILE` writes and prints what it measured; without a file it says so."""
    checkpoint = save_tiny("tiny-text", tmp_path / "checkpoint")
    (tmp_path / "other").mkdir()
    write_own_answers(CHECKPOINTS["tiny-text"](), TEXTS, tmp_path / "other")
    bundle, file = tmp_path / "topics" / "1", tmp_path / "other" / HELD_OUT_FILE

    arguments = [str(checkpoint), str(bundle), "--precision", "int8", "--no-explain"]
    made = CliRunner().invoke(export_app, [*arguments, "--held-out", str(file)])
    manifest = json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())
    assert "accuracy 1.0000 on 4 held-out examples, 1.0000 at fp32 (allowed 99% of it); fewer than 100" in made.stdout
    assert (
        bundle_pb2.Quality(metric="accuracy", score=1, fp32_score=1, num_examples=4, min_share=MIN_SHARE)
        == manifest.quality
    )
    assert bundle_pb2.PRECISION_INT8 == manifest.precision
    assert 1e-9 < manifest.parity.max_abs_error <= manifest.parity.tolerance

    plain = CliRunner().invoke(export_app, [*arguments, "--force"])
    manifest = json_format.Parse((bundle / "bundle.json").read_text(), bundle_pb2.BundleManifest())
    assert "quality not measured: the checkpoint has no held_out.jsonl" in plain.stdout
    assert not manifest.HasField("quality")


@pytest.mark.parametrize(("kept", "whole", "passes"), [(99, 100, True), (98, 100, False)])
def test_exactly_the_share_is_enough(kept, whole, passes, monkeypatch):
    """Of 104, 99 right where fp32 has 100 are 99 %, whatever floats say; one less is refused. A server agrees."""
    scores = iter([whole / 104, kept / 104])
    monkeypatch.setattr(quality, "score_of", lambda *_: next(scores))
    checkpoint, examples = CHECKPOINTS["tiny-tags"](), [None] * 104

    if passes:
        _verify_quality(check_quality(checkpoint, None, None, examples))
    else:
        with pytest.raises(QualityError, match="99% of that is needed"):
            check_quality(checkpoint, None, None, examples)


def test_a_model_no_better_than_chance_is_refused(tmp_path):
    """Of a score that guessing has too, rounding could keep all and the model be worthless."""
    checkpoint = CHECKPOINTS["tiny-text"]()
    write_own_answers(checkpoint, TEXTS, tmp_path)
    examples = read_held_out(tmp_path / HELD_OUT_FILE, checkpoint)
    wrong = [replace(each, reference=_other(checkpoint.labels, each.reference)) for each in examples]

    with pytest.raises(CheckpointError, match=r"say nothing: at fp32 accuracy is 0\.0000, and chance is 1\.0000"):
        check_quality(checkpoint, run_of(checkpoint), run_of(checkpoint), wrong)


@pytest.mark.parametrize(
    ("metric", "references", "expected"),
    [
        ("exact_match", ["el gato", "el gato", "el gato", "una casa", "y"], 0.5),
        ("exact_match", ["el gato"], 0),
        ("exact_match", ["el gato", "una casa"], 0),
        ("exact_match", ["el gato", "el gato"], 1),
        ("token_accuracy", ["el gato", "el", "el"], 2 / 6),  # three of el, three ends, one other
        ("accuracy", ["people", "people", "people", "animals"], 2 / 3),
        ("accuracy", ["people", "animals", "houses", "colours"], 1 / 4),
        ("span_f1", [set(), set()], 0),
    ],
)
def test_chance_is_always_the_same_answer(metric, references, expected):
    """What the commonest answer of the other examples would score; of labels at least what guessing does."""
    checkpoint = CHECKPOINTS["tiny-text" if metric == "accuracy" else "tiny-translate"]()
    examples = [Example(torch.tensor([5]), reference) for reference in references]

    assert expected == pytest.approx(quality.chance_of(checkpoint, examples, metric))


@pytest.mark.parametrize("metric", ["token_accuracy", "exact_match"])
def test_an_untrained_writer_is_refused(metric, tmp_path):
    """A random model hits some tokens by luck; the commonest token of the references would hit more."""
    checkpoint = replace(CHECKPOINTS["tiny-translate"](), metric=metric)
    lines = [
        {"input": f"the {one} {two}", "reference": f"el {one} {two}"}
        for one in SOURCE_WORDS
        for two in SOURCE_WORDS[:3]
    ]
    examples = read_lines(lines, checkpoint, tmp_path)

    with pytest.raises(CheckpointError, match=rf"say nothing: at fp32 {metric} is 0\.\d+, and chance is 0\."):
        check_quality(checkpoint, run_of(checkpoint), run_of(checkpoint), examples)


def _other(labels, label):
    return next(each for each in labels if each != label)


def test_held_out_examples_are_for_int8(tmp_path):
    """Another precision refuses --held-out instead of ignoring it."""
    checkpoint = save_tiny("tiny-text", tmp_path / "checkpoint")
    with pytest.raises(ExportError, match="held-out examples are for int8"):
        export_checkpoint(checkpoint, tmp_path / "topics" / "1", ExportOptions(held_out=tmp_path / "file"))


@pytest.mark.parametrize(
    ("name", "line", "complaint"),
    [
        ("tiny-text", {"input": "the dog"}, "line 1: 'reference' is missing"),
        ("tiny-text", [1], 'line 1: it is no object with "input" and "reference"'),
        ("tiny-text", "the dog", 'line 1: it is no object with "input" and "reference"'),
        ("tiny-tags", {"input": "the dog", "reference": 5}, "the reference is no list of spans"),
        ("tiny-tags", {"input": "the dog", "reference": [["X", float("inf"), 3]]}, "line 1: cannot convert float inf"),
        ("tiny-image", {"input": 5, "reference": "1"}, "line 1: argument should be a bytes-like object"),
        ("tiny-text", {"input": "the dog", "reference": "nothing"}, "'nothing' is not a label"),
        ("tiny-text", {"input": "dog " * 99, "reference": "people"}, "the input has 100 tokens"),
        ("tiny-image", {"input": "not base64!", "reference": "1"}, "line 1"),
        (
            "tiny-image",
            {"input": "aGVsbG8=", "reference": "1"},
            "line 1: the input is not a PNG, JPEG or WebP picture$",
        ),
        ("tiny-tags", {"input": "the dog", "reference": [["X", 1]]}, "the reference is no list of spans"),
        ("tiny-tags", {"input": "the dog", "reference": [["nowhere", 0, 3]]}, "'nowhere' is not a kind"),
        ("tiny-translate", {"input": "the dog", "reference": 3}, "is not a text"),
        ("tiny-translate", {"input": ["the", "dog"], "reference": "a"}, "the input is not a text"),
        ("tiny-translate", {"input": " ", "reference": "a"}, "the input is blank"),
        ("tiny-t5", {"input": "the dog", "reference": "a"}, "the input must begin with one of text.prefixes"),
    ],
)
def test_a_bad_example_is_named(name, line, complaint, tmp_path):
    """A line that is no example for the model is refused by its number and its fault."""
    with pytest.raises(CheckpointError, match=complaint):
        read_lines([line], CHECKPOINTS[name](), tmp_path)


def test_a_line_nested_deeply_is_named(tmp_path):
    """Brackets upon brackets are the line's fault."""
    (tmp_path / "lines").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="line 1: maximum recursion depth exceeded"):
        read_held_out(tmp_path / "lines", CHECKPOINTS["tiny-text"]())


def test_a_pipe_beside_a_checkpoint_is_refused(tmp_path):
    """Examples that nobody asked for by name are a file; a pipe would be waited for, for ever."""
    checkpoint = save_tiny("tiny-text", tmp_path / "checkpoint")
    os.mkfifo(checkpoint / HELD_OUT_FILE)
    with pytest.raises(CheckpointError, match=r"held_out\.jsonl is not a regular file"):
        export_checkpoint(checkpoint, tmp_path / "topics" / "1", ExportOptions(precision="int8"))


def test_a_picture_of_too_many_pixels_is_named(tmp_path, monkeypatch):
    """Pillow's own limit raises what is no OSError."""
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 4)
    line = {"input": base64.b64encode(picture(8, 8)).decode(), "reference": "1"}
    with pytest.raises(CheckpointError, match="line 1: the input is not a PNG, JPEG or WebP picture: Image size"):
        read_lines([line], CHECKPOINTS["tiny-image"](), tmp_path)


def test_what_cannot_be_written_in_tokens_is_named(tmp_path):
    """A reference with a word that the target tokenizer has no token for, or one that the model has not."""
    checkpoint = CHECKPOINTS["tiny-translate"]()
    (example,) = read_lines([{"input": "the dog", "reference": "una moto"}], checkpoint, tmp_path)
    with pytest.raises(CheckpointError, match="the reference 'una moto' cannot be tokenized"):
        reference_ids(checkpoint, Tokenizer(models.WordLevel({"una": 0}, unk_token="none")), example)
    beyond = Tokenizer(models.WordLevel({"una moto": checkpoint.text.target_vocab_size}, unk_token="none"))
    with pytest.raises(CheckpointError, match="'una moto' has the token"):
        reference_ids(checkpoint, beyond, example)


def test_a_line_ends_where_json_says(tmp_path):
    """Line separators of Unicode stand in a text as they are, and the example is read back."""
    checkpoint = CHECKPOINTS["tiny-translate"]()
    write_held_out(tmp_path, [("the dog", "uno\u2028dos\x85tres"), ("the cat", "\n")])
    examples = read_held_out(tmp_path / HELD_OUT_FILE, checkpoint)

    assert ["uno\u2028dos\x85tres", "\n"] == [example.reference for example in examples]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(value):
    """A NaN would be rounded to 0 by torch and by the graph alike, and no comparison would see it."""
    checkpoint = CHECKPOINTS["tiny-text"]()
    checkpoint.model.encoder.layers[0].attention.qkv.weight.data[0, 3] = value
    with pytest.raises(CheckpointError, match=r"layers\.0\.attention\.qkv\.weight has a weight that is not finite"):
        quantised(checkpoint)


def test_no_examples_are_refused(tmp_path):
    """A file without examples, or that is not there, is refused."""
    checkpoint = CHECKPOINTS["tiny-text"]()
    with pytest.raises(CheckpointError, match="has no examples"):
        read_lines([], checkpoint, tmp_path)
    with pytest.raises(CheckpointError, match="cannot read"):
        read_held_out(tmp_path / "missing", checkpoint)


@pytest.mark.parametrize("name", ["tiny-translate", "tiny-generate", "tiny-rnn", "tiny-caption"])
def test_answers_are_greedy(name):
    """What the graphs write step by step is what a recomputation gives."""
    checkpoint = CHECKPOINTS[name]()
    source = torch.tensor([5, 6, 7])
    if checkpoint.image is not None:
        source = torch.randn(3, checkpoint.image.height, checkpoint.image.width)
    starts = checkpoint.text.HasField("start_id")
    rows = [Row(source, [checkpoint.text.start_id]) if starts else Row(None, source.tolist()) for _ in range(2)]
    with torch.inference_mode():
        write(run_of(checkpoint), checkpoint, rows, 6)
        given = 1 if starts else 3
        taken = source[None] if source.dim() > 1 else (source[None], torch.tensor([3], dtype=torch.int32))
        taken = (taken,) if isinstance(taken, torch.Tensor) else taken
        logits = checkpoint.model.decode(torch.tensor([rows[0].tokens[:-1]]), *(taken if starts else ()))[0]

    assert rows[0].tokens == rows[1].tokens
    assert logits.argmax(dim=-1)[given - 1 :].tolist() == rows[0].tokens[given:]
    assert logits.argmax(dim=-1).tolist() == rows[0].guesses[: len(logits)]


@pytest.mark.parametrize("name", ["tiny-translate", "tiny-generate", "tiny-rnn"])
def test_its_own_answers_score_one(name):
    """A model's own greedy answer is an exact match, and another text is none; each of its tokens is the likeliest."""
    checkpoint = CHECKPOINTS[name]()
    text, source, run = checkpoint.text, torch.tensor([5, 6, 7]), run_of(checkpoint)
    starts = text.HasField("start_id")
    row = Row(source, [text.start_id]) if starts else Row(None, source.tolist())
    with torch.inference_mode():
        write(run, checkpoint, [row], text.max_new_tokens)
        written = row.tokens[1 if starts else 3 :]
        target = Tokenizer.from_buffer(checkpoint.files[text.target_tokenizer])
        own, start = (target.decode(tokens) for tokens in (written, written[:6]))
        examples = [Example(source, own), Example(source, own + " x")]

        assert 1.0 == score_of(run, checkpoint, examples[:1], "exact_match")
        assert 0.5 == score_of(run, checkpoint, examples, "exact_match")
        if starts:  # the other writes bytes that are no text; here an end token is wanted after the six, and not given
            assert 6 / 7 == score_of(run, checkpoint, [Example(source, start)], "token_accuracy")


def test_spans_are_scored_by_f1(tmp_path):
    """A tagger's own spans score 1; as many others beside them, which it does not give, cost a third."""
    checkpoint = CHECKPOINTS["tiny-tags"]()
    run, text = run_of(checkpoint), "we see you and they here"
    (example,) = read_lines([{"input": text, "reference": []}], checkpoint, tmp_path)
    with torch.inference_mode():
        (row,) = values(run, checkpoint, [example.source])
        tokenizer = read_tokenizer(checkpoint, checkpoint.text.source_tokenizer)
        own = spans_of([checkpoint.labels[index] for index in row.argmax(dim=-1).tolist()], text, tokenizer)
        assert own
        others = [(own[0][0], index, index + 99) for index in range(len(own))]
        for wanted, f1 in ((own, 1), (own + others, 2 / 3), (others, 0)):
            examples = read_lines([{"input": text, "reference": wanted}], checkpoint, tmp_path)
            assert f1 == pytest.approx(score_of(run, checkpoint, examples, "span_f1"))
