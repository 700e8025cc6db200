"""Proves that the rows of a graph of others are alone: a request's bits do not go with what shares its batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir

from weft_export.errors import ExportError
from weft_export.wrapping.onnx_model import OnnxModel
from weft_export.wrapping.requests import Array, Batch, answer, batches_of

# Of a batch no more rows than these run alone: one takes as long as a request to a server.
_BY_THEMSELVES = 8
KNOWN = {
    "DynamicQuantizeLinear": "has one scale for the whole batch",
    "Log": "gives other bits at another place",
    "ReduceLogSumExp": "sums one row in another order than several",
    "ReduceMean": "over positions, sums one row in another order than several",
    "ReduceSum": "over positions, sums one row in another order than several",
    "RNN": "gives other bits beside other rows",
    "Sin": "gives other bits at another place",
    "Cos": "gives other bits at another place",
    "Softplus": "gives other bits at another place",
}
"""Operators of ONNX Runtime that were seen to break it on CPU: docs/decisions/operators-that-keep-rows-apart.md."""


def check_alone(session: Any, described: OnnxModel, model: onnx_ir.Model) -> None:
    """Hold each row's bits to those of the same row in other company, and beside other padding.

    Raises:
        ExportError: it names the first row that differs, and the operators of the model that are known to do so.
    """
    for batch in batches_of(described):
        _check_padding(session, described, batch)
        _check_company(session, described, batch, model)


def _check_company(session: Any, described: OnnxModel, batch: Batch, model: onnx_ir.Model) -> None:
    number = len(batch.requests)
    padding = batch.padding(lambda shape: np.full(shape, described.text.pad_id if described.text else 0))
    everything = list(range(number))
    whole = _answers(session, described, batch, everything, padding)
    some = everything[1::2] or everything
    by_themselves = everything[:: -(-number // _BY_THEMSELVES)]
    for rows in (everything[::-1], some, *([row] for row in by_themselves)):
        for row, part in zip(rows, _answers(session, described, batch, rows, padding), strict=True):
            if not np.array_equal(whole[row], part):
                error = float(np.abs(whole[row] - part).max())
                company = "alone" if len(rows) == 1 else f"among rows {', '.join(map(str, rows))}"
                raise ExportError(
                    f"the rows of the graph are not alone: {batch.describe(row)} gets another answer {company} than"
                    f" among all {number} (by {error:.1e}). {_blamed(model)}."
                    " Served answers must not depend on their batch"
                )


def _check_padding(session: Any, described: OnnxModel, batch: Batch) -> None:
    if described.text is None:
        return
    rng, vocab_size = np.random.default_rng(1), described.text.source_vocab_size
    everything = range(len(batch.requests))
    first, second = (
        _answers(session, described, batch, everything, batch.padding(lambda shape: rng.integers(0, vocab_size, shape)))
        for _ in range(2)
    )
    for row, (one, other) in enumerate(zip(first, second, strict=True)):
        if not np.array_equal(one, other):
            error = float(np.abs(one - other).max())
            raise ExportError(
                f"padding is read: {batch.describe(row)} gets another answer with other ids behind its end (by"
                f" {error:.1e}). The graph must give them no weight at all, by its lengths or attention_mask"
            )


def _answers(session: Any, described: OnnxModel, batch: Batch, rows: Sequence[int], padding: Array) -> list[Array]:
    outputs = answer(session, batch.feeds(rows, padding), described)
    per_token = described.row.labels_tokens
    return [batch.own(row, output, per_token=per_token) for row, output in zip(rows, outputs, strict=True)]


def _blamed(model: onnx_ir.Model) -> str:
    kinds = {node.op_type for node in model.graph.all_nodes()}
    found = [f"{kind}, which {why}" for kind, why in KNOWN.items() if kind in kinds]
    if not found:
        return "It has none of the operators that are known to do so"
    return f"It has {' and '.join(found)}"
