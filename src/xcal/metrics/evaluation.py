"""Everything that can be said about a model's predictions, in one table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xcal._checks import MIN_CELL, as_choice, as_labels, check_rows, fail
from xcal._kaplan_meier import KaplanMeier
from xcal.calibration.bins import N_BINS
from xcal.calibration.significance import Method
from xcal.metrics.curves import Interpolation
from xcal.metrics.intervals import check_bootstrap, resampled_interval, resampled_rows, true_square, unit
from xcal.metrics.predictions import Predictions, read_predictions
from xcal.metrics.spec import METRICS, NAMES, VALUES, Metric, column


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
        What could not, and what it lacked: a prediction, independent rows, or rows of equal weight.
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
            if score.name.endswith("_p") and score.value == 0:
                shown = "< 1e-300"  # smaller than the smallest number there is
            lines.append(_line(score.name, shown, interval, ideal))
        for needed in sorted(set(self.skipped.values())):
            names = [name for name, lacks in self.skipped.items() if lacks == needed]
            lines.append(f"not computed without {needed}: {', '.join(names)}")
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
        Which to compute, by their names in a result; all by default. Antolini's
        concordance with "linear" takes O(n) time for each event.
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
        intercept, ICI, E50, E90 and Emax have intervals by formula, with or without resamples. P-values and the ICI by
        a Cox model get none.
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
    ['concordance_harrell', 'concordance_uno', 'd_calibration', 'd_calibration_floor', 'd_calibration_p',
     'quantile_slope', 'quantile_intercept']
    """
    predictions = read_predictions(
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
    skipped = {name: METRICS[name].needs for name in chosen if getattr(predictions, METRICS[name].needs) is None}
    skipped |= _naive(chosen, predictions, asked=metrics is not None)
    check_rows({"time": time, "groups": groups})
    labels = None if groups is None else as_labels("groups", groups, predictions.time.size, reference="time")

    def measured(rows: Predictions) -> Evaluation:
        computed = [name for name in chosen if name not in skipped]
        scores = _scores(computed, rows, _resamples(rows, n_bootstrap, generator), level)
        n_events = int(np.count_nonzero(rows.event))
        n_clusters = None if rows.clusters is None else rows.clusters.count
        effective = None if weights is None else float(rows.time.size if rows.weights is None else rows.weights.sum())
        counts = (rows.time.size, n_events, rows.at, level, n_bootstrap, n_clusters, effective)
        return Evaluation(scores, skipped, *counts)

    whole = measured(predictions)
    if labels is None:
        return whole
    # Labels of an array of objects are Python's already.
    known = np.unique(labels).tolist()
    return replace(
        whole, groups={label: measured(predictions.take(np.flatnonzero(labels == label))) for label in known}
    )


def _scores(
    names: Sequence[str], predictions: Predictions, resamples: Sequence[Predictions], level: float
) -> tuple[Score, ...]:
    """Every value of the named metrics, with its interval where it has one."""
    values = {key: value for name in names for key, value in METRICS[name].compute(predictions).items()}
    intervals = _all_intervals(names, predictions, resamples, values, level)
    unknown = (float("nan"), float("nan"))
    return tuple(
        Score(column(name), value, *intervals.get(name, unknown), VALUES[name].perfect)
        for name, value in values.items()
    )


def _chosen(metrics: Any) -> tuple[str, ...]:
    """Metrics that were asked for, each once, in the order in which they were."""
    try:
        asked = tuple(METRICS) if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
    except TypeError:  # an array of no dimension says only when asked that it has no items
        fail("metrics", "names of metrics", repr(metrics))
    chosen: dict[str, None] = {}
    for name in asked:
        chosen[NAMES[as_choice("metrics", name, tuple(NAMES))]] = None
    return tuple(chosen)


def _naive(names: Sequence[str], predictions: Predictions, *, asked: bool) -> dict[str, str]:
    """Metrics that would take rows for independent ones of equal weight; an error if they were asked for by name."""
    naive = [] if predictions.clusters is None else [name for name in names if not METRICS[name].clustered]
    if naive and asked:
        expected = "metrics that hold for rows in clusters"
        fail("metrics", expected, f"{naive[0]!r}, whose p-value counts every row as an independent observation")
    unweighted = [] if predictions.weights is None else [name for name in names if not METRICS[name].weighted]
    if unweighted and asked:
        fail("metrics", "metrics that take weights", f"{unweighted[0]!r}, which counts every row once")
    return dict.fromkeys(unweighted, "rows of equal weight") | dict.fromkeys(naive, "independent rows")


def _resamples(predictions: Predictions, n_bootstrap: int, generator: np.random.Generator | None) -> list[Predictions]:
    """Predictions of rows, or of whole clusters, drawn with replacement."""
    if generator is None:
        return []
    n, clusters = predictions.time.size, predictions.clusters
    return [predictions.take(resampled_rows(n, clusters, generator)) for _ in range(n_bootstrap)]


def _all_intervals(
    names: Sequence[str],
    predictions: Predictions,
    resamples: Sequence[Predictions],
    values: Mapping[str, float],
    level: float,
) -> dict[str, tuple[float, float]]:
    """Interval of every value that has one: by formula, or from resamples where there are some."""
    intervals: dict[str, tuple[float, float]] = {}
    for name in names:
        metric = METRICS[name]
        if metric.intervals is not None:
            intervals |= metric.intervals(predictions, level)
        elif resamples and metric.resampled:
            intervals |= _intervals(metric, predictions, resamples, values, level)
    return intervals


def _intervals(
    metric: Metric,
    predictions: Predictions,
    resamples: Sequence[Predictions],
    values: Mapping[str, float],
    level: float,
) -> dict[str, tuple[float, float]]:
    """Interval of every value of one metric, from resamples."""
    if metric.deviations is None:
        draws = [metric.compute(resample) for resample in resamples]
        drawn = {name: [one[name] for one in draws] for name in metric.gives}
        return {name: resampled_interval(values[name], own, level, VALUES[name].scale) for name, own in drawn.items()}
    own = metric.deviations(predictions, predictions)
    noise = np.array([metric.deviations(predictions, resample) - own for resample in resamples])
    (name,) = metric.gives
    found = true_square(values[name], noise @ unit(own), np.square(noise).sum(axis=1), level)
    return {name: (found.lower, found.upper)}
