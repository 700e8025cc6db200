"""What a template may name: filters, tests, functions and methods, each on a meter. They are those of transformers.

Left out is what no chat needs and could take any memory or time: formatting to a width, and filters that lay out text.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, KeysView, ValuesView
from datetime import datetime
from functools import wraps
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, pass_context, pass_eval_context
from jinja2 import filters as jinja_filters
from jinja2.exceptions import SecurityError
from jinja2.sandbox import safe_range
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Namespace, _PassArg

from weft_proto.chat import tree
from weft_proto.chat.faults import BeyondLimit
from weft_proto.chat.meter import ENTRY_CHARS, MAX_DEPTH, the_meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jinja2.runtime import Context

    from weft_proto.chat.meter import Meter

# Of a width, in characters.
_MAX_WIDTH = 64
_MAX_DATE_FORMAT = 256
_MAX_DIGITS = 100
# Of a text that becomes a number: the digits that Python reads of an integer at most.
_MAX_NUMERAL = 4_300
# Of a text to look for, in characters. Python looks for a longer one in quadratic time, and holds its lock.
_MAX_SOUGHT = 256
# Of the name of an attribute, in characters.
_MAX_ATTRIBUTE = 64
# Which argument of a filter, after its value, is the name of an attribute.
_ATTRIBUTE_AT = {"join": 2, "max": 2, "min": 2, "rejectattr": 1, "selectattr": 1, "sort": 3, "unique": 2}
_SEEKS = frozenset((
    "count", "endswith", "find", "index", "lstrip", "partition", "replace", "rfind", "rindex", "rpartition", "rsplit",
    "rstrip", "split", "startswith", "strip",
))  # fmt: skip
# What a character of a text takes in JSON at most: \ud83d\ude00.
_JSON_CHARS = 12


class ChatRefused(TemplateError):
    """A template called raise_exception: it does not take these messages."""


def check_sought(method: str, args: tuple[Any, ...]) -> None:
    """Raise BeyondLimit for a method of a text that looks for too long a text, or for one of too many."""
    if method in _SEEKS:
        for sought in args[:1] if method == "replace" else args:
            if isinstance(sought, tuple) or method not in {"startswith", "endswith"}:
                _check_sought(sought)


def growth(meter: Meter, text: str, method: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a method of a text whose result would be too long. Returns the arguments to call it with."""
    size = len(text)
    if method == "join" and args:
        args = (list(meter.each(args[0])), *args[1:])
        size += sum(len(each) + len(text) for each in args[0] if isinstance(each, str))
    elif method == "replace" and len(args) > 1 and all(isinstance(each, str) for each in args[:2]):
        size += text.count(args[0]) * len(args[1])
    elif method in {"ljust", "rjust", "center", "zfill"} and args and isinstance(args[0], int):
        size = max(size, args[0])
    elif method in {"split", "rsplit", "splitlines"}:
        separator = args[0] if args and isinstance(args[0], str) and args[0] else None
        size += ENTRY_CHARS * (text.count(separator) if separator else len(text) // 2)
    meter.fits(size)
    return args


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - as transformers'
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - same
) -> str:
    """JSON that escapes no HTML, as transformers' own filter."""
    meter = the_meter()
    margin = _width(indent) if indent is not None else 0
    between = sum(len(each) for each in separators or (", ", ": "))
    meter.fits(meter.unfolded(value) * (_JSON_CHARS + margin * MAX_DEPTH + between))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@pass_context
