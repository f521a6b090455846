"""Results of an audit made by hand, for tests of the page and the pictures.

The rows are simulated, and what the package's metrics can say of them is computed; intervals are rough (a fixed width),
as these tests look at what is shown and not at how it was measured.
"""

from functools import cache

import numpy as np

from xcal.calibration import d_calibration
from xcal.metrics import brier_score, concordance_index, integrated_calibration_index, kaplan_meier
from xcal.metrics.spec import Skipped
from xcal.validation.result import (
    AuditResult,
    AuditValue,
    CalibrationCurve,
    Concern,
    CovariatePart,
    DataSummary,
    DecisionCurve,
    ForWhom,
    Measurements,
    OverTime,
    PitHistogram,
    PPCurve,
    RiskDistribution,
    Sentence,
    Verdict,
    WorstSubgroup,
)

HORIZONS = (1.0, 3.0, 5.0)
NAN = float("nan")
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script> & 'quotes' \" $x^2$"
METHODS = (("uniform", "d_calibration"), ("km", "d_calibration_km"), ("ipcw", "d_calibration_ipcw"))


class Rows:
    """Simulated patients, and a model that is right (`too_sure` 1) or exaggerates."""

    def __init__(self, n, too_sure):
        rng = np.random.default_rng(7)
        x = rng.normal(size=n)
        self.old = rng.random(n) < 0.45
        hazard = 0.12 * np.exp(0.8 * x + 0.4 * self.old)
        happens, leaves = rng.exponential(1 / hazard), np.minimum(rng.exponential(14, n), rng.uniform(5, 9, n))
        self.time, self.event = np.minimum(happens, leaves), happens <= leaves
        self.centre = rng.choice(["north", "south", "tiny"], n, p=[0.6, 0.39, 0.01])
        self.hazard = 0.12 * (1.0 if too_sure == 1 else 1.35) * np.exp(too_sure * (0.8 * x + 0.4 * self.old))

    def risk(self, t):
        return 1 - np.exp(-self.hazard * t)

    @property
    def cdf(self):
        return self.risk(self.time)

    def groups(self):
        return {
            "age = young": ~self.old,
            "age = old": self.old,
            "centre = north": self.centre == "north",
            "centre = south": self.centre == "south",
        }


def number(metric, value, half=0.0, horizon=None, group=None):
    low, high = (value - half, value + half) if half else (NAN, NAN)
    return AuditValue(metric, horizon, group, float(value), float(low), float(high))


def observed(rows, chosen, t):
    curve = kaplan_meier(time=rows.time[chosen], event=rows.event[chosen])
    return 1 - float(curve.at(t)), 1.96 * float(np.sqrt(curve.variance(t)))


def values_at(rows, t, group=None, chosen=slice(None)):
    risk, (seen, half) = rows.risk(t)[chosen], observed(rows, chosen, t)
    ici = integrated_calibration_index(risk, at=t, time=rows.time[chosen], event=rows.event[chosen])
    mean = risk.mean()
    found = [number("oe", seen / mean, half / mean, t, group), number("mean_risk", mean, 0.0, t, group)]
    found += [number("observed_risk", seen, half, t, group)]
    for name, value in (("ici", ici.value), ("e50", ici.e50), ("e90", ici.e90), ("emax", ici.emax)):
        found.append(number(name, value, 0.4 * value, t, group))
    wrong = ici.lower > 0
    found += [number("ici_floor", ici.floor, 0.0, t, group), number("ici_p", 1e-3 if wrong else 0.4, 0.0, t, group)]
    found += [number("slope", 0.7 if wrong else 0.98, 0.09, t, group), number("intercept", 0.01, 0.08, t, group)]
    if group is None:
        score = float(brier_score(1 - risk, [t], time=rows.time, event=rows.event).values[0])
        null = seen * (1 - seen)
        known = (rows.time > t) | rows.event
        auc = (risk[known & (rows.time <= t)][:, None] > risk[rows.time > t]).mean()
        found += [
            number("brier", score, 0.01, t),
            number("ipa", 1 - score / null, 0.03, t),
            number("auc", auc, 0.02, t),
        ]
        found += [number("one_calibration_p", 0.31 if ici.value < 0.03 else 1e-9, 0.0, t)]
    return found


def values_over_all_times(rows, group=None, chosen=slice(None)):
    found = []
    cdf, event, time = rows.cdf[chosen], rows.event[chosen], rows.time[chosen]
    for method, name in METHODS:
        one = d_calibration(cdf, event, method=method, time=time)
        found += [
            number(name, one.value, 0.3 * one.value, None, group),
            number(f"{name}_floor", one.floor, 0.0, None, group),
        ]
        if method == "uniform":
            found.append(number("d_calibration_p", one.p_value, 0.0, None, group))
            if group is not None:
                found.append(number("d_calibration_p_corrected", min(1.0, 2 * one.p_value), 0.0, None, group))
    return found


