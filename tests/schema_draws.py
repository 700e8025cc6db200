"""Draws JSON Schemas: every keyword that an answer is held to, with values near the edges of what it can hold."""

from hypothesis import strategies as st

# Each with what Python's `re` reads as ECMA-262 reads it.
PATTERNS = {
    "^a.b$": "^a[^\n\r\u2028\u2029]b\\Z",
    "[0-9]": "[0-9]",
    r"^\d{1,3}$": r"^[0-9]{1,3}\Z",
    r"^[^\d]+$": r"^[^0-9]+\Z",
    r"\s": "[\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]",
    r"^\S\w*$": "^[^\t\n\x0b\x0c\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff][a-zA-Z0-9_]*\\Z",
    "^(?:ab|c)*$": r"^(?:ab|c)*\Z",
    "^[a[]&&b~]+$": r"^[a\[]&&b~\]+\Z",
    "a|^b|c$": r"a|^b|c\Z",
    "^$": r"^\Z",
    "": "(?:)",
    r"^\<\/\-$": r"^</-\Z",
    "^\\u00e9?\\x41{2}$": "^\u00e9?A{2}\\Z",
}
NAMES = ["a", "b", "role", 'q"', "\u00e9", "a/b~c", "", "ab", "1"]
CONSTANTS = [
    None, True, False, 0, 1, -1, 1.5, -0.25, 0.1, 1e-7, 2**53 - 1, 2**53, 2**53 + 1, 2**63, 1e300, -(2**60),
    "", "a", "ab", 'q"\\\n', "\u00e9\U0001f600", "\x7f", [], [1, "a"], {}, {"a": 1, "b": [None]}, {"role": "user"},
]  # fmt: skip
NUMBERS = [
    0,
    1,
    -1,
    2,
    10,
    0.5,
    -0.5,
    0.25,
    1.5,
    9.99,
    -3.75,
    100,
    1e-3,
    12345.678,
    2**53 - 1,
    2**53,
    -(2**53),
    1e22,
    0.1,
]
STEPS = [1, 2, 3, 7, 10, 0.5, 0.1, 0.01, 0.25, 1.5, 0.07, 0.3, 1e-5, 2**33]
FORMATS = ["date", "time", "date-time", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "duration", "regex"]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


def some(**words):
    """A schema that has a few of some keywords, in any order."""

    @st.composite
    def drawn(draw):
        chosen = draw(st.lists(st.sampled_from(sorted(words)), unique=True, max_size=4))
        return {word.replace("_", "$"): draw(words[word]) for word in chosen}

    return drawn()


def numbers():
    """Keywords of numbers."""
    each = st.sampled_from(NUMBERS)
    kinds = st.sampled_from(["integer", "number"])
    return st.tuples(
        kinds,
        some(
            minimum=each, maximum=each, exclusiveMinimum=each, exclusiveMaximum=each, multipleOf=st.sampled_from(STEPS)
        ),
    ).map(lambda both: {"type": both[0], **both[1]})


def texts():
    """Keywords of texts."""
    count = st.integers(0, 4)
    return some(
        minLength=count,
        maxLength=count,
        pattern=st.sampled_from(sorted(PATTERNS)),
        format=st.sampled_from(FORMATS),
    ).map(lambda words: {"type": "string", **words})


def lists(inner):
    """Keywords of lists."""
    count = st.integers(0, 3)
    return some(
        items=inner,
        prefixItems=st.lists(inner, min_size=1, max_size=3),
        minItems=count,
        maxItems=count,
        uniqueItems=st.booleans(),
        unevaluatedItems=inner,
        contains=inner,
        minContains=st.integers(0, 1),
    ).map(lambda words: {"type": "array", **words})


def objects(inner):
    """Keywords of objects."""
    count = st.integers(0, 3)
    name = st.sampled_from(NAMES)
    return some(
        properties=st.dictionaries(name, inner, max_size=3),
        patternProperties=st.dictionaries(st.sampled_from(sorted(PATTERNS)), inner, max_size=2),
        additionalProperties=inner,
        required=st.lists(name, unique=True, max_size=3),
        minProperties=count,
        maxProperties=count,
        unevaluatedProperties=inner,
        propertyNames=st.sampled_from([True, {"type": "string"}, {"maxLength": 1}]),
        dependentRequired=st.sampled_from([{}, {"a": ["b"]}]),
    ).map(lambda words: {"type": "object", **words})


def combined(inner):
    """Schemas that several schemas say something in, in any order."""
    several = st.lists(inner, min_size=1, max_size=3)
    constant = st.sampled_from(CONSTANTS)
    parts = st.lists(
        st.one_of(
            some(
                allOf=several,
                anyOf=several,
                oneOf=several,
                _ref=st.sampled_from(["#/$defs/x", "#/$defs/a~1b", "#y", "#"]),
            ),
            some(const=constant, enum=st.lists(constant, min_size=1, max_size=4)),
            some(type=st.one_of(st.sampled_from(TYPES), st.lists(st.sampled_from(TYPES), min_size=1, unique=True))),
            inner.filter(lambda each: isinstance(each, dict)),
        ),
        min_size=1,
        max_size=3,
    )
    return parts.map(lambda each: {word: value for part in each for word, value in part.items()})


LEAVES = st.one_of(
    numbers(), numbers(), texts(), texts(), st.booleans(), st.just({}),
    st.sampled_from(CONSTANTS).map(lambda value: {"const": value}),
    st.lists(st.sampled_from(CONSTANTS), min_size=1, max_size=5).map(lambda values: {"enum": values}),
    st.sampled_from(["#/$defs/x", "#/$defs/a~1b", "#y"]).map(lambda reference: {"$ref": reference}),
)  # fmt: skip
INNER = st.recursive(
    LEAVES, lambda inner: st.one_of(lists(inner), objects(inner), objects(inner), combined(inner)), max_leaves=6
)


@st.composite
def schemas(draw):
    """A schema with definitions, most of them of objects."""
    schema = draw(st.one_of(objects(INNER), objects(INNER), lists(INNER), combined(INNER), LEAVES))
    if not isinstance(schema, dict):
        return schema
    return {**schema, "$defs": {"x": draw(LEAVES), "a/b": draw(INNER), "z": {"$anchor": "y", **draw(texts())}}}
