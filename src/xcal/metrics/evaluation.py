"""Everything that can be said about a model's predictions, in one table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from xcal._checks import as_number, as_probability, check_same_length, fail
from xcal.calibration.results import Method
from xcal.metrics.curves import INTERPOLATIONS, Interpolation, at_own_time
from xcal.metrics.inputs import Vector, as_choice, as_count, as_curves, as_outcome, as_score, as_time_point
from xcal.metrics.intervals import distance_interval, percentile_interval
from xcal.metrics.nonparametric import KaplanMeier, as_censoring
from xcal.metrics.registry import ENTRIES, NAMES, Entry, Predictions


@dataclass(frozen=True)
class Score:
    """One metric: its value, the ends of its bootstrap interval (NaN without one), and a perfect model's value."""

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
        What could not, and which prediction it lacked.
    n, n_events : int
        Rows, and rows with an event.
    at : float
        The time of the metrics that look at one time.
    level : float
        Coverage of the bootstrap intervals.
    n_bootstrap : int
        Resamples behind them; 0 when there are none.
    """

    scores: tuple[Score, ...]
    skipped: dict[str, str]
    n: int
    n_events: int
    at: float
    level: float
    n_bootstrap: int

    def __getitem__(self, name: str) -> Score:
        for score in self.scores:
            if score.name == name:
                return score
        raise KeyError(f"{name!r}; there are {', '.join(score.name for score in self.scores)}")

    def to_frame(self) -> Any:
        """One line a metric, as a pandas DataFrame (pandas is imported only here)."""
        import pandas as pd

        rows = [(score.value, score.lower, score.upper, score.ideal) for score in self.scores]
        index = pd.Index([score.name for score in self.scores], name="metric")
        return pd.DataFrame(rows, columns=["value", "lower", "upper", "ideal"], index=index, dtype=float)

    def __repr__(self) -> str:
        share = self.n_events / self.n
        lines = [
            f"{_count(self.n, 'row')}, {_count(self.n_events, 'event')} ({share:.0%}); "
            f"single-time metrics at {self.at:.6g}",
            _line("metric", "value", f"{self.level:.0%} interval" if self.n_bootstrap else "", "ideal"),
        ]
        for score in self.scores:
            interval = ""
            if self.n_bootstrap and not np.isnan(score.lower):
                interval = f"[{score.lower:.4f}, {score.upper:.4f}]"
            ideal = "" if score.ideal is None else f"{score.ideal:g}"
            shown = f"{score.value:.2e}" if 0 < abs(score.value) < 1e-3 else f"{score.value:.4f}"
            if score.name.endswith("_p") and score.value == 0:
                shown = "< 1e-300"  # smaller than the smallest number there is
            lines.append(_line(score.name, shown, interval, ideal))
        for needed in sorted(set(self.skipped.values())):
            names = [name for name, lacks in self.skipped.items() if lacks == needed]
            lines.append(f"not computed without {needed}: {', '.join(names)}")
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
    n_bins: int = 10,
    d_calibration_method: Method = "uniform",
    n_bootstrap: int = 0,
    level: float = 0.95,
    generator: np.random.Generator | None = None,
) -> Evaluation:
    """Compute every metric that the given predictions allow.

    Parameters
    ----------
    time, event : array-like, shape (n,)
        Observed times, finite and not negative; True where the event happened.
    cdf : array-like, shape (n,), optional
        F at each row's own time. Gives D-calibration and calibration slope; read off `survival` if not given. A row
        whose time lies past the last of `times` then counts as censored there: what its F is, the grid does not say.
    predicted_time : array-like, shape (n,), optional
        Larger means later. Gives Harrell's and Uno's concordance; by default the area under each row's survival curve
        up to the last of `times` (its restricted mean), which exists even if the curve never falls to one half.
    survival, times : array-like, shapes (n, m) and (m,), optional
        Survival probabilities on increasing times. Give everything.
    at : float, optional
        Time of the Brier score, one-calibration and ICI; by default the median of the observed event times.
    interpolation : {"step", "linear"}
        How to read survival curves between grid points, see "Curves between grid points" in the documentation.
    censoring : KaplanMeier, optional
        Censoring curve of the training rows for Uno's concordance and the Brier scores; by default from these rows.
    metrics : sequence of str, optional
        Which to compute, by their names in ``xcal.metrics.METRICS`` or in a result; all by default. Antolini's
        concordance on interpolated curves
        takes O(n) time for each event.
    n_bins : int
        Bins of D-calibration and groups of one-calibration.
    d_calibration_method : {"uniform", "km", "ipcw"}
        How D-calibration treats censored rows, see `xcal.d_calibration`. "uniform" is what others report; from some
        20 % of censored rows on it hides miscalibration, and "km" does not. The floor beside it is what a perfect
        model scores on average.
    n_bootstrap : int
        Resamples of the rows for intervals; 0 for none. Percentiles for most metrics. D-calibration, ICI (with E50,
        E90 and Emax) and KM calibration are distances, zero at best, and grow under resampling; theirs are cut at zero,
        reach zero where the rows do not exclude a perfect model, and are rather too wide than too narrow (see
        "Intervals" in the documentation). p-values get no interval.
    level : float
        Coverage of the intervals.
    generator : numpy.random.Generator, optional
        Source of the resamples; needed with `n_bootstrap`.

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
     'calibration_slope', 'calibration_intercept']
    """
    as_choice("d_calibration_method", d_calibration_method, get_args(Method))
    predictions = _predictions(
        time, event, cdf, predicted_time, survival, times, at, interpolation, censoring, n_bins, d_calibration_method
    )
    if metrics is not None and not isinstance(metrics, Iterable):
        fail("metrics", "names of metrics", repr(metrics))
    asked = tuple(ENTRIES) if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in asked:
        as_choice("metrics", name, tuple(NAMES))
    chosen = tuple(dict.fromkeys(NAMES[name] for name in asked))
    as_count("n_bootstrap", n_bootstrap, at_least=0)
    as_number("level", level, above=0, below=1)
    if n_bootstrap and not isinstance(generator, np.random.Generator):
        fail("generator", "a numpy.random.Generator when n_bootstrap is set", type(generator).__name__)
    skipped = {name: ENTRIES[name].needs for name in chosen if getattr(predictions, ENTRIES[name].needs) is None}
    computed = [name for name in chosen if name not in skipped]
    values = _compute(computed, predictions)
    resamples = [predictions.take(rows) for rows in _resamples(predictions, n_bootstrap, generator)]
    intervals: dict[str, tuple[float, float]] = {}
    for name in computed:
        if resamples and ENTRIES[name].resampled:
            intervals |= _intervals(ENTRIES[name], predictions, resamples, values, level)
    ideal = {name: value for entry in computed for name, value in ENTRIES[entry].ideal.items()}
    unknown = (float("nan"), float("nan"))
    scores = tuple(Score(name, value, *intervals.get(name, unknown), ideal[name]) for name, value in values.items())
    n_events = int(np.count_nonzero(predictions.event))
    return Evaluation(scores, skipped, predictions.time.size, n_events, predictions.at, level, n_bootstrap)


def _predictions(
    time: Any,
    event: Any,
    cdf: Any,
    predicted_time: Any,
    survival: Any,
    times: Any,
    at: Any,
    interpolation: Interpolation,
    censoring: KaplanMeier | None,
    n_bins: int,
    d_calibration_method: Method,
) -> Predictions:
    """Check everything once and derive from the survival curves what was not given beside them."""
    seen, happened = as_outcome(time, event)
    if (survival is None) != (times is None):
        fail("survival, times", "both or neither", "only one of them")
    if cdf is None and predicted_time is None and survival is None:
        fail("cdf, predicted_time, survival", "at least one kind of prediction", "none")
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    u = None if cdf is None else as_probability("cdf", cdf)
    if u is not None:
        check_same_length("cdf", u, "time", seen.size)
    score = None if predicted_time is None else as_score("predicted_time", predicted_time, seen.size)
    curves = grid = None
    cdf_event = happened
    if survival is not None:
        curves, grid = as_curves("survival", survival, times, seen.size)
        _refuse_rising(curves)
        if u is None:
            u = np.clip(1 - at_own_time(curves, grid, seen, interpolation), 0.0, 1.0)
            cdf_event = happened & (seen <= grid[-1])
        if score is None:
            score = _restricted_mean(curves, grid, interpolation)
    if at is None:
        at = np.median(seen[happened] if happened.any() else seen)
    if censoring is not None:
        as_censoring(censoring, seen, happened)
    as_count("n_bins", n_bins, at_least=2)
    moment = as_time_point("at", at)
    return Predictions(
        seen,
        happened,
        u,
        cdf_event,
        score,
        curves,
        grid,
        moment,
        interpolation,
        censoring,
        n_bins,
        d_calibration_method,
    )


def _refuse_rising(survival: npt.NDArray[Any]) -> None:
    """Refuse curves that rise by more than rounding: probabilities of an event, or columns in the wrong order."""
    rises = np.diff(survival, axis=1) > 1e-6
    if rises.any():
        row, before = (int(i) for i in np.argwhere(rises)[0])
        step = f"{survival[row, before + 1]} after {survival[row, before]}"
        fail("survival", "curves that do not rise", step, (row, before + 1))


def _restricted_mean(survival: npt.NDArray[Any], times: Vector, interpolation: Interpolation) -> Vector:
    """Area under each curve from 0 to the last time of the grid."""
    widths = np.diff(times, prepend=0.0)
    # Weight of every column: a step reaches to the right, a line to both sides. The rest is the curve's start at 1.
    after = np.append(widths[1:], 0.0)
    if interpolation == "step":
        return np.asarray(widths[0] + survival @ after)
    return np.asarray(widths[0] / 2 + survival @ ((widths + after) / 2))


def _compute(names: Sequence[str], predictions: Predictions) -> dict[str, float]:
    return {key: value for name in names for key, value in ENTRIES[name].compute(predictions).items()}


def _resamples(
    predictions: Predictions, n_bootstrap: int, generator: np.random.Generator | None
) -> list[npt.NDArray[np.int64]]:
    if generator is None:
        return []
    n = predictions.time.size
    return [generator.integers(n, size=n) for _ in range(n_bootstrap)]


def _intervals(
    entry: Entry, predictions: Predictions, resamples: Sequence[Predictions], values: Mapping[str, float], level: float
) -> dict[str, tuple[float, float]]:
    """Interval of every value of one entry."""
    if entry.distance is None:
        draws = [entry.compute(resample) for resample in resamples]
        return {name: percentile_interval([draw[name] for draw in draws], level) for name in entry.ideal}
    deviations, lengths = entry.distance.deviations, entry.distance.lengths
    own = deviations(predictions, predictions)
    differences = [deviations(predictions, resample) - own for resample in resamples]
    return {
        name: distance_interval(values[name], [length(d) for d in differences], level, entry.distance.squared)
        for name, length in lengths.items()
    }
