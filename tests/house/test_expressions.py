"""Every regular expression of ours that reads what others wrote takes time that grows as the text does, not faster."""

import ast
import re
import time
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Regex, normalizers, pre_tokenizers

from bounded import Bounded

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "proto/weft_proto",
    "client/weft",
    "client/weft_bench",
    "server/weft_server",
    "export/weft_export",
    "export/weft_recipes",
)
COMPILES = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
# Characters of the longest text, and of a shorter one.
LONG, SHORT = 65_536, 16_384
# Four times the text may take this much more processor time. What is quadratic takes 16 times as much. Below the floor
# in seconds nothing is told apart.
MOST, FLOOR_S = 8, 0.01


def run(unit, begin="", end=""):
    """A worst text: as many units as fit, between a beginning and an end."""
    return lambda size: begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


# How an expression is asked, and its worst texts. The names are those of the source, or the expression itself.
SERVER = {
    "telemetry/metrics_page.py _NO_VERSION": ("sub", run("; ", end="x"), run("1", ";version="), run(";version=1.1")),
    "openai_api/chat.py _TYPE_OF_PART": ("fullmatch", run("1", "messages["), run("1", "messages[0].content[", "].x")),
    "openai_api/params.py _INDEX": ("sub", run("["), run("1", "["), run("[1]")),
    "auth/tokens.py _MODEL": ("fullmatch", run("a"), run("a:")),
    "auth/tokens.py _RATE": ("fullmatch", run("1"), run("1/")),
    "auth/tokens.py _DIGEST": ("fullmatch", run("a")),
    "calls/trace_context.py _TRACEPARENT": (
        "fullmatch", run("0"), run("-", f"01-{'a' * 32}-{'b' * 16}-01"), run("\n", f"01-{'a' * 32}-{'b' * 16}-01-")),
    "auth/tokens.py _COMMENT": ("sub", run(" "), run("# "), run("#")),
    "checks/packages.py _REQUIREMENT": ("fullmatch", run("a"), run("[", "a"), run("1", "a>=")),
    r"checks/packages.py '\\d+'": ("findall", run("1"), run("1a")),
    "runtime/huge_pages.py _OWN": (
        "findall", run("a"), run("a: b\n", "1-1 rw-p 0 0 0 \n"), run("1-1 rw-p 0 0 0 \na: \n")),
    "bundle/files.py _SHA256": ("fullmatch", run("a")),
    "bundle/graphs.py _NUMBER": ("fullmatch", run("1")),
    "rpc/open_inference/refusals.py _INPUT": ("fullmatch", run("1", "inputs["), run("a"), run("a", "inputs[1].")),
    "api/codecs.py _UNKNOWN": (
        "search", run('no field named "'), run("a", 'no field named "'), run('"', 'no field named "')),
    "api/codecs.py _EMPTY": (
        "search", run(":"), run(" ", ":"), run(" ", ":["), run("[ "), run(":[  "), run('":')),
    "setting_types.py _DEVICE": ("fullmatch", run("1")),
    "setting_types.py _KEY": ("fullmatch", run("a")),
    "setting_types.py _ORIGIN": ("fullmatch", run("a", "http://"), run("1", "http://a:"), run(":", "http://[")),
    "setting_types.py _WEIGHT": ("fullmatch", run("0", "a="), run("=")),
    "structured_output/grammars.py _LITERALS": (
        "sub", run("\\/", "/"), run("\\/", '"'), run('\\"', '"'), run('\\"'), run("/\\"), run('"\n'), run("#"),
        run("/"),
        run('"/'),
    ),
    "structured_output/grammars.py _DEFINITION": (
        "findall", run("a"), run("\n", "a"), run(" "), run(" \n", "a"), run("a[\n"), run("a []\n"), run("[", "a"),
        run("!"), run(" !\n"), run("a.", end="!"), run("a\n"),
    ),
    "structured_output/grammars.py _COMPLEMENT": ("search", run("~ 1"), run(" ", "~"), run("~")),
    "structured_output/grammars.py _SETS_X": ("finditer", run("a", "(?"), run("(?a"), run("\\")),
    "structured_output/grammars.py _PLACE": ("sub", run(" "), run("1"), run("1 | \n "), run(" ", "1 | \n"), run("1("),
        run("\n ")),
    "structured_output/grammars.py _REGEX_ERROR": ("search", run("error: "), run("error: \n"), run("a")),
    "structured_output/schema_patterns.py _PARTS": (
        "findall", run("a"), run("\\"), run("[", "("), run("(?<"), run("{1,"), run("\\u{0"), run("\\p{a"), run("-"),
    ),
    "preprocessing/sentences.py _MARKS": (
        "finditer", run(".)"), run("."), run(" "), run(")", "."), run(" »", "."), run(". »"),
    ),
    "preprocessing/sentences.py _CLAUSES": ("finditer", run(", "), run(" ", ","), run(" "), run("、 ")),
    "preprocessing/sentences.py _SPACES": ("search", run("a"), run(" ")),
    "preprocessing/sentences.py _INITIALS": ("fullmatch", run("a.", end="1"), run("a")),
    "preprocessing/sentences.py _ORDINAL": ("fullmatch", run("1")),
    "preprocessing/image_file.py _JPEG_MARKER": ("search", run("ÿ"), run("ÿ\0")),
    "preprocessing/chat_functions.py _NAME": ("fullmatch", run("a"), run("a", end="!")),
    "preprocessing/channels.py _MARK": ("search", run("<|"), run("<"), run("<|start|")),
    "preprocessing/written_calls.py _HERMES": ("match", run(" "), run(" ", "<tool_call>"), run(" ", "<tool_call>{"),
        run("a", '<tool_call>{"name": "'), run("\\", '<tool_call>{"name":"'), run(" ", '<tool_call>{"name":"a",')),
    "preprocessing/written_calls.py _LLAMA3": ("match", run(" "), run(" ", "{"), run("a", '{"name": "'),
        run("\\", '{"name": "'), run(" ", '{"name": "a"'), run(" ", '{"name": "a", "parameters"')),
}  # fmt: skip
PROTO = {
    "offsets.py '\\\\X'": ("split", run("́", "e"), run("‍👩"), run("각"), run("\r")),
    "offsets.py _FLAG": ("sub", run("🇦"), run("🇦a")),
    "offsets.py _INDICATOR": ("sub", run("🇦"), run("🇦a")),
    "bundle_rules.py MODEL_NAME": ("fullmatch", run("a")),
    "bundle_rules.py VERSION": ("fullmatch", run("1")),
    "bundle_rules.py FILE_NAME": ("fullmatch", run("a")),
    "languages.py TAG": ("fullmatch", run("a"), run("a-"), run("-a", "a"), run("-a", "a", "!"),
        run("-aaaaaaaa", "a", "!")),
}  # fmt: skip
CLIENT = {
    "_files/out.py _LINE_ENDS": ("sub", run("\r"), run("\r\n"), run("a")),
    "_flags.py _FIELD": (
        "sub", run("model.a"), run(".a", "model"), run("[1", "model"), run("model[1]"), run("request."), run("a"),
        run("[1].a", "model", "[1"), run("model "), run("1", "model["), run("a", "!"),
    ),
    "_flags.py _INDEX": ("sub", run("[1"), run("1", "["), run("[1]")),
    r"_flags.py '\\bSIDE_(INPUT|OUTPUT)\\b'": ("sub", run("SIDE_"), run("SIDE_INPUT"), run("SIDE_INPUT ")),
    "_show.py _BEYOND_ASCII": ("sub", run("\x7f"), run("a")),
    "_channel.py _KEY": ("fullmatch", run("a", end="!")),
    "_status.py _STATUS": ("sub", run("A"), run("A: "), run("A_: ", end="A")),
    "_status.py _ADDRESS": ("sub", run(":", "ipv4:"), run("a", "ipv4:"), run("ipv4:"), run(": ", "ipv4:")),
    "_target.py _SCHEME": ("match", run("a", "dns://"), run("/", "dns:"), run("dns:")),
    "_target.py _WEB": ("match", run("a"), run("a:"), run("a:/")),
    "_target.py _PORT": ("fullmatch", run("1")),
}  # fmt: skip
BENCH = {
    "lengths.py _RANGE": ("fullmatch", run("1", end="x"), run("1", "1..", "x"), run(".", "1")),
    "lengths.py _LOG_NORMAL": ("fullmatch", run("1", "lognormal:", "x"), run("1", "lognormal:1,", "x")),
}  # fmt: skip
EXPORT = {
    "checkpoints/adapter_folder.py _HUB_NAME": ("fullmatch", run("a"), run("a/"), run("a", "a/", "!")),
    "checkpoints/formats.py HUB_NAME": ("fullmatch", run("a"), run("a/"), run("a", "a/", "!")),
    "up/kept.py '[^a-z0-9._-]+'": ("sub", run("!"), run("!a")),
    r"wrapping/picture_options.py '(\\d{1,6})(?:x(\\d{1,6}))?'": ("fullmatch", run("1"), run("1x")),
    "converters/classes.py _BODY_OF": ("fullmatch", run("For"), run("ForMaskedLM", end="!")),
    "converters/gguf/names.py _PART": ("fullmatch", run("a"), run("-00001-of-"), run("-00001-of-00001")),
    "converters/gguf/tokens.py _LLAMA3_WORDS": ("split", run(" ", "a", "a"), run("\t"), run("!\n", end="a"),
        run("aA1")),
    "converters/gguf/tokens.py _TEKKEN_WORDS": ("split", run(" ", "a", "a"), run("\t"), run("!/\n", end="a"),
        run("aA1")),
    "converters/text/byte_level.py _QWEN_WORDS": ("split", run(" ", "a", "a"), run("\t"), run("!\n", end="a"),
        run("'")),
    "converters/text/languages.py _CODE": ("fullmatch", run("a"), run("_Aaaa", "aa")),
    "converters/text/json_file.py _HALF": ("search", run("\\u"), run("\\ud"), run("\\\\")),
    "converters/text/languages.py '[a-z]{2}_[A-Z]{2}'": ("fullmatch", run("a"), run("aa_A")),
    "converters/text/languages.py '[a-z]{3}_[A-Z][a-z]{3}'": ("fullmatch", run("a"), run("aaa_A")),
    "converters/text/languages.py '__[a-z]{2,3}__'": ("fullmatch", run("_"), run("__aa")),
    "converters/text/languages.py _OF_MARIAN": ("fullmatch", run(">"), run("<", ">>", ">"), run("<<", ">>", "a")),
    "converters/text/pieces.py ' {2,}'": ("replace", run(" ", "a", "a"), run(" a")),
    "converters/text/unigram.py ' {2,}'": ("replace", run(" ", "a", "a"), run(" a")),
    r"converters/text/unigram.py '\\n'": ("replace", run("\n"), run("a")),
    r"converters/text/unigram.py '\\s{2,}|[\\n\\r\\t]'": ("replace", run(" ", "a", "a"), run(" a"),
        run("\n", "a", "a")),
    "converters/text/spm_text.py _ENDS": ("replace", run(" ", "a", "a"), run("▁", "a", "a"), run("▁ ", "a", "a"),
        run(" ")),
    "converters/text/spm_text.py ' {2,}'": ("replace", run(" ", "a", "a"), run(" a")),
    r"converters/text/spm_text.py '\\A +|(?<! ) +\\z'": ("replace", run(" ", "a", "a"), run(" "), run(" a")),
    "converters/text/canonical.py _PUNCTUATION": ("replace", run("!"), run("!a"), run("a")),
    r"converters/text/canonical.py '\\s+'": ("replace", run(" ", "a", "a"), run(" a"), run(" ")),
    "converters/sources.py _NUMBER": ("findall", run("1", "."), run(".1", end="a"), run("."), run("1")),
    r"converters/sources.py '\\{(\\w+(?:,\\w+)+)\\}'": ("search", run("{a,a"), run("a", "{"), run(",a", "{a"),
        run("{")),
    "adapters/peft.py _NAME": ("fullmatch", run(".lora_A"), run("a"), run(".lora_A.default", "a", "a")),
}  # fmt: skip
# Those of the recipes that stand in tokenizers, which read what callers send. White space is one space by then.
RECIPES = {
    r"shared/vocabulary.py '[,\\s]+'": ("replace", run(" ", "a", "a"), run(",", "a", "a"), run(" a")),
    r"shared/vocabulary.py '(?<![.!\\s])[.!\\s]+$'": ("replace", run(".", "a", "a"), run(". ", "a", "a"), run(".a")),
    r"shared/vocabulary.py '\\s*\\?'": ("replace", run(" ?"), run(" a"), run("a ", end="?")),
    r"shared/vocabulary.py '¿\\s*'": ("replace", run("¿ "), run("¿"), run(" a")),
}
# What reads no text of others: names of our own in patterns that tell which weights are ignored; the texts that
# recipes are trained with; classes of single characters, made of a tokenizer's; and what a file brings itself: an
# adapter says by an expression of its own which layers it is of; a flag of the command line.
OURS = {
    "client/weft_bench/arrivals.py number",
    # Of the kind of _BODY_OF there, one after the other.
    "export/weft_export/converters/classes.py classes",
    "export/weft_export/converters/filling.py pattern",
    "export/weft_export/adapters/modules.py kind.conv1d",
    "export/weft_export/adapters/modules.py pattern",
    # What the adapter's own config writes, over names of modules.
    "export/weft_export/adapters/adapter_config.py pattern",
    # The tree of a vocabulary's tokens, each of at most 128 bytes: test_world.py has its worst texts.
    "export/weft_export/converters/text/world.py _longest(_tree_of(spelled))",
    "export/weft_export/converters/text/spm_text.py edges",
    "export/weft_export/converters/text/spm_text.py between",
    r"export/weft_recipes/speech/utterances.py '{(\\w+)}'",
    "export/weft_recipes/texts/notices.py _ORDINARY",
    "export/weft_recipes/texts/notices.py _PLACE",
    'export/weft_recipes/texts/notices.py " (?=[.,?!:)]|\'s)"',
    "export/weft_recipes/texts/docstrings.py pattern",
    "export/weft_recipes/texts/rules.py '[aeiou]'",
    r"export/weft_recipes/text_to_text.py f'\\s*[{mark}]\\s*'",
    # Over what OpenTelemetry says of variables of whoever starts the server.
    r"server/weft_server/telemetry/tracing.py f'(?<!\\w){re.escape(value)}(?!\\w)'",
    r"server/weft_server/telemetry/tracing.py '[,=\\s]'",
    # Over the contracts that the server brings, and over its page.
    "server/weft_server/api/contract_comments.py _COMMENT",
    "server/weft_server/api/contract_comments.py _BLOCK",
    "server/weft_server/api/contract_comments.py _METHOD",
    "server/weft_server/api/contract_comments.py _FIELD",
    "server/weft_server/api/contract_comments.py _END",
    "server/weft_server/api/connect_operations.py _END_OF_SENTENCE",
    "server/weft_server/api/docs_routes.py _INLINE",
}
READ = {
    f"{package}/{where}": how
    for package, table in zip(PACKAGES, (PROTO, CLIENT, BENCH, SERVER, EXPORT, RECIPES), strict=True)
    for where, how in table.items()
}


