"""The frontier of a path as a picture, and as a page with an audit of every candidate on rows that the user gives."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xcal._checks import MIN_CELL, Floats, fail
from xcal.calibration.bins import Clusters, as_clusters
from xcal.data.surv import Outcome
from xcal.data.survival import row_numbers
from xcal.estimators.fitted import FittedModel, PredictingModel, combined
from xcal.estimators.selection import Selection
from xcal.interop import Rows as AskedRows
from xcal.interop.predictions import from_distribution, take_rows
from xcal.metrics.estimates import estimates
from xcal.metrics.inputs import Form, as_min_cell, said, two_digits
from xcal.metrics.of_rows import Asked
from xcal.metrics.spec import METRICS, VALUES, shown_in
from xcal.recalibration.maps import KaplanMeierRecalibration
from xcal.show.charts import (
    PERCENT,
    VERTICAL,
    Axis,
    FrontierPoint,
    Line,
    Mark,
    Picture,
    Points,
    frontier,
    time_in_words,
    time_title,
    vertical_label,
    written,
)
from xcal.show.page import (
    Block,
    Callout,
    Cell,
    Chart,
    Copyable,
    Download,
    Figure,
    Figures,
    Key,
    Notes,
    Page,
    Row,
    Section,
    Selector,
    Stack,
    Table,
    Text,
    Varying,
    write_page,
)
from xcal.show.render import SIGNAL, draw_on
from xcal.validation import sections
from xcal.validation.arguments import default_horizons, read_covariates, read_horizons, unpacked
from xcal.validation.audit import finish
from xcal.validation.for_whom import conditional_value
from xcal.validation.measure import measure
from xcal.validation.result import AuditResult
from xcal.validation.sample import Sample, sample_of
from xcal.validation.summary import Training
from xcal.validation.words import VERDICTS, find, range_in_words

# --- What is measured: every candidate of the path, as an audit measures it, on the same rows.

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
    """Rows of the page, and what is asked about them."""

    x: Any  # as the networks read them, (n, d)
    table: Any  # as they were given: what an audit asks "for whom?"
    outcome: Outcome
    horizons: Floats
    end: float  # the last time seen in training: what the models say of later ones is extrapolated
    given: int  # how many rows there were; more than `MOST_ROWS` are drawn from, at random
    clusters: Clusters | None
    min_cell: int


@dataclass(frozen=True, eq=False)
class Example:
    """Rows whose mean survival curve is drawn; `outcome` is the time and the event of a single row, or None."""

    name: str
    x: Any
    outcome: tuple[float, bool] | None = None


Values = Mapping[str, float]  # by the names of an audit; NaN where the rows do not determine one


@dataclass(frozen=True, eq=False)
class Candidate:
    """One candidate of the path on the rows of the page."""

    lam: float
    recalibrated: bool
    result: AuditResult  # of the model that `SurvivalPath.model` returns
    seeds: Mapping[int, Values]  # of each network alone; empty for a recalibrated one, whose map belongs to all of them
    survival: Floats  # curves of the examples, (examples, points)

    @property
    def name(self) -> str:
        """Name for people."""
        return _name(self.lam, recalibrated=self.recalibrated)

    @property
    def values(self) -> Values:
        """Numbers of the model."""
        return {metric: _value(self.result, metric) for metric in _METRICS}


_METRICS = shown_in("frontier")


def _name(lam: float, *, recalibrated: bool) -> str:
    return f"λ = {lam:g}, recalibrated" if recalibrated else f"λ = {lam:g}"


def _value(result: AuditResult, metric: str) -> float:
    found = find(result, metric)
    return math.nan if found is None else found.value


@dataclass(frozen=True, eq=False)
class Frontier:
    """All candidates on the same rows: those as they were trained, by their weights, then the recalibrated ones."""

    candidates: tuple[Candidate, ...]
    rows: GivenRows
    examples: tuple[Example, ...]  # levels of risk by the first candidate, or the rows that were asked for
    times: Floats  # of the curves of the examples

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates."""
        return tuple(one.name for one in self.candidates)

    @property
    def results(self) -> tuple[AuditResult, ...]:
        """Audits of the candidates."""
        return tuple(one.result for one in self.candidates)

    @property
    def floor(self) -> float:
        """What a perfect model scores on average on these rows; it hardly depends on the model."""
        return float(np.mean([one.values["d_calibration_floor"] for one in self.candidates]))


