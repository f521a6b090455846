"""Every candidate of a path on rows that the user gives: the numbers and curves of the frontier page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal._checks import MIN_CELL, BoolArray, Floats, fail
from xcal.calibration.significance import DCalibrationResult
from xcal.data.surv import Outcome
from xcal.data.survival import read_labels, row_numbers
from xcal.estimators.fitted import FittedModel, PredictingModel, combined
from xcal.estimators.model import d_calibration_of
from xcal.estimators.selection import conditional_values
from xcal.interop.predictions import Rows, from_distribution
from xcal.metrics import concordance_index, integrated_brier_score
from xcal.metrics.calibration_curve import CalibrationCurve, drawn_curve, smooth_calibration
from xcal.metrics.inputs import as_min_cell, shown_range, two_digits
from xcal.metrics.observed_expected import ObservedExpected, observed_expected
from xcal.metrics.pit import PitHistogram, PPCurve, bin_shares, perfect_range, pp_curve, uniform_variance
from xcal.metrics.pseudo_values import jackknife
from xcal.recalibration import KaplanMeierRecalibration
from xcal.validation.arguments import default_horizons, read_horizons

# Levels of risk whose mean curve is drawn, as shares of the rows that have a lower risk.
_LEVELS = {"low risk": 0.1, "middle risk": 0.5, "high risk": 0.9}

# Rows that a mean curve is made of: so large a share of all, and so many at least, that no row can be told from it.
_AVERAGED_SHARE, FEWEST_AVERAGED = 0.05, 5

# Rows whose curves are drawn one by one, if they are asked for; there are colours for so many.
MOST_PATIENTS = 3
_CURVE_POINTS = 81

# Share of the rows whose times the curves cover.
_SHOWN_SHARE = 0.98

# Every network of a path reads all rows of its page. With so many, noise is smaller than what a picture can show.
MOST_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows of the page, as the networks read them, and what is asked about them.

    Attributes
    ----------
    x : array of shape (n, d)
    time, event : arrays of shape (n,)
    horizons : array of shape (h,)
        Times at which risks are compared with what happened.
    n_bins : int
        Bins of D-calibration.
    end : float
        The last time seen in training: what the models say of later ones is extrapolated.
    given : int
        How many rows there were; more than `MOST_ROWS` are drawn from, at random.
    clusters : array of shape (n,), or None
        Label of each row: rows with the same one may depend on each other. None: all rows are independent.
    min_cell : int
        Rows of a cell that is shown (`xcal.metrics.inputs`).
    """

    x: Any
    time: Floats
    event: BoolArray
    horizons: Floats
    n_bins: int
    end: float
    given: int
    clusters: Any = None
    min_cell: int = MIN_CELL

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.time.size)


@dataclass(frozen=True, eq=False)
class Values:
    """Numbers of one model on the rows of the page; NaN where the rows do not determine one.

    `ibs_range` is the first and the last time of the integrated Brier score, rounded where rows are not to be told
    apart; None without a score.
    """

    dcal: DCalibrationResult
    conditional: float
    concordance: float
    nll: float
    ibs: float
    ibs_range: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Example:
    """Rows whose mean survival curve is drawn; `outcome` is the time and the event of a single row, or None."""

    name: str
    x: Any
    outcome: tuple[float, bool] | None = None


@dataclass(frozen=True, eq=False)
class AtHorizon:
    """One model at one time: its calibration curve, ICI, and the risk observed and expected on average."""

    curve: CalibrationCurve
    ici: float
    floor: float  # ICI of a perfect model on as many rows
    risk: ObservedExpected


@dataclass(frozen=True, eq=False)
class Candidate:
    """One candidate of the path on the rows of the page.

    Attributes
    ----------
    lam, recalibrated
        Which one it is.
    values : Values
        Of the model that `SurvivalPath.model` returns.
    seeds : mapping of int to Values
        Of each network alone; empty for a recalibrated candidate, whose map belongs to all of them together.
    pit, pp
        Histogram and distribution of F at the observed times.
    horizons : tuple of AtHorizon
    survival : array of shape (examples, points)
        Curves of the examples.
    """

    lam: float
    recalibrated: bool
    values: Values
    seeds: Mapping[int, Values]
    pit: PitHistogram
    pp: PPCurve
    horizons: tuple[AtHorizon, ...]
    survival: Floats

    @property
    def name(self) -> str:
        """Name for people."""
        return f"λ = {self.lam:g}, recalibrated" if self.recalibrated else f"λ = {self.lam:g}"


