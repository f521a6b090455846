"""A whole run of ``xcal fit``: read, show, train, judge, write; and what it says on the screen."""

import json
import os
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from xcal._files import write_whole
from xcal.calibration.bins import N_BINS
from xcal.cli import run_folder
from xcal.cli.run_folder import FitSettings, write_config
from xcal.cli.training import (
    Judged,
    Part,
    Parts,
    Trained,
    collected_warnings,
    judge,
    known_clusters,
    name_of,
    read_parts,
    summary_values,
    train,
)
from xcal.cli.understanding import NO_KIND, Column
from xcal.estimators import load
from xcal.metrics.inputs import ends, reached, rounded_time
from xcal.training.result import EpochReport, Progress
from xcal.training.rows import launched
from xcal.validation.result import AuditValue
from xcal.validation.words import as_plain, broken, label, shown

# --- What a run says on the screen.


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


def understood_in_words(parts: Parts, settings: FitSettings) -> str:
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


def about_to_train_in_words(settings: FitSettings) -> str:
    """Return what is trained."""
    weights = sorted(settings.lambdas)
    what = f"for each weight of the calibration penalty (lambda {_weights(weights)})"
    if settings.path != "always" and weights[1:]:
        what = f"without calibration penalty (lambda {weights[0]:g}; {_weights(weights[1:])} only if it is off)"
        if weights[0]:
            what = f"with a calibration penalty of {weights[0]:g} ({_weights(weights[1:])} only if it is off)"
    return (
        f"\nTraining a model ({settings.distribution}) {what}, "
        f"{settings.seeds} seed{'s' * (settings.seeds > 1)} each, at most "
        f"{settings.epochs} epoch{'s' * (settings.epochs > 1)}. "
        "Ctrl-C keeps the best so far."
    )


def _weights(lambdas: Sequence[float]) -> str:
    return ", ".join(f"{lam:g}" for lam in lambdas)


def epochs_in_words(report: EpochReport) -> str:
    """Say how far training is."""
    stopped, of = np.count_nonzero(report.stopped), report.stopped.size
    return f"epoch {report.epoch} of at most {report.epochs}: {stopped} of {of} models have stopped"


def not_kept_in_words(folder: Path, error: OSError) -> str:
    """Print at once that what was trained could not be written."""
    alone = (folder / run_folder.UNFINISHED / run_folder.MODEL).is_file()
    what = "all models but the chosen one" if alone else "what was trained"
    why = os.strerror(error.errno) if error.errno else str(error)
    told = f"{why}: {what} could not be written to {folder / run_folder.UNFINISHED}"
    return "\n".join(["", *notes([f"{told}. Make room now: it is written once more when the reports are made"])])


def kept_in_words(folder: Path, *, finishes: bool) -> str:
    """Return what is left of a run whose reports were not made, and whether the same command finishes it."""
    where = folder / run_folder.UNFINISHED
    told = f"What was trained is kept in {where}: xcal.load({str(where)!r}) reads the chosen model."
    again = "finishes it without training again" if finishes else "trains again"
    return "\n".join(["", *wrapped(f"The run was not finished. {told} The same command {again}.")])


def trained_in_words(result: Trained) -> str:
    """Return what came out of training, on the validation rows."""
    lines = [] if not result.interrupted else ["Interrupted: what follows is from what was trained until then.", ""]
    found, selected, left = result.path.candidates_, result.path.selection_, result.path.untrained_
    rows = []
    for line in found[~found["lambda"].isin(left)].itertuples(index=False):
        values = line._asdict()
        name = f"{line[0]:g}" + (", recalibrated" if values["recalibrated"] else "")
        chosen = (line[0], values["recalibrated"]) == (selected.lam, selected.recalibrated)
        dcal = [f"{values[key]:.2g}" for key in ("dcal", "dcal_floor")]
        rows.append((name, *dcal, f"{values['concordance']:.4f}", f"{values['nll']:.4f}", "chosen" * chosen))
    lines += [f"On the validation rows (D-calibration in {result.path.calibration_bins} bins):"]
    lines += table(("lambda", "D-calibration", "of a perfect model", "concordance", "NLL", ""), rows, left=(0, 5))
    lines += ["", *wrapped(f"Chosen: {selected.reason}.")]
    if left:
        lines += wrapped(f"Not trained, as the choice did not need them: lambda {_weights(left)} (--path always).")
    return "\n".join([*lines, *notes(result.notes)])


