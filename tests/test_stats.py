"""Intervals: known values, coverage of the mean, and input that has no interval."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.special import expit

from casebook import CasebookError
from casebook.stats import contrast, difference_interval, holm, mean_interval, pass_at_k, pool_seeds

shares = arrays.arrays(float, st.integers(1, 40), elements=st.floats(0, 1))


def test_wilson_interval_matches_the_published_example():
    figure = mean_interval([1] * 81 + [0] * 182)  # Newcombe 1998, table I, method 3
    assert figure["n"] == 263
    assert figure["value"] == pytest.approx(81 / 263, abs=1e-6)
    assert (figure["low"], figure["high"]) == pytest.approx((0.2553, 0.3662), abs=5e-5)


@pytest.mark.parametrize("values", [[0] * 20, [1] * 20, [False] * 3, np.ones(5, bool)])
def test_an_extreme_rate_still_has_an_interval(values):
    figure = mean_interval(values)
    assert 0 <= figure["low"] < figure["high"] <= 1


def test_bootstrap_is_used_for_shares_and_is_as_wide_as_theory_says():
    values = np.random.default_rng(0).uniform(size=1000)
    figure = mean_interval(values)
    half = 1.96 * values.std() / np.sqrt(1000)
    assert (figure["high"] - figure["low"]) / 2 == pytest.approx(half, rel=0.1)


@given(shares)
def test_an_interval_holds_its_mean_and_stays_within_the_values(values):
    figure = mean_interval(values)
    assert figure["n"] == len(values)
    assert figure["value"] == pytest.approx(values.mean(), abs=1e-6)
    assert -1e-6 <= figure["low"] <= figure["high"] <= 1 + 1e-6


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "no values"), ([0.5, float("nan")], "finite"), ([0.5, float("inf")], "finite")],
)
def test_what_has_no_mean_is_refused(values, message):
    with pytest.raises(CasebookError, match=message):
        mean_interval(values)


def test_a_paired_difference_is_surer_than_two_intervals():
    rng = np.random.default_rng(0)
    before = rng.uniform(size=400)
    figure = difference_interval(before, before + 0.1 + 0.01 * rng.normal(size=400))
    assert figure["n"] == 400
    assert 0.09 < figure["low"] < figure["value"] < figure["high"] < 0.11


@pytest.mark.parametrize("after", [[0, 1, 1], [1, 1, 1]])
def test_a_difference_is_not_taken_for_a_rate(after):
    """Changes of 0 and 1 only, or of none at all, get no interval of a binomial rate."""
    before = [0, 1, 1]
    figure = difference_interval(before, after)
    change = [a - b for a, b in zip(after, before, strict=True)]
    assert figure["value"] == pytest.approx(np.mean(change), abs=1e-6)
    assert (figure["low"], figure["high"]) == (0, max(change))


def test_what_is_not_to_be_had_is_one_sentence():
    with pytest.raises(CasebookError, match="same prompts twice, not 2 and 1"):
        difference_interval([1, 0], [1])
    with pytest.raises(CasebookError, match="no values"):
        pool_seeds([])


def crossed(rng, seeds, rows, ratio, alone=1.0):
    """Values of both sides without a difference: seeds vary by `ratio` standard errors of rows."""
    shared = rng.normal(size=rows)
    spread = ratio * np.sqrt(1 / rows)
    return [
        (
            sign,
            (sign > 0) * shared
            + spread * rng.normal(size=(seeds, 1))
            + alone * rng.normal(size=(seeds, rows)),
        )
        for sign in (1, -1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("ratio", [0.5, 1, 2, 5])
def test_the_interval_of_a_difference_covers_95_percent(ratio, seeds):
    rng = np.random.default_rng(1)
    draws = 3000
    found = [contrast(crossed(rng, seeds, 60, ratio)) for _ in range(draws)]
    assert 0.93 <= sum(f.low < 0 < f.high for f in found) / draws <= 0.97


@pytest.mark.parametrize("ratio", [0.5, 1, 2, 5])
def test_the_interval_of_pooled_seeds_covers_95_percent(ratio):
    """As records without bits have it: of each seed a mean with its interval over 60 rows."""
    rng, inside, half = np.random.default_rng(1), 0, 1.96 / np.sqrt(60)
    for _ in range(3000):
        means = rng.normal(scale=half / 1.96) + ratio * half / 1.96 * rng.normal(size=5)
        pooled = pool_seeds([figure(m - half, m, m + half) for m in means])
        inside += pooled["low"] < 0 < pooled["high"]
    assert 0.93 <= inside / 3000 <= 0.97


def test_errors_are_clustered_over_rows_that_belong_together():
    rng, inside, blind = np.random.default_rng(1), 0, 0
    blocks = np.repeat(np.arange(40), 5)
    for _ in range(1000):
        values = [(1, rng.normal(size=(3, 40))[:1].repeat(5, axis=1) + rng.normal(size=(3, 200)))]
        inside += (f := contrast(values, blocks)).low < 0 < f.high
        blind += (f := contrast(values)).low < 0 < f.high
    assert 0.93 <= inside / 1000 <= 0.97
    assert blind / 1000 < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("sharp", [1, 1e6], ids=["one sample", "greedy"])
@pytest.mark.parametrize(
    ("before", "after", "least"), [(0, 0.5, 0.93), (-2, 2, 0.93), (1.9, 3.2, 0.9), (3, 4.5, 0.8)]
)
def test_right_answers_are_covered_less_only_near_100_percent(before, after, least, sharp):
    """Logits of one untrained model and of five trainings; rows stand in clusters of four."""
    rng, blocks, inside = np.random.default_rng(1), np.arange(50).repeat(4), 0
    many = rng.normal(size=10**6)
    right = [expit(sharp * (before + 2**0.5 * many)), expit(sharp * (after + 3.09**0.5 * many))]
    for _ in range(1000):
        rows = rng.normal(size=50)[blocks] + rng.normal(size=200)
        own = rows + 0.3 * rng.normal(size=(5, 1)) + rng.normal(size=(5, 200))
        shares = [(-1, expit(sharp * (before + rows))), (1, expit(sharp * (after + own)))]
        found = contrast([(sign, rng.random(p.shape) < p) for sign, p in shares], blocks)
        inside += found.low <= right[1].mean() - right[0].mean() <= found.high
    assert least <= inside / 1000 <= 0.98


def test_power_is_the_share_of_true_differences_that_are_told():
    rng = np.random.default_rng(1)
    powered = np.mean([contrast(crossed(rng, 5, 60, 1)).powered for _ in range(500)])
    shares = {1.0: 0.8, 0.7: 0.5}
    for part, share in shares.items():
        sides = (crossed(rng, 5, 60, 1) for _ in range(2000))
        told = [contrast([(1, a[1] + part * powered), b]).low > 0 for a, b in sides]
        assert np.mean(told) == pytest.approx(share, abs=0.06)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_leaves_no_more_than_stood_and_no_fewer_than_bonferroni(values):
    kept = holm(values)
    assert sum(p <= 0.05 / len(values) for p in values) <= kept <= sum(p <= 0.05 for p in values)


def figure(low: float, value: float, high: float) -> dict:
    return {"low": low, "value": value, "high": high, "n": 100}


@st.composite
def figures_of_shares(draw):
    return figure(*sorted(draw(st.tuples(*[st.floats(0, 1)] * 3))))


@given(figures_of_shares())
def test_one_seed_keeps_its_interval(only):
    pooled = pool_seeds([only])
    assert pooled["n"] == 1
    for name in ("low", "value", "high"):
        assert pooled[name] == pytest.approx(only[name], abs=1e-6)


@pytest.mark.parametrize("side", ["low", "high"])
def test_an_interval_that_ends_at_a_bound_is_not_mirrored(side):
    """0 right of 90 in each of three seeds says nothing below 0, and as much above as one seed."""
    seeds = [figure(0, 0, 0.04)] * 3 if side == "low" else [figure(0.96, 1, 1)] * 3
    pooled = pool_seeds(seeds)
    assert (pooled["low"], pooled["high"]) == ((0, 0.04) if side == "low" else (0.96, 1))


@pytest.mark.parametrize(("n", "c", "k"), [(8, 3, 1), (8, 3, 4), (5, 5, 2), (6, 0, 6), (3, 1, 3)])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(n, c, k):
    subsets = list(combinations([1] * c + [0] * (n - c), k))
    expected = sum(any(subset) for subset in subsets) / len(subsets)
    assert pass_at_k(n, [c], k)[0] == pytest.approx(expected)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 2, 5), (4, 2, 0), (4, 5, 2), (4, -1, 2)])
def test_pass_at_k_refuses_impossible_counts(n, c, k):
    with pytest.raises(CasebookError):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(("n", "k"), [(1100, 500), (5000, 2500)])
def test_pass_at_k_of_numbers_beyond_floats(n, k):
    found = pass_at_k(n, [0, 1, 3, n - k + 1, n], k)
    assert found[[0, -2, -1]] == pytest.approx([0.0, 1.0, 1.0])
    assert found[1] == pytest.approx(k / n)
    assert found[2] == pytest.approx(1 - np.prod([(n - k - i) / (n - i) for i in range(3)]))
