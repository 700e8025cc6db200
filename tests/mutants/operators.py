"""The small changes that can be made to a module, one at a time: a line that goes, a condition turned round.

Equal sources give equal lists, so that a number names a change.
"""

import ast
from dataclasses import dataclass, replace
from typing import Any

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


@dataclass(frozen=True)
class Mutation:
    """One change of a tree: what an attribute of a node is, or an item of a list.

    `node` is what changes, and says at which lines it is. `gone`: how that looks where a statement is deleted.
    """

    kind: str
    # Where it is: names of classes and functions.
    within: str
    node: ast.AST
    owner: Any
    place: str | int | slice
    value: object
    gone: str = ""

    def apply(self) -> object:
        """Make the change in the tree that it was found in. Return what was there."""
        if isinstance(self.place, str):
            old = getattr(self.owner, self.place)
            setattr(self.owner, self.place, self.value)
        else:
            old = self.owner[self.place]
            self.owner[self.place] = self.value
        return old

    @property
    def lines(self) -> range:
        """Those that run what changes. Of what holds other statements it is the first one."""
        last = self.node.lineno if isinstance(self.node, ast.Try | ast.ExceptHandler) else self.node.end_lineno
        return range(self.node.lineno, last + 1)

    @property
    def before(self) -> str:
        """The first line of what changes."""
        return ast.unparse(self.node).partition("\n")[0]

    @property
    def after(self) -> str:
        """The same with the change."""
        if self.gone:
            return self.gone
        old = self.apply()
        changed = self.before
        replace(self, value=old).apply()
        return changed


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
        self._within: list[str] = []

    def _note(self, kind: str, *change: Any, gone: str = "") -> None:
        self.found.append(Mutation(kind, ".".join(self._within), *change, gone=gone))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name == "__repr__":
            return
        self._within.append(node.name)
        for index in range(len(node.body)):
            self._statement(node.body, index)
        self._within.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within.append(node.name)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(statement)
        self._within.pop()

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
            self._note("statement", node, body, index, _like(node, ast.Pass()), gone="-")
        self.visit(node)

    def _may_go(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Raise | ast.Delete | ast.Continue | ast.Break | ast.AugAssign):
            return True
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Call | ast.Await)
        # Without what a constructor sets, nothing goes.
        if not isinstance(node, ast.Assign) or "__init__" in self._within:
            return False
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)

    def visit_Try(self, node: ast.Try) -> None:
        if len(node.finalbody) > 1:
            first = node.finalbody[0]
            self._note("cleanup", first, node.finalbody, slice(None), [_like(first, ast.Pass())], gone="finally: pass")
        for handler in node.handlers:
            if not any(isinstance(each, ast.Raise) and each.exc is None for each in handler.body):
                again = _like(handler.body[0], ast.Raise())
                self._note("cleanup", handler, handler.body, slice(None), [again], gone="raise")
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        turned = _like(node.test, ast.UnaryOp(ast.Not(), node.test))
        self._note("condition", node.test, node, "test", turned, gone="turned round")
        self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            if other := _BOUNDARIES.get(type(operator)):
                self._note("comparison", node, node.ops, index, other())
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp | ast.AugAssign) -> None:
        if other := _SIGNS.get(type(node.op)):
            self._note("arithmetic", node, node, "op", other())
        self.generic_visit(node)

    visit_AugAssign = visit_BinOp

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._note("boolean", node, node, "op", _JUNCTIONS[type(node.op)]())
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and (other := _LIMITS.get(node.func.id)):
            self._note("limit", node, node, "func", _like(node.func, ast.Name(other, ast.Load())))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._note("constant", node, node, "value", not node.value)
        elif isinstance(node.value, int):
            self._note("constant", node, node, "value", node.value + 1)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._note("return", node, node, "value", _like(node, ast.Constant(None)))
        self.generic_visit(node)


def _like(node: ast.AST, new: Any) -> Any:
    return ast.copy_location(new, node)


def _is_silent(node: ast.stmt) -> bool:
    """Whether it is a docstring, or a call of the log or of a failpoint."""
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.value if isinstance(node.value, ast.Await) else node.value
    if not isinstance(called, ast.Call):
        return isinstance(called, ast.Constant)
    return any(part in _SILENT for part in ast.unparse(called.func).split("."))
