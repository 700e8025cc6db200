"""The quality gate of models that fill masks, that extract answers, and that give several labels at once."""

import asyncio
import base64
from dataclasses import replace

import pytest
import torch
from test_quality import read_lines, run_of
from tiny import CHECKPOINTS, save_tiny
from tiny_masks import MASK
from tiny_parts import picture
from typer.testing import CliRunner

from loaded import Loaded, ask
from weft_export.__main__ import export_app
from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_export.checkpoints.held_out import Example
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import examples_of
from weft_export.graphs.answering import values
from weft_export.quantization.effects import there_and_back
from weft_export.quantization.integer_products import quantised
from weft_export.quantization.requests import held_out_requests
from weft_export.verification.quality import best_answer, chance_of, check_quality, score_of
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

MASKED = [f"the {MASK} eats", f"a {MASK} sees the {MASK} and", f"{MASK} bird", f"big {MASK} {MASK} here {MASK}"]
QUESTIONS = ["the cat eats", "a bird", "you or they"]
CONTEXTS = ["the big dog eats and the cat finds a red house", "we see  a small tree here and not a bird", "green"]
ASKED = [(question, context) for question in QUESTIONS for context in CONTEXTS]


def scored(checkpoint, examples):
    """The score of a checkpoint's own modules."""
    with torch.inference_mode():
        return score_of(run_of(checkpoint), checkpoint, examples, checkpoint.scored_by)


def asked_of(bundle, requests):
    """What a server answers to requests."""

    async def run():
        async with Loaded(bundle) as model:
            return [await ask(model, **request) for request in requests]

    return asyncio.run(run())


def test_the_first_filling_of_each_mask_counts(tiny_repository, tmp_path):
    """What a server puts first is right, in texts with any number of masks; of seven masks each is a seventh."""
    checkpoint = CHECKPOINTS["tiny-masks"]()
    answers = asked_of(tiny_repository / "tiny-masks" / "1", [{"text": text, "top_k": 2} for text in MASKED])
    best, second = ([[mask.fillings[n].text for mask in answer.masks] for answer in answers] for n in (0, 1))
    lines = [{"input": text, "reference": tokens} for text, tokens in zip(MASKED, best, strict=True)]
    assert 1 == scored(checkpoint, read_lines(lines, checkpoint, tmp_path))
    lines[1]["reference"] = [best[1][0], second[1][1]]
    examples = read_lines(lines, checkpoint, tmp_path)
    assert pytest.approx(6 / 7) == scored(checkpoint, examples)
    # They stand in the requests that rounding is measured with.
    positions = [source[2].tolist() for source, _ in held_out_requests(checkpoint, examples)]
    assert [[[2]], [[2, 5]], [[1]], [[2, 3, 5]]] == positions


def test_the_first_answer_counts(tiny_repository, tmp_path):
    """What a server answers first is right, and what it answers next is not."""
    checkpoint = CHECKPOINTS["tiny-extract"]()
    requests = [{"question": question, "context": context, "top_k": 2} for question, context in ASKED]
    answers = [answer.answers for answer in asked_of(tiny_repository / "tiny-extract" / "1", requests)]

    def examples(rank):
        lines = [
            {
                "input": context,
                "question": question,
                "reference": [(each := found[min(rank, len(found) - 1)]).start, each.end],
            }
            for (question, context), found in zip(ASKED, answers, strict=True)
        ]
        return read_lines(lines, checkpoint, tmp_path)

    assert 1 == scored(checkpoint, examples(0))
    # One context has one word alone.
    assert pytest.approx(1 / 3) == scored(checkpoint, examples(1))
    assert 0 == chance_of(checkpoint, examples(0), checkpoint.scored_by)


@pytest.mark.parametrize("num_tokens", [1, 2, 29, 30, 31, 70])
def test_the_best_answer_is_that_of_all_that_count(num_tokens):
    """Of all places of 1 to 30 tokens, that with the largest sum of the scores of its ends."""
    for seed in range(20):
        starts, ends = torch.randn(2, num_tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        spans = [(first, last) for first in range(num_tokens) for last in range(first, min(first + 30, num_tokens))]
        assert max(spans, key=lambda span: float(starts[span[0]] + ends[span[1]])) == best_answer(starts, ends)


def test_a_long_context_takes_memory_by_its_length():
    """No tensor has more than the answers that count: 30 for each token."""
    scores = torch.randn(2, 4096, dtype=torch.float64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        best_answer(*scores)
    assert 4096 * 30 * 8 >= max(event.self_cpu_memory_usage for event in seen.events())


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        ([["1"], ["1"], ["1", "7"], ["2"]], 2 * 3 / (4 + 5)),
        ([["1", "7"], ["7", "1"], ["1", "7"]], 1.0),  # two labels, always both
        ([["1", "7"], ["1", "7"], ["2"], []], 2 * 4 / (2 * 4 + 5)),
        ([[], []], 0.0),
    ],
)
def test_chance_of_several_labels_is_always_the_same_ones(references, expected):
    """As many of them as score most: a model that gives these labels to every input says nothing."""
    checkpoint = CHECKPOINTS["tiny-clip"]()
    examples = [Example(torch.zeros(1), reference) for reference in references]
    assert expected == pytest.approx(chance_of(checkpoint, examples, "label_f1"))


