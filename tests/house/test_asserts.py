"""The asserts of the tests read `expected == actual`."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))


def is_literal(node):
    """Whether the expression is spelled out: a number, a string, True, None, a container of them, or near one."""
    match node:
        case ast.UnaryOp(operand=part) | ast.Call(func=ast.Attribute(ast.Name("pytest"), "approx"), args=[part, *_]):
            return is_literal(part)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return all(map(is_literal, parts))
        case ast.Dict(keys=keys, values=values):
            return all(map(is_literal, [*keys, *values]))
        case ast.BinOp(left=left, right=right):
            return is_literal(left) and is_literal(right)
    return isinstance(node, ast.Constant)


def equalities(test):
    """The comparisons by `==` alone that an assert demands, also as parts of an `and` and of an `all(...)`."""
    match test:
        case ast.Compare(ops=ops) if all(isinstance(op, ast.Eq) for op in ops):
            yield [test.left, *test.comparators]
        case ast.BoolOp(op=ast.And(), values=values):
            for value in values:
                yield from equalities(value)
        case ast.Call(func=ast.Name("all"), args=[ast.GeneratorExp(elt=each)]):
            yield from equalities(each)


def turned_round(source):
    """The lines of the asserts that compare something with a literal on the right and none on the left."""
    asserts = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
    return [
        each.lineno
        for each in asserts
        for first, *others in equalities(each.test)
        if not is_literal(first) and any(map(is_literal, others))
    ]


def test_what_is_expected_comes_first():
    """No assert has the literal that it expects on the right."""
    lines = {file.relative_to(TESTS).as_posix(): turned_round(file.read_text()) for file in FILES}
    assert {} == {file: of_file for file, of_file in lines.items() if of_file}


@pytest.mark.parametrize(
    "planted",
    [
        "len(found) == 2",
        "answer.text == '', 'why'",
        "found == [1, (2, -3), {'a': None}]",
        "found == pytest.approx(0.5, abs=1e-3)",
        "stream.push(ids) == stream.finish() == ''",
        "found and answer.text == 'b a'",
        "all(score == 0 for score in scores)",
    ],
)
def test_the_rule_fires(planted):
    """Each form of such an assert is found where it stands."""
    assert [2] == turned_round(f"def test_law():\n    assert {planted}\n")


@pytest.mark.parametrize(
    "planted",
    ["2 == len(found)", "expected == found", "[1] == found == again", "1 == 1", "found != []", "0 < found <= 3 == top"],
)
def test_the_rule_knows_what_is_right(planted):
    """The expected side on the left, two computed sides and other comparisons pass."""
    assert [] == turned_round(f"assert {planted}\n")
