"""When rows are censored: models of it, and whether it depends on what is known of the rows.

Kaplan-Meier, the jackknife and weights by a marginal censoring curve take the rows still observed to stand for those
that are not. Where patients at high risk leave earlier, they do not. The score test of a Cox model of the censorings
asks about the predicted risks and about every covariate; it sees such a dependence long before it matters.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, ndtri
from scipy.stats import rankdata

from xcal._checks import BoolArray, FloatArray
from xcal._kaplan_meier import fit_kaplan_meier, later_entries
from xcal.calibration.subgroups import Column
from xcal.data.surv import Outcome
from xcal.metrics.cox import RiskSets
from xcal.metrics.inputs import Vector

# Level of the test, over all that was asked about.
LEVEL = 0.01

# Logarithm of a factor on the hazard of censoring that no data show.
_MOST_PREDICTOR = 30.0

# Censored rows for each term of the model of censoring, and those below which nothing is tested.
_PER_TERM, FEWEST_CENSORED = 10, 20


@dataclass(frozen=True, eq=False)
class CensoringModel:
    """A Cox model of the censoring times: the probability of not being censored, for each row by its covariates.

    Attributes
    ----------
    times, hazard : arrays, shape (k,)
        Times of the censorings, ascending, and the cumulative baseline hazard after each.
    factor : array, shape (n,)
        Factor of each row on that hazard.
    lived : array, shape (n,), or None
        Cumulative baseline hazard at the entry of each row, from which on it could be censored; None for 0.
    """

    times: Vector
    hazard: Vector
    factor: Vector
    lived: Vector | None = None

    def before(self, t: FloatArray) -> Vector:
        """Return the probability of each row to be observed until its own entry of `t`, shape (n,), or longer."""
        passed = np.append(0.0, self.hazard)[np.searchsorted(self.times, t, side="left")]
        return np.asarray(np.exp(-self.factor * (passed if self.lived is None else passed - self.lived)))

    def take(self, rows: npt.NDArray[Any]) -> "CensoringModel":
        """Return the model for some of the rows."""
        lived = None if self.lived is None else self.lived[rows]
        return CensoringModel(self.times, self.hazard, self.factor[rows], lived)

    def of_rows(self, rows: slice, t: Vector) -> Vector:
        """Return that of some rows at every time of a grid, shape (rows, times)."""
        passed = np.append(0.0, self.hazard)[np.searchsorted(self.times, t, side="left")]
        since = passed if self.lived is None else passed - self.lived[rows, None]
        return np.asarray(np.exp(-self.factor[rows, None] * since))

    def entered(self, entry: FloatArray | None) -> "CensoringModel":
        """Return the model for rows that could be censored from their entry on."""
        if entry is None:
            return self
        lived = np.append(0.0, self.hazard)[np.searchsorted(self.times, entry, side="right")]
        return CensoringModel(self.times, self.hazard, self.factor, lived)


def fit_censoring(x: Vector, outcome: Outcome) -> CensoringModel | None:
    """Fit a Cox model of the censorings; None where its likelihood has no maximum.

    At one time the events come first: rows with an event at t are no longer at risk of being censored there.
    """
    time, event = outcome.time, outcome.ended
    spread = x.std(axis=0)
    scaled = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    # A censoring comes just after the events of its time.
    late, all_x, counts = np.where(event, time, np.nextafter(time, np.inf)), scaled, np.ones(time.size)
    leaves = ~event
    if outcome.entry is not None:
        # Rows are taken out of the sets of those at risk that lie before their entry, by counts below zero.
        late = np.append(late, np.nextafter(outcome.entry, np.inf))
        leaves, counts = np.append(leaves, np.zeros(time.size, dtype=np.bool_)), np.append(counts, -counts)
        all_x = np.append(scaled, scaled, axis=0)
    both = Outcome(late, leaves)
    order = both.order()
    sets, counts = RiskSets(both.take(order)), counts[order]
    ordered, censored = late[order], leaves[order]
    start = np.zeros(x.shape[1])
    fit = sets.fit(np.ascontiguousarray(all_x[order].T), counts, float(ordered[-1]), start)
    predictor = all_x @ fit.coefficients
    # Covariates that tell the order of all censorings have ever larger coefficients.
    if not fit.converged or not np.abs(predictor).max() < _MOST_PREDICTOR:
        return None
    factor = np.exp(predictor)
    # Breslow's steps: one over the sum of the factors at risk.
    at_risk = np.cumsum((counts * factor[order])[::-1])[::-1]
    first = np.searchsorted(ordered, ordered[censored], side="left")
    times = time[order[censored]].astype(np.float64)
    return CensoringModel(times, np.cumsum(1 / at_risk[first]), factor[: time.size]).entered(outcome.entry)


def same_for_all(outcome: Outcome) -> CensoringModel:
    """Return the model of censoring that is the same for all rows at risk."""
    curve = fit_kaplan_meier(outcome.time, outcome.ended, "censoring", entry=outcome.entry)
    some = curve.counts > 0
    hazard = np.cumsum(curve.counts[some] / curve.at_risk[some])
    return CensoringModel(curve.times[some], hazard, np.ones(outcome.n)).entered(outcome.entry)


# --- What the censoring depends on.


@dataclass(frozen=True, eq=False)
class Term:
    """A variable on which censoring may depend, and the p-value of the test whether it does."""

    name: str
    values: Vector
    p_value: float
    is_risk: bool


def terms_of(columns: Sequence[Column]) -> Iterator[tuple[str, Vector, bool]]:
    """Return what is tested of each column: numbers as normal scores of their ranks, every label on its own."""
    for column in columns:
        if column.labels is None:
            yield column.name, normal_scores(column.values), False
        else:
            for k in range(len(column.labels)):
                member = (column.values == k).astype(np.float64)
                if 0 < member.sum() < member.size:
                    yield column.name, member, False


def asked_terms(
    variables: Iterable[tuple[str, Vector, bool]],
    outcome: Outcome,
    censored: BoolArray,
    last: float,
    weights: Vector | None = None,
) -> list[Term]:
    """Test each variable, of rows in the order of their times: its name, values, and whether it is a predicted risk.

    `censored` are the rows that left before the time `last`.
    """
    return [
        Term(name, values, score_test(values, outcome.time, censored, last, weights, outcome.entry), is_risk)
        for name, values, is_risk in variables
    ]


def dependent(terms: Sequence[Term]) -> list[Term]:
    """Return the variables on which censoring depends, by a test that is corrected for their number."""
    return [term for term in terms if term.p_value * len(terms) < LEVEL]


def model_of_terms(terms: Sequence[Term], found: Sequence[Term], outcome: Outcome, n: int) -> CensoringModel | None:
    """Fit a Cox model of the `n` censorings on what was found and the last predicted risk, as far as rows allow."""
    most = max(1, n // _PER_TERM)
    risk = [term for term in terms if term.is_risk][-1:]
    wanted = sorted(found or terms, key=lambda term: term.p_value)
    chosen = [*risk, *(term for term in wanted if term not in risk)][:most]
    # Risks of several horizons are nearly the same variable.
    kept: list[Vector] = []
    for term in chosen:
        if all(abs(np.corrcoef(term.values, other)[0, 1]) < 0.95 for other in kept):
            kept.append(term.values)
    return fit_censoring(np.column_stack(kept), outcome)


def found_censoring(columns: Sequence[Column], risk: Vector, outcome: Outcome) -> CensoringModel:
    """Return the model of censoring of these rows: by the risks and columns on which it depends, or one for all."""
    order = outcome.order()
    ordered, censored = outcome.take(order), ~outcome.ended[order]
    if censored.sum() < FEWEST_CENSORED:
        return same_for_all(outcome)
    parts = [Column(column.name, column.values[order], column.labels) for column in columns]
    variables = [("the predicted risk", normal_scores(risk[order]), True)] if np.ptp(risk) > 0 else []
    asked = asked_terms([*variables, *terms_of(parts)], ordered, censored, float(ordered.time[-1]))
    found = dependent(asked)
    model = model_of_terms(asked, found, ordered, int(censored.sum())) if found else None
    if model is None:
        return same_for_all(outcome)
    return model.take(np.argsort(order))


def normal_scores(values: FloatArray) -> Vector:
    """Return normal scores of the ranks: in order, and without outliers."""
    return np.asarray(ndtri((rankdata(values) - 0.5) / values.size))


def score_test(
    z: Vector,
    time: FloatArray,
    censored: BoolArray,
    last: float,
    weights: Vector | None,
    entry: FloatArray | None = None,
) -> float:
    """P-value of the score test of a Cox model of the censorings on one variable, rows in time order.

    Of weighted rows with the variance of Lin and Wei, the sum of squares of what each row adds to the score: its
    residual at its censoring less what was expected of it while it was at risk.
    """
    followed = np.minimum(time, last)
    one = np.ones(z.size) if weights is None else weights
    backwards = (one[:, None] * np.column_stack([np.ones(z.size), z, z * z]))[::-1].cumsum(axis=0)[::-1]
    first = np.searchsorted(followed, followed[censored], side="left")
    sums = backwards[first]
    if entry is not None:  # rows that have not entered are not at risk
        order = np.argsort(entry)[::-1]
        later = np.cumsum(np.column_stack([np.ones(z.size), z, z * z])[order], axis=0)
        number = later_entries(followed[censored].astype(np.float64), entry).astype(np.int64)
        sums = sums - np.concatenate([np.zeros((1, 3)), later])[number]
    n, total, square = sums.T
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
