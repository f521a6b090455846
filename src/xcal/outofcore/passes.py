"""What each pass over the rows accumulates, and what is found in the end, as a table and as JSON."""

import inspect
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from xcal._checks import fail
from xcal.calibration.streaming import DCalibration
from xcal.metrics.cells import Accumulator, State
from xcal.metrics.cox_ici_streaming import IndexRange, Place, StreamingRiskSets, index_range, knot_range
from xcal.metrics.kaplan_meier_streaming import BoundedCurve
from xcal.metrics.spec import METRICS, VALUES, Metric
from xcal.metrics.streaming import (
    StreamingBrier,
    StreamingConcordance,
    StreamingCoxICI,
    StreamingKaplanMeier,
    StreamingOneCalibration,
    StreamingQuantiles,
)
from xcal.outofcore.reading import Batch, Columns

# --- What each pass over the rows accumulates.
# The first pass counts times and predictions: the censoring curve, O/E, D-calibration, likelihood, and the quantiles
# from which the second takes its weights, cuts and grids. The second gives the Brier score, one-calibration, ICI and
# concordance. A third, where it is asked for, measures how far ICI on a grid can be from that of the rows.

# Cells of the grids beyond the rows that are kept: of time and risk for concordance, of time and probability for ICI.
CONCORDANCE_CELLS = 1024
ICI_TIMES, ICI_RISKS = 256, 256

# Cells of time that the bound of ICI is computed on.
BOUND_TIMES = 8192
N_KNOTS = 3

# Distinct times or predictions that are counted exactly beyond the rows that are kept.
_DISTINCT = 1 << 16


@dataclass(frozen=True)
class Plan:
    """What is to be measured: the columns, and how many rows there are against how many may be kept."""

    columns: Columns
    rows: int
    exact_rows: int
    d_calibration_method: Any = "uniform"
    n_risk_groups: int = 10
    ici_bound: bool = False

    @property
    def n_passes(self) -> int:
        """How often the rows are read."""
        return 3 if self.ici_bound and self.columns.survival and not self.exact else 2

    @property
    def exact(self) -> bool:
        """Whether all rows may be kept where a metric needs them."""
        return self.rows <= self.exact_rows

    @property
    def limit(self) -> int:
        """Distinct values that are counted exactly."""
        return max(self.exact_rows, _DISTINCT) if self.exact else _DISTINCT


