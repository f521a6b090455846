"""What a run says on the screen."""

import os
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from xcal.cli import run_folder
from xcal.cli.run_folder import FitSettings
from xcal.cli.training import Judged, Part, Parts, Trained, figures
from xcal.cli.understanding import NO_KIND, Column
from xcal.metrics.inputs import ends
from xcal.metrics.pit import N_BINS
from xcal.training import EpochReport
from xcal.validation.result import AuditValue
from xcal.validation.words import broken, label, shown

_WIDTH = 100
# Columns of a wide file that are listed one by one.
_MOST_COLUMNS = 60
# Characters of what a column holds.
_MOST_VALUES = 44
_WHAT = {
    run_folder.MODEL: "the chosen model: xcal predict, or xcal.load in Python",
    run_folder.PATH: "all models, to choose again: xcal.load",
    run_folder.FRONTIER_PAGE: "what calibration costs: open it in a browser",
    run_folder.FRONTIER_TABLE: "the numbers of it",
    run_folder.AUDIT_PAGE: "can its probabilities be trusted? open it in a browser",
    run_folder.AUDIT_NUMBERS: "every number and curve of it",
    run_folder.SUMMARY: "this summary, for machines",
    run_folder.CONFIG: "runs again: xcal fit --config",
}


def understood(parts: Parts, settings: FitSettings) -> str:
    """Return what was read: columns, rows, outcome, and what to look at."""
    columns = parts.understanding.columns
    listed = columns[:_MOST_COLUMNS]
    lines = [f"{settings.data}: {len(columns)} columns, {len(parts.understanding.features)} to learn from", ""]
    shown = [_column(column, settings.min_cell) for column in listed]
    lines += table(("column", "kind", "missing", "values", ""), shown, left=(0, 1, 3, 4))
    if len(columns) > len(listed):
        lines.append(f"and {len(columns) - len(listed)} more")
    unit = f" {settings.time_unit}" if settings.time_unit else ""
    head = ("rows", "number", "events", "censored", f"times{unit}", "median")
    lines += ["", *table(head, list(_rows(parts, settings.min_cell)))]
    return "\n".join([*lines, *notes(parts.understanding.notes)])


def _column(column: Column, min_cell: int) -> tuple[str, ...]:
    """One line of the table; why a column is left out stands in the notes, unless it has a role."""
    values = textwrap.shorten(column.values, _MOST_VALUES, placeholder=" ...")
    reason = column.left_out if column.kind == NO_KIND else "left out"
    return (
        column.name,
        column.kind,
        f"<{min_cell}" if column.missing is None else f"{column.missing:,}" if column.missing else "",
        values,
        reason if column.left_out else "",
    )


def _rows(parts: Parts, min_cell: int) -> Iterable[tuple[str, ...]]:
    named = {"to train on": parts.train, "to validate on": parts.validation, "held out": parts.test}
    if parts.validation is None:
        named = {"to train and validate on": parts.train, "held out": parts.test}
    for name, part in named.items():
        if part is not None:
            yield name, *_counted_rows(part, min_cell)


def _counted_rows(part: Part, min_cell: int) -> tuple[str, ...]:
    time, event = part.y["time"], part.y["event"]
    found = ends(time, min_cell)
    return (
        f"{part.n:,}",
        f"{part.n_events:,}",
        f"{1 - event.mean():.0%}",
        "" if found is None else f"{found[0]:.4g} to {found[1]:.4g}",
        f"{np.median(time):.4g}",
    )


def about_to_train(settings: FitSettings) -> str:
    """Return what is trained."""
    lambdas = ", ".join(f"{lam:g}" for lam in settings.lambdas)
    return (
        f"\nTraining a model ({settings.distribution}) for each weight of the calibration penalty (lambda {lambdas}), "
        f"{settings.seeds} seed{'s' * (settings.seeds > 1)} each, at most "
        f"{settings.epochs} epoch{'s' * (settings.epochs > 1)}. "
        "Ctrl-C keeps the best so far."
    )


def now_and_then(say: Callable[[str], None], seconds: float = 10.0) -> Callable[[EpochReport], None]:
    """Return a function of an epoch that says how far training is, not more often than so many seconds."""
    said = monotonic()

    def show(report: EpochReport) -> None:
        nonlocal said
        if monotonic() - said >= seconds:
            said = monotonic()
            say(f"epoch {report.epoch} of at most {report.epochs}: {np.count_nonzero(report.stopped)} of "
                f"{report.stopped.size} models have stopped")  # fmt: skip

    return show


