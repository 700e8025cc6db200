"""The three tasks of the text-to-text recipe, and the checkpoint it made."""

import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from weft_export.checkpoints.directory import load_checkpoint
from weft_recipes import text_to_text
from weft_recipes.grammar.facts import TOPICS, FactSampler
from weft_recipes.grammar.lexicon import NOUNS
from weft_recipes.grammar.text_tasks import SUMMARISE, TASKS, TOPIC, TRANSLATE, examples
from weft_recipes.shared.vocabulary import END

CHECKPOINT = Path(__file__).parents[3] / "export" / "checkpoints" / "text-to-text"
KIND = {form: noun.kind for noun in NOUNS for form in (noun.en, noun.plural) if form}


@pytest.mark.parametrize("held_out", [False, True])
def test_facts_are_of_the_part_and_topic_asked_for(held_out):
    """A fact's combination is held out from training or not, as asked, and its object is of a kind of the topic."""
    sampler = FactSampler(random.Random(0))
    for topic, kinds in TOPICS.items():
        fact = sampler.draw(topic, held_out=held_out)

        assert (held_out, topic) == (fact.pair.held_out, fact.topic)
        assert KIND[fact.pair.en[fact.object_index]] in kinds


@pytest.mark.parametrize("prefix", TASKS)
def test_examples_are_drawn_anew_and_alike(prefix):
    """A seed gives the same examples again; the parts to train and to measure on have no text in common."""
    trained, again = (examples(prefix, 300, 5, held_out=False) for _ in range(2))
    held_out = examples(prefix, 50, 5, held_out=True)

    assert trained == again
    assert not {example.text for example in trained} & {example.text for example in held_out}
    assert all(example.text.startswith(prefix) for example in (*trained, *held_out))


def test_a_summary_is_the_first_sentence_without_details():
    """A summary's words are words of the first sentence in order, but for "a" where an adjective began with a vowel."""
    shorter = 0
    for example in examples(SUMMARISE, 200, 1, held_out=False):
        end = example.source.index(".")
        indices = [index for (index,) in example.alignment]
        kept = [example.source[index] for index in indices]

        assert sorted(indices) == indices
        assert indices[-1] < end
        assert [word.removesuffix("n") if word == "an" else word for word in kept] == [
            word.removesuffix("n") if word == "an" else word for word in example.target
        ]
        shorter += len(indices) < end
    assert shorter > 100


def test_a_topic_is_what_two_sentences_are_about():
    """The words of a topic stand for two objects of its kinds; a third sentence is about another topic."""
    for example in examples(TOPIC, 200, 1, held_out=False):
        kinds = TOPICS[" ".join(example.target)]

        assert len(example.target) == len(example.alignment)
        for indices in example.alignment:
            assert 2 == len(indices)
            assert all(KIND[example.source[index]] in kinds for index in indices)
        assert 1 <= example.source.count(".") <= 2


@pytest.mark.parametrize("prefix", TASKS)
def test_every_word_is_one_token(prefix):
    """Source tokens are the prefix's words, the text's and the end; answers are read back as they were written."""
    told = examples(prefix, 100, 1, held_out=False)
    tokenizer = text_to_text.tokenizer_of(told)
    for example, row in zip(told, text_to_text.encode(tokenizer, told), strict=True):
        assert len(prefix.split()) + 1 + len(example.source) + 1 == len(row.source)
        assert END == row.source[-1] == row.target[-1]
        assert " ".join(example.target) == tokenizer.decode(row.target)
        for indices, aligned in zip(row.alignment, example.alignment, strict=False):
            words = [tokenizer.id_to_token(row.source[index]).removeprefix("▁") for index in indices]
            assert [example.source[index] for index in aligned] == words


def test_the_checkpoint_does_all_three():
    """On held-out combinations the committed weights translate, summarise and name topics as the card says."""
    checkpoint = load_checkpoint(CHECKPOINT)
    tokenizer = Tokenizer.from_str(checkpoint.files["tokenizer.json"].decode())
    assert list(TASKS) == list(checkpoint.text.prefixes)

    def share_right(prefix):
        told = examples(prefix, 150, 99, held_out=True)
        answers = text_to_text.answer(checkpoint.model, tokenizer, [example.text for example in told])
        return np.mean([said == " ".join(example.target) for said, example in zip(answers, told, strict=True)])

    assert share_right(TRANSLATE) >= 0.83
    assert share_right(SUMMARISE) >= 0.9
    assert share_right(TOPIC) >= 0.88
    asked = TRANSLATE + "We are eating bread."
    assert ["estamos comiendo pan"] == text_to_text.answer(checkpoint.model, tokenizer, [asked])
