"""The frontier page of a path: every candidate on the same rows, and everything about the one that is picked."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

from xcal._frontier_axes import vertical_label
from xcal.charts.frontier import SIGNAL, FrontierPoint, frontier
from xcal.charts.words import Form, p_in_words, time_in_words, written
from xcal.estimators.frontier.sections import all_times, known, one_time, patients
from xcal.estimators.frontier.tables import as_csv, candidate_table, validation_table
from xcal.estimators.frontier.values import Frontier, Values
from xcal.estimators.selection import Selection
from xcal.metrics.small_cells import rounded_time, said
from xcal.pages import (
    Block,
    Callout,
    Chart,
    Copyable,
    Download,
    Figure,
    Figures,
    Notes,
    Page,
    Row,
    Section,
    Selector,
    Stack,
    Text,
    Varying,
    write_page,
)
from xcal.pages.blocks import Level

# A model is called off if a perfect one would look as bad in fewer than this share of samples, as in `select`.
_LEVEL = 0.05
_TICK = "✓"


@dataclass(frozen=True, eq=False)
class FrontierReport:
    """What the page shows: the candidates on the user's rows, what the path chose, and the values it chose by."""

    frontier: Frontier
    selection: Selection
    validation: pd.DataFrame
    model: str
    time_unit: str

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
    rows = report.frontier.rows
    events = int(np.count_nonzero(rows.event))
    drawn = f" (drawn at random from {rows.given:,})" if rows.given > rows.n else ""
    of = "" if rows.clusters is None else f" in {np.unique(rows.clusters).size:,} clusters"
    shown = f"{len(report.frontier.names)} candidates on {rows.n:,} rows{drawn}{of} with {events:,} events"
    return Page(
        title="Calibration frontier",
        subtitle=f"{report.model}: {shown}",
        selectors=(Selector("model", "Model", report.frontier.names, "slider", report.chosen),),
        top=(_answer(report),),
        sections=(
            _cost(report),
            all_times(report.frontier),
            one_time(report.frontier, report.time_unit),
            patients(report.frontier, report.time_unit),
            _numbers(report),
        ),
        footer=f"Made by xcal {import_module('xcal').__version__}. This file needs no network and sends nothing.",
    )


def _answer(report: FrontierReport) -> Callout:
    """Return what was chosen and why, and how it does on the rows of the page."""
    one = report.frontier.candidates[report.chosen]
    measured = one.values.dcal
    reason = report.selection.reason
    bins = f"D-calibration in {report.frontier.rows.n_bins} bins"
    sentence = f"On the rows of this page its {bins} is {measured.value:.2g}; a perfect model scores "
    sentence += f"{measured.floor:.2g} on average"
    level: Level = "unknown"
    if measured.p_value is not None:
        off = measured.p_value < _LEVEL
        told = "the test, which counts the events of each bin, finds it off" if off else "nothing shows that it is off"
        sentence += f" ({p_in_words(measured.p_value)}): {told}"
        level = "caution" if off else "good"
    sentences = (f"{reason[0].upper()}{reason[1:]}.", f"{sentence}.")
    return Callout(level, "Chosen by select()", one.name, sentences)


def _cost(report: FrontierReport) -> Section:
    """Draw the three frontiers side by side, and the values of the picked model beneath."""
    axes: tuple[tuple[str, str, str, float, Callable[[Values], float]], ...] = (
        (vertical_label("concordance").capitalize(), "concordance", ".3f", 0.02, lambda values: values.concordance),
        (vertical_label("nll"), "NLL", ".3f", 0.02, lambda values: values.nll),
        ("IBS (down is better)", "IBS", ".3f", 0.01, lambda values: values.ibs),
    )
    pictures = []
    for title, short, form, least, value in axes:
        spec = frontier(
            _points(report, value),
            short=short,
            form=form,
            least=least,
            floor=report.frontier.floor,
            picked=report.chosen,
        )
        alt = f"D-calibration against {short}, one point per model; {_in_words(report, short, value)}"
        pictures.append(Chart((spec,), (alt,), follows=("model",), picks="model", signal=SIGNAL, title=title))
    legend = Text(
        "Blue circles are the weights λ of the penalty, as they were trained, with their networks alone as small dots: "
        "the spread over seeds. Orange squares are the same models after recalibration. The dotted line is what a "
        "perfect model scores on average: left of it is luck. The ring is the model that is picked, and "
        f"{_TICK} what select() chose. Click a point, or move the slider, and everything below follows.",
        "reading",
    )
    tiles = Varying("model", tuple(_with_command(report, k) for k in range(len(report.frontier.names))))
    return Section("What does calibration cost?", (Row(tuple(pictures)), legend, tiles), "Frontier")


