"""A name that comes twice in an object of a body is refused, wherever it stands and however it is written."""

import asyncio
import random
import threading

import msgspec
import pytest

from openai_calls import Client, Scripted
from weft_server.api import aside
from weft_server.errors import InvalidRequest
from weft_server.openai_api import once
from weft_server.openai_api.once import check_once
from weft_server.openai_api.routes import ENDPOINTS

JSON_PATHS = sorted(
    each.path for each in ENDPOINTS if each.fields and each.media_type == "application/json" and each.verb == "POST"
)
DEEP = b'{"a":' * 500 + b"1" + b"}" * 500


@pytest.mark.parametrize("path", JSON_PATHS)
def test_a_field_that_comes_twice_is_refused_by_name(path):
    """By each path: nobody is asked, and the caller is told which field."""
    (fields,) = (each.fields for each in ENDPOINTS if each.path == path)
    needed = {each.name: "a" for each in fields.taken if each.default is msgspec.NODEFAULT}
    needed |= {"messages": [{"role": "user", "content": "a"}]} if "messages" in needed else {}
    needed |= {name: [1] if name == "tokens" else ["a"] for name in ("documents", "tokens") if name in needed}
    caller = Scripted()
    body = msgspec.json.encode(needed)[:-1] + b', "model": "b"}'
    status, _, answer = asyncio.run(Client(caller).send("POST", path, body))

    assert (400, "model", "malformed_request") == (status, answer["error"]["param"], answer["error"]["code"])
    assert [] == caller.asked


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"a": 1, "a": 1}', "a"),
        (b'{"a": {"b": [{"c": 1, "c": 2}]}}', "c"),
        (b'{"a":1,"\\u0061":2}', "a"),
        (b'{"a":"","a":"","b":"\\u003a"}', "a"),
        (b'{"a":"","a":"","b":"\\u003A"}', "a"),
        (b'{"b:":"::","a":":","a":1}', "a"),
        (b'{"n": 1e999, "a": 1, "a": 2}', "a"),
        (b'{"n": ' + b"1" * 5000 + b', "a": 1, "a": 2}', "a"),
        (b'{"' + b"x" * 9000 + b'": 1, "' + b"x" * 9000 + b'": 2}', "x" * 128),
    ],
)
def test_a_name_is_found_however_it_is_hidden(body, name):
    """Behind an escape, deep in a list, beside a number that no reader takes, or among texts that have colons."""
    with pytest.raises(InvalidRequest) as refused:
        check_once(body)
    assert name == refused.value.field


@pytest.mark.parametrize("body", [b'{"a": "\\u003a", "b": {"a": 1}}', b'[{"a": 1}, {"a": 1}]', b'{"n": 1e999}', DEEP])
def test_names_that_come_once_pass(body):
    """Those of other objects are others."""
    check_once(body)


def test_any_body_is_judged_as_a_plain_reader_judges_it():
    """Random bodies, of few names and of texts that have what names have around them."""
    draw = random.Random(5)
    names, texts = ["a", "b", "a:", "\\u003a", "\\\\u003a", '\\"'], ["", ":", '\\":', "\\u003A", "\\\\u003a:"]

    def value(depth):
        kind = draw.randrange(4 if depth else 2)
        if kind < 2:
            return f'"{draw.choice(texts)}"'
        count = draw.randrange(4)
        if kind == 2:
            return f"[{','.join(value(depth - 1) for _ in range(count))}]"
        return "{" + ",".join(f'"{draw.choice(names)}" : {value(depth - 1)}' for _ in range(count)) + "}"

    num_twice = 0
    for body in (value(3).encode() for _ in range(3000)):
        is_twice = _has_twice(body)
        num_twice += is_twice
        try:
            check_once(body)
        except InvalidRequest:
            assert is_twice, body
        else:
            assert not is_twice, body
    assert num_twice > 100


def _has_twice(body):
    """Whether an object has a name twice, read one character after another."""
    stack, at = [], 0
    while at < len(body):
        character = body[at : at + 1]
        if character in b"{[":
            stack.append(set() if character == b"{" else None)
        elif character in b"}]":
            stack.pop()
        elif character == b'"':
            end = at + 1
            while body[end : end + 1] != b'"':
                end += 2 if body[end : end + 1] == b"\\" else 1
            if body[end + 1 :].lstrip().startswith(b":"):
                name = msgspec.json.decode(body[at : end + 1])
                if name in stack[-1]:
                    return True
                stack[-1].add(name)
            at = end
        at += 1
    return False


@pytest.mark.parametrize("colon", ["\\u003a", "\\u003A"])
def test_only_a_colon_is_looked_for_in_each_object(monkeypatch, colon):
    """What Go's encoder writes for `<` and `>` costs its callers nothing."""
    looked = []
    monkeypatch.setattr(once, "_read", looked.append)
    check_once(b'{"a": "\\u003cb\\u003E"}')
    assert [] == looked
    check_once(b'{"a": "%s"}' % colon.encode())
    assert 1 == len(looked)


def test_a_body_of_many_objects_is_read_aside(monkeypatch):
    """However small it is: to look for names that come twice takes as long as it has objects."""
    seen = []
    monkeypatch.setattr(once, "_read", lambda _: seen.append(threading.current_thread() is threading.main_thread()))
    for count in (1, 10_000):
        body = {"model": "m", "prompt": "p", "user": ["\\u003a", *[{}] * count]}
        body = msgspec.json.encode(body).replace(b"\\\\", b"\\")
        assert len(body) < aside.SMALL_BYTES
        asyncio.run(Client(Scripted(InvalidRequest("text", "is wrong"))).send("POST", "/v1/completions", body))
    assert [True, False] == seen
