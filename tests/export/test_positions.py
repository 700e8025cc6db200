"""Positions against their formulas."""

import math

import pytest
import torch

from weft_export.positions import rotary_tables, rotate, sinusoidal_table


@pytest.mark.parametrize(("position", "i"), [(0, 0), (1, 0), (7, 3), (40, 15)])
def test_sinusoids_follow_the_paper(position, i):
    """PE[pos, 2i] and PE[pos, 2i+1] are the sine and cosine of pos / 10000^(2i/d_model)."""
    table = sinusoidal_table(41, 32)
    angle = position / 10000 ** (2 * i / 32)

    assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
    assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


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
