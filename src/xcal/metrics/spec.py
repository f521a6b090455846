"""All metrics of xcal in one table: what each needs and computes, how it is resampled, and where its numbers are shown.

`METRICS` has one entry per computation, in the order of `evaluate`: what rows must have for it, its function, what it
is of resamples, what of it merges. `VALUES` has one line per number, in the order of an audit's table: its label, how
it is written, what a perfect model scores, which direction is better, and where it is shown. Everything that computes
or shows metrics reads these two: `evaluate`, audits, their reports and comparisons, the page of a path, folders.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from xcal.calibration.streaming import DCalibration
from xcal.metrics import of_rows as of
from xcal.metrics.calibration_curve import DISTANCES
from xcal.metrics.errors import StreamingMeanNLL
from xcal.metrics.inputs import Form, Matrix
from xcal.metrics.intervals import GAIN, PLAIN, POSITIVE, SHARE, Distance, Scale
from xcal.metrics.observed_expected import StreamingObservedExpected
from xcal.metrics.of_rows import Asked, Counted, Found, Number
from xcal.metrics.resamples import Block
from xcal.metrics.rows import Rows

Interval = tuple[float, float]


@dataclass(frozen=True)
class Key:
    """Which number of some rows is meant: the metric, the horizon (None: over all times), the group (None: all)."""

    metric: str
    horizon: float | None = None
    group: str | None = None


@dataclass(frozen=True)
class Skipped:
    """Something that was not computed, and why.

    Attributes
    ----------
    what : str
        Name of a metric; "horizon" for everything of one horizon, "group" for a whole group.
    why : str
        The reason, in words.
    horizon, group
        Where; None for all.
    interval : bool
        Whether the value is there and only its interval is missing.
    """

    what: str
    why: str
    horizon: float | None = None
    group: str | None = None
    interval: bool = False


# --- Every number that is shown of a model.

# What a value says about another one: what a perfect model scores, what is left without noise, tests of it, and what
# is said of it across sites.
Role = Literal["floor", "excess", "noise", "p", "p_corrected", "sites", "new_site", "sites_tau2", "sites_i2"]
# Where values are shown: in the text of an audit, on top of its report, in a section of it, on the page of a path.
Place = Literal["text", "glance", "average", "level", "times", "order", "error", "covariates", "frontier"]


@dataclass(frozen=True)
class Value:
    """One number: what it is called inside, and how people meet it."""

    metric: str
    name: str  # what people call it
    form: Form  # how it is written
    hint: str = ""  # one line on how to read it
    perfect: float | None = None  # the value of a perfect model; None where there is no such value
    better: int = 0  # 1 if higher is better, -1 if lower; 0 where neither is
    good: Interval | None = None  # range that is good enough for a verdict
    at_horizon: bool = False  # whether there is one for each horizon
    scale: Scale = PLAIN  # where it has no bounds and its resamples are closer to normal
    compared: bool = True  # whether a difference of two models means something: not where it is about test or rows
    main: bool = False  # whether it is among the first that a person compares: a difference is called better or worse
    analytic: str = ""  # its name among the values of an audit whose intervals have a formula
    evaluated: bool = True  # whether `evaluate` lists it
    of: str = ""  # the metric that it belongs to
    role: Role | None = None  # what it says about that
    shown: Mapping[Place, int] = field(default_factory=dict)  # where it is shown, and at which place there


_AT: dict[str, Any] = {"at_horizon": True}
_BESIDE: dict[str, Any] = {"compared": False}
_CONCORDANCE: dict[str, Any] = {"perfect": 1, "better": 1, "main": True, "scale": SHARE}
_NUMBER_OF_TESTS = "for the number of tests at horizons"
_NOISE, _UNEXPLAINED = "its mean on as many rows", "what noise does not explain; 0 is right"
_PERFECT_ROWS = "mean of a perfect model on as many rows"
_BY_COX = "misleads where hazards are not proportional"
_FLOOR = "0 is right; compare with the floor"


def _role(of: str, role: Role, name: str, form: Form, hint: str, **given: Any) -> Value:
    """Return a value that says something about another one; it is not compared between models."""
    return Value(f"{of}_{role}", name, form, hint, of=of, role=role, **_BESIDE | given)


def _p(metric: str, label: str, hint: str, **given: Any) -> tuple[Value, Value]:
    """Return the p-value of a test at horizons, alone and corrected."""
    return (
        _role(metric, "p", f"{label}, p", "p", hint, **_AT, **given),
        _role(metric, "p_corrected", f"{label}, p (corrected)", "p", _NUMBER_OF_TESTS, **_AT),
    )


def _distance(
    metric: str, name: str, hint: str, floor: str = _NOISE, floor_shown: Mapping[Place, int] | None = None, **given: Any
) -> tuple[Value, Value, Value]:
    """Return a distance of risks from what happened, what a perfect model scores, and what noise leaves of it."""
    label, shown = f"{name} of a perfect model", floor_shown or {}
    return (
        Value(metric, name, "fraction", hint, perfect=0, better=-1, **_AT, **given),
        _role(metric, "floor", label, "fraction", floor, **_AT, shown=shown),
        _role(metric, "excess", f"{name} without noise", "fraction", _UNEXPLAINED, **_AT, evaluated=False),
    )


ACROSS: tuple[Role, ...] = ("sites", "new_site", "sites_tau2", "sites_i2")
# Values that are averaged over sites, with the scale on which the sites are taken to be normal.
ACROSS_SITES: Mapping[str, Scale] = {"auc": SHARE, "oe": POSITIVE, "slope": PLAIN, "ici_excess": PLAIN}


def _across_sites(metric: str, name: str, form: Form) -> tuple[Value, Value, Value, Value]:
    """Return a value's mean over sites, its interval for a new one, and how much the sites differ."""
    new = "the interval is where a new site is expected"
    return (
        _role(metric, "sites", f"{name}, mean over sites", form, "random effects", **_AT),
        _role(metric, "new_site", f"{name}, a new site", form, new, **_AT),
        _role(metric, "sites_tau2", f"{name}, tau² between sites", "small", "variance beyond chance", **_AT),
        _role(metric, "sites_i2", f"{name}, I² between sites", "percent", "share of variance beyond chance", **_AT),
    )


