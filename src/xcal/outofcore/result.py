"""What `xcal evaluate` on a folder finds, as a table and as JSON."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xcal.metrics.streaming.ici_range import IndexRange, index_range, knot_range
from xcal.outofcore.passes import N_KNOTS, FirstPass, SecondPass, ThirdPass

# Why a value is NaN.
_TOO_FEW = "not known: too few rows were observed until then"
_UNKNOWN = {
    "concordance": "not known: no two rows can be compared",
    "observed_expected": "not known: no event is expected, or no row was observed until then",
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


def _of_all_times(first: FirstPass, second: SecondPass) -> Iterator[dict[str, Any]]:
    meters: dict[str, Any] = {**first.meters, **second.meters}
    if "concordance" in meters:
        c = meters["concordance"].compute()
        yield _metric("concordance", c.value, lower=c.lower, upper=c.upper, error_bound=c.error_bound)
    if "dcal" in meters:
        d = meters["dcal"].compute()
        yield _metric("d_calibration", d.value, floor=d.floor, p_value=d.p_value, error_bound=d.error_bound)
    if "nll" in meters:
        nll = meters["nll"].compute()
        yield _metric("mean_nll", nll.value, standard_error=nll.standard_error, error_bound=0.0)
    if "brier" in meters and first.plan.columns.horizons[1:]:
        brier = meters["brier"].compute()
        bound = brier.integrated_error_bound
        yield _metric("integrated_brier", brier.integrated.value, error_bound=bound, until=brier.integrated.stop)


def _at_horizons(first: FirstPass, second: SecondPass, third: ThirdPass | None) -> Iterator[dict[str, Any]]:
    if not first.plan.columns.survival:
        return
    meters: dict[str, Any] = {**first.meters, **second.meters}
    brier, ratio = meters["brier"].compute(), meters["oe"].compute()
    for k, at in enumerate(first.plan.columns.horizons):
        yield _metric("brier", brier.score.values[k], at, error_bound=float(brier.error_bound[k]))
        oe = ratio.results[k]
        interval = {"interval": [_known(oe.lower), _known(oe.upper)], "observed": oe.observed, "expected": oe.expected}
        yield _metric("observed_expected", oe.value, at, error_bound=float(ratio.error_bound[k]), **interval)
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