def discrimination(rows):
    harrell = concordance_index(risk=rows.hazard, time=rows.time, event=rows.event).value
    return [
        number("harrell", harrell, 0.02),
        number("uno", harrell - 0.004, 0.022),
        number("antolini", harrell - 0.001, 0.02),
        number("ibs", 0.141, 0.008),
        number("nll", 1.93, 0.07),
        number("km_calibration", 0.00042, 0.0002),
    ]


def calibration_curve(rows, t, group=None, chosen=slice(None)):
    risk, time, event = rows.risk(t)[chosen], rows.time[chosen], rows.event[chosen]
    smooth = integrated_calibration_index(risk, at=t, time=time, event=event)
    cuts = np.quantile(risk, np.linspace(0, 1, 11))
    place = np.clip(np.searchsorted(cuts, risk, side="right") - 1, 0, 9)
    seen = [observed(_Part(time, event), place == k, t) for k in range(10)]
    edges = np.linspace(0, 1, 31)
    half = 0.02 + 0.08 * np.abs(smooth.predicted - np.median(risk))
    middle = np.array([one for one, _ in seen])
    width = np.array([one for _, one in seen])
    return CalibrationCurve(
        horizon=t,
        group=group,
        predicted=smooth.predicted,
        observed=smooth.observed,
        lower=np.clip(smooth.observed - half, 0, 1),
        upper=np.clip(smooth.observed + half, 0, 1),
        point_predicted=np.array([risk[place == k].mean() for k in range(10)]),
        point_observed=middle,
        point_lower=np.clip(middle - width, 0, 1),
        point_upper=np.clip(middle + width, 0, 1),
        point_rows=np.bincount(place, minlength=10),
        risk_edges=edges,
        risk_counts=np.histogram(risk, edges)[0],
    )


class _Part:
    def __init__(self, time, event):
        self.time, self.event = time, event


def decision_curve(rows, t):
    threshold = np.linspace(0.02, 0.8, 40)
    risk, n = rows.risk(t), rows.time.size
    everyone, _ = observed(rows, np.ones(n, bool), t)

    def benefit(chosen, at):
        if not chosen.any():
            return 0.0
        hit = observed(rows, chosen, t)[0] * chosen.mean()
        return hit - (chosen.mean() - hit) * at / (1 - at)

    model = np.array([benefit(risk >= at, at) for at in threshold])
    everybody = everyone - (1 - everyone) * threshold / (1 - threshold)
    return DecisionCurve(t, threshold, model, model - 0.02, model + 0.02, everybody)


def risk_distribution(rows, t):
    risk, edges = rows.risk(t), np.linspace(0, 1, 26)
    gone = (rows.time <= t) & rows.event
    lost = (rows.time < t) & ~rows.event
    parts = [gone, ~gone & ~lost, lost]
    shares = [np.histogram(risk[part], edges)[0] / max(part.sum(), 1) for part in parts]
    return RiskDistribution(t, edges, *shares, *(int(part.sum()) for part in parts))


def pit_histogram(rows, method, group=None, chosen=slice(None)):
    one = d_calibration(rows.cdf[chosen], rows.event[chosen], method=method, time=rows.time[chosen])
    half = 1.96 * np.sqrt(0.1 * 0.9 / one.n)
    flat = np.full(10, 0.1)
    return PitHistogram(method, group, one.edges, one.histogram, flat - half, flat + half)


def pp_curve(rows):
    curve = kaplan_meier(time=rows.cdf, event=rows.event)
    grid = np.linspace(0, 1, 101)
    seen = 1 - curve.at(grid)
    return PPCurve(grid, seen, np.clip(seen - 0.05, 0, 1), np.clip(seen + 0.05, 0, 1))


def over_time(rows, predicts=True):
    times = np.linspace(0, 8, 81)
    curve = kaplan_meier(time=rows.time, event=rows.event)
    seen, half = 1 - curve.at(times), 1.96 * np.sqrt(curve.variance(times))
    survival = np.exp(-rows.hazard[:, None] * times)
    empty = np.full(times.size, NAN)
    brier = brier_score(survival[:, 1:], times[1:], time=rows.time, event=rows.event).values
    null = brier_score(np.tile(curve.at(times[1:]), (rows.time.size, 1)), times[1:], time=rows.time, event=rows.event)
    return OverTime(
        times=times,
        observed=seen,
        observed_lower=seen - half,
        observed_upper=seen + half,
        predicted=1 - survival.mean(axis=0) if predicts else empty,
        at_risk=(rows.time[:, None] >= times).sum(axis=0),
        uncensored=kaplan_meier(time=rows.time, event=rows.event, of="censoring").at(times),
        brier=np.concatenate([[0.0], brier]) if predicts else empty,
        brier_null=np.concatenate([[0.0], null.values]),
    )


