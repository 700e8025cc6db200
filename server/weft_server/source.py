"""What a graph takes of one request: the ids of a text, the pixels of a picture, or the sound of a window.

A kind of input is a class, and one more kind is one more class. All inputs of a graph are of one kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from weft_proto.bundle_rules import MASK_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Hashable
    from collections.abc import Sequence as Many

# Two things hold for inputs of up to this number of tokens:
# 1. Such an input alone is too short for products to run at nearly full speed. It needs company.
# 2. No sum of an encoder changes its order with the padded length. So inputs of several lengths may share a run.
SHORT = 64


class Beside(NamedTuple):
    """What a decoder reads beside the ids of some tokens, if prompts may hold pictures.

    features: float32 [tokens, width], of which only those at places of pictures are read. None: there is none.
    offsets: int64 [tokens, 3], what is added to each one's place for its positions. None: 0.
    """

    features: np.ndarray | None = None
    offsets: np.ndarray | None = None


NOTHING = Beside()


class Source(ABC):
    """One request's input. A long one is padded by its own length alone, because padding could show in its bits."""

    __slots__ = ()

    # The first port that a graph reads it from. Of two graphs, it says which one is meant.
    port: ClassVar[str]
    # Whether what the decoder is fed behind its start token is a part of the answer: then a beam search counts it.
    answer_has_prefix: ClassVar[bool] = True
    array: np.ndarray

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """What queue, batches and prefill budgets count."""

    @property
    def num_bytes(self) -> int:
        """What its array takes in memory. A picture of 2 KB may have 12 MB of pixel values."""
        return self.array.nbytes

    @property
    @abstractmethod
    def bucket(self) -> int:
        """Padded length where a run holds inputs of one padded length only."""

    @property
    def alike(self) -> Hashable:
        """What is equal of inputs that may share such a run."""
        return self.port, self.bucket, self.num_masks

    @property
    @abstractmethod
    def width(self) -> int:
        """Padded length of an encoder's run in which this input is the longest."""

    @property
    def num_given(self) -> int:
        """Of how many of its tokens an answer has values, if it has some of each."""
        return self.num_tokens

    @property
    def num_shown(self) -> int:
        """How many places of it an explanation is over."""
        return self.num_tokens

    @property
    def num_places(self) -> int:
        """How many places an encoder makes of it."""
        return self.num_tokens

    @property
    def asked_ids(self) -> tuple[int, ...]:
        """What of it the decoder is fed behind its start token, before the answer."""
        return ()

    @property
    def explained_ids(self) -> tuple[int, ...]:
        """The tokens of a question that an explanation is over, beside what is shown."""
        return self.asked_ids

    @property
    def once_read(self) -> Source:
        """What is kept of it when it has been read to its end."""
        return self

    def piece(self, start: int, stop: int) -> np.ndarray:
        """The ids [start, stop) as a decoder reads them."""
        return self.array[start:stop]

    def beside(self, start: int, stop: int) -> Beside:  # noqa: ARG002 - most hold no pictures
        """What a decoder reads at its places [start, stop) beside the ids."""
        return NOTHING

    @property
    def picture_places(self) -> list[tuple[int, int]]:
        """Where each stretch of a picture's places begins, and where it ends."""
        return []

    @property
    def offset_behind(self) -> int:
        """What is added to the place of a token behind it, for each of its positions."""
        return 0

    def content(self, start: int, stop: int) -> bytes:
        """What is equal where its places [start, stop) are equal, behind places that are equal."""
        return self.array[start:stop].tobytes()

    @property
    def num_masks(self) -> int:
        """How many of its places a masked language model is asked about. Inputs that share a run have equally many."""
        return 0

    @staticmethod
    @abstractmethod
    def feeds(sources: Many[Any], width: int, pad_id: int) -> dict[str, np.ndarray]:
        """What a graph reads of several inputs of this kind, by port."""


