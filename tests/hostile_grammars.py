"""Constraints that are written to cost much, each at most 64 KiB. Run as a script, it builds and follows them.

    python hostile_grammars.py SECONDS MEGABYTES [SIZE] [NAME]

Each must be built or refused within so much processor time and memory, and so must each of its steps. It prints the
greatest figures. A crash of a parser ends the script, which is why the tests run it as a process of its own.
"""

import itertools
import json
import string
import sys
import threading
import time
from pathlib import Path

import numpy as np

from followed import constraint_of, follow, vocabulary
from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest
from weft_server.structured_output.grammars import MAX_BYTES, Grammars


def _names(alphabet):
    for length in itertools.count(1):
        yield from map("".join, itertools.product(alphabet, repeat=length))


def _filled(make):
    """What `make` gives for the greatest number at which it still fits into the limit."""
    low, high = 1, 2
    while high < MAX_BYTES and len(make(high).encode()) <= MAX_BYTES:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(make(middle).encode()) <= MAX_BYTES else (low, middle)
    return make(low)


def _chain(alphabet, body, last, most=1 << 30):
    """A Lark grammar in which each name is defined by the next."""

    def make(count):
        names = list(itertools.islice(_names(alphabet), min(count, most) + 1))
        lines = [f"{name}:{body.format(then)}" for name, then in itertools.pairwise(names)]
        return "\n".join([f"start:{names[0]}", *lines, f"{names[-1]}:{last}"])

    return _filled(make)


def _references(body):
    """A JSON Schema in which each definition refers to the next."""

    def make(count):
        names = list(itertools.islice(_names(string.ascii_letters), count + 1))
        definitions = {name: body({"$ref": f"#/$defs/{then}"}) for name, then in itertools.pairwise(names)}
        schema = {"$defs": definitions | {names[-1]: {}}, "$ref": f"#/$defs/{names[0]}"}
        return json.dumps(schema, separators=(",", ":"))

    return _filled(make)


def _json(schema):
    return json.dumps(schema, separators=(",", ":"))


def _objects(count):
    return [{"type": "object", "properties": {f"p{i}": {"type": "integer"}}} for i in range(count)]