def _d_calibration(metric: str, of: str, excess: str, **given: Any) -> tuple[Value, Value, Value]:
    """Return D-calibration by one treatment of censored rows, its floor and its excess."""
    shown: Any = {where: place + 1 for where, place in given.get("shown", {}).items()}
    return (
        Value(metric, f"D-calibration ({of})", "small", _FLOOR, perfect=0, better=-1, **given),
        _role(metric, "floor", f"Floor ({of})", "small", _PERFECT_ROWS, shown=shown),
        _role(metric, "excess", f"Without noise ({of})", "small", excess, evaluated=False),
    )


# One number, one or two lines.
# fmt: off
VALUES: Mapping[str, Value] = {
    value.metric: value
    for value in (
        Value("harrell", "Harrell's C", "fraction", "1 orders every pair rightly, 0.5 is chance",
            **_CONCORDANCE, shown={"text": 1, "glance": 5, "order": 1, "frontier": 5}),
        Value("uno", "Uno's C", "fraction", "as Harrell's, corrected for censoring",
            **_CONCORDANCE, shown={"text": 2, "order": 2}),
        Value("antolini", "Antolini's C", "fraction", "as Harrell's, for curves that cross",
            **_CONCORDANCE, shown={"text": 3, "order": 3}),
        Value("concordance", "Concordance", "fraction", "pairs of rows in the right order, of events by then",
            **_CONCORDANCE, **_AT, evaluated=False, shown={"text": 6, "order": 5}),
        Value("auc", "AUC", "fraction", "1 separates who has the event by then, 0.5 is chance",
            **_CONCORDANCE, **_AT, shown={"text": 7, "glance": 4, "order": 4}),
        Value("oe", "O/E", "ratio", "events observed per event expected; 1 is right",
            perfect=1, good=(0.8, 1.25), **_AT, analytic="O/E", shown={"text": 3, "glance": 1, "average": 1}),
        *_p("oe", "O/E", "test that the risks are right on average"),
        Value("mean_risk", "Mean predicted risk", "percent", "average over all rows", **_AT, evaluated=False,
            shown={"text": 1, "average": 2}),
        Value("observed_risk", "Observed risk", "percent",
            "allowing for censoring", **_AT, **_BESIDE, evaluated=False,
            shown={"text": 2, "average": 3}),
        Value("slope", "Calibration slope", "ratio", "1 is right; below 1: risks too extreme",
            perfect=1, good=(0.8, 1.25), **_AT, analytic="slope", shown={"text": 4, "glance": 2, "level": 4}),
        *_p("slope", "Calibration slope", "test that the slope is 1"),
        Value("intercept", "Calibration intercept", "ratio", "0 is right; below 0: risks too high",
            perfect=0, **_AT, analytic="intercept", of="slope", shown={"level": 5}),
        *_distance("ici", "ICI", "mean distance of predicted from observed risk", f"{_NOISE}: noise alone",
            good=(0.0, 0.05), main=True, analytic="ICI", shown={"text": 5, "glance": 3, "level": 1},
            floor_shown={"text": 6, "level": 2}),
        *_p("ici", "ICI", "test that the risks are right at each level", shown={"level": 3}),
        *_distance("e50", "E50", "median of that distance", of="ici", shown={"level": 6}),
        *_distance("e90", "E90", "nine rows in ten are closer than this", of="ici", shown={"level": 7}),
        *_distance("emax", "Emax", "the largest distance", of="ici", shown={"level": 8}),
        Value("one_calibration_p", "One-calibration, p", "p", "test of the risk groups at the horizon",
            **_AT, **_BESIDE),
        Value("event_ratio", "Events per expected event", "ratio", "over the time under observation; 1 is right",
            perfect=1, good=(0.8, 1.25), analytic="events per expected event", shown={"text": 3}),
        _role("event_ratio", "p", "Events per expected event, p", "p", "test that they are right on average"),
        _role("event_ratio", "p_corrected", "Events per expected event, p (Holm)", "p",
            "corrected for the number of groups"),
        *_d_calibration("d_calibration", "uniform", "what noise does not explain",
            main=True, analytic="D-calibration", shown={"text": 4, "frontier": 1}),
        *_d_calibration("d_calibration_km", "Kaplan-Meier", _UNEXPLAINED),
        *_d_calibration("d_calibration_ipcw", "weighted", "what noise does not explain"),
        _role("d_calibration", "p", "D-calibration, p", "p",
            "alone; of a perfect model below 0.05 in 5 of 100 audits", shown={"text": 6, "glance": 6, "frontier": 3}),
        _role("d_calibration", "p_corrected", "D-calibration, p (Holm)", "p", "corrected for the number of groups"),
        Value("cause_calibration", "D-calibration by cause", "small", _FLOOR,
            perfect=0, better=-1, evaluated=False, shown={"text": 6, "times": 2}),
        _role("cause_calibration", "floor", "Floor (by cause)", "small", _PERFECT_ROWS, evaluated=False,
            shown={"times": 3}),
        _role("cause_calibration", "p", "D-calibration by cause, p", "p",
            "below 0.05: events come at other times, or of other causes", evaluated=False,
            shown={"text": 6, "times": 4}),
        Value("quantile_slope", "Slope over quantiles of F", "ratio", "1 is right", perfect=1),
        Value("quantile_intercept", "Intercept over quantiles of F", "ratio", "0 is right", perfect=0,
            of="quantile_slope"),
        Value("km_calibration", "KM calibration", "small",
            "mean prediction against the observed curve over time",
            perfect=0, better=-1, shown={"times": 1}),
        _role("km_calibration", "floor", "KM calibration of a perfect model", "small", _NOISE),
        _role("km_calibration", "excess", "KM calibration without noise", "small", _UNEXPLAINED),
        Value("bound_coverage", "Outlive the model's 10 % quantile", "percent", "its own lower bound; 90 % is right",
            perfect=0.9, scale=SHARE, shown={"times": 2}),
        Value("interval_coverage", "Between its 5 and 95 % quantiles", "percent", "its own interval; 90 % is right",
            perfect=0.9, scale=SHARE, shown={"times": 3}),
        Value("conditional_calibration", "Conditional calibration", "small", "0 is right; compare with its noise",
            perfect=0, better=-1, shown={"text": 7, "covariates": 1, "frontier": 4}),
        Value("conditional_calibration_floor", "Noise taken off", "small",
            "what chance alone adds; the value is without it", **_BESIDE, of="conditional_calibration"),
        _role("conditional_calibration", "noise", "Noise left", "small",
            "standard deviation of the value of a right model", shown={"covariates": 2}),
        _role("conditional_calibration", "p", "Conditional calibration, p", "p",
            "below 0.05: not right for all covariates", shown={"text": 8, "covariates": 3}),
        Value("subgroup_p", "Subgroup most off, p", "p", "on rows that took no part in the search", **_BESIDE,
            shown={"covariates": 4}),
        Value("brier", "Brier score", "fraction", "mean squared error; 0 is best",
            perfect=0, better=-1, **_AT, scale=POSITIVE, shown={"text": 8, "error": 1}),
        Value("ipa", "IPA", "percent", "error saved against no covariates; higher is better",
            perfect=1, better=1, **_AT, scale=GAIN, main=True, shown={"text": 9, "error": 2}),
        Value("ibs", "Integrated Brier score", "fraction", "Brier score averaged over time",
            perfect=0, better=-1, scale=POSITIVE, main=True, shown={"text": 9, "error": 3, "frontier": 7}),
        Value("nll", "Negative log-likelihood", "fraction", "lower is better, for models of the same rows",
            better=-1, main=True, shown={"text": 10, "error": 4, "frontier": 6}),
        *_across_sites("auc", "AUC", "fraction"),
        *_across_sites("oe", "O/E", "ratio"),
        *_across_sites("slope", "Calibration slope", "ratio"),
        *_across_sites("ici_excess", "ICI without noise", "fraction"),
        Value("cox_slope", "Slope by a Cox model", "ratio", _BY_COX, perfect=1),
        Value("cox_intercept", "Intercept by a Cox model", "ratio", _BY_COX, perfect=0, of="cox_slope"),
        *(
            Value(f"{name}_cox", f"{label} by a Cox model", "fraction", _BY_COX, perfect=0, better=-1, **_AT, **_BESIDE,
                of="" if name == "ici" else "ici_cox")
            for name, label in (("ici", "ICI"), ("e50", "E50"), ("e90", "E90"), ("emax", "Emax"))
        ),
    )
}
# fmt: on
_BESIDE_OF = {(value.of, value.role): value.metric for value in VALUES.values() if value.role is not None}


