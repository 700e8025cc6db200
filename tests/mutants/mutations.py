"""The small changes that can be made to a module, one at a time: a line that goes, a condition turned round.

Equal sources give equal lists, so that a number names a change.
"""

import ast
from collections.abc import Callable
from typing import NamedTuple

# How often each kind is drawn, where a module has it. A deleted line is what tests miss most.
WEIGHTS = {
    "statement": 6,
    "cleanup": 4,
    "condition": 3,
    "comparison": 2,
    "arithmetic": 2,
    "boolean": 2,
    "limit": 2,
    "constant": 1,
    "return": 1,
}
_BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_JUNCTIONS = {ast.And: ast.Or, ast.Or: ast.And}
_LIMITS = {"min": "max", "max": "min"}
# No law is about the log. Failpoints are stops of the tests.
_SILENT = ("log", "_log", "failpoint", "failpoints")


class Mutation(NamedTuple):
    """One change. `apply` makes it in the tree that it was found in. `before` and `after` are of one line each."""

    kind: str
    first_line: int
    last_line: int
    before: str
    after: str
    apply: Callable[[], None]


def mutations_of(tree: ast.Module) -> list[Mutation]:
    """All changes of a module that a test should notice.

    Not among them: the log, annotations, asserts, `__repr__`, constants with a name, and a whole `with`.
    """
    finder = _Finder()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            finder.visit(statement)
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[Mutation] = []
        self._functions: list[str] = []

    def _note(self, kind: str, node: ast.AST, after: str, apply: Callable[[], None]) -> None:
        # Of what holds other statements only the first line is run by all who come here.
        last = node.lineno if isinstance(node, ast.Try | ast.ExceptHandler) else node.end_lineno
        self.found.append(Mutation(kind, node.lineno, last, _line(node), after, apply))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name == "__repr__":
            return
        self._functions.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(statement)

    def visit_Assert(self, node: ast.Assert) -> None:
        """State an invariant of our own: no test can break it."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Say something to a person."""

    def generic_visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, ast.stmt):
                        self._statement(value, index)
                    elif isinstance(item, ast.AST):
                        self.visit(item)
            elif isinstance(value, ast.AST) and name not in {"annotation", "returns", "ctx"}:
                self.visit(value)

    def _statement(self, body: list[ast.stmt], index: int) -> None:
        node = body[index]
        if _is_silent(node):
            return
        if self._may_go(node):
            self._note("statement", node, "-", lambda: body.__setitem__(index, _passing(node)))
        self.visit(node)

    def _may_go(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Raise | ast.Delete | ast.Continue | ast.Break | ast.AugAssign):
            return True
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Call | ast.Await)
        # Without what a constructor sets, nothing goes.
        if not isinstance(node, ast.Assign) or "__init__" in self._functions:
            return False
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)

    def visit_Try(self, node: ast.Try) -> None:
        if node.finalbody:
            body, after = node.finalbody, _passing(node.finalbody[0])
            self._note("cleanup", body[0], "finally: pass", lambda: body.__setitem__(slice(None), [after]))
        for handler in node.handlers:
            if not any(isinstance(each, ast.Raise) and each.exc is None for each in handler.body):
                again = ast.copy_location(ast.Raise(), handler.body[0])
                self._note(
                    "cleanup", handler, "raise", lambda h=handler, r=again: h.body.__setitem__(slice(None), [r])
                )
        self.generic_visit(node)

    def _turned(self, node: ast.If | ast.IfExp) -> None:
        turned = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        self._note("condition", node.test, f"not ({_line(node.test)})", lambda: setattr(node, "test", turned))
        self.generic_visit(node)

    visit_If = visit_IfExp = _turned

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            if other := _BOUNDARIES.get(type(operator)):
                self._replace("comparison", node, node.ops, index, other())
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if other := _SIGNS.get(type(node.op)):
            self._change("arithmetic", node, "op", other())
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit_BinOp(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._change("boolean", node, "op", _JUNCTIONS[type(node.op)]())
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and (other := _LIMITS.get(node.func.id)):
            self._change("limit", node, "func", ast.copy_location(ast.Name(other, ast.Load()), node.func))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._change("constant", node, "value", not node.value)
        elif isinstance(node.value, int):
            self._change("constant", node, "value", node.value + 1)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._change("return", node, "value", ast.copy_location(ast.Constant(None), node))
        self.generic_visit(node)

    def _change(self, kind: str, node: ast.AST, name: str, value: object) -> None:
        old = getattr(node, name)
        setattr(node, name, value)
        after = _line(node)
        setattr(node, name, old)
        self._note(kind, node, after, lambda: setattr(node, name, value))

    def _replace(self, kind: str, node: ast.AST, items: list, index: int, value: object) -> None:
        old, items[index] = items[index], value
        after = _line(node)
        items[index] = old
        self._note(kind, node, after, lambda: items.__setitem__(index, value))


def _line(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0]


def _passing(node: ast.stmt) -> ast.Pass:
    return ast.copy_location(ast.Pass(), node)


def _is_silent(node: ast.stmt) -> bool:
    """Whether it is a docstring, or a call of the log or of a failpoint."""
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.value if isinstance(node.value, ast.Await) else node.value
    if not isinstance(called, ast.Call):
        return isinstance(called, ast.Constant)
    return any(part in _SILENT for part in ast.unparse(called.func).split("."))