@cache
def expressions():
    """All expressions of the source, by file and name, and for each what it is if the source says so."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            known = _constants(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and _is_expression(node.func):
                    name = known["names"].get(id(node), ast.unparse(node.args[0]))
                    pattern, *flags = (_value(each, known["values"]) for each in node.args[: _num_read(node.func)])
                    found[f"{path.relative_to(ROOT)} {name}"] = pattern, *flags
    return found


def _is_expression(function):
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.value.id == "re" and function.attr in COMPILES
    return isinstance(function, ast.Name) and function.id == "Regex"


def _num_read(function):
    """How many of its arguments say what an expression is: with `re.compile` there may be flags."""
    return 2 if isinstance(function, ast.Attribute) and function.attr == "compile" else 1


def _constants(tree):
    """What a module's names stand for, as far as its text says it, and the names of expressions."""
    values, names = {"SPACE": "▁", "re": re}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if isinstance(node.value, ast.Call) and _is_expression(node.value.func) and _num_read(node.value.func) > 1:
                names[id(node.value)] = name
            elif (value := _value(node.value, values)) is not None:
                values[name] = value
    return {"values": values, "names": names}


def _value(node, values):
    try:
        return eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}}, dict(values))
    except Exception:  # noqa: BLE001 - it says so by running only
        return None


