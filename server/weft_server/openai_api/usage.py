"""Counts of tokens, as OpenAI's answers have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_proto.v1 import common_pb2


def usage_of(usages: Iterable[common_pb2.Usage]) -> dict[str, Any]:
    """Return the `usage` of an answer: the sum over the calls that made it."""
    read = written = cached = 0
    for each in usages:
        read, written, cached = read + each.input_tokens, written + each.output_tokens, cached + each.cached_tokens
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def input_usage_of(usages: Iterable[common_pb2.Usage]) -> dict[str, int]:
    """Return the `usage` of an answer without text: `prompt_tokens` and `total_tokens`, which are the same."""
    read = sum(each.input_tokens for each in usages)
    return {"prompt_tokens": read, "total_tokens": read}
