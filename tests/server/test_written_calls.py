"""Calls in a model's text: each whole one of a known function is read, and everything else stays text."""

import random

import pytest

from weft_server.openai_api.written_calls import READERS, WrittenCall

ROME = WrittenCall("weather", '{"city": "Rome"}')
H = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
L = '{"name": "weather", "parameters": {"city": "Rome"}}'
WRONG = [
    '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "weather", "arguments": "{}"}</tool_call>',
    '<tool_call>{"name": "weather"}</tool_call>',
    "<tool_call>{</tool_call>",
    '<tool_call>{"name": "weather", "arguments": {"city": "Rome", "city": "Oslo"}}</tool_call>',
    f"<tool_call>{'[' * 3000}</tool_call>",
    '<tool_call>{"name": "weather", "arguments": {}}',
    "a <tool_",
    "a < b <tool_call",
    "</tool_call>",
    " a \n",
    "\n\n",
    "",
]
CASES = [
    *(("hermes", text, [text] if text else []) for text in WRONG),
    ("hermes", H, [ROME]),
    ("hermes", f"{H}\n{H}\n", [ROME, ROME]),
    ("hermes", f"Let me see.\n\n{H}", ["Let me see.", ROME]),
    ("hermes", f"a{H} b {H}\nc ", ["a", ROME, "b", ROME, "c "]),
    ("hermes", f"I write <tool_call> first. {H}", ["I write <tool_call> first.", ROME]),
    ("hermes", f"{WRONG[0]}\n{H}", [WRONG[0], ROME]),
    ("hermes", f"{H}\n{WRONG[3]}", [ROME, WRONG[3]]),
    ("llama3", L, [ROME]),
    ("llama3", f" \n{L}\n", [ROME]),
    *(
        ("llama3", text, [text])
        for text in (f"a {L}", L + "b", L[:-1], L.replace("weather", "other"), "a{", " ", "[1]")
    ),
    ("llama3", "", []),
]


def joined(pieces):
    """The same with texts that touch joined."""
    found = []
    for each in pieces:
        if isinstance(each, str) and found and isinstance(found[-1], str):
            found[-1] += each
        else:
            found.append(each)
    return found


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_an_answer_is_read_the_same_however_it_comes(name, text, expected):
    """Whole, letter by letter, and in random pieces."""
    draw = random.Random(3)
    for turn in range(12):
        reader, rest, found = READERS[name](frozenset({"weather"})), text, []
        while rest:
            size = (len(text), 1)[turn] if turn < 2 else draw.randrange(1, 9)
            found += reader.push(rest[:size])
            rest = rest[size:]
        found += reader.finish()
        assert "" not in found
        assert expected == joined(found)


def test_text_that_can_be_no_call_is_not_held():
    """A reader of a stream waits only where a call may begin."""
    for name, pieces in (
        ("hermes", {"a < b": ["a < b"], " ": [], "<tool": [], " x": [" <tool x"], "y": ["y"]}),
        ("llama3", {"\n": [], "a": ["\na"], '{"': ['{"']}),
    ):
        reader = READERS[name](frozenset({"weather"}))
        assert pieces == {text: [*reader.push(text)] for text in pieces}