def beside(metric: str, role: Role) -> str:
    """Return the name of what is said about a metric, such as its floor; "" where nothing is."""
    return _BESIDE_OF.get((metric, role), "")


def shown_in(place: Place, *, at_horizon: bool | None = None) -> list[str]:
    """Return the metrics that are shown at a place, in their order there: those of horizons, those of none, or all."""
    here = [v for v in VALUES.values() if place in v.shown and at_horizon in (None, v.at_horizon)]
    return [value.metric for value in sorted(here, key=lambda value: value.shown[place])]


# Root mean square error of the bins of D-calibration beyond noise, as a share of what a bin should hold, that is good
# enough.
GOOD_BINS = 0.15


def good_range(name: str) -> Interval:
    """Return the range in which a value is good enough."""
    found = VALUES[name].good
    assert found is not None, name
    return found


def _allowed(rows: Rows) -> str:
    return ""


@dataclass(frozen=True)
class Metric:
    """One computation, of rows and a horizon; None for metrics over all times."""

    gives: tuple[str, ...]  # names of its values in `VALUES`; the first stands for it where it cannot be computed
    compute: Callable[[Rows, Any, Asked], Found]
    # Why it cannot be computed of such rows; "" if it can, None where it has no place and is not missed.
    lacks: Callable[[Rows], str | None] = _allowed
    # Of which rows an audit asks for it: all, sites too, groups too. Those who come to a landmark are as all.
    within: Literal["all", "sites", "groups"] = "all"
    evaluated: bool = True  # whether `evaluate` computes it
    audited: bool = True  # whether an audit does
    # Where intervals may come from resamples: never for a p-value.
    resampled: Literal["never", "evaluate", "everywhere"] = "everywhere"
    # What it is of resamples, from counts of the rows; without it the rows drawn are taken and it is computed again.
    counted: Callable[[Rows, Any], Counted] | None = None
    # For a squared distance from a perfect model, the vectors of resamples whose squared length it is.
    deviations: Callable[[Rows], Callable[[Block], Matrix]] | None = None
    lines: int | None = None  # resamples that are worked on at once; by default as many as fit a cache
    too_long: Callable[[Rows, int], str] | None = None  # why so many resamples would take too long
    accumulator: type | None = None  # what computes it over chunks, processes or files in one pass

    @property
    def at_horizon(self) -> bool:
        """Whether there is one for each horizon."""
        return VALUES[self.gives[0]].at_horizon

    def horizons(self, rows: Rows) -> tuple[float | None, ...]:
        """Return the horizons for which it is asked: those of the rows, or None alone."""
        return tuple(rows.risk) if self.at_horizon else (None,)