def judged_in_words(result: Judged, chosen: Trained, name_of: Callable[[Any], str]) -> str:
    """Return what the held-out rows say."""
    measured = {chosen.name: summary_values(result.audit)}
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


def written_in_words(folder: Path) -> str:
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


# --- A whole run of ``xcal fit``: read, show, train, judge, write.


Say = Callable[[str], None]


# Says of what the models in the folder of an unfinished run are.
_TRAINING = "training.json"


def fit_run(settings: FitSettings, out: Path, *, say: Say, overwrite: bool, progress: Progress) -> dict[str, Any]:
    """Run everything, say what is done in words, and return the summary that was written."""
    run_folder.check_folder(out, overwrite=overwrite)
    with run_folder.sole_run(out):
        return _held_run(settings, out, say, progress)


def _held_run(settings: FitSettings, out: Path, say: Say, progress: Progress) -> dict[str, Any]:
    checkpoint = None
    try:
        parts = read_parts(settings)
        say(understood_in_words(parts, settings))
        asked, checkpoint = write_config(settings), run_folder.checkpoint(out, settings)
        # Processes that train together resume from the checkpoint: all of them ask for it.
        trained = None if launched() else _kept(out, asked)
        if trained is None:
            say(about_to_train_in_words(settings))
            trained = train(parts, settings, progress, checkpoint)
            is_new = True
        else:
            kept = out / run_folder.UNFINISHED
            say(f"\nThe same command has trained these models before: they are read from {kept}.")
            is_new = False
    except KeyboardInterrupt as interrupt:
        resumes = "" if checkpoint is None else " and resumes from its last checkpoint"
        raise KeyboardInterrupt(
            f"there is no model yet, and nothing was written. The same command starts again{resumes}"
        ) from interrupt
    with _told(out, trained, say):
        if is_new:
            _keep(out, asked, trained, say)
        say(trained_in_words(trained))
        say("\nMeasuring the chosen model on the held-out rows, and making the reports.")
        judged = judge(trained, parts, settings, False if progress is False else None)
        summary = _summary(settings, parts, trained, judged)
        # What the rows said of their dates, new rows are read by.
        _write(out, replace(settings, dates=parts.understanding.dates), parts.test, trained, judged, summary)
    if checkpoint is not None:
        shutil.rmtree(checkpoint, ignore_errors=True)
    _forget(out)
    say(judged_in_words(judged, trained, name_of))
    say(written_in_words(out))
    return summary


def _keep(out: Path, asked: str, trained: Trained, say: Say) -> None:
    """Keep what was trained until the run is written: an interrupt or a full disk must not cost the training.

    Where there is no room for everything, the chosen model stays if it fits, and what is lacking is said at once.
    """
    folder = out / run_folder.UNFINISHED
    try:
        _forget(out)
        folder.mkdir(exist_ok=True)
        trained.model.save(folder / run_folder.MODEL)
        trained.path.save(folder / run_folder.PATH)
        known = {"config": asked, "interrupted": trained.interrupted, "notes": trained.notes}
        write_whole(folder / _TRAINING, json.dumps(known).encode())
    except KeyboardInterrupt:  # it takes a moment, and hours were spent before
        _keep(out, asked, trained, say)
        raise
    except OSError as error:
        (folder / run_folder.PATH).unlink(missing_ok=True)
        say(not_kept_in_words(out, error))


