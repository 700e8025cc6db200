"""Positions against their formulas."""

import math

import pytest
import torch

from weft_export.layers.embeddings import LearnedEmbedding
from weft_export.layers.positions import relative_buckets, rotary_tables, rotate, sinusoidal_table
from weft_export.layers.score_bias import RelativeBias


@pytest.mark.parametrize(("position", "i"), [(0, 0), (1, 0), (7, 3), (40, 15)])
def test_sinusoids_follow_the_paper(position, i):
    """PE[pos, 2i] and PE[pos, 2i+1] are the sine and cosine of pos / 10000^(2i/d_model)."""
    table = sinusoidal_table(41, 32)
    angle = position / 10000 ** (2 * i / 32)

    assert pytest.approx(math.sin(angle), abs=1e-6) == table[position, 2 * i].item()
    assert pytest.approx(math.cos(angle), abs=1e-6) == table[position, 2 * i + 1].item()


def test_rotation_is_multiplication_by_a_complex_unit():
    """Rotating the pair (x_i, x_{i+d/2}) is multiplying x_i + j x_{i+d/2} by exp(j m theta_i)."""
    x = torch.randn(1, 2, 9, 16)
    cos, sin = rotary_tables(9, 16, 10000.0)
    theta = 10000.0 ** (-torch.arange(0, 16, 2) / 16)
    unit = torch.polar(torch.ones(9, 8), torch.arange(9)[:, None] * theta)

    expected = torch.complex(x[..., :8], x[..., 8:]) * unit
    actual = rotate(x, cos, sin)
    torch.testing.assert_close(actual, torch.cat((expected.real, expected.imag), dim=-1))


def test_rotated_products_depend_on_distance_alone():
    """The product of a query at m and a key at n is a function of m - n."""
    query, key = torch.randn(16), torch.randn(16)
    cos, sin = rotary_tables(30, 16, 10000.0)
    queries = rotate(query.expand(1, 1, 30, 16), cos, sin)[0, 0]
    keys = rotate(key.expand(1, 1, 30, 16), cos, sin)[0, 0]

    products = queries @ keys.T
    for distance in (0, 1, 11):
        diagonal = products.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[0].expand_as(diagonal), atol=1e-4, rtol=1e-4)


def test_learned_positions_are_rows_of_a_table():
    """A token's vector is E[token] + P[position], wherever a run begins; padding may lie beyond the table."""
    embedding = LearnedEmbedding(vocab_size=11, max_tokens=6, d_model=8)
    ids, past = torch.tensor([[3, 1, 4], [1, 5, 9]]), torch.tensor([0, 4])

    actual = embedding(ids, past)
    for row, column, position in [(0, 0, 0), (0, 2, 2), (1, 0, 4), (1, 1, 5)]:
        expected = embedding.tokens.weight[ids[row, column]] + embedding.positions.weight[position]
        torch.testing.assert_close(actual[row, column], expected)
    torch.testing.assert_close(embedding(ids)[1, 2], embedding.tokens.weight[9] + embedding.positions.weight[2])


def t5_bucket(offset, num_buckets, max_distance, *, bidirectional):
    """Compute T5's bucket of one offset as its formula reads: half exact, half logarithmic."""
    ahead = 0
    if bidirectional:
        num_buckets //= 2
        ahead = num_buckets if offset > 0 else 0
        distance = abs(offset)
    else:
        distance = max(-offset, 0)
    exact = num_buckets // 2
    if distance < exact:
        return ahead + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return ahead + min(num_buckets - 1, exact + int(share * (num_buckets - exact)))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 64), (8, 20)])
def test_relative_buckets_follow_the_formula(num_buckets, max_distance, bidirectional):
    """Short distances have a bucket each, longer ones share logarithmically wider ones, up to max_distance."""
    offsets = torch.arange(-3 * max_distance, 3 * max_distance)

    expected = [t5_bucket(int(o), num_buckets, max_distance, bidirectional=bidirectional) for o in offsets]
    assert expected == relative_buckets(offsets, num_buckets, max_distance, bidirectional=bidirectional).tolist()


@torch.inference_mode()
@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_is_the_weight_of_the_offset(bidirectional):
    """The bias of a query and a key is its head's weight for their offset's bucket, in a whole sequence and in rows."""
    bias = RelativeBias(num_heads=2, max_tokens=40, num_buckets=16, max_distance=30, bidirectional=bidirectional)
    whole, rows = bias(33), bias.at(torch.tensor([[7, 8], [31, 32]]))

    for query, key in [(0, 0), (7, 2), (7, 30), (32, 0), (31, 32)]:
        bucket = t5_bucket(key - query, 16, 30, bidirectional=bidirectional)
        torch.testing.assert_close(whole[0, :, query, key], bias.buckets.weight[bucket])
    assert (2, 2, 2, 40) == rows.shape
    assert torch.equal(rows[0, :, :, :33], whole[0, :, 7:9])
    assert torch.equal(rows[1, :, :, :33], whole[0, :, 31:33])
