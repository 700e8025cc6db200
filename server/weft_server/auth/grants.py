"""What stands behind a token in the tokens file: the `models=` that it opens, and the `rate=` of tokens it may use."""

import re

from weft_server.models.account import TokenRate
from weft_server.models.allowed_models import ALL_MODELS, AllowedModels

# The words before them.
NUM_FIRST = 3
MAX_MODELS = 1000
MAX_RATE = 10**12
_SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86400}
_RATE = re.compile(rf"([0-9]{{1,13}})/({'|'.join(_SECONDS)})")
_MODEL = re.compile(r"[^:@,\s]+(:[^:@,\s]+)?")


class GrantError(Exception):
    """What is wrong with a word behind a token."""


def grants_of(words: list[str]) -> tuple[AllowedModels, TokenRate | None]:
    """Return the models that the words behind a token open, and the rate. Raises GrantError, which quotes no token."""
    given: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key not in ("models", "rate"):
            raise GrantError("behind the token there may be models=NAME,NAME and rate=TOKENS/UNIT, and nothing else")
        if key in given:
            raise GrantError(f"it has {key}= twice")
        given[key] = value
    models = AllowedModels(_models(given["models"])) if "models" in given else ALL_MODELS
    return models, _rate(given["rate"]) if "rate" in given else None


def _models(value: str) -> list[str]:
    names = value.split(",")
    if len(names) > MAX_MODELS or not all(map(_MODEL.fullmatch, names)):
        text = f"models= needs 1 to {MAX_MODELS} names with commas between them, each NAME or NAME:ADAPTER"
        raise GrantError(f"{text}, without a version")
    return names


def _rate(value: str) -> TokenRate:
    found = _RATE.fullmatch(value)
    if not found or not 1 <= int(found[1]) <= MAX_RATE:
        units = ", ".join(_SECONDS)
        raise GrantError(f"rate= needs TOKENS/UNIT, such as 60000/min: 1 to {MAX_RATE} tokens, and a unit of {units}")
    return TokenRate(int(found[1]), _SECONDS[found[2]])
