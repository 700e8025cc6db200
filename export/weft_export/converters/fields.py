"""What a Hugging Face config.json says. Every field is read, known to change nothing, or refused by its name."""

from collections.abc import Mapping
from typing import Any

from weft_export.errors import CheckpointError
from weft_export.families.classifier import IDENTITY, SIGMOID, SOFTMAX

# They change no logit in inference: names, training, what code returns, what generation begins or ends with.
HARMLESS = frozenset(
    [
        "add_cross_attention",
        "architectures",
        "auto_map",
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "cls_token_id",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "dtype",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "eos_token_id",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "gradient_checkpointing",
        "id2label",
        "initializer_factor",
        "init_std",
        "initializer_range",
        "is_composition",
        "is_decoder",
        "is_encoder_decoder",
        "is_llama_config",
        "label2id",
        "length_penalty",
        "mask_token_id",
        "max_length",
        "max_new_tokens",
        "min_length",
        "model_type",
        "name_or_path",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_labels",
        "num_return_sequences",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "output_scores",
        "pad_token_id",
        "prefix",
        "pretraining_tp",
        "problem_type",
        "pruned_heads",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict",
        "return_dict_in_generate",
        "sep_token_id",
        "suppress_tokens",
        "task_specific_params",
        "temperature",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "typical_p",
        "unk_token_id",
        "use_bfloat16",
        "use_cache",
    ]
)
# So are these, whatever stands between or before.
_HARMLESS_PARTS = ("dropout", "pdrop", "drop_rate", "drop_path", "layerdrop", "unsloth", "transformers.js")


