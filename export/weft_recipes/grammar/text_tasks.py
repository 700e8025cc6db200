"""Three tasks over the facts of the grammar, each told by a prefix: to translate, to summarise, to name the topic."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from weft_recipes.grammar.facts import TOPICS, Fact, FactSampler

TRANSLATE, SUMMARISE, TOPIC = "translate English to Spanish: ", "summarise: ", "topic: "


@dataclass(frozen=True, slots=True)
class Example:
    """A text and its answer, in words; alignment holds for each word of the answer the indices of its source words.

    Indices count the words after the prefix.
    """

    prefix: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    alignment: tuple[tuple[int, ...], ...]

    @property
    def text(self) -> str:
        """What a request would say."""
        return self.prefix + " ".join(self.source).replace(" .", ".") + "."


def translate(sampler: FactSampler, *, held_out: bool) -> Example:
    """Draw a fact in English, to be told in Spanish."""
    fact = sampler.draw(sampler.rng.choice(list(TOPICS)), held_out=held_out)
    return Example(TRANSLATE, fact.pair.en, fact.pair.es, fact.pair.alignment)


def summarise(sampler: FactSampler, *, held_out: bool) -> Example:
    """Draw a story, whose summary is its first sentence without adjectives, places and times."""
    facts = _story(sampler, held_out=held_out)
    return Example(SUMMARISE, _told(facts), tuple(facts[0].summary), tuple((index,) for index in facts[0].gist))


def name_topic(sampler: FactSampler, *, held_out: bool) -> Example:
    """Draw a story, whose topic is what two of its sentences are about."""
    facts = _story(sampler, held_out=held_out)
    topics = [fact.topic for fact in facts]
    topic = max(topics, key=topics.count)
    starts = [sum(len(fact.pair.en) + 1 for fact in facts[:i]) for i in range(len(facts))]
    objects = [start + fact.object_index for start, fact in zip(starts, facts, strict=True) if fact.topic == topic]
    words = tuple(topic.split())
    return Example(TOPIC, _told(facts), words, (tuple(objects),) * len(words))


TASKS: dict[str, Callable[..., Example]] = {TRANSLATE: translate, SUMMARISE: summarise, TOPIC: name_topic}


def examples(prefix: str, count: int, seed: int, *, held_out: bool) -> list[Example]:
    """Draw examples of the task of a prefix; each of their combinations is held out from training, or none is."""
    sampler = FactSampler(random.Random(f"{prefix}{seed}"))  # noqa: S311  (sentences, not secrets)
    return [TASKS[prefix](sampler, held_out=held_out) for _ in range(count)]


def _story(sampler: FactSampler, *, held_out: bool) -> list[Fact]:
    """Draw two facts about one topic and, in half of the stories, a third about another, in any order."""
    topic, other = sampler.rng.sample(list(TOPICS), 2)
    topics = [topic, topic, other] if sampler.rng.random() < 0.5 else [topic, topic]
    sampler.rng.shuffle(topics)
    return [sampler.draw(topic, held_out=held_out) for topic in topics]


def _told(facts: list[Fact]) -> tuple[str, ...]:
    words: list[str] = []
    for fact in facts:
        words += [".", *fact.pair.en]
    return tuple(words[1:])