RULES = ["{}", '"b"{}', "{}?", "({})*", '({}|"b")', "({}){{2}}", "((((({})?)?)?)?)?", "{0} {0}"]
TERMINALS = ["{}", "/b/{}", "{}&/b/", "({})*", "({}){{1,2}}", "({}/a?/)*", "(/a?/{})*", "{0} {0}", "(~(/c/({})?)|/b/)*"]
SCHEMAS = {
    "anyOf": lambda then: {"anyOf": [then]},
    "anyOf of two": lambda then: {"anyOf": [then, {"type": "null"}]},
    "allOf": lambda then: {"allOf": [then, then]},
    "items": lambda then: {"items": then},
    "properties": lambda then: {"properties": {"a": then}},
    "prefixItems": lambda then: {"prefixItems": [then]},
    "patternProperties": lambda then: {"patternProperties": {"a": then}},
    "deep items": lambda then: json.loads('{"items":' * 40 + _json(then) + "}" * 40),
}
DIGITS = [f"{i:x}" for i in range(12_000)]
CASES = {
    "json_schema": {
        **{f"chain of {name}": _references(body) for name, body in SCHEMAS.items()},
        "recursive": '{"required":["a"],"properties":{"a":{"$ref":"#"}}}',
        "circle": '{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}',
        "remote": '{"$ref":"http://127.0.0.1:1/schema"}',
        "a file": '{"$ref":"file:///etc/hostname"}',
        "nested": '{"items":' * 7000 + "{" + "}" * 7001,
        "nested value": '{"const":' + "[" * 30_000 + "]" * 30_000 + "}",
        "enum": _json({"enum": list(range(11_000))}),
        "alternatives": _json({"anyOf": _objects(1000)}),
        "all of any": _json({"allOf": [{"anyOf": _objects(10)} for _ in range(100)]}),
        "properties": _json({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2000)}}),
        "lengths": _json({"type": "string", "minLength": 10**9, "maxLength": 10**9}),
        "items": _json({"type": "array", "minItems": 4 * 10**9, "items": {"type": "array", "minItems": 10**9}}),
        "pattern": _json({"type": "string", "pattern": "^(a|b)*a(a|b){500}$"}),
        "patterns": _json({"allOf": [{"type": "string", "pattern": f"[ab]*{c}[ab]{{20}}"} for c in "abababab"]}),
        "pattern of names": _json({"type": "object", "patternProperties": {"(a|b)*a(a|b){30}": {"type": "null"}}}),
        "all patterns": _json({"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(400)]}),
        "many pattern names": _json(
            {"type": "object", "patternProperties": {f"^{i}_(a|b)*a(a|b){{12}}$": {} for i in range(300)}}
        ),
        "multiple": _json({"type": "integer", "multipleOf": 999_999_937}),
        "numbers": _json({"type": "number", "minimum": 1.00001e-300, "maximum": 1e300}),
    },
    "regex": {
        "nested": "(" * 30_000 + "a" + ")" * 30_000,
        "exponential": "(a|b)*a(a|b){30000}",
        "repeated": "(a{1000}){1000}",
        "repeated often": "((((a{1,100}){1,100}){1,100}){1,100}){1,100}",
        "words": "([a-z]{1,300} ?){1,300}",
        "any": "(.*a.{20}|.*b.{30}|[^c]*c.{25}){1,50}",
        "optional": _filled(lambda count: "a?" * count + "a" * count),
        "optional in less": "a?" * 4000 + "a" * 4000,
        "stars": _filled(lambda count: ".*a" * count),
        "alternatives": "|".join(DIGITS),
        "alternatives behind any": "|".join(f".*{digits}" for digits in DIGITS[:9000]),
        "classes": "(\\w|\\d|\\p{L}|[^\\x00]){1,1000}" * 1900,
        "the same": "(a|a)*" * 10_000,
        "literal": "".join(chr(0x4E00 + i) for i in range(20_000)),
        "huge count": "(a|b){4294967295}",
    },
    "lark": {
        **{f"rules {body}": _chain(string.ascii_lowercase, body, '"x"') for body in RULES},
        **{f"fewer rules {body}": _chain(string.ascii_lowercase, body, '"x"', 900) for body in RULES},
        **{f"terminals {body}": _chain(string.ascii_uppercase, body, "/x/") for body in TERMINALS},
        **{f"fewer terminals {body}": _chain(string.ascii_uppercase, body, "/x/", 450) for body in TERMINALS},
        "all of": "start: T\nT: " + " & ".join(f"/(a|b)*a(a|b){{{i}}}/" for i in range(400)),
        "all of some": "start: T\nT: " + " & ".join(f"/(a|b)*a(a|b){{{i}}}/" for i in range(20)),
        "alternatives": "start: " + "|".join(f'"{digits}"' for digits in DIGITS[:8000]),
        "nested": "start: " + "(" * 30_000 + '"a"' + ")" * 30_000,
        "left and right": 'start: s\ns: s s | "a" | ',
        "counts": 'start: (("a" x){1,1000} | x{4,1000}){1,1000}\nx: "b"?',
        "optional": "start: " + '"a"? ' * 10_000,
        "recursive": "start: start",
        "a file": "%import .secret.WORD\nstart: WORD",
        "by number": "start: <[5-9]>",
        "special": "start: <|end|>",
        "nested Lark": "start: " + "%lark { start: " * 900 + '"a"' + " }" * 900,
        "many terminals": "start: " + "|".join(f"T{i}" for i in range(900))
        + "".join(f"\nT{i}: /[a-z]*{i}/" for i in range(900)),
    },
    "choice": {"long": [f"{i:x}" * 16 for i in range(1024)], "alike": ["a" * i for i in range(1, 362)]},
}  # fmt: skip


def megabytes():
    """What this process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def main(seconds, room, size=1000, wanted=""):
    """Build and follow all; nothing is left of one when the next begins."""
    tokenizer = vocabulary(size)
    end = tokenizer.num_ids
    grammars = Grammars(tokenizer, end + 1, [end], "m", "hostile")
    grammars.open()
    grammars.build(common_pb2.Constraint(regex="a"))
    worst = [0.0, 0.0, 0.0]
    for kind, cases in CASES.items():
        for name, source in cases.items():
            if wanted not in name:
                continue
            before, started, error, steps = megabytes(), time.process_time(), "", [0.0]
            peak = [before]
            done = threading.Event()
            watch = threading.Thread(target=_watch, args=(peak, done))
            watch.start()
            try:
                constraint = grammars.build(constraint_of(kind, source))
            except InvalidRequest as refusal:
                error, constraint = refusal.message, None
            built = time.process_time() - started
            if constraint is not None:
                steps = follow(constraint, end + 1, np.random.default_rng(0)) or [0.0]
            done.set()
            watch.join()
            assert error.isprintable()
            figures = built, max(steps), peak[0] - before
            _say(f"{kind} {name}:", figures, error[:120])
            assert built < seconds, name
            assert max(steps) < seconds, name
            assert figures[2] < room, name
            worst = list(map(max, worst, figures))
    _say("at most:", worst)
    grammars.stop()


def _say(what, figures, error=""):
    built, step, room = figures
    sys.stdout.write(f"{what} build {built:.3f} s, step {step:.4f} s, {room:.0f} MB {error}\n")
    sys.stdout.flush()


def _watch(peak, done):
    while not done.wait(0.01):
        peak[0] = max(peak[0], megabytes())


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), int((sys.argv[3:] or ["1000"])[0]), *sys.argv[4:])