def found_trained(folder: Path) -> str:
    """Return the sentence that training is not done again."""
    return f"\nThe same command has trained these models before: they are read from {folder / run_folder.UNFINISHED}."


def about_to_judge() -> str:
    """Return what takes time after training."""
    return "\nMeasuring the chosen model on the held-out rows, and making the reports."


def not_kept(folder: Path, error: OSError) -> str:
    """Print at once that what was trained could not be written."""
    alone = (folder / run_folder.UNFINISHED / run_folder.MODEL).is_file()
    what = "all models but the chosen one" if alone else "what was trained"
    why = os.strerror(error.errno) if error.errno else str(error)
    told = f"{why}: {what} could not be written to {folder / run_folder.UNFINISHED}"
    return "\n".join(["", *notes([f"{told}. Make room now: it is written once more when the reports are made"])])


def kept(folder: Path, *, finishes: bool) -> str:
    """Return what is left of a run whose reports were not made, and whether the same command finishes it."""
    where = folder / run_folder.UNFINISHED
    told = f"What was trained is kept in {where}: xcal.load({str(where)!r}) reads the chosen model."
    again = "finishes it without training again" if finishes else "trains again"
    return "\n".join(["", *wrapped(f"The run was not finished. {told} The same command {again}.")])


def trained(result: Trained) -> str:
    """Return what came out of training, on the validation rows."""
    lines = [] if not result.interrupted else ["Interrupted: what follows is from what was trained until then.", ""]
    found, selected = result.path.candidates_, result.path.selection_
    rows = []
    for line in found.itertuples(index=False):
        values = line._asdict()
        name = f"{line[0]:g}" + (", recalibrated" if values["recalibrated"] else "")
        chosen = (line[0], values["recalibrated"]) == (selected.lam, selected.recalibrated)
        dcal = [f"{values[key]:.2g}" for key in ("dcal", "dcal_floor")]
        rows.append((name, *dcal, f"{values['concordance']:.4f}", f"{values['nll']:.4f}", "chosen" * chosen))
    lines += [f"On the validation rows (D-calibration in {result.path.calibration_bins} bins):"]
    lines += table(("lambda", "D-calibration", "of a perfect model", "concordance", "NLL", ""), rows, left=(0, 5))
    lines += ["", *wrapped(f"Chosen: {selected.reason}.")]
    return "\n".join([*lines, *notes(result.notes)])


def judged(result: Judged, chosen: Trained, name_of: Callable[[Any], str]) -> str:
    """Return what the held-out rows say."""
    measured = {chosen.name: figures(result.audit)}
    if result.plain is not None:
        measured = {name_of(chosen.path.model(min(chosen.path.frontier_["lambda"]))): result.plain} | measured
    rows = [
        (label(metric).name, *(_number(metric, values[metric]) for values in measured.values()))
        for metric in next(iter(measured.values()))
    ]
    lines = ["", f"On the held-out rows (D-calibration in {N_BINS} bins):", *table(("", *measured), rows), ""]
    lines += wrapped(result.audit.verdict.headline)
    for sentence in result.audit.verdict.sentences:
        lines += wrapped(sentence, "- ")
    return "\n".join([*lines, *notes(result.notes)])


def _number(metric: str, value: float) -> str:
    return shown(AuditValue(metric, None, None, value, np.nan, np.nan))


def written(folder: Path) -> str:
    """Name the files of a run."""
    names = [name for name in run_folder.FILES if (folder / name).exists()]
    width = max(map(len, names))
    return "\n".join(["", f"Wrote to {folder}:", *(f"  {name:<{width}}  {_WHAT[name]}" for name in names)])


def notes(sentences: Sequence[str]) -> list[str]:
    """Return what a person should look at, one paragraph each."""
    return [line for sentence in sentences for line in wrapped(f"note: {sentence}", hang="      ")]


def wrapped(text: str, bullet: str = "", hang: str | None = None) -> list[str]:
    """Break a sentence into lines."""
    after = " " * len(bullet) if hang is None else hang
    return broken(text, _WIDTH, bullet, after)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Columns under their names, to the right unless they are in `left`."""
    lines = [head, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return [
        "  ".join(
            f"{cell:<{width}}" if k in left else f"{cell:>{width}}"
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
