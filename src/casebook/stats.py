"""Intervals for accuracies, over prompts and over seeds, and pass@k.

An accuracy is a mean over prompts, so prompts are what an interval resamples: eight samples of
one prompt are one observation, not eight. Training adds a second source of chance, the seed;
a comparison of arms pairs the rows and counts both sources (`contrast`). A figure with its
interval is the same small dict everywhere,

    {"value": mean, "low": lower end, "high": upper end, "n": independent observations}

of a 95 % interval. Records keep figures in this form.
"""

import base64
from collections.abc import Mapping, Sequence
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import comb
from scipy.stats import binomtest, bootstrap, hypergeom, norm
from scipy.stats import t as student

from casebook.case import CasebookError

RESAMPLES = 2000  # of a bootstrap
NORMAL = float(norm.ppf(0.975))  # standard errors in half of a 95 % interval

Figure = dict[str, float]


def mean_interval(values: ArrayLike) -> Figure:
    """The mean of one value per prompt, with its 95 % interval.

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
    """The mean change of one value per prompt, measured twice on the same prompts.

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
    """The mean of one figure per seed, where only the figures are known.

    Seeds and rows are two sources of chance, and all seeds have the same rows: the variances are
    added, and the interval is Student's t with Satterthwaite's degrees of freedom. If the seeds'
    intervals reach further to one side, as near 0 and 1, the pooled one does so too. With a
    single seed it is that seed's interval, which does not cover other seeds.

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
    value, low, high = _table(figures).T
    pooled = contrast([(1, figures)])
    ends = []
    for side, sign in ((value - low, -1), (high - value, 1)):
        error = sqrt((side.mean() / NORMAL) ** 2 + _between(value)[0])
        ends.append(pooled.value + sign * student.ppf(0.975, pooled.df) * error)
    return _figure(value, *ends)


class Difference(NamedTuple):
    """A difference, or another contrast, with its 95 % interval.

    Attributes:
        value, low, high: in the unit of what is compared.
        error: its standard error.
        df: degrees of freedom of Student's t.
    """

    value: float
    low: float
    high: float
    error: float
    df: float

    @property
    def critical(self) -> float:
        """The critical difference: a smaller one cannot be told from 0. A true difference of this
        size is found in half of all cases."""
        return (self.high - self.low) / 2

    @property
    def powered(self) -> float:
        """The true difference that is found in 80 % of all cases."""
        return self.error * float(student.ppf(0.975, self.df) + student.ppf(0.8, self.df))

    def within(self, margin: float = 0.05) -> bool:
        """Whether the two are equivalent: the whole interval lies within the margin around 0."""
        return -margin <= self.low and self.high <= margin

    @property
    def p(self) -> float:
        """Two-sided p-value for no difference."""
        if not self.error:
            return float(self.value == 0)
        return 2 * float(student.sf(abs(self.value) / self.error, self.df))


def contrast(
    sides: Sequence[tuple[float, Any]], clusters: Sequence[Any] | None = None
) -> Difference:
    """A weighted sum of means, such as right minus left, over seeds and test rows.

    The variance has two observed parts: between the seeds of each side, and between rows of the
    weighted sum. The chance of single completions is in both, and is subtracted once
    (Searle 1971, the crossed classification). The interval is Student's t with Satterthwaite's
    (1946) degrees of freedom. Pairing by row and errors clustered over rows that belong together
    are as in Miller 2024 (arXiv 2411.00640, sections 2 and 4).

    Args:
        sides: weight and values: `(seeds, rows)` with the same rows on all sides; or for each
            seed its figure, where no rows are known: then the sides' rows count as others.
        clusters: of each row, what it shares with those it is not independent of.

    Raises:
        CasebookError: no values, or values that are not finite.

    >>> base, policy = [[0, 0, 1, 0]], [[1, 1, 1, 0], [1, 0, 1, 0]]
    >>> contrast([(-1, base), (1, policy)]).value
    0.375
    """
    parts: list[tuple[float, float]] = []  # variances with their degrees of freedom
    if isinstance(sides[0][1][0], Mapping):
        value = within = between = taken = 0.0
        for weight, figures in sides:
            of_seed, low, high = _table(figures).T
            value += weight * of_seed.mean()
            within += (weight * (high - low).mean() / 2 / NORMAL) ** 2
            parts.append(_between(of_seed, weight))
            between += parts[-1][0]
        parts.append((within, inf))  # its own degrees of freedom are not known
    else:
        tables = [(weight, np.atleast_2d(_finite(values))) for weight, values in sides]
        rows = sum(weight * values.mean(axis=0) for weight, values in tables)
        value, between, taken = rows.mean(), 0.0, 0.0
        group = np.unique(clusters, return_inverse=True)[1] if clusters is not None else None
        within, count = _of_rows((rows - value)[None], group)
        parts.append((within, count - 1))
        for weight, values in tables:
            seeds = len(values)
            parts.append(_between(values.mean(axis=1), weight))
            between += parts[-1][0]
            if seeds > 1:
                rest = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
                noise = weight**2 * _of_rows(rest, group)[0] / (seeds * (seeds - 1))
                parts.append((noise, (seeds - 1) * (count - 1)))
                taken += noise
    variance = max(within + between - taken, within, between)
    known = sum(part**2 / df for part, df in parts if df > 0)
    df = variance**2 / known if known else inf
    value, half = float(value), float(student.ppf(0.975, df)) * sqrt(variance)
    return Difference(value, value - half, value + half, sqrt(variance), float(df))


def _between(means: np.ndarray, weight: float = 1.0) -> tuple[float, float]:
    """The variance of a mean over seeds and its degrees of freedom; of one seed none is known."""
    seeds = len(means)
    return (weight**2 * means.var(ddof=1) / seeds, seeds - 1) if seeds > 1 else (0.0, 0)


def _of_rows(errors: np.ndarray, group: np.ndarray | None) -> tuple[float, int]:
    """The variance of the mean of `(n, rows)` errors, summed over n, and how many clusters."""
    sums = errors
    if group is not None:
        sums = np.stack([np.bincount(group, one) for one in errors])
    count = sums.shape[1]
    return float((sums**2).sum() / errors.shape[1] ** 2 * count / max(count - 1, 1)), count


def holm(values: Sequence[float], level: float = 0.05) -> int:
    """How many of some p-values stay below a level under Holm's correction (Holm 1979).

    >>> holm([0.001, 0.03, 0.04])
    1
    """
    ordered = sorted(values)
    below = (p <= level / (len(ordered) - i) for i, p in enumerate(ordered))
    return next((i for i, one in enumerate(below) if not one), len(ordered))


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
        raise CasebookError(f"the number of right samples must be a whole number from 0 to {n}")
    whole = comb(n, k)
    if np.isfinite(whole):
        return 1.0 - comb(n - right, k) / whole
    return hypergeom.sf(0, n, right, k)


def pack_bits(bits: ArrayLike) -> str:
    """Yes or no for each row and sample as text: eight per byte, in base64."""
    return base64.b64encode(np.packbits(np.asarray(bits, dtype=bool))).decode()


def unpack_bits(text: str, rows: int) -> np.ndarray:
    """What `pack_bits` packed: `(rows, samples)` booleans, of at least eight rows.

    >>> unpack_bits(pack_bits([[1, 0], [0, 0], [1, 1], [0, 1]] * 2), 8)[:2].tolist()
    [[True, False], [False, False]]
    """
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))
    samples = max(1, len(bits) // rows)
    return bits[: rows * samples].reshape(rows, samples).astype(bool)


def _bootstrap(values: np.ndarray) -> Figure:
    if len(values) == 1:  # SciPy asks for two
        return _figure(values, *values, *values)
    how = {"n_resamples": RESAMPLES, "method": "percentile", "rng": np.random.default_rng(0)}
    return _figure(values, *bootstrap((values,), np.mean, **how).confidence_interval)


def _table(figures: Sequence[Mapping[str, float]]) -> np.ndarray:
    table = [[figure["value"], figure["low"], figure["high"]] for figure in figures]
    return _finite(table).reshape(-1, 3)


def _finite(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise CasebookError("there are no values to average")
    if not np.isfinite(array).all():
        raise CasebookError("an interval needs finite values; some are NaN or infinite")
    return array


def _figure(values: np.ndarray, low: float, high: float) -> Figure:
    """Six digits: far below what any interval resolves, and readable in a record."""
    ends = {"value": values.mean(), "low": low, "high": high}
    return {name: round(float(end), 6) for name, end in ends.items()} | {"n": len(values)}
