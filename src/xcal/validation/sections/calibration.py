"""Whether the probabilities are right: on average, for each level of risk, over all times."""

from collections.abc import Sequence

from xcal.charts.words import time_in_words
from xcal.pages import Block, Chart, Key, Row, Section, Selector, Stack, Table
from xcal.pages.blocks import Cell
from xcal.validation import charts
from xcal.validation.charts import by_horizon, keys
from xcal.validation.labels import ESTIMATORS, find, names
from xcal.validation.sections.parts import (
    Results,
    beside_picture,
    cell,
    for_each_horizon,
    nothing,
    numbers,
    reasons,
    with_intervals,
)


def on_average(results: Results, horizons: Sequence[float]) -> Section:
    """Show whether the risks are right on average."""
    heading, short = "Are the risks right on average?", "On average"
    if not horizons:
        return Section(heading, tuple(nothing(results, "horizon", "oe")), short)
    picture = by_horizon(
        horizons,
        lambda t: charts.observed_and_predicted(results, t),
        keys=(Key("observed (Kaplan-Meier)", "observed"), *keys(results)),
        reading="Where the lines agree, the average prediction is right; where the model's line is above the observed "
        "one, it expects too many events. The upright line is the horizon.",
    )
    metrics = ("oe", "mean_risk", "observed_risk")
    beside = for_each_horizon(horizons, lambda t: numbers(results, [(metric, t) for metric in metrics]))
    side: list[Block] = [beside]
    if len(horizons) > 1:
        wanted = [(time_in_words(t, results[0].time_unit), "oe", t, None) for t in horizons]
        reading = "Events observed for each event expected. 1 is right; an interval that contains 1 cannot rule it out."
        side.append(with_intervals(results, wanted, "O/E", 1.0, "O/E at each horizon", reading))
    return Section(heading, (beside_picture(results, picture, side), *reasons(results, "horizon", "oe")), short)


def each_level(results: Results, horizons: Sequence[float]) -> Section:
    """Show whether they are right for each level of risk."""
    heading, short = "Are they right for each level of risk?", "Level of risk"
    if not any(charts.same(result.measured.calibration, t) for result in results for t in horizons):
        return Section(heading, tuple(nothing(results, "horizon", "ici", "calibration")), short)
    pictures = calibration_pictures(results, horizons)
    metrics = ("ici", "ici_floor", "ici_p", "slope", "intercept", "e50", "e90", "emax")
    beside = [for_each_horizon(horizons, lambda t: numbers(results, [(metric, t) for metric in metrics]))]
    return Section(heading, (beside_picture(results, pictures, beside), *reasons(results, "ici", "slope")), short)


def calibration_pictures(results: Results, horizons: Sequence[float]) -> Block:
    """Draw the calibration curve, and the histogram of the risks beneath it."""
    curve = by_horizon(
        horizons,
        lambda t: charts.calibration(results, t),
        keys=(
            *keys(results),
            Key("band", "model", "band"),
            Key("groups of risk", "model", "point"),
            Key("right", "reference", "dashed"),
        ),
    )
    histogram = by_horizon(
        horizons,
        lambda t: charts.risk_histogram(results, t),
        reading="On the dashed line observed equals predicted. Above it the model promises too little risk, below it "
        "too much. The bars beneath say how many rows have each risk: where there are few, look at the band.",
    )
    return Stack((curve, histogram))


def all_times(results: Results) -> Section:
    """Show whether they are right over all times."""
    heading, short = "Are they right over all times?", "All times"
    methods = [m for m in ESTIMATORS if all(any(p.method == m for p in r.measured.pit) for r in results)]
    if not methods:
        return Section(heading, tuple(nothing(results, "d_calibration")), short)
    made = [charts.pit(results, method) for method in methods]
    chooser = Selector("estimator", "Censored rows counted", tuple(ESTIMATORS[m] for m in methods))
    histogram = Chart(
        tuple(spec for spec, _ in made),
        tuple(alt for _, alt in made),
        follows=("estimator",),
        title="F at the observed times",
        keys=(*keys(results, "box"), Key("a perfect model, 95 of 100 times", "ink", "dashed")),
        reading="The bars of a perfect model are equally high, up to chance: each ends within its two dotted lines 95 "
        "of 100 times. High on the left: events come earlier than predicted; on the right: later; at both ends: the "
        "model is too sure.",
    )
    pictures: list[Block] = [histogram]
    if all(result.measured.pp is not None for result in results):
        spec, alt = charts.pp(results)
        legend = (*keys(results), Key("right", "reference", "dashed"))
        reading = "The same without bins. Where the diagonal lies outside of the band, the error is more than chance."
        pictures.append(Chart((spec,), (alt,), title="P-P curve", keys=legend, reading=reading))
    table: Block = _d_calibration_table(results, methods)
    if any(find(result, "km_calibration") for result in results):
        beside = numbers(results, [("km_calibration", None)])
        table = Row((table, beside), (3, 1)) if len(results) == 1 else Stack((table, beside))
    blocks = (chooser, Row(tuple(pictures)), table)
    return Section(heading, (*blocks, *reasons(results, "d_calibration", "d_calibration_p", "km_calibration")), short)


def _d_calibration_table(results: Results, methods: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, result in zip(names(results), results, strict=True):
        p = find(result, "d_calibration_p")
        for method in methods:
            metric = "d_calibration" if method == "uniform" else f"d_calibration_{method}"
            value, floor = find(result, metric), find(result, f"{metric}_floor")
            who = f"{name}, {ESTIMATORS[method]}" if len(results) > 1 else ESTIMATORS[method]
            rows.append((who, cell(value), cell(floor), cell(p)))
    caption = (
        "D-calibration: 0 is right, and a perfect model scores the floor on average. The test is the same for all."
    )
    return Table(caption, ("Censored rows", "D-calibration", "Floor", "p"), tuple(rows), (1, 2, 3))
