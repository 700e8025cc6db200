"""What comes out of the verb that answers questions about pictures."""

from dataclasses import dataclass

from weft._types import Completion


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Completion):
    """What a model answers to a question about a picture. `alignment` is over the picture's grid."""
