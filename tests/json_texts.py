"""Whether a value fits a JSON Schema: the few words of schemas that the tests use."""

_TYPES = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip


def fits(value, schema):
    """Whether `value`, as json.loads gives it, fits `schema`. A word that is not known here raises."""
    return all(_CHECKS[word](value, want, schema) for word, want in schema.items())


def _type(value, want, schema):
    return isinstance(value, _TYPES[want]) and not (isinstance(value, bool) and want in ("integer", "number"))


def _properties(value, want, schema):
    return not isinstance(value, dict) or all(fits(value[name], want[name]) for name in want if name in value)


def _additional(value, want, schema):
    assert want is False
    return not isinstance(value, dict) or set(value) <= set(schema.get("properties", ()))


_CHECKS = {
    "type": _type,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": lambda value, want, schema: not isinstance(value, dict) or set(want) <= set(value),
    "items": lambda value, want, schema: not isinstance(value, list) or all(fits(each, want) for each in value),
    "maxItems": lambda value, want, schema: not isinstance(value, list) or len(value) <= want,
    "enum": lambda value, want, schema: any(value == each and type(value) is type(each) for each in want),
    "minimum": lambda value, want, schema: not isinstance(value, int | float) or value >= want,
    "maximum": lambda value, want, schema: not isinstance(value, int | float) or value <= want,
    "maxLength": lambda value, want, schema: not isinstance(value, str) or len(value) <= want,
}
