"""Lets a process trace tiny models in two thirds of the time: torch.onnx.export computes nothing that it knows."""

import functools

from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.onnx._internal.fx.passes import type_promotion

PLAIN = type_promotion._TypePromotionInterpreter.run_node
"""What torch does at each node."""


def trace_quickly():
    """Change torch.onnx.export in this process. The graphs that it makes are the same, byte for byte."""
    _read_operators_once()
    _keep_known_values()


def _read_operators_once():
    """Keep what onnxscript says of its functions, and torch of those: a quarter of a tiny export.

    They say the same each time, as long as nobody registers an operator: we do not.
    """
    if not isinstance(ONNXRegistry.__dict__["from_torchlib"], staticmethod):
        ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))


def _keep_known_values():
    """Where types are promoted, take the value of a node that is known: else torch computes each one again.

    It only looks at their types. Where it changes a node, it computes that one, and writes the value down.
    """
    interpreter = type_promotion._TypePromotionInterpreter

    def run_node(self, node):
        with self._set_current_node(node):
            if rule := type_promotion.get_type_promotion_rule(node, self.type_promotion_table):
                self._maybe_promote_node(node, rule)
        if node.op == "call_function" and "val" in node.meta:
            return node.meta["val"]
        return super(interpreter, self).run_node(node)

    interpreter.run_node = run_node
