"""Decoding as JSON: what `--json` prints of one can be given again, whole or in part."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from weft._decoding import Alternatives, Beams, Decoding, Greedy, LengthDecay, PhraseBias, Sampling
from weft._fields import refusal

_STRATEGIES = {kind.__name__.lower(): kind for kind in (Greedy, Sampling, Beams, Alternatives)}
_CONSTRAINTS = ("json_schema", "regex", "lark", "choices")
_DEFAULT = Decoding()


def plain_decoding(decoding: Decoding) -> dict[str, Any]:
    """Give the form that JSON can hold, without what is unset: of a strategy its name, which a dict would not say."""
    plain = {name: value for name, value in asdict(decoding).items() if value != getattr(_DEFAULT, name)}
    if decoding.strategy is not None:
        plain["strategy"] = {type(decoding.strategy).__name__.lower(): plain["strategy"]}
    return plain


def decoding_from(plain: Any, field: str = "decoding") -> Decoding:
    """Read that form; a field that is absent or null stays unset. Raises InvalidRequest that names what is wrong."""
    given = dict(_object(plain, field, Decoding))
    if (strategy := given.get("strategy")) is not None:
        given["strategy"] = _strategy(strategy, f"{field}.strategy")
    if (decay := given.get("length_decay")) is not None:
        given["length_decay"] = _made(LengthDecay, decay, f"{field}.length_decay")
    if isinstance(bias := given.get("bias"), list):
        given["bias"] = tuple(_made(PhraseBias, each, f"{field}.bias[{index}]") for index, each in enumerate(bias))
    kept: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if value is not None
    }
    return Decoding(**kept)


def _strategy(plain: Any, field: str) -> Any:
    names = ", ".join(_STRATEGIES)
    if not isinstance(plain, Mapping) or len(plain) != 1 or not plain.keys() <= _STRATEGIES.keys():
        raise refusal(field, f"must be an object with one of {names}")
    ((name, settings),) = plain.items()
    return _made(_STRATEGIES[name], settings, f"{field}.{name}")


def _made(kind: Any, plain: Any, field: str) -> Any:
    try:
        return kind(**_object(plain, field, kind))
    except TypeError:  # a field that it can't do without is missing
        raise refusal(field, f"needs {' and '.join(each.name for each in fields(kind))}") from None


def _object(plain: Any, field: str, kind: Any) -> Mapping[str, Any]:
    if not isinstance(plain, Mapping):
        raise refusal(field, f"must be an object, not {type(plain).__name__}")
    known = {each.name for each in fields(kind)}
    if unknown := plain.keys() - known:
        raise refusal(f"{field}.{min(unknown)}", f"is unknown; there are {', '.join(sorted(known)) or 'none'}")
    return plain


def over(decoding: Decoding, base: Decoding) -> Decoding:
    """Give `base` with all that `decoding` sets in its place; one constraint takes the place of any other."""
    given = {
        each.name: value
        for each in fields(Decoding)
        if (value := getattr(decoding, each.name)) != getattr(_DEFAULT, each.name)
    }
    if any(name in given for name in _CONSTRAINTS):
        base = replace(base, json_schema=None, regex=None, lark=None, choices=None)
    return replace(base, **given)