def took(where, index, size):
    """Seconds of processor time that an expression takes over one of its worst texts. Runs in a child."""
    method, *texts = READ[where]
    (pattern, *flags), text = expressions()[where], texts[index](size)
    ask = _asker(method, pattern, text, *flags)
    started = time.thread_time()
    ask()
    return time.thread_time() - started


def _asker(method, pattern, text, flags=0):
    if method == "replace":
        step = normalizers.Replace(Regex(pattern), "#")
        return lambda: step.normalize_str(text)
    if method == "split":
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        return lambda: split.pre_tokenize_str(text)
    if isinstance(pattern, bytes):
        text = text.encode("latin-1")
    compiled = re.compile(pattern, flags)
    if method == "sub":
        return lambda: compiled.sub("", text)
    if method == "finditer":
        return lambda: list(compiled.finditer(text))
    return lambda: getattr(compiled, method)(text)


def test_every_expression_of_the_source_is_known():
    """A new one gets its worst texts in the tables above, or a reason why nobody else's text comes to it."""
    found = expressions()
    assert set(READ) | OURS == set(found)
    assert [] == [where for where in READ if None in found[where]]


@pytest.fixture(scope="module")
def asked():
    """`took` in a process that can be ended."""
    with Bounded(__file__, "took", seconds=60) as call:
        yield call


@pytest.mark.parametrize("where", READ)
def test_time_grows_no_faster_than_the_text(asked, where):
    """Over its worst texts of 64 KiB each takes at most eight times what it takes over a quarter of them."""

    def grows_slowly(index):
        return asked(where, index, LONG) < MOST * max(FLOOR_S, asked(where, index, SHORT))

    for index in range(len(READ[where]) - 1):
        # What is quadratic is so each time. A core that somebody else works on may be slow once.
        assert any(grows_slowly(index) for _ in range(3)), f"text {index}"


def test_what_is_quadratic_is_found(monkeypatch):
    """The measure finds the expression that once read the literals of a grammar."""
    ask = _asker("sub", r'"(?:\\.|[^"\\\n])*"|/(?!/)(?:\\.|[^/\\\n])+/', run("\\/", "/")(SHORT // 4))
    more = _asker("sub", r'"(?:\\.|[^"\\\n])*"|/(?!/)(?:\\.|[^/\\\n])+/', run("\\/", "/")(SHORT))
    seconds = []
    for each in (ask, more):
        started = time.thread_time()
        each()
        seconds.append(time.thread_time() - started)
    assert seconds[1] > MOST * max(seconds[0], FLOOR_S)