def _join(context: Context, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    """Join texts, and count them before they are one."""
    meter = the_meter()
    if attribute is not None:
        value = map(jinja_filters.make_attrgetter(context.environment, attribute), value)
    between = meter.text(d)
    parts = []
    for each in value:
        meter.spend(len(between))
        parts.append(meter.text(each))
    return between.join(parts)


def _concat(parts: list[Any]) -> str:
    meter = the_meter()
    return "".join([meter.text(each) for each in parts])


@pass_eval_context
def _replace(eval_ctx: Any, s: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, found, instead = str(s), str(old), str(new)
    _check_sought(found)
    the_meter().fits(len(text) + text.count(found) * len(instead))
    replaced: str = jinja_filters.do_replace(eval_ctx, s, old, new, count)
    return replaced


def _trim(value: Any, chars: Any = None) -> str:
    _check_sought(chars)
    return jinja_filters.do_trim(value, chars)


def _in(value: Any, seq: Any) -> bool:
    if isinstance(seq, str):
        _check_sought(value)
    return value in seq


def _int(value: Any, default: Any = 0, base: int = 10) -> int:
    _check_numeral(value)
    return jinja_filters.do_int(value, default, base)


def _float(value: Any, default: Any = 0.0) -> float:
    _check_numeral(value)
    return jinja_filters.do_float(value, default)


def _check_sought(sought: Any) -> None:
    if isinstance(sought, str | tuple) and len(sought) > _MAX_SOUGHT:
        raise BeyondLimit(f"it looks for over {_MAX_SOUGHT} characters")


def _check_numeral(value: Any) -> None:
    if isinstance(value, str) and len(value) > _MAX_NUMERAL:
        raise BeyondLimit(f"a number is written with over {_MAX_NUMERAL:,} characters")


def _check_attribute(name: Any) -> None:
    if isinstance(name, str) and (len(name) > _MAX_ATTRIBUTE or "," in name):
        raise BeyondLimit(f"an attribute's name has over {_MAX_ATTRIBUTE} characters, or a comma")


def _indent(s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002 - as jinja2's
    margin = _width(width)
    the_meter().fits(len(s) + (len(s.splitlines()) + 1) * margin)
    return jinja_filters.do_indent(s, width, first, blank)


def _list(value: Any) -> list[Any]:
    if hasattr(value, "__len__"):
        the_meter().fits(ENTRY_CHARS * len(value))
    return list(value)


def _round(value: Any, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > _MAX_DIGITS:
        raise SecurityError(f"round takes at most {_MAX_DIGITS} digits")
    return jinja_filters.do_round(value, precision, method)


def _width(width: Any) -> int:
    size = len(width) if isinstance(width, str) else int(width)
    if size > _MAX_WIDTH:
        raise SecurityError(f"a width is at most {_MAX_WIDTH} here")
    return max(size, 0)


def _each(values: Iterable[Any], cost: int) -> Iterator[Any]:
    return the_meter().each(values, cost)


def _on_meter(function: Any, attribute_at: int | None = None) -> Callable[..., Any]:
    """Count what a filter or a test returns. jinja2 computes none that takes the context when it compiles."""
    wants = _PassArg.from_obj(function)

    @wraps(function)
    def counted(context: Context, *args: Any, **kwargs: Any) -> Any:
        meter = the_meter()
        meter.check()
        _check_attribute(kwargs.get("attribute"))
        if attribute_at is not None:
            _check_attribute(next(iter(args[attribute_at:]), None))
        if wants is not None:
            given = {"environment": context.environment, "eval_context": context.eval_ctx, "context": context}
            args = (given[wants.name], *args)
        result = function(*args, **kwargs)
        if isinstance(result, GeneratorType):
            return meter.each(result)
        return meter.keep(result)

    # `wraps` has copied the mark of what the function itself wants.
    counted.jinja_pass_arg = _PassArg.context  # type: ignore[attr-defined]
    return counted


def _raise_exception(message: Any) -> None:
    raise ChatRefused(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > _MAX_DATE_FORMAT:
        raise SecurityError(f"a form of a date has at most {_MAX_DATE_FORMAT} characters here")
    # Of the machine's own time zone, as transformers takes it.
    return datetime.now().strftime(form)  # noqa: DTZ005


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


class _Namespace(Namespace):
    """Jinja's object whose attributes a loop can set, without those that begin with an underscore."""

    def __setitem__(self, name: str, value: Any) -> None:
        """Set an attribute."""
        if name.startswith("_"):
            raise SecurityError(f"a namespace takes no {name!r}")
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


_PLAIN_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "items", "last",
    "length", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe", "select", "selectattr", "sort",
    "string", "title", "truncate", "unique", "upper", "wordcount",
)  # fmt: skip
_OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "float": _float,
    "indent": _indent,
    "int": _int,
    "join": _join,
    "list": _list,
    "replace": _replace,
    "round": _round,
    "tojson": _tojson,
    "trim": _trim,
    tree.CONCAT: _concat,
    tree.KEEP: lambda value: value,
    tree.IN: _in,
    tree.COMPARED: lambda value: value,
}
FILTERS = {
    **{name: _on_meter(jinja_filters.FILTERS[name], _ATTRIBUTE_AT.get(name)) for name in _PLAIN_FILTERS},
    **{name: _on_meter(function, _ATTRIBUTE_AT.get(name)) for name, function in _OWN_FILTERS.items()},
    tree.EACH: _each,
    tree.SPEND: lambda num_chars: the_meter().spend(num_chars),
}
TESTS = {name: _on_meter(test) for name, test in {**JINJA_TESTS, "in": _in}.items()}
GLOBALS = {
    "range": safe_range,
    "dict": _dict,
    "namespace": _Namespace,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}
_OF_TEXTS = frozenset((
    "capitalize", "casefold", "center", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "ljust", "lower",
    "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition",
    "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill",
))  # fmt: skip
# By type, the first that fits.
METHODS: tuple[tuple[Any, frozenset[str]], ...] = (
    (str, _OF_TEXTS),
    (dict, frozenset(("get", "items", "keys", "values"))),
    (list | tuple, frozenset(("count", "index"))),
    (KeysView | ItemsView | ValuesView, frozenset()),
    (int | float | type(None), frozenset()),
)
