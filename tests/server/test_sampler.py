"""Laws of the sampler: it draws from the exact distribution, and a row's draw is its own."""

import math

import numpy as np
import pytest
import torch
import transformers
from scipy import stats

from few import counts
from rows_of_logits import NO_END, candidates_of, settings_of
from weft_server.sampling.sampler import Settings, sample, uniform
from weft_server.sampling.truncation import Truncation


def exact_distribution(logits, temperature, top_k, top_p):
    """softmax(logits / temperature), cut to top_k, then to the nucleus, renormalised: straight from the definition."""
    scaled = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    order = np.argsort(-scaled, kind="stable")
    if top_k:
        scaled[order[top_k:]] = 0
    probabilities = scaled / scaled.sum()
    reached = np.cumsum(probabilities[order])
    keep = int((reached < top_p).sum()) + 1
    probabilities[order[keep:]] = 0
    return probabilities / probabilities.sum()


@pytest.mark.parametrize("n", counts(4_000, 40_000))
@pytest.mark.parametrize("num_candidates", [8, 64])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [
        (1, 0, 1),
        (0.7, 0, 1),
        (2.5, 0, 1),
        (1, 5, 1),
        (1, 40, 1),
        (1, 0, 0.5),
        (1, 0, 0.99),
        (0.6, 30, 0.9),
        (3, 0, 0.95),
    ],
)
def test_draws_follow_the_exact_distribution(num_candidates, temperature, top_k, top_p, n):
    """A chi-square test cannot tell the draws from the definition, also where the nucleus exceeds the candidates."""
    vocab = 100
    logits = np.random.default_rng(5).normal(0, 1.5, vocab).astype(np.float32)

    ids, _ = sample(
        candidates_of(np.tile(logits, (n, 1)), num_candidates), settings_of(n, temperature, top_k, top_p), NO_END
    )

    expected = exact_distribution(logits, temperature, top_k, top_p) * n
    counts = np.bincount(ids, minlength=vocab)
    assert 0 == counts[expected == 0].sum()
    common = expected >= 5
    observed = [*counts[common], counts[~common].sum()]
    wanted = [*expected[common], expected[~common].sum()]
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [(1, 0, 1), (0.5, 0, 0.9), (2, 90, 0.97), (1.3, 12, 0.8)])
def test_the_number_of_candidates_never_changes_a_draw(temperature, top_k, top_p):
    """Candidates are a shortcut: 1, 8 or all of them lead to the same tokens."""
    logits = np.random.default_rng(6).normal(0, 2, (2000, 100)).astype(np.float32)
    settings = settings_of(2000, temperature, top_k, top_p)

    draws = [sample(candidates_of(logits, k), settings, NO_END)[0] for k in (1, 8, 100)]

    assert np.array_equal(draws[2], draws[0])
    assert np.array_equal(draws[2], draws[1])


@pytest.mark.parametrize(("temperature", "top_p"), [(1, 1), (0.7, 1), (1, 0.9)])
@pytest.mark.parametrize("size", [2e3, 3e4, 1e6, 1e12])
def test_large_logits_change_no_draw(size, temperature, top_p):
    """A normaliser of float32 knows so much less of their sum as it is larger. Here it is the next larger number."""
    spacing = float(np.spacing(np.float32(size)))
    logits = np.random.default_rng(6).normal(size, max(2.0, spacing), (4000, 100)).astype(np.float32)
    settings = settings_of(4000, temperature, 0, top_p)

    few = candidates_of(logits, 8)
    few.logsumexp[:] = np.nextafter(few.logsumexp, np.float32(np.inf))

    drawn, expected = (sample(each, settings, NO_END)[0] for each in (few, candidates_of(logits, 100)))
    assert np.array_equal(expected, drawn)


def test_a_row_draws_the_same_alone_and_in_a_batch():
    """Tokens and log-probabilities of a row are bit-identical whatever else is sampled with it."""
    rng = np.random.default_rng(7)
    logits = rng.normal(0, 2, (64, 100)).astype(np.float32)
    settings = Settings(
        temperature=rng.choice([0.0, 0.7, 1.0, 1.8], 64),
        top_k=rng.choice([0, 3, 20], 64),
        top_p=rng.choice([0.5, 0.95, 1.0], 64),
        seed=rng.integers(0, 2**63, 64).astype(np.uint64),
        step=rng.integers(0, 100, 64),
        min_new=rng.choice([0, 200], 64),
        min_p=rng.choice([0, 0.1], 64),
        typical_p=rng.choice([0.6, 1], 64),
        epsilon_cutoff=rng.choice([0, 0.02], 64),
        eta_cutoff=rng.choice([0, 0.05], 64),
    )
    together = sample(candidates_of(logits, 8), settings, np.array([3, 4]))

    for row in range(64):
        one = slice(row, row + 1)
        alone = sample(
            candidates_of(logits[one], 8),
            Settings(*(getattr(settings, name)[one] for name in Settings.__dataclass_fields__)),
            np.array([3, 4]),
        )
        assert (alone[0][0], alone[1][0]) == (together[0][row], together[1][row])


