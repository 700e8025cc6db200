"""How a Transformer knows where a token stands: fixed sinusoids, rotations of queries and keys, buckets of offsets."""

from dataclasses import dataclass

import torch
from torch import Tensor


def sinusoidal_table(num_positions: int, d_model: int) -> Tensor:
    """Return PE [num_positions, d_model] of "Attention Is All You Need" (Vaswani et al. 2017), section 3.5.

    PE[pos, 2i] = sin(pos / 10000^(2i/d_model)) and PE[pos, 2i+1] = cos(pos / 10000^(2i/d_model)).
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / 10000 ** (even / d_model)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


def rotary_tables(num_positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cos and sin [num_positions, head_dim / 2] of m * theta^(-2i/head_dim), "RoFormer" (Su et al. 2021)."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


@dataclass(frozen=True)
class Rope:
    """How a head is turned: pair i of a token at place m by the angle m * frequencies[i].

    frequencies: half as many as a head has numbers. 0 leaves a pair as it is.
    gain: what is turned is multiplied by it too ("YaRN", Peng et al. 2023, section 3.4).
    """

    frequencies: tuple[float, ...]
    gain: float = 1.0


def rope_tables(num_positions: int, rotation: Rope) -> tuple[Tensor, Tensor]:
    """Return cos and sin [num_positions, head_dim / 2] of a rotation.

    The angles are float32 products, as in the code that most checkpoints were trained with. At place 8,192 exact ones
    would differ by 3e-4.
    """
    frequencies = torch.tensor(rotation.frequencies, dtype=torch.float32)
    angle = torch.arange(num_positions, dtype=torch.float32)[:, None] * frequencies
    gain = torch.where(frequencies == 0, 1.0, rotation.gain)
    return angle.cos() * gain, angle.sin() * gain


def turned_at(tables: tuple[Tensor, Tensor], positions: Tensor, sections: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return cos and sin [batch, seq, head_dim / 2] of tokens that have several positions ("Qwen2-VL", Wang 2024).

    tables: cos and sin [num_positions, head_dim / 2].
    positions: [batch, seq, axes].
    sections: the first so many pairs of a head turn by the first position, those behind them by the second, and so on.
        Behind the last comes the first again.
    """
    stops = [sum(sections[: index + 1]) for index in range(len(sections))]
    axes = [positions[..., axis] for axis in range(positions.shape[-1])]

    def turned(table: Tensor) -> Tensor:
        rows = [table[axis] for axis in axes]
        parts = enumerate(zip(sections, stops, strict=True))
        return torch.cat([rows[index % len(rows)][..., stop - size : stop] for index, (size, stop) in parts], dim=-1)

    return turned(tables[0]), turned(tables[1])


def interleaved_at(
    tables: tuple[Tensor, Tensor], positions: Tensor, sections: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return the same where neighbouring pairs turn by different positions ("Qwen3-VL", Bai et al. 2025).

    sections: how many pairs turn by each position. Pair p turns by position p % axes as long as these have not all come
        for it, and by the first otherwise.
    """
    pair = torch.arange(tables[0].shape[-1])
    count = positions.shape[-1]

    def turned(table: Tensor) -> Tensor:
        found = table[positions[..., 0]]
        for axis in range(1, count):
            is_its = (pair % count == axis) & (pair < count * sections[axis])
            found = torch.where(is_its, table[positions[..., axis]], found)
        return found

    return turned(tables[0]), turned(tables[1])


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i + head_dim/2}) of x [batch, heads, seq, head_dim] by its position's angle.

    cos and sin are [..., seq, head_dim / 2], the rows of the tables at each token's position. Pairing the two halves
    (Llama's layout) instead of neighbours is the same rotation with the axes renamed.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def relative_buckets(offsets: Tensor, num_buckets: int, max_distance: int, *, bidirectional: bool) -> Tensor:
    """Return T5's bucket of each offset (key's position - query's), int64 of the same shape (Raffel et al. 2020, 2.1).

    If bidirectional, keys ahead have the upper half of the buckets for themselves. Otherwise they all share bucket 0.
    """
    if not bidirectional:
        return _distance_buckets((-offsets).clamp(min=0), num_buckets, max_distance)
    half = num_buckets // 2
    return (offsets > 0) * half + _distance_buckets(offsets.abs(), half, max_distance)


def _distance_buckets(distances: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each distance.

    e is num_buckets / 2. There are three kinds of buckets:

    - The first e buckets have one distance each.
    - The others are wider. Bucket e + i begins at e (max_distance / e)^(i / (num_buckets - e)).
    - The last has max_distance and all beyond.
    """
    num_exact = num_buckets // 2
    num_wide = num_buckets - num_exact
    share = torch.arange(1, num_wide, dtype=torch.float64) / num_wide
    edges = num_exact * (max_distance / num_exact) ** share
    return torch.where(distances < num_exact, distances, num_exact + torch.bucketize(distances, edges, right=True))
