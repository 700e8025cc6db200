"""docs/errors.md has each reason of the server, with the status that its callers get."""

import ast
import re
from pathlib import Path

from weft_server.engine.failure import OUT_OF_MEMORY
from weft_server.telemetry.metrics_table import FAILURES
from weft_server.transport import status

ROOT = Path(__file__).parents[2]
REASON = re.compile(r"[A-Z]{2,}(_[A-Z]+)*")


def reasons_of(tree, classes):
    """(class, reason) for each error that a module makes with its reason as a plain string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in classes:
            inside = (each for each in ast.walk(node) if isinstance(each, ast.Call))
            calls = [(node.name, call) for call in inside if ast.unparse(call.func) == "super().__init__"]
        elif isinstance(node, ast.Call):
            calls = [(ast.unparse(node.func).split(".")[-1], node)]
        else:
            continue
        for name, call in calls:
            given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "reason")]
            found = [arg.value for arg in given if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from ((name, text) for text in found if name in classes and REASON.fullmatch(text))


def test_each_reason_is_on_the_page():
    """With its status; and the page has no other."""
    codes = {kind.__name__: code.name for kind, code in status._CODES.items()}
    modules = (path.read_text() for path in (ROOT / "server/weft_server").rglob("*.py"))
    expected = {(reason, codes[name]) for text in modules for name, reason in reasons_of(ast.parse(text), codes)}
    expected |= {(reason, codes["LaneFailed"]) for reason in FAILURES if reason != OUT_OF_MEMORY}
    # Those that are told by a name, by default, or by no error of ours.
    expected |= {(OUT_OF_MEMORY, codes["Overloaded"]), ("INVALID_FIELD", codes["InvalidRequest"])}
    expected |= {("BUG", status.to_status(ValueError()).code.name)}
    page = (ROOT / "docs/errors.md").read_text()

    assert expected == set(re.findall(r"^\| `([A-Z_]+)` \| ([A-Z_]+) \|", page, re.MULTILINE))
