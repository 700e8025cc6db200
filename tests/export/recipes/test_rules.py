"""Prompts of examples: what the rules make of words, who is held out, and what a model is taught."""

import pytest

from weft_recipes.few_shot import CONTEXT, END, IGNORED, LONGEST, MAX_SHOTS, character_tokenizer, lesson
from weft_recipes.texts.rules import LENGTHS, RULES, Task, Tasks, answer, is_held_out


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("reverse", "kood"), ("upper case", "DOOK"), ("capital", "Dook"), ("twice", "dookdook"), ("first letter", "d"),
        ("add s", "dooks"), ("drop the last", "doo"), ("hide vowels", "d--k"), ("hyphens", "d-o-o-k"),
        ("hide the second", "d-ok"), ("vowels in capitals", "dOOk"), ("second in capitals", "dOok"),
        ("stutter", "ddook"),
    ],
)  # fmt: skip
def test_rules(rule, expected):
    """Each rule makes of a word what its name says."""
    assert expected == answer(rule, "dook")


def test_letters_know_their_origin():
    """A letter that is made of one of the word's is that letter, in lower or upper case, or the sign that hides it."""
    for rule, spell in RULES.items():
        for letter, origin in spell("moist"):
            assert origin is None or letter.lower() == "moist"[origin] or (rule.startswith("hide") and letter == "-")


def test_prompts_end_with_the_question():
    """A prompt is word and answer for each example, then the last word alone."""
    assert "cat:tac dog:god sun:" == Task("reverse", ("cat", "dog", "sun")).prompt
    assert "sun:" == Task("reverse", ("sun",)).prompt


@pytest.mark.parametrize("held_out", [False, True])
def test_tasks_keep_to_their_part(held_out):
    """All words of a task, examples included, are of the wanted part, of one length, and different."""
    tasks = Tasks(3, held_out=held_out, random_share=0.0 if held_out else 0.5)
    for _ in range(200):
        words = tasks.draw(MAX_SHOTS).words

        assert {held_out} == {is_held_out(word) for word in words}
        assert 1 == len({len(word) for word in words})
        assert MAX_SHOTS + 1 == len(set(words))


def test_a_lesson_teaches_answers_and_their_end():
    """Labels are, at each token, the answer's token that follows, END after its last, and nothing anywhere else."""
    tokenizer = character_tokenizer()
    ids, labels = lesson(Task("reverse", ("cat", "dog")), tokenizer)

    assert "cat:tac dog:god " == tokenizer.decode(ids)
    taught = [tokenizer.id_to_token(label) if label != IGNORED else "" for label in labels]
    assert [*["", "", "", "t", "a", "c", "<end>", ""], *["", "", "", "g", "o", "d", "<end>", ""]] == taught
    assert END == labels[6]


def test_every_prompt_and_answer_fits():
    """The longest task of any rule and length fits the context, its answer LONGEST, and knows all its characters."""
    tokenizer = character_tokenizer()
    for rule in RULES:
        words = tuple(letter * max(LENGTHS) for letter in "abcdefgh"[: MAX_SHOTS + 1])
        ids, _ = lesson(Task(rule, words), tokenizer)

        assert len(ids) <= CONTEXT
        assert len(answer(rule, words[0])) + 1 <= LONGEST
        assert tokenizer.token_to_id("<unknown>") not in ids
