"""What a line of a file asks of a verb, and what is written of its answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft._verbs.verb import Verb


@dataclass(frozen=True, slots=True)
class Kind:
    """The lines of one verb.

    Args:
        verb: What is asked.
        inputs: The names of its inputs. Each line has one of them.
        takes: A TypedDict of its options, which a line of JSON may have.
        title: What is being done, for the bar.
        fields: Gives of an answer what stands in its line, with tabs between.
        beside: Names what goes with each input, its `target` or `question`.
    """

    verb: Verb[..., Any]
    inputs: tuple[str, ...]
    takes: Any
    title: str
    fields: Callable[[Any], list[str]]
    beside: str = ""

    @property
    def options(self) -> frozenset[str]:
        """What a line of JSON may have besides its input."""
        return frozenset({*self.takes.__annotations__, *filter(None, [self.beside])})


# The inputs that a text can be given as.
TEXT = ("text", "token_ids")