def test_all_labels_that_are_right_count(tmp_path):
    """F1 over labels of 0.5 and more. Always the same label is chance."""
    checkpoint = CHECKPOINTS["tiny-clip"]()
    inputs = [base64.b64encode(picture(size, 18)).decode() for size in (10, 20, 40)]
    examples = read_lines([{"input": each, "reference": []} for each in inputs], checkpoint, tmp_path)
    with torch.inference_mode():
        rows = values(run_of(checkpoint), checkpoint, [each.source for each in examples])
    given = [
        [label for label, score in zip(checkpoint.labels, row.tolist(), strict=True) if score >= 0.5] for row in rows
    ]
    count = sum(map(len, given))
    assert count > 3
    lines = [{"input": each, "reference": labels} for each, labels in zip(inputs, given, strict=True)]
    assert 1 == scored(checkpoint, read_lines(lines, checkpoint, tmp_path))
    left = next(labels for labels in given if labels)
    left.pop()
    examples = read_lines(lines, checkpoint, tmp_path)
    assert pytest.approx(2 * (count - 1) / (2 * count - 1)) == scored(checkpoint, examples)
    assert 0 < chance_of(checkpoint, examples, checkpoint.scored_by) < 1


@pytest.mark.parametrize("name", ["tiny-masks", "tiny-extract"])
def test_rounding_is_measured_by_such_examples(name, tmp_path):
    """From a file to the figures of the manifest."""
    checkpoint = CHECKPOINTS[name]()
    lines = [{"input": text, "reference": ["cat"] * text.count(MASK)} for text in MASKED]
    if name == "tiny-extract":
        lines = [{"input": context, "question": question, "reference": [0, 3]} for question, context in ASKED]
    examples = read_lines(lines, checkpoint, tmp_path)
    # As exact as can be, and right about each example: so it is no question of luck.
    examples = [replace(each, reference=_own(checkpoint, each)) for each in examples]
    report = check_quality(checkpoint, run_of(checkpoint), run_of(checkpoint), examples)
    assert (1, 1, len(examples)) == (report.fp32_score, report.score, report.num_examples)
    assert 0 <= scored(quantised(checkpoint, examples), examples) <= 1


def _own(checkpoint, example):
    """What a checkpoint answers to an example."""
    with torch.inference_mode():
        (row,) = values(run_of(checkpoint), checkpoint, [example.source])
    if TASKS[checkpoint.task].fills_masks:
        return tuple(row.argmax(dim=-1).tolist())
    starts, ends = row[example.context.start : example.context.stop].unbind(dim=-1)
    spans = [(first, last) for first in range(len(starts)) for last in range(first, len(ends))]
    return max(spans, key=lambda span: float(starts[span[0]] + ends[span[1]]))


BAD = [
    ("tiny-masks", {"input": "the cat", "reference": []}, rf"the input has \{MASK} 0 times; 1 to 16 are needed"),
    ("tiny-masks", {"input": MASK, "reference": "cat"}, "the reference is no list of tokens"),
    ("tiny-masks", {"input": MASK, "reference": ["a", "cat"]}, "the reference has 2 tokens for 1 masks"),
    ("tiny-masks", {"input": MASK, "reference": ["a cat"]}, "'a cat' is not one token of the model's vocabulary"),
    ("tiny-extract", {"input": "the cat", "reference": [0, 3]}, "line 1: 'question' is missing"),
    ("tiny-extract", {"input": "the cat", "question": " ", "reference": [0, 3]}, "the question is blank"),
    ("tiny-extract", {"input": "the cat", "question": "a", "reference": "the"}, r"no place \[start, end\] of the"),
    ("tiny-extract", {"input": "the cat", "question": "a", "reference": [0, 8]}, "no place of an input of 7 char"),
    ("tiny-extract", {"input": "the cat", "question": "a", "reference": [3, 3]}, "no place of an input of 7 char"),
    ("tiny-extract", {"input": "the cat", "question": "a", "reference": [3, 4]}, r"\[3, 4\] has no token of the"),
    ("tiny-extract", {"input": "a [END] b", "question": "a", "reference": [0, 1]}, "spells the token that stands"),
    ("tiny-extract", {"input": "a " * 80, "question": "a", "reference": [0, 1]}, "have 84 tokens; the model takes 77"),
    ("tiny-clip", {"input": "", "reference": "1"}, "the reference is no list of labels"),
    ("tiny-clip", {"input": "", "reference": ["none"]}, "the reference's 'none' is not a label"),
    # Counted twice, it would make less of chance, and a model that says nothing would pass.
    ("tiny-clip", {"input": "", "reference": ["7", "1", "7"]}, "the reference has '7' twice"),
]