def test_greedy_takes_the_lowest_id_of_the_best():
    """Ties go to the lower id, and the log-probability is the logit less logsumexp."""
    logits = np.array([[0, 5, 5, 1]], np.float32)

    ids, log_probs = sample(candidates_of(logits, 2), settings_of(1, temperature=0), NO_END)

    assert [1] == ids.tolist()
    assert pytest.approx(5 - np.log(np.exp(logits.astype(float)).sum()), abs=1e-6) == log_probs[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_end_token_comes_before_min_new_tokens(temperature):
    """Banned tokens never come, and the others keep their proportions."""
    n = 20_000
    logits = np.tile(np.array([9, 1, 2, 8], np.float32), (n, 1))

    ids, _ = sample(candidates_of(logits, 4), settings_of(n, temperature, min_new=1), np.array([0, 3]))

    assert ({1, 2} if temperature else {2}) == set(ids.tolist())
    if temperature:
        expected = exact_distribution(np.array([1, 2], np.float32), 1, 0, 1) * n
        assert stats.chisquare(np.bincount(ids, minlength=4)[1:3], expected).pvalue > 1e-4


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0, 0, 1), (1, 0, 1), (0.6, 6, 1), (1.5, 9, 0.9), (1, 0, 0.7)]
)
def test_bans_never_depend_on_the_number_of_candidates(temperature, top_k, top_p):
    """Where end tokens must not come, 1, 8 or all candidates lead to the same tokens."""
    logits = np.random.default_rng(9).normal(0, 2, (2000, 60)).astype(np.float32)
    settings = settings_of(2000, temperature, top_k, top_p, min_new=1)
    end_ids = np.argsort(-logits[0])[:3]

    draws = [sample(candidates_of(logits, k), settings, end_ids)[0] for k in (1, 8, 60)]

    assert np.array_equal(draws[2], draws[0])
    assert np.array_equal(draws[2], draws[1])
    assert not np.isin(draws[2], end_ids).any()


def test_a_tiny_nucleus_is_greedy():
    """The nucleus always holds the most probable token."""
    logits = np.random.default_rng(8).normal(0, 1, (500, 50)).astype(np.float32)

    ids, _ = sample(candidates_of(logits, 8), settings_of(500, top_p=1e-6), NO_END)

    assert np.array_equal(logits.argmax(axis=1), ids)


def test_uniform_numbers_are_uniform_over_seeds_and_over_steps():
    """Neither a run of seeds nor a run of steps shows against the uniform distribution, and the two do not repeat."""
    seeds = np.arange(50_000, dtype=np.uint64)
    steps = np.arange(1, 50_001)

    by_seed = uniform(seeds, np.zeros(50_000, np.int64))
    by_step = uniform(np.full(50_000, 42, np.uint64), steps)

    assert stats.kstest(by_seed, "uniform").pvalue > 1e-4
    assert stats.kstest(by_step, "uniform").pvalue > 1e-4
    assert 100_000 == len(np.unique(np.concatenate([by_seed, by_step])))
    assert np.all((by_step >= 0) & (by_step < 1))


def test_tokens_that_the_graph_rules_out_are_never_drawn():
    """Logits of -inf among the candidates weigh nothing, and the others keep their proportions."""
    n = 20_000
    logits = np.tile(np.array([1, 1, -np.inf, 1, -np.inf, -np.inf, 1, 1, -np.inf, -np.inf], np.float32), (n, 1))

    for temperature in (0.5, 1.0, 2.0):
        ids, _ = sample(candidates_of(logits, 8), settings_of(n, temperature), NO_END)

        assert {0, 1, 3, 6, 7} == set(ids.tolist())
        assert stats.chisquare(np.bincount(ids, minlength=10)[[0, 1, 3, 6, 7]]).pvalue > 1e-4


def by_stable_sort(logits, settings, row):
    """The draw by its definition: all tokens sorted, the lower id first where equal, one cut after the other."""
    x = logits.astype(np.float64)
    order = np.argsort(-x, kind="stable")
    weights = np.exp((x[order] - x[order[0]]) / settings.temperature[row])
    if settings.top_k[row]:
        weights = weights[: settings.top_k[row]]
    reached = np.cumsum(weights)
    num = len(weights)
    if settings.top_p[row] < 1:
        num = int((reached < settings.top_p[row] * reached[-1]).sum()) + 1
    num = min(num, np.count_nonzero(weights >= settings.min_p[row]))
    start, stop = settings.cuts(row).keep(weights[:num])
    reached = np.cumsum(weights[start:stop])
    return int(order[start + int((reached <= uniform(settings.seed, settings.step)[row] * reached[-1]).sum())])


