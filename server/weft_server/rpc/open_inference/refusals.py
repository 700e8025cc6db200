"""Errors about fields of weft.v1's requests, told as errors about fields of the Open Inference Protocol's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft_server.errors import RequestError
    from weft_server.rpc.open_inference.tensors import Input

_SAME = {
    "model.adapter": "parameters.adapter",
    "top_k": "parameters.top_k",
    "prompt_name": "parameters.prompt_name",
    "dimensions": "parameters.dimensions",
    "request_id": "id",
}
_MODELS = {"model": "name", "model.name": "name", "model.version": "version", "model.version_label": "version"}
# ModelInfer says more, others `name` and `version`.
FIELDS = _SAME | _MODELS
INFER_FIELDS = _SAME | {typed: f"model_{field}" for typed, field in _MODELS.items()}
# An input of Classify and Tag, or one of Embed's.
_INPUT = re.compile(r"(?:inputs\[(\d+)\]\.)?(\w+)(?:\.data)?")


def renamed(error: RequestError, fields: Mapping[str, str]) -> RequestError:
    """Return an error as one about the field that `fields` has for its own, if it has one."""
    return _about(error, fields[error.field]) if error.field in fields else error


def placed(error: RequestError, inputs: Mapping[str, Input], index: int) -> RequestError:
    """Return an error about an input as one about the element of a tensor. It is the element `index`, or Embed says."""
    found = _INPUT.fullmatch(error.field)
    if found and found[2] in inputs:
        return _about(error, inputs[found[2]].place(int(found[1] or index)))
    if error.field == "inputs":
        # They are too many for Embed.
        return _about(error, f"inputs[{min(each.number for each in inputs.values())}].shape")
    return error


def _about(error: RequestError, field: str) -> RequestError:
    """Return a copy: callers of weft.v1 may wait for the same adapter, and get the same error."""
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    # The texts of some errors begin with the field's name.
    if error.message.startswith(f"{error.field} "):
        copied.message = field + error.message.removeprefix(error.field)
    copied.field = field
    return copied
