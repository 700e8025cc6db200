"""The command line's own names for fields of a request: errors name what was typed."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from weft.exceptions import InvalidRequest

_FLAGS = {
    "decoding.max_new_tokens": "--max-new-tokens",
    "decoding.stop": "--stop",
    "decoding.sampling.temperature": "--temperature",
    "decoding.sampling.top_k": "--top-k",
    "decoding.sampling.top_p": "--top-p",
    "decoding.sampling.seed": "--seed",
    "explain.layer": "--layer",
    "explain.head": "--head",
    "image.data": "the picture",
    "model.name": "--model",
    "model.version": "--model-version",
    "source_language": "--source-language",
    "split_sentences": "--split",
    "target_language": "--target-language",
    "top_k": "--top",
}
# One with a dot stands for nothing else; of the others only the one that the message begins with.
_FIELD = re.compile(
    r"(?:(?<![\w.'\"])(?:request\.)?(?:explain|model|decoding|image)\.[\w.]*\w|^(?:request\.)?\w+)(?:\[\d+\])?"
)


def in_flags(message: str) -> str:
    """Put flags for fields in what the SDK or a server says of a request."""
    return _FIELD.sub(lambda found: _FLAGS.get(found[0].removeprefix("request.").partition("[")[0], found[0]), message)


def names_flags(verb: Callable[..., None]) -> Callable[..., None]:
    """Let a subcommand's InvalidRequest name flags."""

    @wraps(verb)
    def run(*args: Any, **given: Any) -> None:
        try:
            verb(*args, **given)
        except InvalidRequest as error:
            raise InvalidRequest(
                in_flags(error.message), reason=error.reason, field_violations=error.field_violations
            ) from error

    return run