@dataclass(frozen=True, eq=False)
class Frontier:
    """All candidates on the same rows: those as they were trained, by their weights, then the recalibrated ones.

    Attributes
    ----------
    candidates : tuple of Candidate
    rows : GivenRows
    examples : tuple of Example
        Levels of risk by the first candidate, or the rows that were asked for.
    times : array of shape (points,)
        Of the curves of the examples.
    """

    candidates: tuple[Candidate, ...]
    rows: GivenRows
    examples: tuple[Example, ...]
    times: Floats

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates."""
        return tuple(one.name for one in self.candidates)

    @property
    def floor(self) -> float:
        """What a perfect model scores on average on these rows; it hardly depends on the model."""
        return float(np.mean([one.values.dcal.floor for one in self.candidates]))


Line = tuple[float, tuple[FittedModel, ...], KaplanMeierRecalibration | None]


def given_rows(
    x: Any,
    time: Floats,
    event: BoolArray,
    horizons: Any,
    *,
    n_bins: int,
    end: float,
    clusters: Any = None,
    min_cell: int = MIN_CELL,
) -> GivenRows:
    """Check rows for a page, and draw some of them where they are very many.

    Horizons that are chosen here lie within the times seen in training.
    """
    if time.size < 2:
        fail("X", "at least 2 rows", time.size)
    if not event.any():
        fail("y", "at least one event", f"{time.size} censored rows")
    at = default_horizons(time, event, end) if horizons is None else read_horizons(horizons, time)
    given = time.size
    labels = None if clusters is None else read_labels("clusters", clusters, given)
    if given > MOST_ROWS:
        drawn = np.sort(np.random.default_rng(0).choice(given, MOST_ROWS, replace=False))
        x, time, event = np.asarray(x[drawn]), time[drawn], event[drawn]
        labels = None if labels is None else labels[drawn]
    return GivenRows(x, time, event, at, n_bins, end, given, labels, as_min_cell(min_cell))


def measure_frontier(
    lines: Sequence[Line],
    networks: Mapping[float, Sequence[FittedModel]],
    rows: GivenRows,
    patients: tuple[Example, ...] | None = None,
) -> Frontier:
    """Measure candidates on rows.

    Parameters
    ----------
    lines
        Weight, members and map of each candidate.
    networks
        All networks of each weight, for the spread over seeds.
    patients
        Rows whose curves are drawn; by default means over rows of low, middle and high risk.
    """
    examples = _levels_of_risk(combined(*lines[0][1:]), rows) if patients is None else patients
    # Not to the very last time: a few rows with long times would press all that is to be seen to the left.
    end = two_digits(min(float(np.quantile(rows.time, _SHOWN_SHARE)), rows.end))
    times = np.linspace(0.0, end, _CURVE_POINTS)
    found = []
    for lam, members, recalibration in lines:
        model = combined(members, recalibration)
        values, cdf, risks = _values(model, rows)
        alone = () if recalibration is not None else networks[lam]
        found.append(
            Candidate(
                lam=lam,
                recalibrated=recalibration is not None,
                values=values,
                # One network that is not averaged is the model itself.
                seeds={one.seed: values if one is model else _values(one, rows)[0] for one in alone},
                pit=_pit(values.dcal, cdf, rows),
                pp=pp_curve(cdf, event=rows.event),
                horizons=tuple(_at_horizon(risk, float(t), rows) for t, risk in zip(rows.horizons, risks, strict=True)),
                survival=np.array([model.survival(one.x, times).mean(axis=0) for one in examples]),
            )
        )
    return Frontier(tuple(found), rows, examples, times)


def _values(model: PredictingModel, rows: GivenRows) -> tuple[Values, Floats, Floats]:
    """Numbers of one model; with them F at the observed times and the risks at the horizons, ``(h, n)``."""
    given: dict[str, Any] = {"time": rows.time, "event": rows.event}
    asked = Rows(rows.time, rows.event, horizons=rows.horizons)
    read = from_distribution("", "", lambda part: model.distribution(rows.x[part]), asked)
    assert read.survival is not None
    assert read.times is not None
    assert read.cdf is not None
    assert read.nll is not None
    outcome, score = Outcome(rows.time, rows.event), integrated_brier_score(read.survival, read.times, **given)
    dcal = d_calibration_of(model, rows.x, outcome, n_bins=rows.n_bins, clusters=rows.clusters)
    assert isinstance(dcal, DCalibrationResult)
    known = np.isfinite(score.value)
    values = Values(
        dcal=dcal,
        conditional=float(conditional_values(read.cdf[None], rows.x, rows.event, None, rows.n_bins)[0]),
        concordance=concordance_index(**given, risk=model.risk(rows.x)).value,
        nll=float(read.nll.mean()),
        ibs=score.value,
        ibs_range=shown_range(score.start, score.stop, rows.min_cell) if known else None,
    )
    columns = np.searchsorted(read.times, rows.horizons)
    return values, read.cdf, np.clip(1.0 - read.survival[:, columns].T, 0.0, 1.0)


def _pit(dcal: DCalibrationResult, cdf: Floats, rows: GivenRows) -> PitHistogram:
    """Return the histogram behind the value of D-calibration, and the range of a perfect model."""
    bins = bin_shares(cdf, rows.event, rows.n_bins, rows.min_cell)
    lower, upper = perfect_range(bins.widths, uniform_variance(bins))
    mass = np.add.reduceat(dcal.histogram, np.searchsorted(dcal.edges, bins.edges[:-1]))
    return PitHistogram(dcal.method, None, bins.edges, mass, lower, upper)


def _at_horizon(risk: Floats, at: float, rows: GivenRows) -> AtHorizon:
    given: dict[str, Any] = {"time": rows.time, "event": rows.event}
    outcome = Outcome(rows.time, rows.event)
    smooth = smooth_calibration(risk, jackknife(outcome, at))
    curve = drawn_curve(risk, outcome, at, smooth, min_cell=rows.min_cell)
    index = smooth.distances(0.95)["ici"]
    return AtHorizon(curve, index.value, index.floor, observed_expected(risk, at=at, **given))


def _levels_of_risk(model: PredictingModel, rows: GivenRows) -> tuple[Example, ...]:
    """Return the rows around each level of risk; of few rows fewer levels, so that no two share a row."""
    found = {1: ("middle risk",), 2: ("low risk", "high risk"), 3: tuple(_LEVELS)}
    fewest = max(FEWEST_AVERAGED, rows.min_cell)
    names = found.get(min(rows.n // fewest, len(_LEVELS)), ())
    order = np.argsort(model.risk(rows.x), kind="stable")
    size = max(fewest, round(_AVERAGED_SHARE * rows.n))
    examples = []
    for name in names:
        first = min(max(round(_LEVELS[name] * (rows.n - 1)) - size // 2, 0), rows.n - size)
        own = np.sort(order[first : first + size])
        # A row at a time: features in a file are read by slices.
        examples.append(Example(name, np.concatenate([np.asarray(rows.x[row : row + 1]) for row in own])))
    return tuple(examples)


def read_patients(patients: Any, x: Any, time: Floats, event: BoolArray) -> tuple[Example, ...] | None:
    """Check the rows whose own curves and outcomes are asked for."""
    if patients is None:
        return None
    chosen = row_numbers(patients, time.size)
    rows = np.arange(time.size)[chosen]
    if rows.size > MOST_PATIENTS:
        fail("patients", f"at most {MOST_PATIENTS} row numbers", rows.size)
    return tuple(
        Example(f"row {row}", np.asarray(x[row : row + 1]), (float(time[row]), bool(event[row])))
        for row in rows.tolist()
    )
