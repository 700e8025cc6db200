"""What is asked of every system: the workloads and their requests, the same ones for all. Standard library only."""

import random
from dataclasses import dataclass

VOCAB = {"translation": 32_000, "llama": 32_000, "bert": 30_522}
FIRST_WORD = 4  # the ids below are padding, unknown, start and end
NUM_IMAGES = 16


@dataclass(frozen=True)
class Workload:
    """Requests of one kind for one shape of weights; lengths are drawn evenly, both ends included, in tokens.

    in_flight: how many requests may be in a system at once; a workload is measured with each of them.
    num_beams: how many beams search for an answer; 1 is greedy.
    """

    name: str
    shape: str
    what: str
    in_flight: tuple[int, ...]
    inputs: tuple[int, int] = (0, 0)
    new: tuple[int, int] = (0, 0)
    num_beams: int = 1

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
        if self.shape == "vit":
            return {"image": f"{index % NUM_IMAGES}.png"}
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
)
WORKLOADS = {workload.name: workload for workload in _ALL}