@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0, 30.0])
@pytest.mark.parametrize("steps", [1, 1000])
def test_an_undecided_draw_is_that_of_the_sorted_row(scale, steps):
    """The whole row is read and not sorted, and the token is the same, also where many logits are equal."""
    n = 150
    rng = np.random.default_rng(11)
    logits = (np.round(rng.normal(0, scale, (n, 700)) * steps) / steps).astype(np.float32)
    logits[:, rng.integers(0, 700, 50)] = -np.inf
    settings = Settings(
        temperature=rng.choice([0.5, 1.0, 3.0], n),
        top_k=rng.choice([0, 40, 300], n),
        top_p=rng.choice([0.5, 0.95, 1.0], n),
        seed=rng.integers(0, 2**63, n).astype(np.uint64),
        step=rng.integers(0, 100, n),
        min_new=np.zeros(n, np.int64),
        min_p=rng.choice([0, 0.05], n),
        typical_p=rng.choice([0.6, 1], n),
        epsilon_cutoff=rng.choice([0, 0.004], n),
        eta_cutoff=rng.choice([0, 0.01], n),
    )
    expected = [by_stable_sort(logits[row], settings, row) for row in range(n)]
    for width in (1, 16):
        assert expected == sample(candidates_of(logits, width), settings, NO_END)[0].tolist()


@pytest.mark.parametrize("num_candidates", [4, 12])
@pytest.mark.parametrize(
    "cuts",
    [
        {"min_p": 0.2},
        {"min_p": 1.0},
        {"typical_p": 0.5},
        {"typical_p": 0.95},
        {"epsilon_cutoff": 0.06},
        {"epsilon_cutoff": 0.9},
        {"eta_cutoff": 0.1},
        {"min_p": 0.05, "typical_p": 0.8, "epsilon_cutoff": 0.03, "eta_cutoff": 0.2},
    ],
    ids=str,
)
def test_draws_follow_the_cuts_of_transformers(num_candidates, cuts):
    """In its order, behind top-k and top-p: what its warpers leave is drawn, in the proportions that they leave."""
    n, temperature, top_k, top_p = 3000, 1.3, 10, 0.97
    logits = np.random.default_rng(3).normal(0, 1.5, 12).astype(np.float32)
    warpers = [
        transformers.TemperatureLogitsWarper(temperature),
        transformers.TopKLogitsWarper(top_k),
        transformers.TopPLogitsWarper(top_p),
    ]
    kinds = {
        "min_p": transformers.MinPLogitsWarper,
        "typical_p": transformers.TypicalLogitsWarper,
        "epsilon_cutoff": transformers.EpsilonLogitsWarper,
        "eta_cutoff": transformers.EtaLogitsWarper,
    }
    scores = torch.tensor(logits[None])
    for warper in (*warpers, *(kinds[name](value) for name, value in cuts.items())):
        scores = warper(None, scores)
    expected = scores.softmax(dim=-1)[0].numpy().astype(np.float64) * n

    candidates = candidates_of(np.tile(logits, (n, 1)), num_candidates)
    ids, _ = sample(candidates, settings_of(n, temperature, top_k, top_p, **cuts), NO_END)

    counts = np.bincount(ids, minlength=12)
    kept = expected > 0
    assert 0 == counts[~kept].sum()
    if kept.sum() > 1:
        assert stats.chisquare(counts[kept], expected[kept] * n / expected[kept].sum()).pvalue > 1e-4


@pytest.mark.parametrize(
    ("wishes", "cuts", "num_read"),
    [
        ((1.0, 0, 1.0), {"min_p": 0.1}, 0),
        ((2.0, 0, 1.0), {"min_p": 0.1}, 0),
        ((1.0, 0, 1.0), {"epsilon_cutoff": 0.01}, 0),
        ((1.0, 5, 1.0), {"typical_p": 0.5, "eta_cutoff": 0.1}, 0),
        ((1.0, 0, 0.9), {"eta_cutoff": 0.1}, 0),
        ((1.0, 0, 1.0), {"typical_p": 0.5}, 20),
        ((1.0, 0, 1.0), {"min_p": 1e-6}, 20),
    ],
    ids=str,
)
def test_cuts_are_made_among_the_candidates_where_these_decide(wishes, cuts, num_read):
    """A row is read whole only where tokens beyond the candidates may be left, or count."""
    logits = np.tile(-np.arange(100, dtype=np.float32), (20, 1))
    read = []

    sample(candidates_of(logits, 8), settings_of(20, *wishes, **cuts), NO_END, read.append)

    assert ["draw"] * num_read == read


@pytest.mark.parametrize(
    ("cuts", "cuts_nothing"), [((1, 0, 0), True), ((0.9, 0, 0), False), ((1, 0.1, 0), False), ((1, 0, 0.1), False)]
)
def test_a_row_that_cuts_nothing_is_known(cuts, cuts_nothing):
    """It costs no sorting."""
    assert cuts_nothing == Truncation(*cuts).cuts_nothing


def test_eta_cuts_what_is_less_probable_than_its_floor():
    """The floor is eta, or less: its root times e to the minus entropy (Hewitt et al., 2022). 0 cuts nothing."""
    weights = np.array([0.5, 0.3, 0.15, 0.05])
    entropy = -(weights * np.log(weights)).sum()
    for eta in (0.0, 0.05, 0.1, 0.5):
        floor = min(eta, math.sqrt(eta) * math.exp(-entropy))
        assert (0, int((weights >= floor).sum())) == Truncation(1, 0, eta).keep(weights)
    assert (0, 2) == Truncation(1, 0, 0.5).keep(weights)