def _points(report: FrontierReport, value: Callable[[Values], float]) -> list[FrontierPoint]:
    points = []
    for k, one in enumerate(report.frontier.candidates):
        chosen = k == report.chosen
        # Recalibrated candidates lie close together: only what was chosen is labelled.
        label = f"{_TICK} {one.lam:g}" if chosen else f"{one.lam:g}" if not one.recalibrated else ""
        alone = tuple((seed.dcal.value, value(seed)) for seed in one.seeds.values())
        several = alone if len(alone) > 1 else ()
        at = (one.values.dcal.value, value(one.values))
        points.append(FrontierPoint(one.name, label, *at, one.recalibrated, several, chosen))
    return points


def _in_words(report: FrontierReport, short: str, value: Callable[[Values], float]) -> str:
    """Return where the points stand, for those who cannot see them."""
    told = (
        f"{name}: D-calibration {one.values.dcal.value:.2g}, {short} {written(value(one.values), 'fraction')}"
        for name, one in zip(report.frontier.names, report.frontier.candidates, strict=True)
    )
    return "; ".join(told)


def _with_command(report: FrontierReport, k: int) -> Stack:
    one = report.frontier.candidates[k]
    mapped = ", recalibrated=True" if one.recalibrated else ""
    return Stack((tiles(report, k), Copyable(f"model = path.model({one.lam!r}{mapped})", "Copy the line")))


def tiles(report: FrontierReport, k: int) -> Figures:
    """Values of one candidate, each with that of the first beneath it."""
    first, one = report.frontier.candidates[0], report.frontier.candidates[k]
    values, base = one.values, first.values
    p = values.dcal.p_value

    def beside(number: float, form: Form) -> str:
        return "" if k == 0 else f"{first.name}: {written(number, form)}"

    return Figures(
        (
            Figure(
                "D-calibration",
                written(values.dcal.value, "small"),
                values.dcal.value,
                note=beside(base.dcal.value, "small") or "0 is right; compare with the floor",
            ),
            Figure("Floor", written(values.dcal.floor, "small"), values.dcal.floor, note="a perfect model, on average"),
            Figure("p (Akritas)", "–" if p is None else written(p, "p"), p, note="small: a perfect model rarely is so"),
            Figure(
                "Conditional calibration",
                written(values.conditional, "small"),
                known(values.conditional),
                note=beside(base.conditional, "small") or "for every row, not on average; 0 is right",
            ),
            Figure(
                "Concordance",
                written(values.concordance, "fraction"),
                known(values.concordance),
                note=beside(base.concordance, "fraction") or "1 is a perfect order, 0.5 chance",
            ),
            Figure(
                "NLL",
                written(values.nll, "fraction"),
                known(values.nll),
                note=beside(base.nll, "fraction") or "lower is better",
            ),
            Figure(
                "IBS",
                written(values.ibs, "fraction"),
                known(values.ibs),
                note=beside(base.ibs, "fraction") or f"Brier score {_averaged(report)}; 0 is best",
            ),
        )
    )


def _averaged(report: FrontierReport) -> str:
    """Say over which times the Brier score is averaged: the same for all candidates, as their rows are."""
    ends = report.frontier.candidates[0].values.ibs_range
    if ends is None:
        return "averaged over all times seen"
    first, last = (rounded_time(t) for t in ends)
    return f"averaged from {first:g} to {time_in_words(last, report.time_unit)}"


def _numbers(report: FrontierReport) -> Section:
    """List every number, those that the choice was based on too."""
    notes = Notes(
        (
            "The rows of this page were given to path.report. Judge by rows that no model was trained on.",
            f"D-calibration in {report.frontier.rows.n_bins} bins, as in an audit, censored rows spread evenly "
            "(uniform); p by Akritas' test of a perfect model. On the validation rows it has the bins of the training.",
            "Conditional is conditional calibration: whether F is right given the covariates, less what noise gives.",
            "Concordance is Harrell's. NLL is the mean negative log-likelihood; under a discrete distribution an event "
            "counts the mass of its time bin over its width, on the validation rows the mass alone, as in training. "
            f"IBS is the Brier score {_averaged(report)}, weighted for censoring.",
            "A recalibrated model has the map of F that was fitted when the path was, not one fitted to these rows.",
            "xcal.audit(path.model(...), X, y) reports one model with all intervals. Its values are the same but in "
            "two cases: where times are in whole units, its D-calibration always draws F of an event evenly from the "
            "unit; where censoring depends on covariates, it corrects values at horizons, and this page does not.",
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