def given_rows(
    X: Any,
    x: Any,
    outcome: Outcome,
    horizons: Any,
    *,
    end: float,
    clusters: Any = None,
    min_cell: int = MIN_CELL,
) -> GivenRows:
    """Check rows for a page, and draw some of them where they are very many.

    Horizons that are chosen here lie within the times seen in training.
    """
    n = outcome.n
    if n < 2:
        fail("X", "at least 2 rows", n)
    if not outcome.event.any():
        fail("y", "at least one event", f"{n} censored rows")
    together = None if clusters is None else as_clusters(clusters, n, reference="X")
    if n > MOST_ROWS:
        drawn = np.sort(np.random.default_rng(0).choice(n, MOST_ROWS, replace=False))
        X, x, outcome = take_rows(X, drawn), np.asarray(x[drawn]), outcome.take(drawn)
        together = None if together is None else together.of_rows(drawn)
    time, event = outcome.time, outcome.event
    at = default_horizons(time, event, end) if horizons is None else read_horizons(horizons, time)
    table, _ = unpacked(X, None)
    together = None if together is None or together.count == outcome.n else together
    return GivenRows(x, table, outcome, at, end, n, together, as_min_cell(min_cell))


_Line = tuple[float, tuple[FittedModel, ...], KaplanMeierRecalibration | None]


def measure_frontier(
    lines: Sequence[_Line],
    networks: Mapping[float, Sequence[FittedModel]],
    rows: GivenRows,
    time_unit: str,
    patients: tuple[Example, ...] | None = None,
) -> Frontier:
    """Measure candidates on rows.

    Parameters
    ----------
    lines
        Weight, members and map of each candidate.
    networks
        All networks of each weight, for the spread over seeds.
    rows, time_unit
        The rows, and the unit of their times in words.
    patients
        Rows whose curves are drawn; by default means over rows of low, middle and high risk.
    """
    examples = _levels_of_risk(combined(*lines[0][1:]), rows) if patients is None else patients
    # Not to the very last time: a few rows with long times would press all that is to be seen to the left.
    end = two_digits(min(float(np.quantile(rows.outcome.time, _SHOWN_SHARE)), rows.end))
    times = np.linspace(0.0, end, _CURVE_POINTS)
    found = []
    for lam, members, recalibration in lines:
        model, mapped = combined(members, recalibration), recalibration is not None
        sample = _sample(model, rows, _name(lam, recalibrated=mapped))
        measured = measure(sample, n_bootstrap=0)
        result = finish(sample, measured, Training(), time_unit, 0.95, 0, None, 0)
        survival = np.array([model.survival(one.x, times).mean(axis=0) for one in examples])
        one = Candidate(lam, mapped, result, {}, survival)
        # One network that is not averaged is the model itself.
        alone = {
            own.seed: one.values if own is model else _values(_sample(own, rows, ""))
            for own in (() if mapped else networks[lam])
        }
        found.append(replace(one, seeds=alone))
    return Frontier(tuple(found), rows, examples, times)


def _sample(model: PredictingModel, rows: GivenRows, name: str) -> Sample:
    """Return what an audit of a model would be of: its law and its own order of the rows, and their covariates."""
    outcome = rows.outcome
    asked = AskedRows(outcome.time, outcome.event, horizons=rows.horizons)
    read = from_distribution(name, "xcal", lambda part: model.distribution(rows.x[part]), asked)
    assert read.survival is not None
    covariates, left_out, why = read_covariates(None, rows.table, outcome, 1 - read.survival.mean(axis=1))
    of_rows: dict[str, Any] = {"covariates": covariates, "clusters": rows.clusters, "min_cell": rows.min_cell}
    predictions = replace(read, risk_score=model.risk(rows.x), end=rows.end)
    return sample_of(outcome, predictions, rows.horizons, left_out=left_out, no_covariates=why, **of_rows)


