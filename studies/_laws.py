"""Laws of survival times with known curves, and censorings of them, behind the studies of the audit.

Three normal covariates. Every law has its curve S(t | x) and its quantile in closed form, so that a true model is at
hand. In the laws with varying shape and varying spread hazards cross.
"""

from functools import cache

import numpy as np
from scipy import stats
from scipy.special import expit, ndtr

LAWS = ("proportional", "log-logistic", "varying shape", "heavy tails", "cured", "months", "visits")
CENSORED = (0.2, 0.6, 0.85)
_UNIT = 20.0  # months of the typical time, where times are in whole months


def survival(law: str, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """S(t | x): t of shape (m,) for the same times of every row, or (n, 1) for one time of each."""
    t = np.maximum(t, 1e-12) if t.ndim == 2 else np.maximum(t, 1e-12)[None, :]
    predictor = np.exp(0.7 * x[:, :1] + 0.4 * x[:, 1:2])
    if law in ("proportional", "months", "visits"):
        return np.exp(-((t / (1.0 if law == "proportional" else _UNIT)) ** 1.3) * predictor)
    if law == "log-logistic":
        return 1 / (1 + (t * predictor) ** 1.5)
    if law == "varying shape":
        return np.exp(-((t * np.exp(0.5 * x[:, 1:2])) ** np.exp(0.5 * x[:, :1])))
    if law == "heavy tails":
        return stats.t.sf((np.log(t) + 0.5 * x[:, :1]) / (0.6 * np.exp(0.5 * x[:, 1:2])), 3)
    never = expit(-0.3 + 0.8 * x[:, 1:2])
    return never + (1 - never) * np.exp(-((t * np.exp(0.7 * x[:, :1])) ** 1.2))


def event_time(law: str, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the time at which F(t | x) is u; infinite for the cured."""
    predictor = np.exp(0.7 * x[:, 0] + 0.4 * x[:, 1])
    if law in ("proportional", "months", "visits"):
        return (1.0 if law == "proportional" else _UNIT) * (-np.log1p(-u) / predictor) ** (1 / 1.3)
    if law == "log-logistic":
        return (u / (1 - u)) ** (1 / 1.5) / predictor
    if law == "varying shape":
        return (-np.log1p(-u)) ** np.exp(-0.5 * x[:, 0]) * np.exp(-0.5 * x[:, 1])
    if law == "heavy tails":
        return np.exp(-0.5 * x[:, 0] + 0.6 * np.exp(0.5 * x[:, 1]) * stats.t.ppf(u, 3))
    share = u / (1 - expit(-0.3 + 0.8 * x[:, 1]))
    with np.errstate(invalid="ignore", divide="ignore"):
        time = (-np.log1p(-np.minimum(share, 1.0))) ** (1 / 1.2) * np.exp(-0.7 * x[:, 0])
    return np.where(share < 1, time, np.inf)


def _leaving(rng: np.random.Generator, x: np.ndarray, depends: bool) -> np.ndarray:
    """Censoring times in units of their scale; where they depend on x, rows at high risk leave early."""
    return rng.weibull(1.5, len(x)) * np.exp(-0.4 * depends * x[:, 0])


@cache
def _scale(law: str, censored: float, depends: bool) -> tuple[float, float]:
    """Scale of the censoring times that censors this share of rows, and the end of the study."""
    rng = np.random.default_rng(99)
    x = rng.normal(size=(20_000, 3))
    happens, leaves = event_time(law, x, rng.random(len(x))), _leaving(rng, x, depends)
    end = float(np.quantile(happens[np.isfinite(happens)], 0.97))
    low, high = 1e-4, 1e6
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if np.mean(happens > np.minimum(middle * leaves, end)) > censored else (low, middle)
    return middle, end


@cache
def share_of_events(law: str, censored: float, depends: bool) -> float:
    """Share of rows with an event; of the cured law it is less than the share not censored, as many never have one."""
    return float(draw(law, 50_000, censored, depends, [98])[2].mean())


def draw(
    law: str, n: int, censored: float, depends: bool, seed: list[int], *, together: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw covariates, observed times and events.

    "months" are continuous times, rounded up; in "visits" all happens at whole months, the event first. So many rows
    `together` share their covariates, and their times are alike (a normal copula with correlation 0.5).
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    if together == 1:
        u = rng.random(n)
    else:
        cluster = np.arange(n) // together
        x, u = x[cluster], ndtr((rng.normal(size=n)[cluster] + rng.normal(size=n)) / 2**0.5)
    happens, leaves = event_time(law, x, u), _leaving(rng, x, depends)
    scale, end = _scale(law, censored, depends)
    leaves = np.minimum(scale * leaves, end)
    if law == "visits":
        happens, leaves = np.ceil(happens), np.ceil(leaves)
    time, event = np.minimum(happens, leaves), happens <= leaves
    return x, np.ceil(time) if law == "months" else time, event


def predicted(law: str, model: str, x: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the curves of the true model, or of one that is wrong in a known way, on a grid of times."""
    true = survival(law, x, times)
    if model == "hazards x 1.5":
        return true**1.5
    if model == "over-confident":
        inside = np.clip(true, 1e-12, 1 - 1e-12)
        return 1 / (1 + ((1 - inside) / inside) ** 1.5)  # log-odds half as far again from even
    if model == "wrong in a fifth":
        # Hazards too low by the factor in a fifth of the rows, and too high in the others: right on average.
        return true ** np.where(x[:, 1:2] > FIFTH, 1 / FACTOR, _balance(law))
    assert model == "true"
    return true


# The fifth of the rows with the largest second covariate, and the factor on its hazards.
FIFTH, FACTOR = 0.8416, 1.6


@cache
def _balance(law: str) -> float:
    """Factor on the hazards of the other rows that makes the average risk right at the median time."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20_000, 3))
    at = np.array([1.0 if law not in ("months", "visits") else _UNIT])
    true, fifth = survival(law, x, at)[:, 0], x[:, 1] > FIFTH
    low, high = 0.5, 3.0
    for _ in range(40):
        middle = (low + high) / 2
        mean = np.where(fifth, true ** (1 / FACTOR), true**middle).mean()
        low, high = (middle, high) if mean > true.mean() else (low, middle)
    return middle


def grid(law: str, time: np.ndarray) -> np.ndarray:
    """Return the times of the curves that are audited: every month, or many quantiles of the observed times."""
    if law in ("months", "visits"):
        return np.arange(1.0, time.max() + 1)
    times = np.unique(np.quantile(time, np.linspace(0, 1, 121)))
    return times[times > 0]
