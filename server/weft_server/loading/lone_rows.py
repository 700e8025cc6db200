"""Whether one row alone has the bits that it has among others, with a graph and on this processor.

On x86 without AVX-512, `MatMulNBits` has a kernel of its own for one row of weights of 4 bits. Its last bits are
others. So there each run of such a graph has two rows or more.
Of weights in larger blocks the last row of an odd number has other bits, and the bundle says so: see Graph in
bundle.proto. Whether even numbers have the same is tried here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import structlog

from weft_proto.fitting import least_fitted
from weft_proto.tasks import TASKS
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.errors import BundleError
from weft_server.loading.limit_checks import claims
from weft_server.loading.longest_inputs import longest_source, takes_picture, text_source
from weft_server.runtime.adapter_stack import AdapterStack
from weft_server.source import feeds_of

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2
    from weft_server.bundle.load import Bundle
    from weft_server.runtime.session import Session

_log = structlog.get_logger(__name__)
_TOGETHER = 2
# Of a graph whose rows go in pairs.
_TWO_PAIRS = 4
# So many tokens of a decoder are tried.
_TRIALS = 3
# An input that is tried has so many tokens at most.
_LENGTH = 8


def keep_lone_rows(session: Session, bundle: Bundle, role: bundle_pb2.GraphRole.ValueType) -> None:
    """Try a graph without states on one input and on two. If they differ, runs of it are filled up from now on."""
    if not session.device.in_place:
        return
    manifest = bundle.manifest
    takes_image = takes_picture(manifest, role)
    if takes_image or TASKS[manifest.task].takes_audio:
        # Of cells, the fewest that a picture has: one row alone may have a kernel of its own.
        most = least_fitted(manifest.image) if manifest.image.tiling.max_pixels else _LENGTH
        source = longest_source(manifest, takes_image=takes_image, most=most)
    else:
        length = min(_LENGTH, manifest.text.max_source_tokens)
        source = text_source(manifest, np.arange(length) % manifest.text.source_vocab_size)
    alone, beside = (
        session.run(feeds_of([source] * number, source.bucket, manifest.text.pad_id)) for number in (1, _TOGETHER)
    )
    if not all(_is_same(alone[name][0], beside[name][0]) for name in alone):
        _fill_up(session, bundle)


def keep_lone_decodes(decoder: Session, bundle: Bundle) -> None:
    """Try a decoder on one row and on two. If they differ, runs of it are filled up from now on.

    Raises:
        BundleError: its rows go in pairs, and two rows have other bits than four.
    """
    if not decoder.device.in_place:
        return
    manifest = bundle.manifest
    fewest, more = (1, _TOGETHER) if decoder.device.row_multiple == 1 else (_TOGETHER, _TWO_PAIRS)
    stack = AdapterStack(manifest.adapters, more) if manifest.adapters.layers else None
    slots = Slots(more, manifest.text.max_new_tokens, 0, stack)
    runner = DecodeRunner(manifest, None, decoder, slots)
    # What fails with the first token fails with any: that is no fault of the vocabulary that is claimed.
    _logits(runner, slots, fewest, 0)
    ids = np.random.default_rng(0).integers(0, manifest.text.target_vocab_size, _TRIALS).tolist()
    with claims(manifest, "text.target_vocab_size"):
        is_same = all(
            _is_same(_logits(runner, slots, fewest, each), _logits(runner, slots, more, each)) for each in ids
        )
    if is_same:
        return
    if decoder.device.row_multiple > 1:
        raise BundleError(
            "on this processor a row has other bits among four than among two, with weights in blocks as large; "
            "export with --max-block-size 32, or 64 at int8-weights"
        )
    _fill_up(decoder, bundle)


def _logits(runner: DecodeRunner, slots: Slots, num_rows: int, token_id: int) -> np.ndarray:
    """What the best candidates of a row have in a run of so many rows that begin with a token: of the last one."""
    slots.input_ids[:], slots.past_lengths[:] = token_id, 0
    for slot in range(num_rows):
        runner.begin(slot)
    logits: np.ndarray = runner.decode(num_rows).topk_logits[num_rows - 1].copy()
    return logits


def _is_same(alone: np.ndarray, beside: np.ndarray) -> bool:
    return np.array_equal(alone, beside)


def _fill_up(session: Session, bundle: Bundle) -> None:
    session.device = replace(session.device, least_rows=_TOGETHER)
    _log.info("one row alone has other bits here, runs have two or more", model=bundle.name)
