"""A request's Decoding, checked against the model's limits and with every default filled in."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.v1 import common_pb2
from weft_server.errors import BundleError, InvalidRequest
from weft_server.sequence import Decoding, Sampling

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2

MAX_STOP_STRINGS = 4
MAX_STOP_BYTES = 64
MAX_TEMPERATURE = 10.0
# Every language holds integers of this number of bits exactly, also one whose only numbers are doubles.
DRAWN_SEED_BITS = 53


def resolve_decoding(
    requested: common_pb2.Decoding, manifest: bundle_pb2.BundleManifest, num_prompt_tokens: int
) -> Decoding:
    """Check what a request asked for, and fill in the defaults.

    A prompt of `num_prompt_tokens` shares the cache with its answer. For other tasks the number is 0.

    Raises:
        InvalidRequest: a number is outside its range. Nothing is clamped.
    """
    max_new = _max_new_tokens(requested, manifest, num_prompt_tokens)
    asks_least = requested.HasField("min_new_tokens")
    min_new = requested.min_new_tokens if asks_least else min(manifest.decoding.min_new_tokens, max_new)
    if min_new > max_new:
        raise InvalidRequest("decoding.min_new_tokens", f"must be at most max_new_tokens, {max_new}, not {min_new}")
    _check_stop(requested)
    chosen = requested if requested.WhichOneof("strategy") else manifest.decoding
    sampling = _sampling(chosen.sampling) if chosen.WhichOneof("strategy") == "sampling" else None
    return Decoding(max_new, min_new, tuple(requested.stop), sampling)


def verify_default(manifest: bundle_pb2.BundleManifest) -> None:
    """Raise BundleError if the defaults are not what a request may ask for."""
    try:
        resolve_decoding(common_pb2.Decoding(), manifest, 1)
    except InvalidRequest as error:
        raise BundleError(error.message) from error


def _max_new_tokens(requested: common_pb2.Decoding, manifest: bundle_pb2.BundleManifest, num_prompt: int) -> int:
    room = manifest.text.max_total_tokens - num_prompt
    limit = min(manifest.text.max_new_tokens, room)
    if not requested.HasField("max_new_tokens"):
        return min(manifest.decoding.max_new_tokens, limit)
    asked = requested.max_new_tokens
    if not 1 <= asked <= limit:
        why = f", what {num_prompt} prompt tokens leave" if num_prompt and room < manifest.text.max_new_tokens else ""
        raise InvalidRequest("decoding.max_new_tokens", f"must be 1..{limit}{why}, not {asked}")
    return asked


def _check_stop(requested: common_pb2.Decoding) -> None:
    if len(requested.stop) > MAX_STOP_STRINGS:
        raise InvalidRequest("decoding.stop", f"must be at most {MAX_STOP_STRINGS} strings, not {len(requested.stop)}")
    for index, stop in enumerate(requested.stop):
        if not 1 <= len(stop.encode()) <= MAX_STOP_BYTES:
            raise InvalidRequest(f"decoding.stop[{index}]", f"must be 1..{MAX_STOP_BYTES} bytes of UTF-8")


def _sampling(requested: common_pb2.Sampling) -> Sampling:
    temperature = requested.temperature if requested.HasField("temperature") else 1.0
    top_p = requested.top_p if requested.HasField("top_p") else 1.0
    # A comparison with NaN is false, so these refuse it too.
    if not 0 < temperature <= MAX_TEMPERATURE:
        raise InvalidRequest(
            "decoding.sampling.temperature",
            f"must be above 0 and at most {MAX_TEMPERATURE:g}, not {_float32(temperature)}; for 0 ask for greedy",
        )
    if not 0 < top_p <= 1:
        raise InvalidRequest("decoding.sampling.top_p", f"must be above 0 and at most 1, not {_float32(top_p)}")
    seed = requested.seed if requested.HasField("seed") else secrets.randbits(DRAWN_SEED_BITS)
    return Sampling(temperature, requested.top_k, top_p, seed)


def _float32(value: float) -> str:
    """A number of the wire, in as few digits as tell it from its neighbours. 1.0000001 does not become 1."""
    return str(np.float32(value))
