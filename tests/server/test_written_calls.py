"""Calls in a model's text: from its name on each of a known function is read, and everything else stays text."""

import random

import pytest

from weft_server.preprocessing.written_calls import CallArguments, CallName, WrittenCall, calls_in, reader_of

ROME = WrittenCall("weather", '{"city": "Rome"}')
H = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
L = '{"name": "weather", "parameters": {"city": "Rome"}}'
TEXTS = [
    '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "weather", "arguments": "{}"}</tool_call>',
    '<tool_call>{"name": "weather"}</tool_call>',
    "<tool_call>{</tool_call>",
    f"<tool_call>{'[' * 3000}</tool_call>",
    '<tool_call>{"name": "weather", "arguments":',
    '<tool_call> {"name": "wea',
    '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
    "a <tool_",
    "a < b <tool_call",
    "</tool_call>",
    " a \n",
    "\n\n",
    "",
]


def call(arguments):
    """A call of the weather."""
    return WrittenCall("weather", arguments)


def hermes(arguments, end="}</tool_call>"):
    """How one is written."""
    return f'<tool_call>{{"name": "weather", "arguments": {arguments}{end}'


CASES = [
    *(("hermes", text, [text] if text else []) for text in TEXTS),
    ("hermes", H, [ROME]),
    ("hermes", f"{H}\n{H}\n", [ROME, ROME]),
    ("hermes", f"Let me see.\n\n{H}", ["Let me see.", ROME]),
    ("hermes", f"a{H} b {H}\nc ", ["a", ROME, "b", ROME, "c "]),
    ("hermes", f"I write <tool_call> first. {H}", ["I write <tool_call> first.", ROME]),
    ("hermes", f"<tool_call>{{ {H}", ["<tool_call>{", ROME]),
    ("hermes", f"{TEXTS[0]}\n{H}", [TEXTS[0], ROME]),
    ("hermes", f"{H}\n{TEXTS[3]}", [ROME, TEXTS[3]]),
    # Braces, quotes and marks in texts, and the arguments inside of others.
    *(
        ("hermes", f"{hermes(each)} b", [call(each), "b"])
        for each in ('{"a": "}"}', '{"a": "\\"}"}', '{"a": "</tool_call>"}', '{"a": [{"b": {}}, "\\\\"]}', "{}")
    ),
    # In another order, and with more fields.
    ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "weather"}</tool_call> b', [call('{"a": 1}'), "b"]),
    ("hermes", hermes('{"a": 1}', ', "id": "</"}</tool_call>\nb'), [call('{"a": 1}'), "b"]),
    ("hermes", hermes('{"a": 1}', ', "id": 3'), [call('{"a": 1}')]),
    # Cut off, without what closes it, or no JSON: the arguments are what was written.
    ("hermes", hermes('{"city": "Ro', ""), [call('{"city": "Ro')]),
    ("hermes", hermes('{"a": 1}', ""), [call('{"a": 1}')]),
    ("hermes", hermes('{"a": 1}', "} </tool_"), [call('{"a": 1}'), "</tool_"]),
    ("hermes", hermes('{"a": 1}', "</tool_call>b"), [call('{"a": 1}'), "b"]),
    ("hermes", hermes('{"a": [1', f"</tool_call>{H}"), [call('{"a": [1'), ROME]),
    ("hermes", hermes('{"a": 1, "a": oh}'), [call('{"a": 1, "a": oh}')]),
    ("llama3", L, [ROME]),
    ("llama3", f" \n{L}\n", [ROME]),
    ("llama3", f"{L} b", [ROME, "b"]),
    ("llama3", L[:-1], [ROME]),
    ("llama3", L[:-3], [call('{"city": "Rome')]),
    ("llama3", L[:-1] + ', "id": 3}', [ROME]),
    ("llama3", '{"parameters": {"a": 1}, "name": "weather"}', [call('{"a": 1}')]),
    *(("llama3", text, [text]) for text in (f"a {L}", L.replace("weather", "other"), "a{", " ", "[1]", "{ a", L[:20])),
    ("llama3", "", []),
]


def joined(pieces):
    """The same with texts that touch joined, and whole calls."""
    calls, found = iter(calls_in(pieces)), []
    for each in pieces:
        if isinstance(each, CallName):
            found.append(next(calls))
        elif isinstance(each, CallArguments):
            continue
        elif found and isinstance(found[-1], str):
            found[-1] += each
        else:
            found.append(each)
    return found


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_an_answer_is_read_the_same_however_it_comes(name, text, expected):
    """Whole, letter by letter, and in random pieces."""
    draw = random.Random(3)
    for turn in range(12):
        reader, rest, found = reader_of(name, frozenset({"weather"})), text, []
        while rest:
            size = (len(text), 1)[turn] if turn < 2 else draw.randrange(1, 9)
            found += reader.push(rest[:size])
            rest = rest[size:]
        found += reader.finish()
        assert not {"", CallArguments("")}.intersection(found)
        assert expected == joined(found)


def test_a_form_that_is_not_known_has_no_reader():
    """As of a template that tells of no functions."""
    assert reader_of("", frozenset()) is None


def test_what_is_certain_is_not_held():
    """A reader of a stream waits only where a call may begin, and gives one from its name on."""
    name, a, b = CallName("weather"), CallArguments('{"ci'), CallArguments('ty": 1')
    call = {'"weather", ': [], '"arguments": ': [], '{"ci': [name, a], 'ty": 1': [b], "}": [CallArguments("}")]}
    for form, pieces in (
        ("hermes", {"a < b": ["a < b"], " ": [], "<tool": [], " x": [" <tool x"], "y": ["y"]}),
        ("hermes", {"a <tool_call>": ["a"], " b": [" <tool_call>", " b"], "c": ["c"]}),
        (
            "hermes",
            {"a <tool_call>": ["a"], '{"name": ': []} | call | {"}\n</tool": [], "_call>": [], "\n": [], "b": ["b"]},
        ),
        ("llama3", {"\n": [], "a": ["\n", "a"], '{"': ['{"']}),
        ("llama3", {'{"name": ': []} | {k.replace("arguments", "parameters"): v for k, v in call.items()}),
    ):
        reader = reader_of(form, frozenset({"weather"}))
        assert pieces == {text: [*reader.push(text)] for text in pieces}
