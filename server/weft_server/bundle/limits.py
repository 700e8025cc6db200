"""Holds a manifest to its limits, before anything of such a size is made or looped over.

What a graph or another field states too is compared afterwards.
"""

from google.protobuf.message import Message

from weft_proto.bundle_rules import LIMITS, Limit
from weft_server.errors import BundleError


def verify_limits(message: Message, where: str = "") -> None:
    """Refuse a field beyond its limit, in a manifest or in its part at `where`. Unset fields are fine."""
    limits = LIMITS[message.DESCRIPTOR.name]
    for field, value in message.ListFields():
        name = f"{where}{field.name}"
        limit = limits.get(field.name, Limit())
        if limit.entries is None:
            _verify_one(value, name, limit)
            continue
        if len(value) > limit.entries:
            raise BundleError(f"{name} has {len(value):,} entries; at most {limit.entries:,} are allowed")
        for index, each in enumerate(value):
            _verify_one(each, f"{name}[{index}]", limit)


def _verify_one(value: Message | str | float, name: str, limit: Limit) -> None:
    if isinstance(value, Message):
        # `decoding` has no limits here: it is held to what a request may ask for.
        if value.DESCRIPTOR.name in LIMITS:
            verify_limits(value, f"{name}.")
    elif limit.maximum is None:
        return
    elif isinstance(value, str):
        if len(value) > limit.maximum:
            raise BundleError(f"{name} has {len(value):,} characters; at most {limit.maximum:,} are allowed")
    elif not limit.minimum <= value <= limit.maximum:  # so NaN fails too
        raise BundleError(f"{name} is {value}; it must be from {limit.minimum:,} to {limit.maximum:,}")
