"""How large each number of a manifest may be, how long each string, how many of each: as bundle.proto states it.

Checked before anything of such a size is made or looped over. Whatever is stated elsewhere too (a graph's shapes, other
fields) is held to that afterwards.
"""

from typing import NamedTuple

from google.protobuf.message import Message

from weft_server.errors import BundleError

MAX_MANIFEST_BYTES = 8_388_608
# Of all lists and objects together.
MAX_MANIFEST_ENTRIES = 400_000
# Of a file that is read as a whole: a graph without its weights, a tokenizer, the golden image.
MAX_READ_BYTES = 67_108_864
MAX_IMAGE_SIDE = 4096
MAX_GRID = 65_536
# Of one slot of one state.
MAX_STATE_ELEMENTS = 2**32

_VOCAB = 4_194_304
_TOKENS = 1_048_576
_NAME = 256


class Limit(NamedTuple):
    """Of a number its range, of a string its length in characters; of a repeated field also how many there may be."""

    most: float | None = None
    entries: int | None = None
    least: float = 0


# Enums are checked where they are used, and `decoding` is as any request's. A test holds this table to bundle.proto.
LIMITS = {
    "BundleManifest": {
        "family": Limit(128),
        "description": Limit(4096),
        "files": Limit(entries=256),
        "graphs": Limit(entries=4),
        "states": Limit(entries=4096),
        "labels": Limit(1024, entries=65_536),
    },
    "Attention": {"heads": Limit(1024, entries=1024), "default_layer": Limit(1023)},
    "BundleFile": {"path": Limit(255), "sha256": Limit(64), "size_bytes": Limit(274_877_906_944)},
    "Graph": {"path": Limit(255), "inputs": Limit(entries=16_384), "outputs": Limit(entries=16_384)},
    "Port": {"name": Limit(_NAME), "shape": Limit(64, entries=8)},
    "StateTensor": {
        "past": Limit(_NAME),
        "present": Limit(_NAME),
        "shape": Limit(2**30, entries=7),
        "length_axis": Limit(6),
        "encoder_output": Limit(_NAME),
    },
    "TextSpec": {
        "source_tokenizer": Limit(255),
        "target_tokenizer": Limit(255),
        "source_vocab_size": Limit(_VOCAB),
        "target_vocab_size": Limit(_VOCAB),
        "start_id": Limit(_VOCAB - 1),
        "end_ids": Limit(_VOCAB - 1, entries=256),
        "pad_id": Limit(_VOCAB - 1),
        "max_source_tokens": Limit(131_072),
        "max_total_tokens": Limit(_TOKENS),
        "max_new_tokens": Limit(_TOKENS),
        "source_languages": Limit(64, entries=1024),
        "target_languages": Limit(64, entries=1024),
        "prefixes": Limit(1024, entries=256),
    },
    "ImageSpec": {
        "channels": Limit(3, least=1),
        "height": Limit(MAX_IMAGE_SIDE, least=1),
        "width": Limit(MAX_IMAGE_SIDE, least=1),
        "mean": Limit(1000, entries=3, least=-1000),
        "std": Limit(1000, entries=3, least=0.001),
        "grid_rows": Limit(4096),
        "grid_columns": Limit(4096),
    },
    "Golden": {
        "text": Limit(65_536),
        "image_path": Limit(255),
        "token_ids": Limit(_VOCAB - 1, entries=4096),
        "probabilities": Limit(1.01, entries=262_144),
    },
    "Parity": {
        "max_abs_error": Limit(1_000_000),
        "tolerance": Limit(1_000_000),
        "num_steps": Limit(_TOKENS),
        "num_requests": Limit(_TOKENS),
    },
    "Quality": {
        "metric": Limit(128),
        "score": Limit(1),
        "fp32_score": Limit(1),
        "num_examples": Limit(1_000_000_000),
        "min_share": Limit(1),
    },
    "Provenance": {
        "weft_version": Limit(128),
        "torch_version": Limit(128),
        "onnx_version": Limit(128),
        "onnxruntime_version": Limit(128),
        "opset": Limit(1000),
        "checkpoint_sha256": Limit(64),
        "num_parameters": Limit(10**15),
    },
}


def verify_limits(message: Message, where: str = "") -> None:
    """Refuse a manifest, or a part of it that lies at `where`, with a field beyond its limit; unset fields are fine."""
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
        if value.DESCRIPTOR.name in LIMITS:
            verify_limits(value, f"{name}.")
    elif limit.most is None:
        return
    elif isinstance(value, str):
        if len(value) > limit.most:
            raise BundleError(f"{name} has {len(value):,} characters; at most {limit.most:,} are allowed")
    elif not limit.least <= value <= limit.most:  # said this way round, NaN fails
        raise BundleError(f"{name} is {value}; it must be from {limit.least:,} to {limit.most:,}")
