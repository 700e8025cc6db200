"""The least time of a step on several devices: `.venv/bin/python tests/bench/gpu/roofline.py`. See docs/roofline.md.

Each weight is read once, and each row's keys and values. Each weight is multiplied once for each row.
"""

from typing import NamedTuple

from shapes import SHAPES

ROWS = (1, 8, 32, 128, 256)
LENGTH = 96
# Bytes of a weight: at fp16 and bf16; and of 4 bits, with a scale of float16 for 32.
HALF, FOUR_BITS = 2, 0.5 + 2 / 32


class Device(NamedTuple):
    """By its maker: bytes a second, and operations of half precision, of which a multiplication and a sum are two."""

    bytes_per_s: float
    flops: float


DEVICES = {
    "H200": Device(4.8e12, 989e12),
    "H100 SXM": Device(3.35e12, 989e12),
    "A100 80 GB": Device(2.04e12, 312e12),
    "L40S": Device(0.864e12, 362e12),
    "L4": Device(0.3e12, 121e12),
}


def weights_of(shape):
    """How many weights a step reads in its layers, and in the projection to logits."""
    head = shape.d_model // shape.heads
    attention = shape.d_model * head * (2 * shape.heads + 2 * shape.kv_heads)
    return shape.layers * (attention + 3 * shape.d_model * shape.d_ff), shape.vocab * shape.d_model


def least_ms(device, shape, rows, of_layers):
    """Milliseconds of a step whose layers have weights of so many bytes."""
    layers, projection = weights_of(shape)
    cache = 2 * HALF * shape.layers * shape.kv_heads * (shape.d_model // shape.heads)
    num_bytes = of_layers * layers + HALF * projection + rows * LENGTH * cache
    return 1e3 * max(num_bytes / device.bytes_per_s, 2 * rows * (layers + projection) / device.flops)


def main():
    """Print a table of each number of bytes."""
    for title, of_layers in (("fp16", HALF), ("4 bits, the projection at fp16", FOUR_BITS)):
        print(f"\n{title}\n\n| device | shape | " + " | ".join(map(str, ROWS)) + " |")
        print("|---|---|" + "---|" * len(ROWS))
        for name, device in DEVICES.items():
            for shape in ("100m", "1b", "8b"):
                times = (f"{least_ms(device, SHAPES[shape], rows, of_layers):.3g}" for rows in ROWS)
                print(f"| {name} | {shape} | " + " | ".join(times) + " |")


if __name__ == "__main__":
    main()
