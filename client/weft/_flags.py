"""The command line's own names for fields of a request: errors name what was typed."""

import re
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from weft.exceptions import InvalidRequest
from weft_proto.decoding import LENGTH_PENALTY, PENALTIES, SAMPLING

_FLAGS = {f"decoding.{each.path}": each.flag for each in (*SAMPLING, *PENALTIES, LENGTH_PENALTY) if each.help} | {
    "audio": "the recording",
    "cache_salt": "--cache-salt",
    "allow_no_answer": "--allow-no-answer",
    "context": "CONTEXT",
    "count_only": "--count",
    "decoding.alternatives": "--alternatives",
    "decoding.banned": "--ban",
    "decoding.beams": "--beams",
    "decoding.beams.early_stopping": "--early-stopping",
    "decoding.beams.num_beams": "--beams",
    "decoding.constraint": "the constraint",
    "decoding.constraint.choice": "--choice",
    "decoding.constraint.json_schema": "--json-schema",
    "decoding.constraint.lark": "--lark",
    "decoding.constraint.regex": "--regex",
    "decoding.greedy": "greedy decoding",
    "decoding.max_new_tokens": "--max-new-tokens",
    "decoding.min_new_tokens": "--min-new-tokens",
    "decoding.num_outputs": "--num-outputs",
    "decoding.prefix": "--prefix",
    "decoding.stop": "--stop",
    "dimensions": "--dimensions",
    "explain.layer": "--layer",
    "explain.head": "--head",
    "image": "the picture",
    "label_text": "--label-text",
    "labels": "--label",
    "language": "--language",
    "max_answer_tokens": "--max-answer-tokens",
    "messages.turns.parts.image": "--picture",
    "model.adapter": "--adapter",
    "model.name": "--model",
    "model.version": "--model-version",
    "model.version_label": "--version-label",
    "num_top_tokens": "--top-logprobs",
    "prompt_name": "--prompt-name",
    "question": "QUESTION",
    "return_prompt_scores": "--prompt-scores",
    "targets": "--among",
    "share": "--share",
    "side": "--side",
    "source_language": "--source-language",
    "split_sentences": "--split",
    "target_ids": "TARGET",
    "target_language": "--target-language",
    "target_text": "TARGET",
    "text_pair": "--pair",
    "to_english": "--to-english",
    "threshold": "--threshold",
    "top_k": "--top",
    "version_label": "the label",
}
# One with a dot stands for nothing else; of the others only the one that the message begins with.
_FIELD = re.compile(
    r"(?:(?<![\w.'\"-])(?:request\.)?(?:explain|model|decoding|image|audio|messages)(?:(?:\[\d+\])?\.\w+)+"
    r"|^(?:request\.)?\w+)(?:\[\d+\])?"
)
_INDEX = re.compile(r"\[\d+\]")


def in_flags(message: str, flags: Mapping[str, str] = _FLAGS) -> str:
    """Put flags for fields in what the SDK or a server says of a request."""
    named = _FIELD.sub(lambda found: _flag(found[0], flags), message)
    return re.sub(r"\bSIDE_(INPUT|OUTPUT)\b", lambda found: found[1].lower(), named)


def _flag(field: str, flags: Mapping[str, str]) -> str:
    """Give the flag that a field, or a message around it, comes from; the field itself if there is none."""
    name = _INDEX.sub("", field.removeprefix("request."))
    while name not in flags and "." in name:
        name = name.rpartition(".")[0]
    return flags.get(name, field)


def names_flags(verb: Callable[..., None]) -> Callable[..., None]:
    """Let a subcommand's InvalidRequest name flags, or the argument that is a model."""
    model = signature(verb).parameters.get("model")
    is_argument = model is not None and model.kind is Parameter.POSITIONAL_OR_KEYWORD
    flags = _FLAGS | {"model.name": "MODEL"} if is_argument else _FLAGS

    @wraps(verb)
    def run(*args: Any, **given: Any) -> None:
        try:
            verb(*args, **given)
        except InvalidRequest as error:
            # The attention of sentences that are put together is not drawn.
            is_drawn = getattr(given.get("request"), "explain", None) is not None
            is_splittable = error.reason == "INPUT_TOO_LONG" and given.get("split") is False and not is_drawn
            hint = "; --split takes a longer one" if is_splittable else ""
            raise InvalidRequest(
                in_flags(error.message, flags) + hint, reason=error.reason, field_violations=error.field_violations
            ) from error

    return run
