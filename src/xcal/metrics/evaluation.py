"""Everything that can be said about a model's predictions, in one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np

from xcal._checks import (
    MANY,
    MIN_CELL,
    FloatArray,
    as_choice,
    as_count,
    as_labels,
    as_probability,
    check_rows,
    check_same_length,
    fail,
)
from xcal._kaplan_meier import KaplanMeier
from xcal.calibration.bins import N_BINS, as_clusters
from xcal.calibration.significance import Method, p_in_words
from xcal.data.surv import as_outcome
from xcal.metrics.estimates import UNKNOWN, Draws, estimates, resamples
from xcal.metrics.inputs import (
    INTERPOLATIONS,
    Interpolation,
    Vector,
    as_curves,
    as_row_weights,
    as_score,
    as_time_point,
    at_own_time,
    at_point,
    restricted_mean,
)
from xcal.metrics.observed import as_censoring
from xcal.metrics.of_rows import CURVES, DEPENDENT, WEIGHTED, Asked
from xcal.metrics.pseudo_values import FEWEST_CENSORED, LEVEL, normal_scores, score_test
from xcal.metrics.resamples import (
    check_bootstrap,
    drawn_by_generator,
)
from xcal.metrics.rows import Rows
from xcal.metrics.spec import METRICS, NAMES, VALUES, Key


@dataclass(frozen=True)
class Score:
    """One metric: its value, the ends of its interval (NaN without one), and a perfect model's value."""

    name: str
    value: float
    lower: float
    upper: float
    ideal: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of `evaluate`.

    Attributes
    ----------
    scores : tuple of Score
        What could be computed; ``evaluation["ici"]`` picks one by name.
    skipped : mapping of str to str
        What could not, and why.
    n, n_events : int
        Rows, and rows with an event.
    at : float
        The time of the metrics that look at one time.
    level : float
        Coverage of the intervals.
    n_bootstrap : int
        Resamples behind those that are not by formula; 0 when there are none.
    n_clusters : int or None
        Clusters, where they were given.
    n_effective : float or None
        Where weights were given, the rows of equal weight whose mean would be as noisy (Kish).
    censoring_p : float
        P-value of the test whether censoring before `at` depends on the predicted risk. If it does, values of one time
        are biased, as nothing is corrected here (`xcal.audit` does); NaN where the rows cannot tell.
    groups : mapping of label to Evaluation
        The same within each group; empty unless groups were given.
    """

    scores: tuple[Score, ...]
    skipped: dict[str, str]
    n: int
    n_events: int
    at: float
    level: float
    n_bootstrap: int
    n_clusters: int | None = None
    n_effective: float | None = None
    censoring_p: float = float("nan")
    groups: Mapping[Any, "Evaluation"] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Score:
        for score in self.scores:
            if score.name == name:
                return score
        raise KeyError(f"{name!r}; there are {', '.join(score.name for score in self.scores)}")

    def to_frame(self) -> Any:
        """One line per metric, as a pandas DataFrame (pandas is imported only here)."""
        import pandas as pd

        rows = [(score.value, score.lower, score.upper, score.ideal) for score in self.scores]
        index = pd.Index([score.name for score in self.scores], name="metric")
        return pd.DataFrame(rows, columns=["value", "lower", "upper", "ideal"], index=index, dtype=float)

    @property
    def _has_intervals(self) -> bool:
        return any(not np.isnan(score.lower) for score in self.scores)

    def __repr__(self) -> str:
        share = self.n_events / self.n
        within = "" if self.n_clusters is None else f" in {self.n_clusters:,} clusters"
        weighted = "" if self.n_effective is None else f" with weights (effectively {self.n_effective:,.0f})"
        lines = [
            f"{_count(self.n, 'row')}{within}{weighted}, {_count(self.n_events, 'event')} ({share:.0%}); "
            f"single-time metrics at {self.at:.6g}",
            _line("metric", "value", f"{self.level:.0%} interval" if self._has_intervals else "", "ideal"),
        ]
        for score in self.scores:
            interval = ""
            if not np.isnan(score.lower):
                interval = f"[{score.lower:.4f}, {score.upper:.4f}]"
            ideal = "" if score.ideal is None else f"{score.ideal:g}"
            shown = f"{score.value:.2e}" if 0 < abs(score.value) < 1e-3 else f"{score.value:.4f}"
            if VALUES[score.name].form == "p" and score.value == 0:
                shown = "< 1e-300"  # smaller than the smallest number there is
            lines.append(_line(score.name, shown, interval, ideal))
        for why in dict.fromkeys(self.skipped.values()):
            names = [name for name, reason in self.skipped.items() if reason == why]
            lines.append(f"not computed: {', '.join(names)} ({why})")
        if self.censoring_p < LEVEL:
            told = f"note: censoring depends on the predicted risk ({p_in_words(self.censoring_p)})"
            lines.append(f"{told}, so that values of one time are biased; xcal.audit corrects for it")
        for label, own in self.groups.items():
            if own.n >= MIN_CELL:
                lines += ["", f"group {label}: {own!r}"]
        if few := sum(own.n < MIN_CELL for own in self.groups.values()):
            lines += ["", f"not shown: {_count(few, 'group')} of fewer than {MIN_CELL} rows (.groups has them)"]
        return "\n".join(lines)


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _line(name: str, value: str, interval: str, ideal: str) -> str:
    return f"{name:<22}{value:>10}{interval:>22}{ideal:>7}".rstrip()


def evaluate(
    *,
    time: Any,
    event: Any,
    cdf: Any = None,
    predicted_time: Any = None,
    survival: Any = None,
    times: Any = None,
    at: float | None = None,
    interpolation: Interpolation = "linear",
    censoring: KaplanMeier | None = None,
    metrics: Sequence[str] | None = None,
    n_bins: int = N_BINS,
    d_calibration_method: Method = "uniform",
    n_bootstrap: int = 0,
    level: float = 0.95,
    generator: np.random.Generator | None = None,
    clusters: Any = None,
    weights: Any = None,
    groups: Any = None,
) -> Evaluation:
    """Compute every metric that the given predictions allow.

    Parameters
    ----------
    time, event : array-like, shape (n,)
        Observed times, finite and not negative; True where the event happened.
    cdf : array-like, shape (n,), optional
        F at each row's observed time. Gives D-calibration and quantile slope; read off `survival` if not given. A row
        whose time lies past the last of `times` then counts as censored there: what its F is, the grid does not say.
    predicted_time : array-like, shape (n,), optional
        Larger means later. Gives Harrell's and Uno's concordance; by default the area under each row's survival curve
        up to the last of `times` (its restricted mean), which exists even if the curve never falls to one half.
    survival, times : array-like, shapes (n, m) and (m,), optional
        Survival probabilities on increasing times. Give everything.
    at : float, optional
        Time of AUC, Brier score, IPA, O/E, slope, one-calibration and ICI; by default the median of the observed
        event times.
    interpolation : {"linear", "previous"}
        How to read survival curves between grid points: along straight lines, which is right to second order in the
        distance of the points, or by the last point passed, as for Kaplan-Meier curves and forests, whose curves are
        constant between their times.
    censoring : KaplanMeier, optional
        Censoring curve of the training rows for Uno's concordance, AUC and the Brier scores; by default from these.
    metrics : sequence of str, optional
        Which to compute, by their names in a result, with what belongs to each, such as its floor; all by default.
        Antolini's concordance with "linear" takes O(n) time for each event.
    n_bins : int
        Bins of D-calibration and risk groups of one-calibration. 10, with which others report both, so that values can
        be compared; models are trained with 20 (``calibration_bins``), as in the X-CAL paper.
    d_calibration_method : {"uniform", "km", "ipcw"}
        How D-calibration treats censored rows, see `xcal.d_calibration`. "uniform" is what others report; from some
        20 % of censored rows on it hides miscalibration, and "km" does not. The floor beside it is what a perfect
        model scores on average.
    n_bootstrap : int
        Resamples of the rows for standard errors, and so for intervals; 0 for none. D-calibration and KM calibration
        are distances, zero at best, and grow under resampling; theirs are intervals of the true distance, which reach
        zero where the rows do not exclude a perfect model (see "Intervals" in the documentation). O/E, slope,
        intercept, ICI, E50, E90 and Emax have intervals by formula, with or without resamples, and D-calibration and
        the values of a Cox regression without. P-values and the ICI by a Cox model get none.
    level : float
        Coverage of the intervals.
    generator : numpy.random.Generator, optional
        Source of the resamples; needed with `n_bootstrap`.
    clusters : array-like, shape (n,), optional
        One label per row, such as a subject's number, where the rows of one subject depend on each other. Resamples
        are then of whole clusters. The floor of D-calibration and its p-value are those of dependent rows (see
        `xcal.d_calibration`), and a p-value that counts rows as independent (one-calibration) is refused.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row: the inverse of the probability that the row was sampled, which
        may depend on its outcome, as in case-cohort studies. Only their ratios matter, and equal ones change nothing.
        Values are those of rows repeated as often as their weights say. Errors, floors and tests are design-based: a
        row is one observation whatever its weight, and resamples draw rows with their weights. One-calibration and the
        metrics by Cox models have no weights and are left out.
    groups : array-like, shape (n,), optional
        One label per row: everything also within each group, with the censoring curve of its own rows unless
        `censoring` is given, and at the same time `at`.

    Returns
    -------
    Evaluation
        NaN stands for metrics that these rows do not determine, such as concordance without a comparable pair.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=500)
    >>> time, event = rng.exponential(1 / rate), np.ones(500)
    >>> result = evaluate(time=time, event=event, cdf=1 - np.exp(-rate * time), predicted_time=1 / rate)
    >>> [score.name for score in result.scores]
    ['harrell', 'uno', 'd_calibration', 'd_calibration_floor', 'd_calibration_p', 'quantile_slope',
     'quantile_intercept']
    """
    rows, at = read_rows(
        time=time,
        event=event,
        cdf=cdf,
        predicted_time=predicted_time,
        survival=survival,
        times=times,
        at=at,
        interpolation=interpolation,
        censoring=censoring,
        n_bins=n_bins,
        d_calibration_method=d_calibration_method,
        clusters=clusters,
        weights=weights,
    )
    chosen = _chosen(metrics)
    check_bootstrap(n_bootstrap, level, generator)
    skipped = _lacking(chosen, rows, asked=metrics is not None)
    check_rows({"time": time, "groups": groups})
    labels = None if groups is None else as_labels("groups", groups, rows.n, reference="time")
    names = [name for name in chosen if _ENTRIES[name] not in skipped]
    weighted = weights is not None

    def measured(own: Rows) -> Evaluation:
        scores = _scores(names, own, at, level, n_bootstrap, generator)
        n_clusters = None if own.clusters is None else own.clusters.count
        effective = None if not weighted else float(own.n if own.weights is None else own.weights.sum())
        counts = (own.n, int(np.count_nonzero(own.event)), at, level, n_bootstrap, n_clusters, effective)
        return Evaluation(scores, skipped, *counts, _censoring_p(own, at))

    whole = measured(rows)
    if labels is None:
        return whole
    # Labels of an array of objects are Python's already.
    of_row = labels[rows.order]
    return replace(whole, groups={label: measured(rows.take(of_row == label)) for label in np.unique(labels).tolist()})


# By every value the metric that gives it.
_ENTRIES = {value: name for name, metric in METRICS.items() if metric.evaluated for value in metric.gives}


def _chosen(metrics: Any) -> tuple[str, ...]:
    """Values that were asked for, each once, in the order in which they were."""
    try:
        asked = tuple(METRICS) if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
    except TypeError:  # an array of no dimension says only when asked that it has no items
        fail("metrics", "names of metrics", repr(metrics))
    if metrics is None:
        return tuple(name for name in _ENTRIES if VALUES[name].evaluated)
    return tuple(dict.fromkeys(value for name in asked for value in NAMES[as_choice("metrics", name, tuple(NAMES))]))


def _lacking(names: Sequence[str], rows: Rows, *, asked: bool) -> dict[str, str]:
    """Return what these rows do not allow, and why; an error if it was asked for and would not hold for such rows."""
    found: dict[str, str] = {}
    for entry in dict.fromkeys(_ENTRIES[name] for name in names):
        metric = METRICS[entry]
        why = metric.lacks(rows)
        if not why and not rows.risk and (metric.at_horizon or why is None):
            why = CURVES
        if why and asked and why in (DEPENDENT, WEIGHTED):
            expected = "metrics that hold for rows in clusters" if why == DEPENDENT else "metrics that take weights"
            fail("metrics", expected, f"{entry!r}: {why}")
        found |= {entry: why} if why else {}
    return found


def _scores(
    names: Sequence[str],
    rows: Rows,
    at: float,
    level: float,
    n_bootstrap: int,
    generator: np.random.Generator | None,
) -> tuple[Score, ...]:
    """Every value that was asked for, with its interval where it has one."""
    found = estimates(rows, dict.fromkeys(_ENTRIES[name] for name in names), Asked(level, simulated=False))
    draws = Draws(0)
    if n_bootstrap and generator is not None:
        draw = drawn_by_generator(generator, n_bootstrap, rows.order, rows.clusters)
        draws = resamples(rows, found, n_bootstrap, draw, where=("everywhere", "evaluate"))
    scores = []
    for name in names:
        key = Key(name, at if VALUES[name].at_horizon else None)
        value, ends = found.values.get(key, float("nan")), found.intervals.get(key, UNKNOWN)
        # Where resamples were asked for, those of squares allow for more than a formula.
        asked = key in draws.squares or METRICS[_ENTRIES[name]].resampled == "evaluate"
        if draws.n and (asked or key not in found.intervals):
            ends = draws.interval(key, value, level)
        scores.append(Score(name, value, *ends, VALUES[name].perfect))
    return tuple(scores)


def _censoring_p(rows: Rows, at: float) -> float:
    """Return the p-value of the test whether censoring before a time depends on the predicted risk."""
    risk, censored = rows.risk.get(at), ~rows.outcome.ended & (rows.time < at)
    if risk is None or np.count_nonzero(censored) < FEWEST_CENSORED or np.ptp(risk) == 0:
        return float("nan")
    return score_test(normal_scores(risk), rows.time, censored, at, rows.weights)


# Survival curves may rise by this much from one time to the next: rounding, in float32 too.
_ROUNDING = 1e-6


def read_rows(
    *,
    time: Any,
    event: Any,
    cdf: Any = None,
    predicted_time: Any = None,
    survival: Any = None,
    times: Any = None,
    at: Any = None,
    interpolation: Interpolation = "linear",
    censoring: KaplanMeier | None = None,
    n_bins: int = N_BINS,
    d_calibration_method: Method = "uniform",
    clusters: Any = None,
    weights: Any = None,
) -> tuple[Rows, float]:
    """Return the checked rows that `evaluate` is asked about, with what is read off the curves, and the time."""
    as_choice("d_calibration_method", d_calibration_method, get_args(Method))
    beside = {"cdf": cdf, "predicted_time": predicted_time, "survival": survival}
    outcome = as_outcome(time, event, beside={**beside, "clusters": clusters, "weights": weights})
    n, order = outcome.n, outcome.order()
    if (survival is None) != (times is None):
        fail("survival, times", "both or neither", "only one of them")
    if cdf is None and predicted_time is None and survival is None:
        fail("cdf, predicted_time, survival", "at least one kind of prediction", "none")
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    own: FloatArray | None = None
    if cdf is not None:
        own = as_probability("cdf", cdf)
        check_same_length("cdf", own, "time", n)
    score = None if predicted_time is None else as_score("predicted_time", predicted_time, n)
    curves, grid = (None, None) if survival is None else _falling_curves(survival, times, n)
    if censoring is not None:
        as_censoring(censoring, outcome)
    as_count("n_bins", n_bins, at_least=2, at_most=MANY)
    median = float(np.median(outcome.time[outcome.event if outcome.event.any() else slice(None)]))
    moment = median if at is None else as_time_point("at", at)
    event_of_cdf, risk = outcome.event, {}
    if curves is not None and grid is not None:
        if own is None:  # past the end of a grid a row counts as censored
            own = np.clip(1 - at_own_time(curves, grid, outcome.time, interpolation), 0.0, 1.0)
            event_of_cdf = event_of_cdf & (outcome.time <= grid[-1])
        if score is None:
            score = restricted_mean(curves, grid, interpolation)
        # A survival curve given in float32 may leave [0, 1] by a rounding when it is interpolated.
        risk = {moment: np.clip(1 - at_point(curves, grid, moment, interpolation), 0.0, 1.0)[order]}
    groups = None if clusters is None else as_clusters(clusters, n, reference="time")
    own_weights = as_row_weights(weights, n)
    rows = Rows(
        order=order,
        outcome=outcome.take(order),
        risk=risk,
        cdf_event=event_of_cdf[order],
        cdfs=() if own is None else (own[order],),
        survival=None if curves is None else curves[order],
        times=grid,
        interpolation=interpolation,
        score=None if score is None else score[order],
        censoring=censoring,
        clusters=None if groups is None else groups.of_rows(order),
        weights=None if own_weights is None else own_weights[order],
        n_bins=n_bins,
        method=d_calibration_method,
    )
    return rows, moment


def _falling_curves(survival: Any, times: Any, n: int) -> tuple[FloatArray, Vector]:
    """Survival curves and their times. Curves that rise are refused, unless by a rounding.

    A curve that rises is one of event probabilities, or has its columns in the wrong order.
    """
    curves, grid = as_curves("survival", survival, times, n)
    rises = np.diff(curves, axis=1) > _ROUNDING
    if rises.any():
        row, before = (int(i) for i in np.argwhere(rises)[0])
        rise = f"{curves[row, before + 1]} after {curves[row, before]}"
        fail("survival", "curves that do not rise", rise, (row, before + 1))
    return curves, grid