def _forget(out: Path) -> None:
    """Remove what `_keep` has written, and nothing else that may stand there."""
    folder = out / run_folder.UNFINISHED
    with suppress(OSError):
        for name in (_TRAINING, run_folder.MODEL, run_folder.PATH):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _kept(out: Path, asked: str) -> Trained | None:
    """Read what the same command has trained to the end before; None if there is nothing."""
    folder = out / run_folder.UNFINISHED
    try:
        known = json.loads((folder / _TRAINING).read_text(encoding="utf-8"))
        if known["config"] != asked or known["interrupted"]:
            return None
        path = load(folder / run_folder.PATH)
        return Trained(path, path.select(), False, tuple(known["notes"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # not there, or damaged: it is trained again
        return None


@contextmanager
def _told(out: Path, trained: Trained, say: Say) -> Iterator[None]:
    """Report what is kept if the reports are not made."""
    try:
        yield
    except BaseException:
        if (out / run_folder.UNFINISHED / run_folder.MODEL).is_file():
            again = not trained.interrupted and (out / run_folder.UNFINISHED / _TRAINING).is_file()
            say(kept_in_words(out, finishes=again))
        raise


def take_part(settings: FitSettings, out: Path) -> None:
    """Train together with the first process of a run on several ones, which says and writes everything."""
    train(read_parts(settings), settings, progress=False, checkpoint=run_folder.checkpoint(out, settings))


def _summary(settings: FitSettings, parts: Parts, trained: Trained, judged: Judged) -> dict[str, Any]:
    """Everything that a program may want to know of a run."""
    selection, verdict = trained.path.selection_, judged.audit.verdict
    plain = name_of(trained.path.model(min(trained.path.frontier_["lambda"])))
    test = {trained.name: summary_values(judged.audit)} | ({} if judged.plain is None else {plain: judged.plain})
    return {
        "data": settings.data,
        "rows": {
            "train": _counts(parts.train, settings.min_cell),
            "validation": None if parts.validation is None else _counts(parts.validation, settings.min_cell),
            "test": _counts(parts.test, settings.min_cell),
        },
        "columns": [asdict(column) for column in parts.understanding.columns],
        "chosen": {
            "name": trained.name,
            "lambda": selection.lam,
            "recalibrated": selection.recalibrated,
            "reason": selection.reason,
        },
        "interrupted": trained.interrupted,
        "candidates": json.loads(trained.path.candidates_.to_json(orient="records")),
        "test": test,
        "by_cause": {name: summary_values(one) for name, one in judged.audit.by_cause.items()},
        "verdict": {"level": verdict.level, "headline": verdict.headline},
        "horizons": list(judged.audit.horizons),
        "last_time": rounded_time(float(trained.model.fitted_.outputs.grid[-1])),
        "notes": [*parts.understanding.notes, *trained.notes, *judged.notes],
    }


def _table_page(trained: Trained) -> str:
    """Return a page with the candidates of a path and its choice."""
    table = trained.path.candidates_.to_html(index=False, border=0, float_format="{:.3g}".format)
    said = f"<h1>What calibration costs</h1><p>Chosen: {escape(trained.path.selection_.reason)}.</p>{table}"
    head = '<meta charset="utf-8"><title>What calibration costs</title>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{said}</body></html>\n'


def _counts(part: Part, min_cell: int) -> dict[str, Any]:
    time = part.y["time"]
    median = float(np.median(time))
    return {
        "rows": part.n,
        "events": part.n_events,
        "median_time": median if min_cell < 2 else rounded_time(median),
        "last_time": reached(time, min_cell),
    }


def _write(
    out: Path, settings: FitSettings, test: Part, trained: Trained, judged: Judged, summary: dict[str, Any]
) -> None:
    with run_folder.new_run(out) as folder:
        trained.model.save(folder / run_folder.MODEL)
        trained.path.save(folder / run_folder.PATH)
        trained.path.candidates_.to_csv(folder / run_folder.FRONTIER_TABLE, index=False)
        if settings.entry is None and settings.lower is None:
            with collected_warnings():  # about these rows, and said with the audit
                trained.path.report(
                    *(folder / run_folder.FRONTIER_PAGE, test.X, test.y),
                    horizons=judged.audit.horizons,
                    time_unit=settings.time_unit,
                    clusters=known_clusters(test),
                    min_cell=settings.min_cell,
                    train=False,
                )
        else:  # its pictures are of rows of which all is known: the table alone
            write_whole(folder / run_folder.FRONTIER_PAGE, _table_page(trained).encode())
        judged.audit.report(folder / run_folder.AUDIT_PAGE)
        judged.audit.to_json(folder / run_folder.AUDIT_NUMBERS)
        text = json.dumps(as_plain(summary), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(folder / run_folder.SUMMARY, text.encode())
        write_whole(folder / run_folder.CONFIG, write_config(settings).encode())
