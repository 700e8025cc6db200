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
_OF_EMBED = re.compile(r"inputs\[(\d+)\]\.(\w+)")


def rename(error: RequestError, fields: Mapping[str, str]) -> None:
    """Let an error be about the field that `fields` has for its own, if it has one."""
    if error.field in fields:
        _set(error, fields[error.field])


def place(error: RequestError, inputs: Mapping[str, Input], index: int) -> None:
    """Let an error about an input be about the element of a tensor. It is the element `index`, or as Embed says."""
    name = error.field
    if found := _OF_EMBED.fullmatch(error.field):
        index, name = int(found[1]), found[2]
    if name in inputs:
        _set(error, inputs[name].place(index))


def _set(error: RequestError, field: str) -> None:
    # The texts of some errors begin with the field's name.
    if error.message.startswith(f"{error.field} "):
        error.message = field + error.message.removeprefix(error.field)
    error.field = field