@pytest.mark.parametrize(("name", "line", "complaint"), BAD)
def test_a_bad_example_is_named(name, line, complaint, tmp_path):
    """A line that is no example for the model is refused by its number and its fault."""
    with pytest.raises(CheckpointError, match=complaint):
        read_lines([line], CHECKPOINTS[name](), tmp_path)


def test_values_have_no_right_answer(tmp_path):
    """Of a regression nothing counts as right: examples that are given are refused, and those beside it are left."""
    checkpoint, int8 = CHECKPOINTS["tiny-convnext"](), bundle_pb2.PRECISION_INT8
    (tmp_path / "lines").write_text('{"input": "", "reference": "1"}\n')
    with pytest.raises(ExportError, match="not for a model whose scores are values and no probabilities"):
        examples_of(checkpoint, int8, tmp_path / "lines", tmp_path / "none")
    assert [] == examples_of(checkpoint, int8, None, tmp_path / "lines")


@pytest.mark.parametrize("name", ["tiny-convnext", "tiny-match"])
def test_a_metric_for_answers_that_nothing_scores_is_refused(name):
    """Of a regression, and of a model that matches: the refusal says so, and names no metric in its place."""
    checkpoint = CHECKPOINTS[name]()
    with pytest.raises(CheckpointError, match=rf"^'metric' is not for {checkpoint.unscored}: nothing scores its ans"):
        replace(checkpoint, metric="accuracy")


def test_examples_beside_a_regression_are_left_and_the_export_says_so(tmp_path):
    """It does not say that they are missing, nor advises an option that it refuses."""
    directory = save_tiny("tiny-convnext", tmp_path / "checkpoint")
    (directory / HELD_OUT_FILE).write_text('{"input": "", "reference": "1"}\n')
    made = CliRunner().invoke(
        export_app, [str(directory), str(tmp_path / "models" / "1"), "--precision", "int8-weights", "--no-explain"]
    )
    why = "held-out examples are not for a model whose scores are values and no probabilities"
    assert f"quality not measured: {why}\n" in made.stdout


@pytest.mark.parametrize("name", ["tiny-extract", "tiny-clip", "tiny-convnext", "tiny-text"])
def test_what_changes_no_answer_has_no_gradient(name):
    """Where an answer starts is one choice among tokens: logits that all grow alike change nothing. So of a softmax.

    Of labels that are right or wrong by themselves, each counts.
    """
    checkpoint = CHECKPOINTS[name]()
    head = torch.zeros(len(checkpoint.labels), requires_grad=True)
    model = checkpoint.model
    forward = model.forward
    model.forward = lambda *source: forward(*source) + head
    source = (torch.tensor([[5, 6, 7, 8]]), torch.tensor([4], dtype=torch.int32))
    if checkpoint.image is not None:
        image = checkpoint.image
        source = (torch.randn(1, image.channels, image.height, image.width),)
    count = there_and_back(model, (source, []), torch.Generator().manual_seed(0), TASKS[checkpoint.task])
    assert {"tiny-extract": 2, "tiny-text": 1}.get(name, len(checkpoint.labels)) == count
    if checkpoint.task == common_pb2.TASK_EXTRACT:
        assert float(head.grad.abs().max()) < 1e-5
    elif name == "tiny-text":
        assert abs(float(head.grad.sum())) < 1e-5 < float(head.grad.abs().max())
    else:
        assert abs(float(head.grad.sum())) > 1e-3


@pytest.mark.parametrize("raised", [0, 20, -20])
def test_a_value_moves_alike_however_large_it_is(raised):
    """Of a regression, the gradient is that of a normal distribution around each value: of no chance to be right."""
    checkpoint = CHECKPOINTS["tiny-convnext"]()
    head = torch.full((len(checkpoint.labels),), float(raised), requires_grad=True)
    model, image = checkpoint.model, checkpoint.image
    forward = model.forward
    model.forward = lambda *source: forward(*source) + head
    source = (torch.zeros(1, image.channels, image.height, image.width),)
    there_and_back(model, (source, []), torch.Generator().manual_seed(0), TASKS[checkpoint.task])
    assert torch.randn(head.shape, generator=torch.Generator().manual_seed(0)).equal(head.grad)
