"""A whole run of ``xcal fit``: read, show, train, judge, write."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from xcal._files import write_whole
from xcal.cli import run_folder, words
from xcal.cli.run_folder import FitSettings, write_config
from xcal.cli.training import (
    Judged,
    Part,
    Parts,
    Trained,
    collected_warnings,
    figures,
    judge,
    known_clusters,
    name_of,
    read_parts,
    train,
)
from xcal.estimators import load
from xcal.metrics.inputs import reached, rounded_time
from xcal.training.across import launched
from xcal.training.result import Progress

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
        say(words.understood(parts, settings))
        asked, checkpoint = write_config(settings), run_folder.checkpoint(out, settings)
        # Processes that train together resume from the checkpoint: all of them ask for it.
        trained = None if launched() else _kept(out, asked)
        if trained is None:
            say(words.about_to_train(settings))
            trained = train(parts, settings, progress, checkpoint)
            is_new = True
        else:
            say(words.found_trained(out))
            is_new = False
    except KeyboardInterrupt as interrupt:
        resumes = "" if checkpoint is None else " and resumes from its last checkpoint"
        raise KeyboardInterrupt(
            f"there is no model yet, and nothing was written. The same command starts again{resumes}"
        ) from interrupt
    with _told(out, trained, say):
        if is_new:
            _keep(out, asked, trained, say)
        say(words.trained(trained))
        say(words.about_to_judge())
        judged = judge(trained, parts, settings, False if progress is False else None)
        summary = _summary(settings, parts, trained, judged)
        # What the rows said of their dates, new rows are read by.
        _write(out, replace(settings, dates=parts.understanding.dates), parts.test, trained, judged, summary)
    if checkpoint is not None:
        shutil.rmtree(checkpoint, ignore_errors=True)
    _forget(out)
    say(words.judged(judged, trained, name_of))
    say(words.written(out))
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
        say(words.not_kept(out, error))


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
            say(words.kept(out, finishes=again))
        raise


def take_part(settings: FitSettings, out: Path) -> None:
    """Train together with the first process of a run on several ones, which says and writes everything."""
    train(read_parts(settings), settings, progress=False, checkpoint=run_folder.checkpoint(out, settings))


def _summary(settings: FitSettings, parts: Parts, trained: Trained, judged: Judged) -> dict[str, Any]:
    """Everything that a program may want to know of a run."""
    selection, verdict = trained.path.selection_, judged.audit.verdict
    plain = name_of(trained.path.model(min(trained.path.frontier_["lambda"])))
    test = {trained.name: figures(judged.audit)} | ({} if judged.plain is None else {plain: judged.plain})
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
        "verdict": {"level": verdict.level, "headline": verdict.headline},
        "horizons": list(judged.audit.horizons),
        "last_time": rounded_time(float(trained.model.fitted_.outputs.grid[-1])),
        "notes": [*parts.understanding.notes, *trained.notes, *judged.notes],
    }


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
        with collected_warnings():  # about these rows, and said with the audit
            trained.path.report(
                *(folder / run_folder.FRONTIER_PAGE, test.X, test.y),
                horizons=judged.audit.horizons,
                time_unit=settings.time_unit,
                clusters=known_clusters(test),
                min_cell=settings.min_cell,
            )
        judged.audit.report(folder / run_folder.AUDIT_PAGE)
        judged.audit.to_json(folder / run_folder.AUDIT_NUMBERS)
        text = json.dumps(as_json(summary), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(folder / run_folder.SUMMARY, text.encode())
        write_whole(folder / run_folder.CONFIG, write_config(settings).encode())


def as_json(value: Any) -> Any:
    """Make a value of what JSON has: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
