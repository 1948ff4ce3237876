"""How sure a number is: intervals for accuracies, over prompts and over seeds, and pass@k.

An accuracy is a mean over prompts, so prompts are what an interval resamples: eight samples of
one prompt are one observation, not eight. Training adds a second source of chance, the seed;
where an arm has several, seeds are resampled too. Everything returns the same small dict,

    {"value": mean, "low": lower end, "high": upper end, "n": observations that are resampled}

of a 95 % interval, which is what records keep of a number.
"""

import base64
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import comb
from scipy.stats import binomtest, hypergeom, norm

from casebook.case import CasebookError

RESAMPLES = 2000  # of a bootstrap
ENDS = (0.025, 0.975)  # of an interval: 95 %

Figure = dict[str, float]


def mean_interval(values: ArrayLike) -> Figure:
    """The mean of one value a prompt, with its 95 % interval.

    Where all values are 0 or 1, Wilson's score interval (Wilson 1927), which stays sensible at
    0 of n and n of n; otherwise the percentile bootstrap over prompts (Efron 1979).

    Args:
        values: `(prompts,)` finite numbers or booleans, for instance each prompt's share of
            right samples.

    Raises:
        CasebookError: no values, or values that are not finite.

    >>> mean_interval([1, 1, 1, 0])
    {'value': 0.75, 'low': 0.300642, 'high': 0.954413, 'n': 4}
    """
    values = _finite(values)
    if np.isin(values, (0.0, 1.0)).all():
        low, high = binomtest(int(values.sum()), len(values)).proportion_ci(method="wilson")
        return _figure(values, low, high)
    return _bootstrap(values)


def difference_interval(before: ArrayLike, after: ArrayLike) -> Figure:
    """The mean change of one value a prompt, measured twice on the same prompts.

    The bootstrap resamples pairs, so what makes a prompt hard for both cancels; two separate
    intervals would be far too wide for the difference.

    Args:
        before: `(prompts,)` finite numbers or booleans.
        after: the same prompts, in the same order.

    Raises:
        CasebookError: no values, different numbers of prompts, or values that are not finite.

    >>> difference_interval([0, 0, 1, 0], [1, 1, 1, 0])["value"]
    0.5
    """
    before, after = _finite(before), _finite(after)
    if len(before) != len(after):
        raise CasebookError(
            f"a paired difference needs the same prompts twice, not {len(before)} and {len(after)}"
        )
    return _bootstrap(after - before)


def pool_seeds(figures: Sequence[Mapping[str, float]]) -> Figure:
    """The mean of one figure a seed, where only the figures are known: what records keep.

    Seeds are resampled. The prompts' part is drawn from a normal distribution as wide as the
    seeds' own 95 % intervals, below the figure and above it apart, since near 0 and 1 they are
    not symmetric. One draw is shared by all seeds, because they are measured on the same prompts.
    With fewer than about five seeds the interval is too narrow: they cannot show how far others
    would lie.

    Args:
        figures: one 95 % figure for each seed.

    Returns:
        The figure; `n` is the number of seeds.

    Raises:
        CasebookError: no figures, or one that is not finite.

    >>> one = {"value": 0.8, "low": 0.75, "high": 0.85, "n": 250}
    >>> pool_seeds([one, one, one])["value"]
    0.8
    """
    table = [[figure["value"], figure["low"], figure["high"]] for figure in figures]
    value, low, high = _finite(table).reshape(-1, 3).T
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(value), size=(RESAMPLES, len(value)))
    # Evenly spaced quantiles in random order, so that one figure keeps its interval exactly.
    normal = norm.ppf((rng.permutation(RESAMPLES) + 0.5) / RESAMPLES)
    error = normal / np.quantile(normal, ENDS[1])
    below, above = (value - low)[drawn].mean(axis=1), (high - value)[drawn].mean(axis=1)
    means = value[drawn].mean(axis=1) + error * np.where(error < 0, below, above)
    return _figure(value, *np.quantile(means, ENDS))


def pass_at_k(n: int, c: ArrayLike, k: int) -> np.ndarray:
    """The chance that at least one of `k` samples is right, unbiased from `n` of which `c` are.

    pass@k = 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, equation 1). The
    plug-in 1 - (1 - c/n)^k is biased downwards.

    Args:
        n: samples drawn for each prompt.
        c: `(prompts,)` how many of them are right.
        k: at most `n`.

    Returns:
        `(prompts,)` probabilities.

    Raises:
        CasebookError: not 1 <= k <= n, or a count that is no whole number from 0 to n.

    >>> pass_at_k(4, [0, 1, 4], k=2)
    array([0. , 0.5, 1. ])
    """
    if not 1 <= k <= n:
        raise CasebookError(f"pass@k needs 1 <= k <= n; got k = {k!r}, n = {n!r}")
    right = np.asarray(c, dtype=float)
    if not ((right >= 0) & (right <= n) & (right == np.floor(right))).all():
        raise CasebookError(f"right samples must be counted by whole numbers from 0 to {n}")
    whole = comb(n, k)
    if np.isfinite(whole):
        return 1.0 - comb(n - right, k) / whole
    return hypergeom.sf(0, n, right, k)


def pack_bits(bits: ArrayLike) -> str:
    """Yes or no for each row and sample as text: eight in a byte, in base64."""
    return base64.b64encode(np.packbits(np.asarray(bits, dtype=bool))).decode()


def unpack_bits(text: str, rows: int) -> np.ndarray:
    """What `pack_bits` packed: `(rows, samples)` booleans; at least eight rows, or one sample.

    >>> unpack_bits(pack_bits([[1, 0], [0, 0], [1, 1], [0, 1]] * 2), 8)[:2].tolist()
    [[True, False], [False, False]]
    """
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))
    samples = max(1, len(bits) // rows)
    return bits[: rows * samples].reshape(rows, samples).astype(bool)


def _bootstrap(values: np.ndarray) -> Figure:
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    return _figure(values, *np.quantile(means, ENDS))


def _finite(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise CasebookError("there are no values to take the mean of")
    if not np.isfinite(array).all():
        raise CasebookError("an interval needs finite values; some are NaN or infinite")
    return array


def _figure(values: np.ndarray, low: float, high: float) -> Figure:
    """Six digits: far below what any interval resolves, and readable in a record."""
    ends = {"value": values.mean(), "low": low, "high": high}
    return {name: round(float(end), 6) for name, end in ends.items()} | {"n": len(values)}
