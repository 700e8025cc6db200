"""The numbers of a Decoding: their names, ranges, defaults and flags. Server, SDK, command and exporter read them here.

v1/common.proto says what each one means. A test holds its comments to this table.
"""

from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from weft_proto.v1 import common_pb2

MAX_STOP_STRINGS = 4
MAX_STOP_BYTES = 64
# Of `bias`, and of `banned`.
MAX_PHRASES = 1024
MAX_PHRASE_TOKENS = 32
# Of a set such as `suppressed`.
MAX_TOKENS = 1024


class DecodingField(NamedTuple):
    """A number of a Decoding, or of a message inside. None of `maximum`: whatever the message's field holds."""

    path: str
    # What changes nothing. None: the server draws it, or the field is required.
    default: float | None
    minimum: float = 0
    maximum: float | None = None
    # What the command says of its flag. Without that, it has none.
    help: str = ""
    # Which of the two ends is outside the range: minimum or maximum.
    without: str = ""
    # What transformers and the SDK call it, if that is not the message's name.
    other_name: str = ""
    other_flag: str = ""
    # What to ask for instead of what is outside the range.
    advice: str = ""

    @property
    def field(self) -> str:
        """Its name in its message."""
        return self.path.rpartition(".")[2]

    @property
    def name(self) -> str:
        """What transformers and the SDK call it."""
        return self.other_name or self.field

    @property
    def flag(self) -> str:
        """Its flag of the command."""
        return self.other_flag or f"--{self.name.replace('_', '-')}"

    @property
    def kind(self) -> type[int] | type[float]:
        """Whether it is whole, as the message's field says."""
        message, field = self.path.split(".")
        fields: Any = common_pb2.Decoding.DESCRIPTOR.fields_by_name[message].message_type
        is_float = fields.fields_by_name[field].cpp_type == FieldDescriptor.CPPTYPE_FLOAT
        return float if is_float else int

    def of(self, message: Any) -> Any:
        """Return what a message has of it, or the default."""
        field = self.field
        return getattr(message, field) if message.HasField(field) else self.default

    def takes(self, value: float) -> bool:
        """Whether a value is in the range. NaN is in none."""
        above = value > self.minimum if self.without == "minimum" else value >= self.minimum
        return above and (
            self.maximum is None or (value < self.maximum if self.without == "maximum" else value <= self.maximum)
        )

    @property
    def range(self) -> str:
        """What an error says that a value must be."""
        words = {"minimum": "above {:g} and at most {:g}", "maximum": "at least {:g} and below {:g}", "": "{:g}..{:g}"}
        return words[self.without].format(self.minimum, self.maximum)


# In the order of the cuts.
SAMPLING = (
    DecodingField(
        "sampling.temperature",
        1.0,
        0.0,
        10.0,
        "How randomly tokens are drawn. 0 always takes the most probable token.",
        without="minimum",
        advice="; for 0 ask for greedy",
    ),
    DecodingField("sampling.top_k", 0, help="Draw only from this number of the most probable tokens. 0: from all."),
    DecodingField(
        "sampling.top_p",
        1.0,
        0.0,
        1.0,
        "Draw only from the most probable tokens that together have this probability. Above 0.",
        without="minimum",
    ),
    DecodingField(
        "sampling.min_p", 0.0, 0.0, 1.0, "Draw only tokens that have this share of the best one's probability."
    ),
    DecodingField(
        "sampling.typical_p",
        1.0,
        0.0,
        1.0,
        "Draw only from the most typical tokens that together have this probability. Above 0.",
        without="minimum",
    ),
    DecodingField(
        "sampling.epsilon_cutoff", 0.0, 0.0, 1.0, "Draw no token below this probability. Below 1.", without="maximum"
    ),
    DecodingField(
        "sampling.eta_cutoff",
        0.0,
        0.0,
        1.0,
        "The same, but lower where the model is less sure. Below 1.",
        without="maximum",
    ),
    DecodingField("sampling.seed", None, help="The same seed draws the same text again."),
)
PENALTIES = (
    DecodingField(
        "penalties.repetition", 1, 0.1, 10, "Above 1, what has come is less probable.", other_name="repetition_penalty"
    ),
    DecodingField("penalties.encoder_repetition", 1, 0.1, 10, other_name="encoder_repetition_penalty"),
    DecodingField(
        "penalties.presence", 0, -10, 10, "Taken from the logit of what was produced.", other_name="presence_penalty"
    ),
    DecodingField(
        "penalties.frequency", 0, -10, 10, "The same, for each time that it was.", other_name="frequency_penalty"
    ),
    DecodingField(
        "penalties.no_repeat_ngram_size",
        0,
        0,
        32,
        "Let no run of this number of tokens come twice.",
        other_flag="--no-repeat-ngram",
    ),
    DecodingField("penalties.encoder_no_repeat_ngram_size", 0, 0, 32),
)
LENGTH_PENALTY = DecodingField(
    "beams.length_penalty", 1.0, -10, 10, "In a search: above 0 favours long answers, below 0 short ones."
)
DECAY_FACTOR = DecodingField("length_decay.factor", None, 0.5, 4)
BIAS = DecodingField("bias.bias", None, -100, 100)