class Pass:
    """Accumulators by name, which are updated, merged and written together."""

    def __init__(self) -> None:
        self.meters: dict[str, Accumulator | DCalibration] = {}

    def update(self, batch: Batch) -> None:
        """Add rows that were checked."""
        raise NotImplementedError

    def merge(self, state: Mapping[str, Any]) -> Self:
        """Add a state of the same pass over other rows."""
        other = type(self)(*self._made_from()).load_state_dict(state)
        for name, meter in self.meters.items():
            meter.merge(other.meters[name])  # type: ignore[arg-type]
        return self

    def state_dict(self) -> State:
        """Return all states, by names such as ``brier/dead``."""
        return {
            f"{name}/{part}": values
            for name, meter in self.meters.items()
            for part, values in meter.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Replace all states."""
        for name, meter in self.meters.items():
            start = f"{name}/"
            meter.load_state_dict({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})
        return self

    def _made_from(self) -> tuple[Any, ...]:
        raise NotImplementedError


class FirstPass(Pass):
    """Everything that needs nothing known beforehand."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        columns, limit = plan.columns, plan.limit
        self.meters |= {name: meter for name, metric in METRICS.items() if (meter := _made(metric, plan)) is not None}
        self._reads = {name: _needed(_reader(self.meters[name])) for name in self.meters}
        self.meters |= {f"p{k}": StreamingQuantiles(limit=limit) for k in range(len(columns.survival))}
        if not columns.survival:
            self.meters["km"] = StreamingKaplanMeier(limit=limit)
        if columns.risk is not None:
            self.meters["risk"] = StreamingQuantiles(limit=limit)

    def _made_from(self) -> tuple[Any, ...]:
        return (self.plan,)

    def update(self, batch: Batch) -> None:
        """Add rows that were checked."""
        meters: dict[str, Any] = self.meters
        # In float64, where one minus a float32 number is exact.
        p = 1 - batch.survival.astype(np.float64)
        for name, arguments in self._reads.items():
            _reader(meters[name])(**{one: p if one == "probability" else getattr(batch, one) for one in arguments})
        for k in range(p.shape[1]):
            meters[f"p{k}"].add(p[:, k])
        if "km" in meters:
            meters["km"].add(batch.time, batch.event)
        if "risk" in meters:
            meters["risk"].add(batch.risk)

    @property
    def curves(self) -> StreamingKaplanMeier:
        """Counts of the times."""
        found: Any = self.meters["oe"].curves if "oe" in self.meters else self.meters["km"]  # type: ignore[union-attr]
        counted: StreamingKaplanMeier = found
        return counted


def _made(metric: Metric, plan: Plan) -> Any:
    """Make what accumulates a metric in one pass; None for a metric that has none, or rows without what it reads."""
    columns = plan.columns
    there = {"cdf": columns.cdf, "nll": columns.nll, "risk": columns.risk, "probability": columns.survival}
    if metric.accumulator is None or not all(there.get(one, True) for one in _needed(_reader(metric.accumulator))):
        return None
    offered: dict[str, Any] = {"at": columns.horizons, "limit": plan.limit, "method": plan.d_calibration_method}
    taken = inspect.signature(metric.accumulator).parameters
    return metric.accumulator(**{name: value for name, value in offered.items() if name in taken})


def _reader(accumulator: Any) -> Any:
    """Return what takes rows: that for checked ones, where there is one."""
    return getattr(accumulator, "add", accumulator.update)


def _needed(function: Any) -> list[str]:
    """Return the arguments without which a function cannot be called."""
    named = inspect.signature(function).parameters.items()
    return [name for name, one in named if name != "self" and one.default is one.empty]


@dataclass(frozen=True, eq=False)
class Known:
    """What the second pass takes from the first."""

    censoring: BoundedCurve
    cuts: tuple[Any, ...]
    concordance_grids: tuple[Any, Any] | None
    ici_grids: tuple[tuple[Any, Any], ...] | None
    ici_knots: tuple[Any, ...] | None


def learn(first: FirstPass) -> Known:
    """Take weights, cuts and grids from the first pass."""
    plan, meters = first.plan, first.meters
    if first.curves.n == 0:  # there are rows: `evaluate_folder` looked
        fail(f"column {plan.columns.weight!r}", "a row with a weight above 0", "none")
    predictions: list[Any] = [meters[f"p{k}"] for k in range(len(plan.columns.survival))]
    groups = plan.n_risk_groups
    # As in `one_calibration`: the prediction at these ranks begins the next group.
    cuts = tuple(np.unique(p.compute(np.arange(1, groups) * p.n // groups)) for p in predictions)
    censoring = first.curves.compute("censoring")
    if plan.exact:
        return Known(censoring, cuts, None, None, None)
    times = _times(first, CONCORDANCE_CELLS)
    risk: Any = meters.get("risk")
    grids = None if risk is None else (times, risk.spread(CONCORDANCE_CELLS))
    coarse = np.union1d(_times(first, ICI_TIMES), plan.columns.horizons)
    knots = tuple(_knots(p) for p in predictions)
    return Known(censoring, cuts, grids, tuple((coarse, _risks(p)) for p in predictions), knots)


def _knots(predictions: StreamingQuantiles) -> Any:
    """Knots of the spline behind ICI, nearer to those of the rows than those of the grid; None if some are equal."""
    within = knot_range(predictions.cells(), N_KNOTS)
    return None if within is None else (within[0] + within[1]) / 2


def _times(first: FirstPass, k: int) -> Any:
    """Up to k times that divide the rows into parts of about equal size."""
    cells = first.curves.cells()
    up_to = np.cumsum(cells.events + cells.censored)
    return np.unique(cells.high[np.searchsorted(up_to, np.arange(1, k + 1) * up_to[-1] // k, side="left")])


def _risks(predictions: StreamingQuantiles) -> Any:
    """Points that divide the rows, and points of equal distance: narrow cells where rows are and where they are not."""
    first, last = (float(end) for end in predictions.compute([0, predictions.n - 1]))
    return np.union1d(predictions.spread(ICI_RISKS), np.linspace(first, last, ICI_RISKS + 1))


class SecondPass(Pass):
    """Everything that needs the censoring curve, cuts or grids."""

    def __init__(self, plan: Plan, known: Known) -> None:
        super().__init__()
        self.plan, self.known = plan, known
        columns = plan.columns
        if columns.survival:
            self.meters["brier"] = StreamingBrier(columns.horizons, known.censoring)
        for k, at in enumerate(columns.horizons):
            self.meters[f"one{k}"] = StreamingOneCalibration(
                at=at, cuts=known.cuts[k], uses_cdf=columns.cdf is not None, limit=plan.limit
            )
            grids = None if known.ici_grids is None else known.ici_grids[k]
            knots = None if known.ici_knots is None else known.ici_knots[k]
            self.meters[f"ici{k}"] = StreamingCoxICI(at=at, n_knots=N_KNOTS, grids=grids, limit=plan.limit, knots=knots)
        if columns.risk is not None:
            self.meters["harrell"] = StreamingConcordance(grids=known.concordance_grids, limit=plan.limit)

    def _made_from(self) -> tuple[Any, ...]:
        return self.plan, self.known

    def update(self, batch: Batch) -> None:
        """Add rows that were checked."""
        meters: dict[str, Any] = self.meters
        if "brier" in meters:
            meters["brier"].add(batch.survival, batch.time, batch.event)
        p = 1 - batch.survival.astype(np.float64)
        # All have the same grid of times.
        place = meters["ici0"].time_place(batch.time) if p.shape[1] else None
        for k in range(p.shape[1]):
            meters[f"one{k}"].add(p[:, k], batch.time, batch.event, batch.cdf)
            meters[f"ici{k}"].add(p[:, k], batch.time, batch.event, place)
        if "harrell" in meters:
            meters["harrell"].add(batch.time, batch.event, batch.risk)


@dataclass(frozen=True, eq=False)
class Places:
    """What the third pass takes from the first two: where each curve of ICI is, None if it is no spline."""

    times: Any
    of_horizons: tuple[Place | None, ...]


def places(first: FirstPass, second: SecondPass) -> Places:
    """Take the fits on grids, near which those of the rows are."""
    found: list[Place | None] = []
    for k in range(len(first.plan.columns.horizons)):
        meters: dict[str, Any] = {**first.meters, **second.meters}
        curve, cells = meters[f"ici{k}"].compute().curve, meters[f"p{k}"].cells()
        if second.known.ici_knots is None or second.known.ici_knots[k] is None or not curve.converged or not curve.fit:
            found.append(None)
            continue
        ends = max(float(cells.low[0]), 0.0), min(float(cells.high[-1]), 1.0)
        found.append(Place(curve.knots, curve.fit.coefficients / curve.scale, *ends))
    return Places(np.union1d(_times(first, BOUND_TIMES), first.plan.columns.horizons), tuple(found))


class ThirdPass(Pass):
    """Sums over risk sets, for the bound of ICI."""

    def __init__(self, plan: Plan, near: Places) -> None:
        super().__init__()
        self.plan, self.near = plan, near
        for k, (at, place) in enumerate(zip(plan.columns.horizons, near.of_horizons, strict=True)):
            if place is not None:
                self.meters[f"sets{k}"] = StreamingRiskSets(place, near.times, at)

    def _made_from(self) -> tuple[Any, ...]:
        return self.plan, self.near

    def update(self, batch: Batch) -> None:
        """Add rows that were checked."""
        p = 1 - batch.survival.astype(np.float64)
        for k in range(p.shape[1]):
            meter: Any = self.meters.get(f"sets{k}")
            if meter is not None:
                meter.add(p[:, k], batch.time, batch.event)


# Why a value is NaN.
_TOO_FEW = "not known: too few rows were observed until then"

_UNKNOWN = {
    "harrell": "not known: no two rows can be compared",
    "oe": "not known: no event is expected, or no row was observed until then",
}


@dataclass(frozen=True, repr=False)
class FolderEvaluation:
    """Metrics of all rows of a folder.

    Attributes
    ----------
    rows, events, files : int
        Rows (as often as they count), events, and files.
    exact_rows : bool
        Whether the rows were few enough to be kept where a metric needs them all.
    metrics : tuple of dict
        One for each value: `name`, `at` (a time, or None), `value`, and where there are any `lower` and `upper` (the
        range that holds the value of the rows), `error_bound`, `p_value`, `floor`, `standard_error`, `note`. A value
        that the rows cannot tell is NaN, and `note` says why.
    """

    rows: int
    events: int
    files: int
    exact_rows: bool
    metrics: tuple[dict[str, Any], ...]

    def __getitem__(self, key: str | tuple[str, float]) -> dict[str, Any]:
        """One metric, by name or by name and time."""
        name, at = key if isinstance(key, tuple) else (key, None)
        for metric in self.metrics:
            if metric["name"] == name and metric["at"] == at:
                return metric
        raise KeyError(f"{key!r}; there are {', '.join(dict.fromkeys(m['name'] for m in self.metrics))}")

    def to_json(self) -> str:
        """Everything as JSON; what is not known is null."""
        known = {"rows": self.rows, "events": self.events, "files": self.files, "exact_rows": self.exact_rows}
        listed = [{k: _known(v) for k, v in metric.items()} for metric in self.metrics]
        return json.dumps({**known, "metrics": listed}, indent=1, allow_nan=False) + "\n"

    def __repr__(self) -> str:
        share = self.events / self.rows
        lines = [
            f"{_counted(self.rows, 'row')} in {_counted(self.files, 'file')}, "
            f"{_counted(self.events, 'event')} ({share:.0%})",
            f"{'metric':<22}{'at':>10}{'value':>12}{'± at most':>12}  ",
        ]
        for metric in self.metrics:
            at = "" if metric["at"] is None else f"{metric['at']:g}"
            bound, value = metric.get("error_bound"), metric["value"]
            off = "exact" if bound == 0 else "" if bound is None or math.isnan(value) else f"{bound:.1e}"
            more = "" if metric.get("p_value") is None else f"p = {metric['p_value']:.3g}"
            shown = f"{value:.3e}" if 0 < abs(value) < 1e-3 else f"{value:.5f}"
            if math.isnan(value):
                more = metric["note"]
            lines.append(f"{metric['name']:<22}{at:>10}{shown:>12}{off:>12}  {more}".rstrip())
        return "\n".join(lines)


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def summarise(first: FirstPass, second: SecondPass, third: ThirdPass | None, files: int) -> FolderEvaluation:
    """Compute every metric from the passes."""
    cells = first.curves.cells()
    rows = int((cells.events + cells.censored).sum())
    metrics = (*_of_all_times(first, second), *_at_horizons(first, second, third))
    return FolderEvaluation(rows, int(cells.events.sum()), files, first.plan.exact, metrics)


def _metric(name: str, value: float, at: float | None = None, **more: Any) -> dict[str, Any]:
    if math.isnan(value):
        # No bound and no p-value either: 0 would say that a value is there, and exact.
        missing = {key: math.nan for key in ("error_bound", "p_value") if key in more}
        more |= missing | {"note": _UNKNOWN.get(name, _TOO_FEW)}
    return {"name": name, "at": at, "value": float(value), **more}


# What is told of a value, where what was accumulated says it.
_TOLD = ("floor", "p_value", "standard_error", "observed", "expected")


def _read(name: str, found: Any, at: float | None = None, error_bound: float | None = None) -> dict[str, Any]:
    """Write what was accumulated: the range that holds the value of the rows, or at a horizon its interval."""
    more = {one: getattr(found, one) for one in _TOLD if hasattr(found, one)}
    if at is not None and hasattr(found, "lower"):
        more["interval"] = [_known(found.lower), _known(found.upper)]
    elif hasattr(found, "lower"):
        more |= {"lower": found.lower, "upper": found.upper}
    bound = getattr(found, "error_bound", 0.0) if error_bound is None else error_bound
    return _metric(name, found.value, at, **more, error_bound=bound)


def _of_all_times(first: FirstPass, second: SecondPass) -> Iterator[dict[str, Any]]:
    meters: dict[str, Any] = {**first.meters, **second.meters}
    for name in [name for name in VALUES if name in meters and not VALUES[name].at_horizon]:
        yield _read(name, meters[name].compute())
    if "brier" in meters and first.plan.columns.horizons[1:]:
        brier = meters["brier"].compute()
        bound = brier.integrated_error_bound
        yield _metric("ibs", brier.integrated.value, error_bound=bound, until=brier.integrated.stop)


def _at_horizons(first: FirstPass, second: SecondPass, third: ThirdPass | None) -> Iterator[dict[str, Any]]:
    if not first.plan.columns.survival:
        return
    meters: dict[str, Any] = {**first.meters, **second.meters}
    brier = meters.pop("brier").compute()
    several = {name: meters[name].compute() for name in VALUES if name in meters and VALUES[name].at_horizon}
    for k, at in enumerate(first.plan.columns.horizons):
        yield _metric("brier", brier.score.values[k], at, error_bound=float(brier.error_bound[k]))
        for name, found in several.items():
            yield _read(name, found.results[k], at, float(found.error_bound[k]))
        one = meters[f"one{k}"].compute()
        # With the quantiles of the rows as cuts it is `one_calibration`; with others it is exact for these.
        cuts = {"cuts": [*map(float, meters[f"one{k}"].cuts)]}
        result, known = one.result, {"error_bound": 0.0} if one.exact and meters[f"p{k}"].exact else {}
        more = {"p_value": result.p_value, "degrees_of_freedom": result.degrees_of_freedom, "method": result.method}
        groups = {"predicted": [*map(float, result.predicted)], "observed": [_known(float(o)) for o in result.observed]}
        yield _metric("one_calibration", result.statistic, at, **more, **known, **groups, **cuts)
        ici = meters[f"ici{k}"].compute()
        within = None if third is None else _index_range(first, third, k)
        for name in ("value", "e50", "e90", "emax"):
            value = getattr(ici.index, name)
            own: dict[str, Any] = {"error_bound": 0.0}
            if not ici.exact:
                own = {"note": f"predictions moved by up to {ici.resolution:.2g}"}
                if within is not None:
                    lower, upper = getattr(within, name)
                    own |= {"lower": lower, "upper": upper, "error_bound": max(upper - value, value - lower)}
            yield _metric("ici_cox" if name == "value" else f"{name}_cox", value, at, **own)


def _index_range(first: FirstPass, third: ThirdPass, k: int) -> IndexRange:
    """Range of the ICI of the rows at one horizon."""
    place = third.near.of_horizons[k]
    if place is None:
        return IndexRange()
    counted: Any = first.meters[f"p{k}"]
    sums: Any = third.meters[f"sets{k}"].compute()
    knots = knot_range(counted.cells(), N_KNOTS)
    return IndexRange() if knots is None else index_range(sums, place, counted.cells(), knots)
