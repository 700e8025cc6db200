"""What is asked of every system: the workloads and their requests, the same ones for all. Standard library only."""

import random
from dataclasses import dataclass

VOCAB = {"translation": 32_000, "llama": 32_000, "bert": 30_522}
FIRST_WORD = 4  # the ids below are padding, unknown, start and end
NUM_IMAGES = 16
NUM_SOUNDS = 8
# What texts are made of; a tokenizer of word pieces cuts some of them.
_TEXT = """
the of and to in a is was for on with as by at from it an be this that are which or were after their its one two
first new city people world year time government company system water music language university president river
mountain railway parliament scientist chemistry photosynthesis infrastructure encyclopedia transportation museum
described published established increasing agricultural northern ancient modern economic orchestra battlefield
quickly however between because during several many large small population temperature architecture Shakespeare
"""


def seconds_of(number):
    """How long the recording <number>.wav is: 5 to 26 seconds."""
    return 5 + 3 * number


@dataclass(frozen=True)
class Workload:
    """Requests of one kind for one shape of weights; lengths are drawn evenly, both ends included, in tokens.

    in_flight: how many requests may be in a system at once; a workload is measured with each of them.
    num_beams: how many beams search for an answer; 1 is greedy.
    num_texts: how many texts a request has, whose lengths are in words; 0: it has token ids or a picture.
    """

    name: str
    shape: str
    what: str
    in_flight: tuple[int, ...]
    inputs: tuple[int, int] = (0, 0)
    new: tuple[int, int] = (0, 0)
    num_beams: int = 1
    num_texts: int = 0

    @property
    def unit(self):
        """What is counted."""
        if self.hears:
            return "sound_s_per_s"
        return "tokens_per_s" if self.writes else "texts_per_s" if self.num_texts else "requests_per_s"

    def amount(self, requests):
        """How many of these the requests are."""
        if self.hears:
            return sum(request["seconds"] for request in requests)
        if self.writes:
            return sum(request["num_new"] for request in requests)
        return len(requests) * max(1, self.num_texts)

    @property
    def hears(self):
        """Whether it is recordings that are written down, each as long as its words are many."""
        return self.shape == "whisper"

    @property
    def writes(self):
        """Whether an answer is text (forced to num_new tokens), not classes."""
        return self.new[1] > 0

    @property
    def max_input(self):
        """The longest source or prompt."""
        return self.inputs[1]

    @property
    def max_new(self):
        """The longest answer."""
        return self.new[1]

    def requests(self, number, seed=0):
        """The first `number` requests, always the same ones: see README.md for their keys."""
        drawn = random.Random(f"{self.name} {seed}")
        return [self._request(drawn, index) for index in range(number)]

    def _request(self, drawn, index):
        if self.hears:
            number = index % NUM_SOUNDS
            return {"sound": f"{number}.wav", "seconds": seconds_of(number)}
        if self.shape == "vit":
            return {"image": f"{index % NUM_IMAGES}.png"}
        if self.num_texts:
            lengths = [drawn.randint(*self.inputs) for _ in range(self.num_texts)]
            return {"texts": [" ".join(drawn.choices(_TEXT.split(), k=length)) for length in lengths]}
        length = drawn.randint(*self.inputs)
        # All drawn before anything else, so that the lengths asked for do not change the words.
        words = drawn.choices(range(FIRST_WORD, VOCAB[self.shape]), k=self.max_input)
        request = {"ids": words[:length]}
        if self.writes:
            request["num_new"] = drawn.randint(*self.new)
        return request


_ALL = (
    Workload("a", "translation", "translation, 32 new tokens", (64,), (8, 40), (32, 32)),
    Workload("b", "translation", "translation, 8..64 new tokens", (64,), (8, 40), (8, 64)),
    Workload("c", "llama", "generation, prompt 64, 64 new tokens", (1, 8, 32, 64), (64, 64), (64, 64)),
    Workload("d", "bert", "text classification, 16..128 tokens", (32,), (16, 128)),
    Workload("e", "vit", "image classification, 224 x 224", (8,)),
    Workload("f", "translation", "translation, 4 beams, 32 new tokens", (16,), (8, 40), (32, 32), num_beams=4),
    Workload("g", "whisper", "transcription, 5..26 s of English", (1, 8)),
    Workload("h", "minilm", "embedding, a text of 8..48 words", (16,), (8, 48), num_texts=1),
    Workload("i", "minilm", "embedding, 256 such texts a call", (16,), (8, 48), num_texts=256),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