def for_whom(rows):
    """Return calibration by age; the numbers of the test are made up."""
    at_event = np.where(rows.event, rows.cdf, (1 + rows.cdf) / 2)
    parts = []
    for name, chosen in rows.groups().items():
        mean, half = at_event[chosen].mean(), 1.96 * at_event[chosen].std() / chosen.sum() ** 0.5
        parts.append(CovariatePart(name.split(" ")[0], name, int(chosen.sum()), mean, mean - half, mean + half))
    histogram = pit_histogram(rows, "uniform", None, rows.old)
    half, width = (histogram.upper - histogram.lower) / 4, np.diff(histogram.edges)
    error = np.sqrt(max(0.0, (np.square(histogram.mass - width) - np.square(half)).sum() * width.size))
    worst = WorstSubgroup(
        *("age = old", "events come earlier than predicted"),
        *(int(rows.old.sum()), int(rows.old.sum()) // 2, 0.002, float(error)),
        *(histogram.edges, histogram.mass, half),
    )
    left_out = (("id", "its whole numbers are all different, as those of an id"),)
    return ForWhom(0.00031, 0.00004, 0.0007, 0.001, ("age", "centre"), left_out, tuple(parts), worst)


def values_for_whom():
    names = ("", "_floor", "_noise", "_p")
    numbers = (0.00031, 0.0007, 0.00004, 0.001)
    found = [number(f"conditional_calibration{name}", value) for name, value in zip(names, numbers, strict=True)]
    return [*found, number("subgroup_p", 0.002)]


def measurements(rows, kind):
    """Measure what a model of this kind allows: "full" curves, the "risk" at one horizon, or "cdf" alone."""
    horizons = {"full": HORIZONS, "risk": HORIZONS[1:2], "cdf": ()}[kind]
    groups = rows.groups()
    values = discrimination(rows) if kind == "full" else []
    values += [value for t in horizons for value in values_at(rows, t)]
    values += [*values_over_all_times(rows), *values_for_whom()] if kind != "risk" else []
    for name, chosen in groups.items():
        values += [value for t in horizons for value in values_at(rows, t, name, chosen)]
        values += values_over_all_times(rows, name, chosen) if kind != "risk" else []
    skipped = [Skipped("group", "4 events: too few to judge", group="centre = tiny")]
    if kind == "risk":
        why = "the model gives the risk at one horizon only, and no F at each row's observed time"
        skipped += [Skipped("d_calibration", why)]
        skipped += [Skipped("conditional_calibration", "it needs F at the observed times")]
    if kind == "cdf":
        skipped += [Skipped("horizon", "the predictions are F at the observed times only", t) for t in HORIZONS]
        skipped += [Skipped(name, "F at the observed times alone puts no rows in order") for name in ("harrell", "uno")]
        skipped += [Skipped("ibs", "it needs survival curves")]
        skipped += [Skipped("km_calibration", "it needs survival curves", group="age = old")]
    names = [(None, slice(None)), *groups.items()]
    return Measurements(
        values=tuple(values),
        calibration=tuple(calibration_curve(rows, t, g, chosen) for t in horizons for g, chosen in names),
        decision=tuple(decision_curve(rows, t) for t in horizons),
        risks=tuple(risk_distribution(rows, t) for t in horizons),
        pit=tuple(pit_histogram(rows, m, g, chosen) for m, _ in METHODS for g, chosen in names)
        if kind != "risk"
        else (),
        pp=pp_curve(rows) if kind != "risk" else None,
        over_time=over_time(rows, predicts=kind == "full"),
        skipped=tuple(skipped),
        for_whom=for_whom(rows) if kind != "risk" else None,
        n_families=3,
    )


@cache
def made_result(kind="full", *, good=True, model="CoxPHFitter", n=1200):
    """Return one result; the same object for the same arguments."""
    rows = Rows(n, 1.0 if good else 1.8)
    measured = measurements(rows, kind)
    verdict = Verdict(
        "The predicted risks can be trusted." if good else "The predicted risks are too high and too extreme.",
        "trust" if good else "distrust",
        (
            Sentence(f"{model} was tested on {n:,} rows with {int(rows.event.sum()):,} events."),
            Sentence("At 3 years, risks differ by 0.02 on average." if good else "O/E at 3 years is 0.8."),
            Sentence("Nothing can be said about the group centre = tiny: 4 events."),
        ),
    )
    concern = Concern(
        "Times past the grid: 31 rows were followed for longer than the model's last time.",
        "D-calibration treats them as censored there; values at the horizons do not change.",
        False,
    )
    half = Concern("Fewer than 50 events by year 1.", "The calibration curve at 1 year is uncertain.", True)
    return AuditResult(
        model=model,
        library="lifelines",
        reading=("Survival curves at 81 times.", "Between two times the curve is a straight line."),
        horizons={"full": HORIZONS, "risk": HORIZONS[1:2], "cdf": ()}[kind],
        groups=tuple(rows.groups()),
        measured=measured,
        data=DataSummary(n, int(rows.event.sum()), float(rows.time.max()), 6.4, 12, 31, (half, concern)),
        verdict=verdict,
        methods="We validated the model on new rows.\n\nReferences\n\nAustin et al. (2020), Statistics in Medicine.",
        time_unit="years",
        level=0.95,
        n_bootstrap=200,
        seed=0,
    )
