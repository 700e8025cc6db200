"""Laws of a row's best tokens: they give the draw of the sorted row, and of a flat row few of them are enough."""

import numpy as np
import pytest

from few import counts
from rows_of_logits import NO_END, candidates_of, settings_of
from weft_server.sampling.row_prefix import Bounds, Cuts, _look, _sum, draw_of_best
from weft_server.sampling.sampler import _full_row, sample, uniform
from weft_server.sampling.truncation import Truncation

VOCAB = 20_000
ALL = Truncation(1, 0, 0)


def flat_rows(n, scale=4, seed=0):
    """Logits of which some hundred tokens share most of the mass, as of a real model that writes freely."""
    return np.random.default_rng(seed).normal(0, scale, (n, VOCAB)).astype(np.float32)


@pytest.mark.parametrize(
    ("wishes", "cuts"),
    [
        ({}, {}),
        ({"top_p": 0.95}, {}),
        ({"temperature": 0.7, "top_p": 0.9}, {}),
        ({"temperature": 0.8, "top_k": 300}, {}),
        ({"temperature": 0.8, "top_k": 300, "top_p": 0.9}, {}),
        ({"temperature": 0.6}, {"min_p": 0.003}),
        ({"temperature": 0.7, "top_p": 0.8}, {"min_p": 0.003, "typical_p": 0.9}),
        ({"temperature": 0.7, "top_k": 200}, {"eta_cutoff": 1e-3}),
    ],
    ids=str,
)
@pytest.mark.parametrize("n", counts(100, 300))
def test_a_draw_is_that_of_the_whole_row(wishes, cuts, n):
    """By each cut and all together: what the best tokens decide is what `order` says, and most is decided."""
    logits = flat_rows(n)
    settings = settings_of(n, **wishes, **cuts)
    u = uniform(settings.seed, settings.step)
    read = []

    drawn = sample(candidates_of(logits, 8), settings, NO_END, read.append)[0].tolist()

    assert [_full_row(logits[row], settings, row, NO_END, u[row]) for row in range(n)] == drawn
    assert len(read) < n / 10


def test_few_rows_of_a_real_models_shape_are_read_whole():
    """Temperature 1, top-p 0.95, 64 candidates, logits that fall as words do: less than one row in a hundred."""
    rng = np.random.default_rng(3)
    ranks = np.arange(1, VOCAB + 1)
    slopes = rng.uniform(1.8, 3.0, (600, 1))
    logits = (-slopes * np.log(ranks + 20) + rng.normal(0, 0.3, (600, VOCAB))).astype(np.float32)
    read = []

    sample(candidates_of(logits, 64), settings_of(600, top_p=0.95), NO_END, read.append)

    assert len(read) < 6


@pytest.mark.parametrize("u", [0.0, 0.2, 0.55, 0.999])
def test_of_equal_logits_the_lower_id_is_first(u):
    """Also of zeros with two signs, and below 0: the order is that of the values, and then of the ids."""
    logits = np.full(2000, -50, np.float32)
    logits[[7, 900, 40, 41, 1500]] = [-0.0, 0.0, 0.0, -1.0, -1.0]
    by_value = [7, 40, 900, 41, 1500]
    reached = np.cumsum(np.exp(logits[by_value].astype(np.float64)))

    drawn = draw_of_best(logits, Cuts(1.0, 5, 1.0, 0.0, ALL), u, 0.0, None)

    assert by_value[int((reached <= u * reached[-1]).sum())] == drawn


def test_a_number_at_the_border_of_two_tokens_draws_the_second():
    """As in a whole row: the first token up to which all weigh more."""
    logits = np.full(2000, -50, np.float32)
    logits[[4, 6]] = 0

    assert 6 == draw_of_best(logits, Cuts(1.0, 2, 1.0, 0.0, ALL), 0.5, 0.0, None)


@pytest.mark.parametrize("scale", [0.1, 3.0, 15.0])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_a_sum_lies_within_its_bounds(scale, temperature):
    """The float32 sum has a tenth of the error that is allowed."""
    for logits in flat_rows(20, scale, seed=4):
        gaps = logits.astype(np.float64) - logits.max()
        exact = np.exp(gaps / temperature).sum()

        low, high = _sum(logits, logits.max(), temperature)

        assert low < exact < high
        assert abs((low + high) / 2 / exact - 1) < 1e-6


def test_wrong_bounds_are_not_trusted_to_decide():
    """Bounds that lead to two tokens are made narrower before a token is drawn, and not taken as they are."""
    logits = flat_rows(1)[0]
    exact = np.exp(logits.astype(np.float64) - logits.max()).sum()
    cuts = Cuts(1.0, 0, 0.9, 0.0, ALL)

    drawn = {draw_of_best(logits, cuts, 0.7, 1.0, known) for known in (None, Bounds(exact / 2, exact * 2))}

    assert 1 == len(drawn)
    assert None not in drawn


def test_a_row_of_few_tokens_ends_the_search():
    """Where all but some tokens are ruled out, there is nothing deeper to look at. All tokens are then weighed."""
    logits = np.full(2000, -np.inf, np.float32)
    logits[[3, 5, 8]] = [1, 2, 3]

    assert draw_of_best(logits, Cuts(1.0, 0, 1.0, 0.5, ALL), 0.9, np.inf, None) is None
    assert draw_of_best(logits, Cuts(1.0, 0, 1.0, 0.0, ALL), 1 - 2**-53, 0.0, None) is None


def test_a_late_cut_is_made_where_its_tokens_are_certain():
    """Two bounds of a nucleus may draw one token, and a nucleus between them another: then all tokens are weighed."""
    logits = flat_rows(40)
    cuts = Cuts(1.0, 0, 0.6, 0.0, Truncation(0.5, 0, 0))
    totals = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True)).sum(axis=1)

    exact = [draw_of_best(row, cuts, 0.5, 1.0, Bounds(*[total] * 2)) for row, total in zip(logits, totals, strict=True)]
    wide = [
        _look(row, row.max(), cuts, 0.5, 1.0, Bounds.around(total, 0.05))
        for row, total in zip(logits, totals, strict=True)
    ]

    assert None not in exact
    assert {None} < set(wide)
    told = [(token, each) for token, each in zip(exact, wide, strict=True) if each is not None]
    assert all(token == each for token, each in told)


def test_a_search_that_cannot_end_is_not_begun(monkeypatch):
    """For cuts by entropy alone, and for a top-k that is more than is looked at."""
    monkeypatch.setattr("weft_server.sampling.row_prefix._look", None)
    logits = flat_rows(1)[0]

    assert draw_of_best(logits, Cuts(1.0, 0, 1.0, 0.0, Truncation(0.5, 0, 0)), 0.5, 1.0, None) is None
    assert draw_of_best(logits, Cuts(1.0, VOCAB // 8 + 1, 1.0, 0.0, ALL), 0.5, 1.0, None) is None
