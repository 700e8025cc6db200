"""The tree of a parsed template: refused if it has what no chat needs, and given hooks for a meter."""
# ruff: noqa: N802 - jinja2 names the methods after its nodes, and _Hooks says what they do

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from weft_proto.chat.faults import NoTemplate
from weft_proto.chat.meter import ENTRY_CHARS

# Filters of ours. A template cannot name them, because of the space.
OWN = EACH, SPEND, KEEP, CONCAT, COMPARED, IN = (
    "weft each", "weft spend", "weft keep", "weft concat", "weft compared", "weft in",
)  # fmt: skip

# Everything but what reads other files (include, import, extends, block), and what changes how text is escaped.
_ALLOWED = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Break, nodes.Continue, nodes.With,
    nodes.Scope, nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.Name,
    nodes.NSRef,
    nodes.Const, nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.CondExpr, nodes.Filter,
    nodes.Test, nodes.Call, nodes.Getitem, nodes.Getattr, nodes.Slice, nodes.Concat, nodes.Compare, nodes.Operand,
    nodes.BinExpr, nodes.UnaryExpr, nodes.ExtensionAttribute,
)  # fmt: skip
_LITERALS: Any = (nodes.List, nodes.Tuple, nodes.Dict)


def prepared(tree: nodes.Template) -> nodes.Template:
    """Return the tree with a meter's hooks in it. Raises NoTemplate for what a template may not have."""
    for node in [tree, *tree.find_all(nodes.Node)]:
        if not isinstance(node, _ALLOWED):
            kind = type(node).__name__.lower()
            raise NoTemplate(f"line {node.lineno} has what a chat's template may not have: {kind}")
        if isinstance(node, nodes.Compare) and len(node.ops) > (1 if any("in" in op.op for op in node.ops) else 2):
            raise NoTemplate(f"line {node.lineno} compares too much at once")
    changed: nodes.Template = _Hooks().visit(tree)
    return changed


class _Hooks(NodeTransformer):
    """Puts filters of ours around what costs something and calls nothing of the environment by itself.

    1. A loop goes through EACH, which counts its passes.
    2. A macro begins with SPEND.
    3. A slice, and a list that is written out, go through KEEP.
    4. `~` becomes CONCAT.
    5. `in` becomes IN. Any other comparison goes through COMPARED, so that none follows
       others without a look at the clock.
    """

    def visit_For(self, node: nodes.For) -> nodes.For:
        cost = _cost(node)
        self.generic_visit(node)
        node.iter = _filter(EACH, node.iter, nodes.Const(cost))
        return node

    def visit_Macro(self, node: nodes.Macro) -> Any:
        return self._with_cost(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> Any:
        return self._with_cost(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return _filter(KEEP, node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        return self._kept(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        return self._kept(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        # One that is stored to is no list: for key, value in ...
        return self._kept(node) if node.ctx == "load" else node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _filter(CONCAT, nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:
        self.generic_visit(node)
        operand = node.ops[0]
        if operand.op == "in":
            return _filter(IN, node.expr, operand.expr)
        if operand.op == "notin":
            return nodes.Not(_filter(IN, node.expr, operand.expr), lineno=node.lineno)
        return _filter(COMPARED, node)

    def _kept(self, node: Any) -> nodes.Expr:
        self.generic_visit(node)
        return _filter(KEEP, node)

    def _with_cost(self, node: Any) -> Any:
        spend = _filter(SPEND, nodes.Const(_cost(node), lineno=node.lineno))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(spend, lineno=node.lineno))
        return node


def _filter(name: str, value: Any, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)


def _cost(node: nodes.Node) -> int:
    """What one pass through a node may make by itself, in characters: its own text, and the lists it writes out."""
    text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
    entries = sum(len(literal.items) for literal in node.find_all(_LITERALS))
    return text + ENTRY_CHARS * entries