@dataclass(frozen=True, slots=True, eq=False)
class Ids(Source):
    """The token ids of a text or prompt, int64 [length]."""

    port: ClassVar[str] = "input_ids"
    array: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Its tokens."""
        return len(self.array)

    @property
    def bucket(self) -> int:
        """Its length, rounded up to a multiple of 8, or of 2 beyond SHORT.

        Coarse steps bring short inputs company. A longer one is fast alone, and padding would only cost.
        """
        step = 8 if len(self.array) <= SHORT else 2
        return -(-len(self.array) // step) * step

    @property
    def num_attended(self) -> int:
        """How many of its tokens all attend to, in an encoder."""
        return len(self.array)

    @property
    def width(self) -> int:
        """Its own length where all lengths may share a run, else its bucket."""
        return len(self.array) if len(self.array) <= SHORT else self.bucket

    @staticmethod
    def feeds(sources: Many[Any], width: int, pad_id: int) -> dict[str, np.ndarray]:
        """Ids int64 [inputs, width], filled up with `pad_id`, and how many of each are seen, int32 [inputs]."""
        lengths = np.array([source.num_attended for source in sources], np.int32)
        return {"input_ids": padded(sources, width, pad_id), "lengths": lengths}


@dataclass(frozen=True, slots=True, eq=False)
class FilledIds(Ids):
    """Ids of which the first `num_seen` are attended to. An answer is of `num_wanted`, but none of `skipped_ids`."""

    num_seen: int
    num_wanted: int
    skipped_ids: tuple[int, ...] = ()

    @property
    def num_given(self) -> int:
        """Those that are wanted."""
        return self.num_wanted

    @property
    def num_attended(self) -> int:
        """Those that are seen."""
        return self.num_seen


@dataclass(frozen=True, slots=True, eq=False)
class Masked(Ids):
    """The token ids of a text, and where its masks are among them, int64 [masks]."""

    positions: np.ndarray

    @property
    def num_masks(self) -> int:
        """Its masks."""
        return len(self.positions)

    @staticmethod
    def feeds(sources: Many[Any], width: int, pad_id: int) -> dict[str, np.ndarray]:
        """What Ids give, and the positions int64 [inputs, masks]."""
        positions = np.stack([source.positions for source in sources])
        return {**Ids.feeds(sources, width, pad_id), MASK_POSITIONS: positions}


class Region(NamedTuple):
    """A part of a picture as it is shown: its edges, as shares of the width and of the height."""

    left: float
    top: float
    right: float
    bottom: float


class PlaceGrid(NamedTuple):
    """Places of a picture that lie on it in rows and columns.

    The first one stands `first` places behind the picture's beginning. Rows begin `row_places` behind each other.
    """

    first: int
    rows: int
    columns: int
    row_places: int
    # Where the grid lies. None: on the whole picture.
    region: Region | None


class Whole(Source):
    """An input that is never padded: those of a model are all of one size."""

    __slots__ = ()

    @property
    def bucket(self) -> int:
        """Its tokens."""
        return self.num_tokens

    @property
    def width(self) -> int:
        """Its tokens."""
        return self.num_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Pixels(Whole):
    """The pixel values of a picture, float32 [channels, height, width]. Pictures of a model are all of one size."""

    port: ClassVar[str] = "pixel_values"
    array: np.ndarray
    # Rows and columns of patches.
    grid: tuple[int, int]
    # What a memory has besides its patches.
    num_class_tokens: int = 0
    # Where the grid lies on the picture. None: on the whole of it.
    region: Region | None = field(default=None, kw_only=True)

    @property
    def num_tokens(self) -> int:
        """Its class tokens and its patches."""
        return self.num_class_tokens + self.num_shown

    @property
    def num_shown(self) -> int:
        """Its patches."""
        return self.grid[0] * self.grid[1]

    @staticmethod
    def feeds(sources: Many[Source], width: int, pad_id: int) -> dict[str, np.ndarray]:  # noqa: ARG004 - no padding
        """Pixel values float32 [inputs, channels, height, width]."""
        return {"pixel_values": np.stack([source.array for source in sources])}


@dataclass(frozen=True, slots=True, eq=False)
class Cells(Pixels):
    """Pixel values of a picture of any size, float32 [rows, columns, channels, height, width]. A cell is a place."""

    @property
    def alike(self) -> Hashable:
        """Its rows and columns: those that share a run have equally many."""
        return self.port, self.array.shape


@dataclass(frozen=True, slots=True, eq=False)
class AskedPixels(Pixels):
    """A picture and the tokens of a question about it. The encoder reads the one, the decoder the other."""

    answer_has_prefix: ClassVar[bool] = False
    question: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """The places of the picture and the tokens of the question."""
        return self.num_places + len(self.question)

    @property
    def num_places(self) -> int:
        """Its class tokens and its patches."""
        return self.num_class_tokens + self.num_shown

    @property
    def width(self) -> int:
        """The places of the picture: nothing is padded."""
        return self.num_places

    @property
    def asked_ids(self) -> tuple[int, ...]:
        """The question."""
        return self.question


@dataclass(frozen=True, slots=True, eq=False)
class Sound(Whole):
    """Log-mel energies of a window of a recording, float32 [mels, frames]. Windows of a model are all of one size."""

    port: ClassVar[str] = "input_features"
    # Language and task are the request's.
    answer_has_prefix: ClassVar[bool] = False
    array: np.ndarray
    # Places of the memory.
    num_positions: int
    # Seconds of a place.
    position_s: float
    # Where it lies in the recording, and how long that is.
    start_s: float
    end_s: float
    duration_s: float

    @property
    def num_tokens(self) -> int:
        """Its places."""
        return self.num_positions

    @staticmethod
    def feeds(sources: Many[Source], width: int, pad_id: int) -> dict[str, np.ndarray]:  # noqa: ARG004 - no padding
        """Energies float32 [inputs, mels, frames]."""
        return {"input_features": np.stack([source.array for source in sources])}


@dataclass(frozen=True, slots=True, eq=False)
class Waveform(Sound):
    """The samples of a window, float32 [samples]. Its positions are the moments that have labels.

    What is normed and attended to is the whole window, so those that share a run have equally many samples.
    """

    port: ClassVar[str] = "waveform"

    @property
    def alike(self) -> Hashable:
        """Its samples."""
        return self.port, len(self.array)

    @staticmethod
    def feeds(sources: Many[Source], width: int, pad_id: int) -> dict[str, np.ndarray]:  # noqa: ARG004 - no padding
        """Samples float32 [inputs, samples]."""
        return {"waveform": np.stack([source.array for source in sources])}


@dataclass(frozen=True, slots=True, eq=False)
class Frames(Waveform):
    """Log-mel energies of a window, float32 [frames, mels], as a bundle's MelSpec says."""

    port: ClassVar[str] = "input_features"

    @staticmethod
    def feeds(sources: Many[Source], width: int, pad_id: int) -> dict[str, np.ndarray]:  # noqa: ARG004 - no padding
        """Energies float32 [inputs, frames, mels]."""
        return {"input_features": np.stack([source.array for source in sources])}


def feeds_of(sources: Many[Source], width: int, pad_id: int) -> dict[str, np.ndarray]:
    """Return what a graph reads of inputs that share a run, padded to `width` where their kind is padded."""
    return sources[0].feeds(sources, width, pad_id)


def padded(sources: Many[Source], width: int, pad_id: int) -> np.ndarray:
    """Return the ids of several inputs, int64 [inputs, width], filled up with `pad_id`."""
    ids = np.full((len(sources), width), pad_id, np.int64)
    for row, source in enumerate(sources):
        ids[row, : len(source.array)] = source.array
    return ids
