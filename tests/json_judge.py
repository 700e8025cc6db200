"""Whether a JSON text fits a JSON Schema: `jsonschema` says so, with exact numbers and patterns of ECMA-262."""

import decimal
import json

import jsonschema

from schema_draws import PATTERNS

# A power of ten beyond this stays as it is: Python would write it out.
_MOST_DIGITS = 2000
decimal.getcontext().prec = 2 * _MOST_DIGITS


def number(text):
    """A number of JSON: an int if it is whole, whatever its spelling, and else a decimal."""
    try:
        value = decimal.Decimal(text)
    except decimal.InvalidOperation:
        return float(text)  # its exponent is beyond all bounds: infinity, or nothing
    return int(value) if abs(value.adjusted()) < _MOST_DIGITS and value == value.to_integral_value() else value


def parsed(text, pairs_hook=dict):
    """What a JSON text says."""
    return json.loads(text, parse_int=number, parse_float=number, object_pairs_hook=pairs_hook)


def judge(schema):
    """Return what says whether a text fits: whichever of the values of a name that comes twice is taken."""
    validator = jsonschema.Draft202012Validator(
        parsed(json.dumps(as_python_reads(schema))), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )

    def fits(text):
        return all(validator.is_valid(parsed(text, hook)) for hook in (dict, lambda pairs: dict(reversed(pairs))))

    return fits


def as_python_reads(value):
    """A schema whose patterns are those of Python's `re`."""
    if isinstance(value, list):
        return [as_python_reads(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {word: as_python_reads(each) for word, each in value.items()}
    if isinstance(made.get("pattern"), str):
        made["pattern"] = PATTERNS[made["pattern"]]
    if isinstance(made.get("patternProperties"), dict):
        made["patternProperties"] = {PATTERNS[pattern]: each for pattern, each in made["patternProperties"].items()}
    return made
