"""Situations on which the rule of conditional calibration was not chosen; see `studies.conditional_rules`.

Each gives F of a wrong model at the observed times, events and columns. Where the model has one distribution for all
rows, F is mapped by 200,000 other draws of the truth so that it is uniform over all rows: right on average, wrong given
x. About half of the rows are censored, independently of the times.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from xcal.calibration.subgroups import Column, as_columns

Columns = tuple[Column, ...]
Data = tuple[np.ndarray, np.ndarray, Columns]
Truth = Callable[[int, np.random.Generator], tuple[np.ndarray, Columns]]  # times of the events, columns
DRAWN = 200_000
CATEGORIES, BAD = 6, 2
TURN = 0.7  # when the effect that changes with time ends


def correlated(n: int, p: int, rng: np.random.Generator) -> np.ndarray:
    """Draw normal columns, each correlated with the one before by 0.6."""
    x = rng.standard_normal((n, p))
    for k in range(1, p):
        x[:, k] = 0.6 * x[:, k - 1] + 0.8 * x[:, k]
    return x


def shape(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Columns]:
    """Log-logistic times whose shape goes up and down with one of five columns."""
    x = rng.standard_normal((n, 5))
    return np.exp(np.exp(0.5 * np.sin(2 * x[:, 0])) * rng.logistic(size=n)), as_columns(x, n)


def both_ends(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Columns]:
    """Hazards that rise with the distance of one of six columns from its middle."""
    x = rng.standard_normal((n, 6))
    return rng.exponential(np.exp(-0.6 * np.abs(x[:, 0]))), as_columns(x, n)


def category(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Columns]:
    """Twice the hazard in one of six categories, beside three numeric columns and another category."""
    label, other = rng.integers(CATEGORIES, size=n), rng.integers(3, size=n)
    names = tuple(f"c{k}" for k in range(CATEGORIES))
    kinds = (Column("kind", label.astype(float), names), Column("other", other.astype(float), ("a", "b", "c")))
    return rng.exponential(np.where(label == BAD, 0.5, 1.0)), (*as_columns(rng.standard_normal((n, 3)), n), *kinds)


def two_of_ten(n: int, rng: np.random.Generator) -> tuple[np.ndarray, Columns]:
    """Hazards that depend on two of ten correlated columns."""
    x = correlated(n, 10, rng)
    return rng.exponential(np.exp(-0.25 * (x[:, 2] - x[:, 7]))), as_columns(x, n)


@cache
def drawn(truth: Truth) -> np.ndarray:
    return np.sort(truth(DRAWN, np.random.default_rng(987))[0])


def one_for_all(truth: Truth, seed: int, n: int) -> Data:
    """F of a model with one distribution for all rows, that of the truth over all of them."""
    rng = np.random.default_rng([seed, n, 77])
    time, columns = truth(n, rng)
    known = drawn(truth)
    end = rng.choice(known, n)  # an independent time like theirs: half are censored
    return np.searchsorted(known, np.minimum(time, end)) / DRAWN, time <= end, columns


def changing(seed: int, n: int) -> Data:
    """Hazards exp(x0) at first and one later, of a model with proportional hazards and half of the effect."""
    rng = np.random.default_rng([seed, n, 78])
    x = rng.standard_normal((n, 5))
    early, needed = np.exp(x[:, 0]), rng.exponential(size=n)
    time = np.where(needed < early * TURN, needed / early, TURN + needed - early * TURN)
    end = rng.exponential(size=n)
    u = -np.expm1(-np.minimum(time, end) * np.exp(0.5 * x[:, 0]))
    return u, time <= end, as_columns(x, n)


def right(seed: int, n: int, kind: str) -> Data:
    """F of the true log-logistic model; censoring depends on x, too."""
    rng = np.random.default_rng([seed, n, 79])
    x = correlated(n, 10, rng)
    label = (norm.cdf(x[:, 9]) * CATEGORIES).astype(int)
    effect = 0.5 * x[:, 0] + (0.6 * (label == BAD) if kind == "categories" else 0.3 * x[:, 5])
    z, end = rng.logistic(size=n), rng.logistic(size=n) + 0.5 * x[:, 1] - effect
    columns = as_columns(x[:, :9], n)
    last = Column("kind", label.astype(float), tuple(f"c{k}" for k in range(CATEGORIES)))
    return expit(np.minimum(z, end)), z <= end, (*columns, last) if kind == "categories" else as_columns(x, n)


SITUATIONS: dict[str, Callable[[int, int], Data]] = {
    "shape by a wave": lambda seed, n: one_for_all(shape, seed, n),
    "both ends": lambda seed, n: one_for_all(both_ends, seed, n),
    "one category": lambda seed, n: one_for_all(category, seed, n),
    "two of ten": lambda seed, n: one_for_all(two_of_ten, seed, n),
    "changes with time": changing,
    "right, correlated": lambda seed, n: right(seed, n, "correlated"),
    "right, categories": lambda seed, n: right(seed, n, "categories"),
}
