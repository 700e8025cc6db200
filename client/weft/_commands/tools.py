"""`--tools FILE`: the functions that a chat's model may call, as OpenAI's API has them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft._fields import refusal
from weft._types import Function

_SHAPE = '{"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}'


def functions_of(path: Path) -> list[Function]:
    """Return the functions of a file: a list of tools in JSON. Raises InvalidRequest for what is none."""
    try:
        tools = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refusal("--tools", f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise refusal("--tools", f"{path} is not JSON: {error}") from None
    if not isinstance(tools, list):
        raise refusal("--tools", f"{path} must be a list of tools: [{_SHAPE}]")
    return [_function(tool, f"tool {number} of {path}") for number, tool in enumerate(tools, 1)]


def _function(tool: Any, place: str) -> Function:
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping) or "name" not in function:
        raise refusal("--tools", f"{place} must be {_SHAPE}")
    # The server follows no schema of what a model calls by itself, strict or not.
    known = {"name", "description", "parameters", "strict"}
    if unknown := sorted(function.keys() - known):
        raise refusal("--tools", f"{place} has the unknown field {unknown[0]!r}")
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping | None):
        raise refusal("--tools", f"{place}: parameters must be an object")
    return Function(function["name"], function.get("description") or "", parameters)