def numbers(found: Mapping[str, float | Number | Distance]) -> Iterator[tuple[str, Number]]:
    """Yield what a metric found as single numbers, by their names: of a distance its floor and its excess, too."""
    for name, one in found.items():
        if isinstance(one, Distance):
            yield name, Number(one.value, one.lower, one.upper)
            yield beside(name, "floor"), Number(one.floor)
            if np.isfinite(one.excess):
                yield beside(name, "excess"), Number(one.excess, one.lower, one.upper)
        else:
            yield name, one if isinstance(one, Number) else Number(one)


METRICS: Mapping[str, Metric] = {
    "harrell": Metric(("harrell",), of.harrell, of.no_order, counted=of.counted_pairs),
    "uno": Metric(("uno",), of.uno, of.no_other_order, counted=of.counted_pairs),
    "antolini": Metric(
        ("antolini",), of.antolini, of.no_curve_order, counted=of.counted_antolini, lines=128, too_long=of.long_antolini
    ),
    "nll": Metric(
        ("nll",),
        of.nll,
        of.no_density,
        evaluated=False,
        counted=of.counted_nll,
        accumulator=StreamingMeanNLL,
    ),
    "concordance": Metric(
        ("concordance",), of.concordance, of.nothing_competes, evaluated=False, counted=of.counted_concordance
    ),
    "auc": Metric(("auc",), of.of_accuracy("auc"), within="sites", counted=of.counted_auc),
    "brier": Metric(("brier", "ipa"), of.of_accuracy("brier", "ipa"), within="sites", counted=of.counted_brier),
    "ibs": Metric(("ibs",), of.integrated_brier, of.no_integral, counted=of.counted_integral),
    "d_calibration": Metric(
        ("d_calibration", "d_calibration_floor", "d_calibration_excess"),
        of.of_d_calibration("d_calibration", None),
        of.no_cdf,
        within="groups",
        deviations=of.mass_deviations(None),
        accumulator=DCalibration,
    ),
    "d_calibration_km": Metric(
        ("d_calibration_km", "d_calibration_km_floor"),
        of.of_d_calibration("d_calibration_km", "km"),
        of.no_redistribution,
        within="groups",
        evaluated=False,
        deviations=of.mass_deviations("km"),
    ),
    "d_calibration_ipcw": Metric(
        ("d_calibration_ipcw", "d_calibration_ipcw_floor"),
        of.of_d_calibration("d_calibration_ipcw", "ipcw"),
        of.no_redistribution,
        within="groups",
        evaluated=False,
        deviations=of.mass_deviations("ipcw"),
    ),
    "d_calibration_p": Metric(
        ("d_calibration_p",),
        of.d_calibration_p,
        lambda rows: "" if rows.cdf is not None else None,
        within="groups",
        resampled="never",
    ),
    "cause_calibration": Metric(
        ("cause_calibration", "cause_calibration_floor", "cause_calibration_p"),
        of.by_cause,
        of.no_causes,
        within="groups",
        evaluated=False,
        resampled="never",
    ),
    "event_ratio": Metric(
        ("event_ratio", "event_ratio_p"),
        of.event_ratio,
        lambda rows: "" if rows.cdf is not None and rows.seen_in_part else None,
        within="groups",
        evaluated=False,
        resampled="never",
    ),
    "quantile_slope": Metric(("quantile_slope", "quantile_intercept"), of.quantile_slope, of.no_cdf, audited=False),
    "mean_risk": Metric(
        ("mean_risk",),
        of.mean_risk,
        within="groups",
        evaluated=False,
        counted=of.of_rows_at("mean_risk", of.mean_expected),
    ),
    "oe": Metric(
        ("oe",),
        of.ratio,
        within="groups",
        counted=of.of_rows_at("oe", of.counted_ratio),
        accumulator=StreamingObservedExpected,
    ),
    "observed_risk": Metric(
        ("observed_risk",),
        of.observed_risk,
        within="groups",
        evaluated=False,
        counted=of.of_rows_at("observed_risk", of.mean_observed),
    ),
    "slope": Metric(("slope", "intercept"), of.slope, within="groups", counted=of.counted_slope),
    "one_calibration_p": Metric(("one_calibration_p",), of.one_calibration, of.no_groups_of_risk, resampled="never"),
    "ici": Metric(
        tuple(one for name in DISTANCES for one in (name, f"{name}_floor", f"{name}_excess")),
        of.distances,
        within="groups",
        counted=of.counted_ici,
    ),
    "km_calibration": Metric(
        ("km_calibration",), of.km_calibration, of.no_mean_curve, within="groups", deviations=of.curve_deviations
    ),
    "bound_coverage": Metric(
        ("bound_coverage", "interval_coverage"),
        of.coverage,
        of.no_quantiles,
        evaluated=False,
        counted=of.counted_coverage,
    ),
    # As in published guidelines; right where hazards are proportional, and only there.
    "cox_slope": Metric(("cox_slope", "cox_intercept"), of.cox_calibration, of.no_cox_model, resampled="evaluate"),
    "ici_cox": Metric(("ici_cox", "e50_cox", "e90_cox", "emax_cox"), of.ici_cox, of.no_cox_model, resampled="never"),
}


def _belongs(name: str) -> Iterable[str]:
    """Yield a value's name, and those of what it belongs to."""
    while name:
        yield name
        name = VALUES[name].of


# By every name that can be asked for, the values that are meant: that one, and those that belong to it.
NAMES: Mapping[str, tuple[str, ...]] = {
    asked: tuple(
        name for name, value in VALUES.items() if value.evaluated and asked in _belongs(name) and name in given
    )
    for given in [{name for metric in METRICS.values() if metric.evaluated for name in metric.gives}]
    for asked in VALUES
    if asked in given and VALUES[asked].evaluated
}
