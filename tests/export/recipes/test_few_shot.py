"""The few-shot checkpoint learns from its prompt, and its card says how well."""

import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from weft_export.checkpoints.directory import load_checkpoint
from weft_recipes import few_shot
from weft_recipes.texts.rules import RULES, Tasks, answer

DIRECTORY = Path(__file__).parents[3] / "export" / "checkpoints" / "few-shot"


@pytest.fixture(scope="module")
def complete():
    """Return a function from prompts to the model's answers."""
    checkpoint = load_checkpoint(DIRECTORY)
    tokenizer = Tokenizer.from_buffer(checkpoint.files["tokenizer.json"])

    def answers(*prompts):
        ids = [tokenizer.encode(prompt).ids for prompt in prompts]
        return [tokenizer.decode(row) for row in few_shot.continue_greedily(checkpoint.model, ids)]

    return answers


def test_the_same_question_has_the_answer_that_the_examples_show(complete):
    """The prompt's examples alone decide what becomes of a word."""
    prompts = ("cat:tac dog:god sun:", "cat:CAT dog:DOG sun:", "cat:ccat dog:ddog sun:", "cat:c-t end:e-d ant:")
    assert ["nus", "SUN", "ssun", "a-t"] == complete(*prompts)


def test_more_examples_are_better(complete):
    """On held-out words, answers are mostly wrong without an example and mostly right after four of any rule."""
    tasks, right = Tasks(99, held_out=True), {0: [], few_shot.MAX_SHOTS: []}
    for num_shots, hits in right.items():
        for rule in RULES:
            drawn = [tasks.draw(num_shots, [rule]) for _ in range(20)]
            given = complete(*(task.prompt for task in drawn))
            hits.append(sum(text == answer(rule, task.words[-1]) for text, task in zip(given, drawn, strict=True)))

    assert sum(right[0]) / len(RULES) < 5
    assert min(right[few_shot.MAX_SHOTS]) >= 15
    assert sum(right[few_shot.MAX_SHOTS]) / len(RULES) >= 19


def test_the_card_states_figures_that_grow():
    """The card has a share of right answers for each number of examples, each better than the one before."""
    card = (DIRECTORY / "README.md").read_text()
    figures = [
        float(share) for share in re.findall(r"^\| right answers, \d examples \| ([\d.]+) \|$", card, re.MULTILINE)
    ]

    assert 4 == len(figures)
    assert sorted(figures) == figures
    assert figures[-1] >= 0.95
