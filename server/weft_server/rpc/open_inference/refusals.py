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


def rename(error: RequestError, fields: Mapping[str, str]) -> None:
    """Let an error be about the field that `fields` has for its own, if it has one."""
    if error.field in fields:
        _set(error, fields[error.field])


def place(error: RequestError, inputs: Mapping[str, Input], index: int) -> None:
    """Let an error about an input be about the element of a tensor. It is the element `index`, or as Embed says."""
    found = _INPUT.fullmatch(error.field)
    if found and found[2] in inputs:
        _set(error, inputs[found[2]].place(int(found[1] or index)))
    elif error.field == "inputs":
        # They are too many for Embed.
        _set(error, f"inputs[{min(each.number for each in inputs.values())}].shape")


def _set(error: RequestError, field: str) -> None:
    # The texts of some errors begin with the field's name.
    if error.message.startswith(f"{error.field} "):
        error.message = field + error.message.removeprefix(error.field)
    error.field = field
