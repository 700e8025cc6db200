"""What goes in and comes out of the verb that hears: recordings, and what is said in them."""

from dataclasses import dataclass
from os import PathLike

from weft._types import Completion

Recording = bytes | str | PathLike[str]
"""The bytes of a WAV or FLAC file, or the path of one."""


@dataclass(frozen=True, slots=True)
class Segment:
    """What was said between two moments, in seconds from a recording's beginning."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word and when it was said, in seconds from a recording's beginning."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, repr=False)
class Transcription(Completion):
    """What was said in a recording of `duration_s` seconds.

    `segments` are the parts that the model heard at once; with `timestamps`, those that it tells apart itself.
    `language` is what was named or told; empty for a model that knows no languages by name. `language_probability` is
    how probable it is, where the model told it. `words` are the rows of `alignment`, and come with it: when each is
    said is read off what it attends to.
    """

    segments: tuple[Segment, ...] = ()
    duration_s: float = 0.0
    language: str = ""
    language_probability: float | None = None
    words: tuple[Word, ...] = ()