class Fields:
    """A config.json, or a part of it. Each method reads one field and remembers that it was read."""

    def __init__(self, config: Mapping[str, Any], place: str = "config.json") -> None:
        self._config = dict(config)
        self.place = place
        """What an error calls it."""
        self._read: set[str] = set()
        self._parts: dict[str, Fields] = {}
        self.notes: list[str] = []
        """What a person should know of a field that was read."""

    def __contains__(self, name: str) -> bool:
        return self._config.get(name) is not None

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number that is not negative."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**40:
            raise self.wrong(name, "must be a whole number that is not negative")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number of either sign. -1 often stands for what is not set."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**40) < value < 2**40:
            raise self.wrong(name, "must be a whole number")
        return value

    def raw(self, name: str) -> Any:
        """Return a field as it stands, of any type; None where there is none."""
        self._read.add(name)
        return self._config.get(name)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            raise self.wrong(name, "must be a number")
        return float(value)

    def positive(self, name: str, default: float | None = None) -> float:
        """Return a finite number above 0."""
        value = self.number(name, default)
        if value <= 0:
            raise self.wrong(name, "must be above 0")
        return value

    def whole_or_null(self, name: str, default: int | None) -> int | None:
        """Return a whole number, None where the config says null, and the default where it says nothing."""
        return None if self._is_null(name, default) else self.whole(name, default)

    def number_or_null(self, name: str, default: float | None) -> float | None:
        """Return a number likewise."""
        return None if self._is_null(name, default) else self.number(name, default)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """Return true or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "must be true or false")
        return value

    def flag_or_false(self, name: str, *, default: bool) -> bool:
        """Return true or false; null, which transformers keeps here, is false."""
        return not self._is_null(name, default) and self.flag(name, default=default)

    def word(self, name: str, default: str | None = None) -> str:
        """Return a string."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "must be a string")
        return value

    def among(self, name: str, known: Mapping[str, str], default: str | None = None) -> str:
        """Return what known calls the word of a field."""
        value = self.word(name, default)
        if value not in known:
            raise self.wrong(name, f"is not supported; known are {', '.join(sorted(known))}")
        return known[value]

    def list(self, name: str, default: list[Any] | None = None) -> list[Any]:
        """Return a list of at most 100,000 entries."""
        value = self._value(name, default)
        if not isinstance(value, list) or len(value) > 100_000:
            raise self.wrong(name, "must be a list")
        return value

    def sides(self, name: str, default: int) -> tuple[int, int]:
        """Return height and width; a number alone is both."""
        value = self._value(name, default)
        sides = value if isinstance(value, list) else [value] * 2
        if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
            raise self.wrong(name, "must be a whole number, or height and width")
        return sides[0], sides[1]

    def num_labels(self) -> int:
        """Return how many labels id2label names, or else num_labels says. transformers makes two where nothing does."""
        said = "id2label" if isinstance(self._config.get("id2label"), dict) else "num_labels"
        number = len(self._config[said]) if said == "id2label" else self.whole(said, 2)
        if number < 1:
            raise self.wrong(said, "must be of 1 label at least")
        return number

    def part(self, name: str) -> "Fields":
        """Return an object of fields of its own; empty where there is none. Its fields are held to account too."""
        value = self._config.get(name)
        self._read.add(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, "must be an object")
        return self._parts.setdefault(name, Fields(value or {}, f"{self.place}: {name}"))

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse any value of a field but these. A field that is absent or null is fine."""
        self._read.add(name)
        value = self._config.get(name)
        if value is not None and value not in allowed:
            words = " or ".join(repr(each) for each in allowed)
            raise self.wrong(name, f"is not supported; only {words} is")

    def take_for_granted(self, name: str, value: Any) -> None:
        """Say what a field is where config.json does not have it."""
        if self._config.get(name) is None:
            self._config[name] = value

    def note(self, *sentences: str) -> None:
        """Add what a person should know. What was said before is not said again."""
        self.notes += [each for each in dict.fromkeys(sentences) if each not in self.notes]

    def skip(self, *names: str) -> None:
        """Say of fields that for this model they change nothing."""
        self._read.update(names)

    def check_all_read(self) -> None:
        """Raise CheckpointError naming the fields that nobody read, because they might change the arithmetic."""
        unknown = [
            name
            for name, value in self._config.items()
            if name not in self._read
            and name not in HARMLESS
            and not name.startswith("_")
            and not any(part in name for part in _HARMLESS_PARTS)
            and value is not None
        ]
        if unknown:
            fields = ", ".join(f"{name} ({self._config[name]!r:.40})" for name in sorted(unknown)[:8])
            raise CheckpointError(
                f"{self.place} has fields that are not known here, and that may change the arithmetic: {fields}"
            )
        for part in self._parts.values():
            part.check_all_read()

    def wrong(self, name: str, complaint: str) -> CheckpointError:
        """Make the error of a field."""
        return CheckpointError(f"{self.place}: {name} is {self._config.get(name)!r:.60}: it {complaint}")

    def _is_null(self, name: str, default: float | None) -> bool:
        self._read.add(name)
        return self._config.get(name, default) is None

    def _value(self, name: str, default: Any) -> Any:
        self._read.add(name)
        value = self._config.get(name)
        if value is not None:
            return value
        if default is None:
            raise CheckpointError(f"{self.place} has no {name}")
        return default


ACTIVATIONS = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
}
"""Their word to ours, which is a key of weft_export.layers.feed_forward.ACTIVATIONS."""


# By problem_type. Where config.json does not say it, the number of labels does.
_SCORINGS = {
    "single_label_classification": SOFTMAX,
    "multi_label_classification": SIGMOID,
    "regression": IDENTITY,
}


def scoring_of(fields: Fields, num_labels: int) -> str:
    """Return how scores are made of the logits of a text or of a picture.

    One label alone has a probability of its own, unless it is the value of a regression.

    Raises:
        CheckpointError: problem_type is none that transformers knows.
    """
    said = fields.raw("problem_type")
    if said is not None and said not in _SCORINGS:
        raise fields.wrong("problem_type", f"is not supported; known are {', '.join(sorted(_SCORINGS))}")
    scoring = _SCORINGS.get(said, SOFTMAX)
    return SIGMOID if num_labels == 1 and scoring == SOFTMAX else scoring
