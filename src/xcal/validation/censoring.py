"""Whether censoring depends on what is known of the rows: then Kaplan-Meier is biased, and values are corrected.

Kaplan-Meier, the jackknife and weights by a marginal censoring curve take the rows still observed to stand for those
that are not. Where patients at high risk leave earlier, they do not. The score test of a Cox model of the censorings
asks about the predicted risks and about every covariate; it sees such a dependence long before it matters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, ndtri
from scipy.stats import rankdata

from xcal._checks import BoolArray, FloatArray
from xcal.calibration.covariates import Column
from xcal.metrics.inputs import Vector
from xcal.metrics.pseudo_values import CensoringModel, fit_censoring
from xcal.validation.measurements import CensoringTest
from xcal.validation.rows import Rows
from xcal.validation.sample import Censoring

# Level of the test, over all that was asked about.
LEVEL = 0.01
# Censored rows before the last horizon below which nothing is tested, and for each term of the model of censoring.
_FEWEST, _PER_TERM = 20, 10


@dataclass(frozen=True, eq=False)
class _Term:
    """A variable on which censoring may depend."""

    name: str
    values: Vector
    p_value: float
    is_risk: bool


def dependent_censoring(
    rows: Rows, covariates: tuple[Column, ...], treatment: Censoring
) -> tuple[CensoringTest | None, CensoringModel | None]:
    """Test whether censoring before the last horizon depends on risks or covariates, and model it if so or if asked.

    Returns
    -------
    CensoringTest or None
        None where there is nothing to test.
    CensoringModel or None
        The model by which values at horizons are to be corrected; None if they are not.
    """
    horizons = [h for h in rows.risk if h <= rows.time[-1]]
    if not horizons:
        return None, None
    time, last = rows.time, horizons[-1]
    censored = ~rows.event & (time < last)
    asked = treatment == "covariates"
    if np.count_nonzero(censored) < _FEWEST:
        return None, None
    terms = [
        _Term(name, values, _score_test(values, time, censored, last, rows.weights), is_risk)
        for name, values, is_risk in _variables(rows, covariates, horizons)
    ]
    if not terms:
        return None, None
    # One test for each horizon's risk and each column, or for each label of a column.
    smallest = min(term.p_value for term in terms)
    found = [term for term in terms if term.p_value * len(terms) < LEVEL]
    p_value = min(1.0, smallest * len(terms))
    names = tuple(dict.fromkeys(term.name for term in sorted(found, key=lambda term: term.p_value)))
    model = None
    # Values of weighted rows are not corrected: the test tells, and the result says so.
    if rows.weights is None and (asked or (found and treatment == "auto")):
        model = _model(terms, found, rows, censored)
    return CensoringTest(p_value, names, model is not None), model


def _variables(rows: Rows, covariates: tuple[Column, ...], horizons: list[float]) -> Iterator[tuple[str, Vector, bool]]:
    """Return what censoring may depend on: the risks, and every column, numbers as normal scores of their ranks."""
    for horizon in horizons:
        if np.ptp(rows.risk[horizon]) > 0:
            yield "the predicted risk", _scores(rows.risk[horizon]), True
    for column in covariates:
        if column.labels is None:
            yield column.name, _scores(column.values), False
        else:
            for k in range(len(column.labels)):
                member = (column.values == k).astype(np.float64)
                if 0 < member.sum() < member.size:
                    yield column.name, member, False


def _scores(values: FloatArray) -> Vector:
    """Return normal scores of the ranks: in order, and without outliers."""
    return np.asarray(ndtri((rankdata(values) - 0.5) / values.size))


def _score_test(z: Vector, time: FloatArray, censored: BoolArray, last: float, weights: Vector | None) -> float:
    """P-value of the score test of a Cox model of the censorings on one variable, rows in time order.

    Of weighted rows with the variance of Lin and Wei, the sum of squares of what each row adds to the score: its
    residual at its censoring less what was expected of it while it was at risk.
    """
    followed = np.minimum(time, last)
    one = np.ones(z.size) if weights is None else weights
    backwards = (one[:, None] * np.column_stack([np.ones(z.size), z, z * z]))[::-1].cumsum(axis=0)[::-1]
    first = np.searchsorted(followed, followed[censored], side="left")
    n, total, square = backwards[first].T
    mean = total / n
    if weights is None:
        score, variance = float((z[censored] - mean).sum()), float((square / n - mean**2).sum())
    else:
        hazard, expected = (np.append(0.0, np.cumsum(w)) for w in (one[censored] / n, one[censored] * mean / n))
        passed = np.searchsorted(followed[censored], followed, side="right")
        added = expected[passed] - z * hazard[passed]
        added[censored] += z[censored] - mean
        score, variance = float(one @ added), float(np.square(one * added).sum())
    if not variance > 0:
        return 1.0
    return float(chdtrc(1, score**2 / variance))


def _model(terms: list[_Term], found: list[_Term], rows: Rows, censored: BoolArray) -> CensoringModel | None:
    """Fit a Cox model of the censorings on what was found and the risk of the last horizon, as far as rows allow."""
    most = max(1, int(np.count_nonzero(censored)) // _PER_TERM)
    risk = [term for term in terms if term.is_risk][-1:]
    wanted = sorted(found or terms, key=lambda term: term.p_value)
    chosen = [*risk, *(term for term in wanted if term not in risk)][:most]
    # Risks of several horizons are nearly the same variable.
    kept: list[Vector] = []
    for term in chosen:
        if all(abs(np.corrcoef(term.values, other)[0, 1]) < 0.95 for other in kept):
            kept.append(term.values)
    return fit_censoring(np.column_stack(kept), rows.time, rows.event)
