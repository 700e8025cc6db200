"""Functions and calls in a chat: the prompt is transformers' own, and what no template tells of is refused by name."""

import json
import warnings

import pytest
from jinja2.exceptions import TemplateError

import tokenizer_kinds
from chat_templates import TEMPLATES, WITH_TOOLS
from weft_proto.v1 import bundle_pb2, common_pb2, generation_pb2
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.chat_template import Chat
from weft_server.preprocessing.wanted import Wanted

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    from transformers import PreTrainedTokenizerFast

TOKENS = {"bos_token": "<s>", "eos_token": "<end>"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "¿Dónde? <b>"}}, "required": []}
FUNCTIONS = [
    {"name": "weather", "description": "Tells it.", "parameters": SCHEMA},
    {"name": "now", "description": "", "parameters": {}},
]
USER = {"role": "user", "content": "Hello"}
CALLED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [("c1", "weather", {"city": "Rome 😀", "n": [1, 2.5, None]})],
}
TWICE = CALLED | {"tool_calls": CALLED["tool_calls"] + [("c2", "now", {})]}
TOLD = {"role": "tool", "content": "It rains", "tool_call_id": "c1"}
CHATS = [[USER], [USER, CALLED, TOLD], [USER, TWICE, TOLD, TOLD | {"tool_call_id": "c2"}, USER]]


def chat_of(template, tmp_path):
    """A bundle's template."""
    path = tmp_path / "chat.jinja"
    path.write_text(template)
    return Chat(bundle_pb2.ChatSpec(template=path.name, **TOKENS), path)


def messages_of(turns, functions):
    """The message of the wire."""
    messages = generation_pb2.Messages()
    for turn in turns:
        calls = [
            common_pb2.FunctionCall(id=id_, name=name, arguments=json.dumps(arguments))
            for id_, name, arguments in turn.get("tool_calls", ())
        ]
        call_id = turn.get("tool_call_id", "")
        messages.turns.add(role=turn["role"], content=turn["content"], calls=calls, call_id=call_id)
    for each in functions:
        messages.functions.add(**each | {"parameters": json.dumps(each["parameters"])})
    return messages


def theirs_of(turns):
    """The messages as transformers takes them."""
    shown = []
    for turn in turns:
        calls = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in turn.get("tool_calls", ())
        ]
        shown.append(turn | ({"tool_calls": calls} if calls else {}))
    return shown


@pytest.mark.parametrize("functions", [[], FUNCTIONS[:1], FUNCTIONS])
@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_prompt_of_functions_is_that_of_transformers(name, functions, tmp_path):
    """With and without them, with calls and their results; or both refuse the messages with the same words."""
    chat = chat_of(WITH_TOOLS[name], tmp_path)
    source = tokenizer_kinds.byte_level()
    theirs = PreTrainedTokenizerFast(tokenizer_object=source, chat_template=WITH_TOOLS[name], **TOKENS)
    tools = [{"type": "function", "function": each} for each in functions] or None
    assert name == chat.call_format
    for turns in CHATS:
        given = messages_of(turns, functions)
        try:
            expected = theirs.apply_chat_template(
                theirs_of(turns), tools=tools, add_generation_prompt=True, tokenize=False
            )
        except TemplateError as error:
            with pytest.raises(InvalidRequest, match=str(error)):
                chat.prompt(given, "messages", 10_000, Wanted())
        else:
            assert expected == chat.prompt(given, "messages", 10_000, Wanted())


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_of_other_words_has_no_format(name, tmp_path):
    """How a model writes a call is said of no template that does not say it, nor of one that tells of no functions."""
    assert "" == chat_of(TEMPLATES[name], tmp_path).call_format
    assert "" == chat_of("<tool_call>{{ messages[0].content }}", tmp_path).call_format
    for other in ("<function=f>", "<arg_key>"):
        assert "" == chat_of(f"<tool_call>{other}{{{{ tools }}}}{{{{ messages[0].content }}}}", tmp_path).call_format


DEEP = '{"a":' * 2000 + "1" + "}" * 2000
WRONG = [
    ("chatml", [USER], [{"name": "f"}], "functions", "NOT_SUPPORTED"),
    ("chatml", [{"calls": [{"name": "f"}]}], [], "turns[0].calls", "NOT_SUPPORTED"),
    ("hermes", [USER], [{"name": ""}], "functions[0].name", "INVALID_FIELD"),
    ("hermes", [USER], [{"name": "a b"}], "functions[0].name", "INVALID_FIELD"),
    ("hermes", [USER], [{"name": "f"}, {"name": "f"}], "functions[1].name", "INVALID_FIELD"),
    ("hermes", [USER], [{"name": f"f{index}"} for index in range(129)], "functions", "INVALID_FIELD"),
    ("hermes", [USER], [{"name": "f", "description": "x" * 70_000}], "turns", "INPUT_TOO_LONG"),
    *(
        ("hermes", [USER], [{"name": "f", "parameters": schema}], "functions[0].parameters", "INVALID_FIELD")
        for schema in ("[]", "{", "1", '{"a": NaN}', '{"a": 1e999}', f'{{"a": {"1" * 301}}}', '{"a": "\\ud800"}', DEEP)
    ),
    ("hermes", [{"calls": [{"name": "f", "arguments": "a"}]}], [], "turns[0].calls[0].arguments", "INVALID_FIELD"),
    ("hermes", [{"calls": [{"name": "f", "id": "x" * 129}]}], [], "turns[0].calls[0].id", "INVALID_FIELD"),
    ("hermes", [{"calls": [{}]}], [], "turns[0].calls[0].name", "INVALID_FIELD"),
    ("hermes", [{"call_id": "x" * 129}], [], "turns[0].call_id", "INVALID_FIELD"),
]


@pytest.mark.parametrize(("name", "turns", "functions", "field", "reason"), WRONG)
def test_what_cannot_be_told_is_refused_by_name(name, turns, functions, field, reason, tmp_path):
    """A template without functions, a name that is none or comes twice, and JSON that is no object."""
    chat = chat_of((TEMPLATES | WITH_TOOLS)[name], tmp_path)
    messages = generation_pb2.Messages(
        turns=[generation_pb2.Message(**USER | turn) for turn in turns],
        functions=[generation_pb2.Function(**each) for each in functions],
    )
    with pytest.raises(InvalidRequest) as refused:
        chat.prompt(messages, "messages", 65_000, Wanted())
    assert (f"messages.{field}", reason) == (refused.value.field, refused.value.reason)


def test_a_large_schema_that_is_printed_often_ends_on_the_meter(tmp_path):
    """What a caller sends costs no more than what a template may make of it."""
    chat = chat_of("{% for _ in range(9999) %}{{ tools | tojson(indent=60) }}{% endfor %}", tmp_path)
    schema = json.dumps({f"k{index}": [index] for index in range(2000)})
    messages = messages_of([USER], [{"name": "f", "description": "", "parameters": json.loads(schema)}])
    with pytest.raises(InvalidRequest) as refused:
        chat.prompt(messages, "messages", 1_000_000, Wanted())
    assert "TEMPLATE_FAILED" == refused.value.reason