def _values(sample: Sample) -> Values:
    """Measure what the page tells of a network alone."""
    names = [name for name, metric in METRICS.items() if set(metric.gives) & set(_METRICS)]
    found = {key.metric: value for key, value in estimates(sample.rows, names, Asked()).values.items()}
    found["conditional_calibration"] = conditional_value(sample)
    return {metric: found.get(metric, math.nan) for metric in _METRICS}


def _levels_of_risk(model: PredictingModel, rows: GivenRows) -> tuple[Example, ...]:
    """Return the rows around each level of risk; of few rows fewer levels, so that no two share a row."""
    found = {1: ("middle risk",), 2: ("low risk", "high risk"), 3: tuple(_LEVELS)}
    fewest = max(FEWEST_AVERAGED, rows.min_cell)
    names = found.get(min(rows.outcome.n // fewest, len(_LEVELS)), ())
    order = np.argsort(model.risk(rows.x), kind="stable")
    size = max(fewest, round(_AVERAGED_SHARE * rows.outcome.n))
    examples = []
    for name in names:
        first = min(max(round(_LEVELS[name] * (rows.outcome.n - 1)) - size // 2, 0), rows.outcome.n - size)
        own = np.sort(order[first : first + size])
        # A row at a time: features in a file are read by slices.
        examples.append(Example(name, np.concatenate([np.asarray(rows.x[row : row + 1]) for row in own])))
    return tuple(examples)


def read_patients(patients: Any, x: Any, outcome: Outcome) -> tuple[Example, ...] | None:
    """Check the rows whose own curves and outcomes are asked for."""
    if patients is None:
        return None
    chosen = row_numbers(patients, outcome.n)
    rows = np.arange(outcome.n)[chosen]
    if rows.size > MOST_PATIENTS:
        fail("patients", f"at most {MOST_PATIENTS} row numbers", rows.size)
    return tuple(
        Example(f"row {row}", np.asarray(x[row : row + 1]), (float(outcome.time[row]), bool(outcome.event[row])))
        for row in rows.tolist()
    )


# --- The picture of a frontier, for a paper: that of the page, with labels that are placed by what the axes hold.


def plot_frontier(table: pd.DataFrame, candidates: pd.DataFrame, ax: Any = None) -> Any:
    """Draw D-calibration (log scale) against concordance: one point per candidate, with its networks alone beside it.

    `table` has a line for each network, `candidates` for each model that may be chosen; recalibrated ones are squares.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    columns = ["dcal", "concordance"]
    known = candidates.dropna(subset=columns)
    points = [_point_of(line, table.loc[table["lambda"] == line["lambda"], columns]) for _, line in known.iterrows()]
    floor = float(candidates["dcal_floor"].mean())
    draw_on(ax, frontier(points, "concordance", least=0.02, floor=floor, rows="validation rows"))
    # Of the recalibrated ones only the first is labelled: they lie close together.
    mapped = known[known["recalibrated"].astype(bool)]
    named = pd.concat([known[~known["recalibrated"].astype(bool)], mapped.head(1)])
    labels = [_name(line["lambda"], recalibrated=line["recalibrated"]) for _, line in named.iterrows()]
    _label(ax, named.assign(label=labels), known)
    return ax


def _point_of(line: pd.Series, networks: pd.DataFrame) -> FrontierPoint:
    mapped = bool(line["recalibrated"])
    alone = tuple(map(tuple, networks.to_numpy(dtype=float))) if not mapped and len(networks) > 1 else ()
    return FrontierPoint(
        _name(line["lambda"], recalibrated=mapped), "", line["dcal"], line["concordance"], mapped, alone
    )


# Where a label may stand: so far from its point, in points, and in these directions (degrees), tried in this order.
_DISTANCES = (6, 12, 20, 30, 42, 56, 72, 90, 110, 132)
_DIRECTIONS = (45, -45, 135, -135, 90, -90, 0, 180, 20, -20, 160, -160, 70, -70, 110, -110)

# From this distance on a line leads from the point to its label.
_FAR = 16


def _label(ax: Any, points: pd.DataFrame, marks: pd.DataFrame) -> None:
    """Write a label near each of `points`, where it covers no other label, none of `marks` and not the legend."""
    ax.get_figure().draw_without_rendering()  # the limits and the layout are known from now on
    taken = [_freeze(ax, ax.get_legend())]
    at = ax.transData.transform(marks[["dcal", "concordance"]].to_numpy(dtype=float))
    for _, row in points.iterrows():
        where = (row["dcal"], row["concordance"])
        text = ax.annotate(
            row["label"],
            where,
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )
        shift, far = _free_place(ax, text.get_window_extent(), taken, at)
        text.set_position(shift)
        taken.append(text.get_window_extent())
        if far:
            line = {"arrowstyle": "-", "color": "#888888", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
            ax.annotate("", where, xytext=shift, textcoords="offset points", arrowprops=line, zorder=1.5)


def _freeze(ax: Any, legend: Any) -> Any:
    """Keep the legend where it is: "best" would look for a new place, on top of labels, when they are there."""
    box = legend.get_window_extent()
    corner = ax.transAxes.inverted().transform((box.x0, box.y0))
    legend.borderaxespad = 0
    legend.set_loc("lower left")
    legend.set_bbox_to_anchor(tuple(corner), transform=ax.transAxes)
    return box


def _free_place(ax: Any, box: Any, taken: Sequence[Any], marks: Any) -> tuple[tuple[float, float], bool]:
    """Shift of a label that stands on its point, in points, to the nearest free place; and whether that is far.

    In a picture that is too small for its labels, the nearest place within the axes that covers the fewest things.
    """
    inside, per_point = ax.get_window_extent(), ax.get_figure().dpi / 72
    best, fewest = ((0.0, 0.0), False), math.inf
    for distance, degrees in product(_DISTANCES, _DIRECTIONS):
        across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        # The edge, or the corner, that faces the point is so far from it.
        right = distance * per_point * across + _sign(across) * box.width / 2
        above = distance * per_point * up + _sign(up) * box.height / 2
        moved = box.translated(right, above)
        if moved.x0 < inside.x0 or moved.x1 > inside.x1 or moved.y0 < inside.y0 or moved.y1 > inside.y1:
            continue
        covered = moved.count_overlaps(taken) + moved.count_contains(marks)
        if covered < fewest:
            best, fewest = ((right / per_point, above / per_point), distance >= _FAR), covered
        if covered == 0:
            break
    return best


def _sign(share: float) -> int:
    """Which way a label lies from its point; 0 for straight above, below or beside it."""
    return 0 if abs(share) < 0.01 else int(math.copysign(1, share))


# --- Tables of the page: every candidate on its rows, and the values that the choice was based on.


def candidate_table(candidates: Sequence[Candidate]) -> Table:
    """Return all candidates on the rows of the page; beneath a value the range of its networks alone."""
    rows = []
    for one in candidates:
        cells: list[Cell] = [one.name]
        for metric, value in one.values.items():
            form, alone = VALUES[metric].form, [seed[metric] for seed in one.seeds.values()]
            beneath = f"{written(min(alone), form)} to {written(max(alone), form)}" if _is_ranged(metric, alone) else ""
            cells.append(_cell(value, form, beneath))
        rows.append(tuple(cells))
    caption = "On the rows of this page. Beneath a value: the lowest and the highest of the networks alone"
    header = ("Model", *(VALUES[metric].name for metric in _METRICS))
    return Table(caption, header, tuple(rows), tuple(range(1, len(header))))


def _is_ranged(metric: str, alone: Sequence[float]) -> bool:
    return len(alone) > 1 and VALUES[metric].compared


# Columns of `SurvivalPath.candidates_`, and the values of an audit that they are on other rows.
_CHOSEN_BY = {
    "dcal": "d_calibration",
    "dcal_floor": "d_calibration_floor",
    "dcal_p": "d_calibration_p",
    "conditional": "conditional_calibration",
    "concordance": "harrell",
    "nll": "nll",
}


def validation_table(table: pd.DataFrame) -> Table:
    """Return the values on the validation rows by which the path chose, `SurvivalPath.candidates_`."""
    shown = {column: VALUES[metric] for column, metric in _CHOSEN_BY.items() if column in table.columns}
    rows = []
    for record in table.to_dict("records"):
        cells: list[Cell] = [_name(record["lambda"], recalibrated=record["recalibrated"])]
        cells += [_cell(_number(record[column]), value.form) for column, value in shown.items()]
        rows.append(tuple(cells))
    caption = (
        "On the validation rows, by which the path chose (path.candidates_). Epochs were chosen on them too, so they "
        "flatter a little; recalibrated ones are cross-fitted"
    )
    header = ("Model", *(value.name for value in shown.values()))
    return Table(caption, header, tuple(rows), tuple(range(1, len(header))))


def as_csv(candidates: Sequence[Candidate]) -> str:
    """Return all values as text in full precision; a line without a seed is the model of all networks together."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["lambda", "recalibrated", "seed", *_METRICS])
    for one in candidates:
        lines: list[tuple[str, Values]] = [("", one.values)]
        lines += [(str(seed), values) for seed, values in one.seeds.items()]
        for seed, values in lines:
            shown = ("" if math.isnan(values[m]) else repr(float(values[m])) for m in _METRICS)
            writer.writerow([repr(one.lam), one.recalibrated, seed, *shown])
    return text.getvalue()


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _cell(value: float, form: Form, beneath: str = "") -> Cell:
    return "–" if math.isnan(value) else (written(value, form), float(value), beneath)


# --- The page.

# Colours of the examples, from low to high risk.
_INKS = ("without_event", "model", "second")
_TICK = "✓"


@dataclass(frozen=True, eq=False)
class FrontierReport:
    """What the page shows: the candidates on the user's rows, what the path chose, and the values it chose by."""

    frontier: Frontier
    selection: Selection
    validation: pd.DataFrame
    model: str
    time_unit: str
    untrained: tuple[float, ...] = ()

    @property
    def chosen(self) -> int:
        """Place of what the path chose among the candidates."""
        which = (self.selection.lam, self.selection.recalibrated)
        return [(one.lam, one.recalibrated) for one in self.frontier.candidates].index(which)


def write_frontier(report: FrontierReport, path: str | Path) -> Path:
    """Write the page as one HTML file; see `SurvivalPath.report`."""
    return write_page(frontier_page(report), path)


def frontier_page(report: FrontierReport) -> Page:
    """Return the page."""
    shown, rows = report.frontier, report.frontier.rows
    events, n = int(np.count_nonzero(rows.outcome.event)), rows.outcome.n
    drawn = f" (drawn at random from {rows.given:,})" if rows.given > n else ""
    of = "" if rows.clusters is None else f" in {rows.clusters.count:,} clusters"
    counted = f"{len(shown.names)} candidates on {n:,} rows{drawn}{of} with {events:,} events"
    return Page(
        title="Calibration frontier",
        subtitle=f"{report.model}: {counted}",
        selectors=(Selector("model", "Model", shown.names, "slider", report.chosen),),
        top=(_answer(report),),
        sections=(
            _cost(report),
            sections.all_times(shown.results, picked=True),
            _one_time(shown, report.time_unit),
            patients(shown, report.time_unit),
            _numbers(report),
        ),
        footer=f"Made by xcal {import_module('xcal').__version__}. This file needs no network and sends nothing.",
    )


def _answer(report: FrontierReport) -> Callout:
    """Return what was chosen and why, and what an audit says of it on the rows of the page."""
    one, reason = report.frontier.candidates[report.chosen], report.selection.reason
    verdict = one.result.verdict
    level, _ = VERDICTS[verdict.level]
    sentences = (f"{reason[0].upper()}{reason[1:]}.", verdict.headline, *verdict.sentences)
    return Callout(level, "Chosen by select()", one.name, sentences)  # type: ignore[arg-type]


def _one_time(shown: Frontier, unit: str) -> Section:
    """Show the calibration of the picked model at each horizon."""
    horizons = [float(t) for t in shown.rows.horizons]
    at = tuple(time_in_words(t, unit) for t in horizons)
    section = sections.each_level(shown.results, horizons, picked=True)
    choice: tuple[Block, ...] = (Selector("horizon", "Horizon", at, start=len(at) // 2),) if len(at) > 1 else ()
    heading = section.heading if len(at) > 1 else f"{section.heading.removesuffix('?')} at {at[0]}?"
    return replace(section, heading=heading, blocks=(*choice, *section.blocks, *_extrapolated(shown, unit)))


def _extrapolated(shown: Frontier, unit: str) -> tuple[Block, ...]:
    """Name the horizons after the last time seen in training."""
    late = [time_in_words(float(t), unit) for t in shown.rows.horizons if t > shown.rows.end]
    if not late:
        return ()
    last = time_in_words(float(f"{shown.rows.end:.3g}"), unit)
    return (Text(f"Extrapolated, as no row of the training was followed beyond {last}: {', '.join(late)}.", "note"),)


# What is paid for calibration: how it is called on its axis, the metric, and the least that its axis shows.
_PAID = (("concordance", "harrell", 0.02), ("nll", "nll", 0.02), ("ibs", "ibs", 0.01))


def _cost(report: FrontierReport) -> Section:
    """Draw the three frontiers side by side, and the values of the picked model beneath."""
    pictures = []
    for of, metric, least in _PAID:
        given: dict[str, Any] = {"floor": report.frontier.floor, "picked": report.chosen}
        spec = frontier(_points(report, metric), of, least=least, **given)
        alt = f"D-calibration against {VERTICAL[of][0]}, one point per model; {_in_words(report, of, metric)}"
        title = vertical_label(of)
        title = f"{title[0].upper()}{title[1:]}"
        pictures.append(Chart((spec,), (alt,), follows=("model",), picks="model", signal=SIGNAL, title=title))
    legend = Text(
        "Blue circles are the weights λ of the penalty, as they were trained, with their networks alone as small dots: "
        "the spread over seeds. Orange squares are the same models after recalibration. The dotted line is what a "
        "perfect model scores on average: left of it is luck. The ring is the model that is picked, and "
        f"{_TICK} what select() chose. Click a point, or move the slider, and everything below follows.",
        "reading",
    )
    tiles = Varying("model", tuple(_with_command(report, k) for k in range(len(report.frontier.names))))
    rest = (Text(f"{not_trained(report.untrained)}.", "note"),) if report.untrained else ()
    return Section("What does calibration cost?", (Row(tuple(pictures)), legend, *rest, tiles), "Frontier")


def not_trained(lambdas: Sequence[float]) -> str:
    """Say which weights have no models, and how they get some."""
    weights = ", ".join(f"{lam:g}" for lam in lambdas)
    return (
        f"Not trained, as the choice did not need them: λ = {weights} (SurvivalPath(path='always'), or --path always, "
        "trains all)"
    )


def _points(report: FrontierReport, metric: str) -> list[FrontierPoint]:
    points = []
    for k, one in enumerate(report.frontier.candidates):
        chosen = k == report.chosen
        # Recalibrated candidates lie close together: only what was chosen is labelled.
        label = f"{_TICK} {one.lam:g}" if chosen else f"{one.lam:g}" if not one.recalibrated else ""
        alone = tuple((seed["d_calibration"], seed[metric]) for seed in one.seeds.values())
        at = (one.values["d_calibration"], one.values[metric])
        points.append(FrontierPoint(one.name, label, *at, one.recalibrated, alone if len(alone) > 1 else (), chosen))
    return points


def _in_words(report: FrontierReport, of: str, metric: str) -> str:
    """Return where the points stand, for those who cannot see them."""
    told = (
        f"{one.name}: D-calibration {one.values['d_calibration']:.2g}, {VERTICAL[of][0]} "
        f"{written(one.values[metric], 'fraction')}"
        for one in report.frontier.candidates
    )
    return "; ".join(told)


def _with_command(report: FrontierReport, k: int) -> Stack:
    one = report.frontier.candidates[k]
    mapped = ", recalibrated=True" if one.recalibrated else ""
    return Stack((tiles(report, k), Copyable(f"model = path.model({one.lam!r}{mapped})", "Copy the line")))


def tiles(report: FrontierReport, k: int) -> Figures:
    """Values of one candidate, each with that of the first beneath it."""
    first, one = report.frontier.candidates[0], report.frontier.candidates[k]
    figures = []
    for metric, number in one.values.items():
        value = VALUES[metric]
        note = f"{value.hint}, {_averaged(report)}" if metric == "ibs" else value.hint
        if k > 0 and value.compared:
            note = f"{first.name}: {written(first.values[metric], value.form)}"
        known = None if math.isnan(number) else number
        figures.append(Figure(value.name, written(number, value.form), known, note=note))
    return Figures(tuple(figures))


def _averaged(report: FrontierReport) -> str:
    """Return in words over which times the Brier score is averaged: the same for all candidates, as their rows are."""
    ends = report.frontier.results[0].measured.ibs_range
    return "all times seen" if ends is None else f"from {range_in_words(ends, report.time_unit)}"


def patients(shown: Frontier, unit: str) -> Section:
    """Draw survival curves: means over rows of a level of risk, or those of the rows that were asked for."""
    examples = shown.examples
    if not examples:
        few = Text("These are too few rows for mean curves by level of risk, and single rows are not shown.", "note")
        return Section("What does it tell patients?", (few,), "Patients")
    if examples[0].outcome is None:
        reading = (
            f"Each line is the mean over {len(examples[0].x)} rows, the same for every model: those next to a tenth, "
            f"half or nine tenths of the order of risk by {shown.names[0]}. No single row is shown."
        )
    else:
        reading = (
            "Rows that were asked for. A filled point is where a row had its event, a hollow one where it was censored."
        )
    specs = tuple(_survival_curves(one, shown, unit) for one in shown.candidates)
    alts = tuple(f"Predicted survival over time by {name}." for name in shown.names)
    keys = tuple(Key(one.name, ink) for one, ink in zip(examples, _INKS, strict=False))
    picture = Chart(specs, alts, follows=("model",), keys=keys, reading=reading)
    return Section("What does it tell patients?", (picture,), "Patients")


def _survival_curves(one: Candidate, measured: Frontier, unit: str) -> Picture:
    marks: list[Mark] = []
    tips = (("row", "", ""), ("x", "time", ".3~g"), ("y", "no event until then", ".1%"))
    for example, survival, ink in zip(measured.examples, one.survival, _INKS, strict=False):
        data = {"x": measured.times, "y": survival, "row": [example.name] * measured.times.size}
        marks.append(Line(data, ink, tips=tips))
        if example.outcome is not None and example.outcome[0] <= measured.times[-1]:
            time, happened = example.outcome
            place = {"x": [time], "y": [float(np.interp(time, measured.times, survival))]}
            marks.append(Points(place, ink, size=100, hollow=not happened, outline=ink))
    x = Axis(time_title(unit), (0.0, float(measured.times[-1])))
    return Picture(x, Axis("Probability of no event", (0.0, 1.0), PERCENT), tuple(marks), height=300)


def _numbers(report: FrontierReport) -> Section:
    """List every number, those that the choice was based on too."""
    notes = Notes(
        (
            "The rows of this page were given to path.report. Judge by rows that no model was trained on.",
            "Every candidate was measured as by xcal.audit(path.model(...), X, y, n_bootstrap=0), which reports one "
            "model with all values and intervals. On the validation rows D-calibration has the bins of the training, "
            "and under a discrete distribution the likelihood of an event is the mass of its time bin, as in training.",
            "A recalibrated model has the map of F that was fitted when the path was, not one fitted to these rows.",
            *filter(None, [said(report.frontier.rows.min_cell)]),
        ),
        "How this was measured",
    )
    blocks: tuple[Block, ...] = (
        candidate_table(report.frontier.candidates),
        Download("Save as CSV", "frontier.csv", as_csv(report.frontier.candidates)),
        validation_table(report.validation),
        notes,
    )
    return Section("All numbers", blocks, "All numbers")
