"""A path trained on the rows of a run, and what it says about rows that it has not seen."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from xcal.cli.workflow.parts import Part, Parts
from xcal.cli.workflow.settings import FitSettings
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.training.progress import Progress
from xcal.validation import AuditResult, audit

# Values that the summary shows of a model, by their names in an audit.
FIGURES = ("harrell", "ibs", "d_calibration", "d_calibration_floor", "d_calibration_p")

# Concordance above which a column that knows the outcome is likelier than a model that good.
TOO_GOOD = 0.95


@dataclass(frozen=True, eq=False)
class Trained:
    """A fitted path, the model that it chose, and whether training was cut short."""

    path: SurvivalPath
    model: SurvivalModel
    interrupted: bool
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name the chosen model: its weight, and whether it is recalibrated."""
        return name_of(self.model)


@dataclass(frozen=True, eq=False)
class Judged:
    """Audit of the chosen model on rows that no model saw, and the figures of lambda 0 there if that is another."""

    audit: AuditResult
    plain: dict[str, float] | None
    notes: tuple[str, ...]


def _which(model: SurvivalModel) -> tuple[float, bool]:
    """Return which model of a path it is: its weight, and whether it is recalibrated."""
    return float(model.xcal_lambda), model.fitted_.recalibration is not None


def name_of(model: SurvivalModel) -> str:
    """Name a model of a path."""
    lam, recalibrated = _which(model)
    return f"lambda {lam:g}" + (", recalibrated" if recalibrated else "")


def train(parts: Parts, settings: FitSettings, progress: Progress, checkpoint: Path | None = None) -> Trained:
    """Fit a path and let it choose; an interrupt after the first epoch keeps the best weights so far.

    The state of training is kept in the folder `checkpoint`, if there is one.
    """
    path = SurvivalPath(
        settings.lambdas,
        settings.seeds,
        distribution=settings.distribution,
        epochs=settings.epochs,
        encode="auto",
        random_state=settings.seed,
        distributed="auto",
        progress=progress,
    )
    held = None if parts.validation is None else (parts.validation.X, parts.validation.y)
    clusters = None if parts.validation is None else known_clusters(parts.validation)
    interrupted = False
    with collected_warnings() as notes:
        try:
            path.fit(
                *(parts.train.X, parts.train.y),
                validation_data=held,
                validation_clusters=clusters,
                checkpoint=checkpoint,
            )
        except KeyboardInterrupt:
            if not hasattr(path, "frontier_"):
                raise
            interrupted = True
    # A bar, and other processes, are for the one who trains, not for the one who loads the model.
    path.progress = path.distributed = None
    return Trained(path, path.select(), interrupted, tuple(notes))


def known_clusters(part: Part) -> Any:
    """Return the clusters of rows; None where all rows are of one, from which nobody can tell noise from error."""
    return None if part.clusters is None or np.unique(part.clusters).size < 2 else part.clusters


def judge(trained: Trained, parts: Parts, settings: FitSettings, progress: bool | None) -> Judged:
    """Audit the chosen model on the held-out rows, and measure lambda 0 beside it."""
    with collected_warnings() as notes:
        test = parts.test
        result = audit_of(trained.model, test, settings, progress, training=parts.train)
        plain = trained.path.model(min(trained.path.frontier_["lambda"]))
        others = None
        if _which(plain) != _which(trained.model):
            # The horizons do not matter to these figures; those of the report are known to be good. Clusters and
            # training rows do: floor, test and censoring weights of two models side by side are the same.
            at = replace(settings, horizons=result.horizons, resamples=0, by=())
            others = figures(audit_of(plain, replace(test, labels=None), at, False, training=parts.train))
    return Judged(result, others, (*notes, *_too_good(result)))


def _too_good(result: AuditResult) -> Iterator[str]:
    """Doubt an order of the rows that hardly anything known at the start gives."""
    known = figures(result).get("harrell", 0.0)
    if known > TOO_GOOD:
        yield (
            f"concordance {known:.3f} is rarely reached by what is known at the start: look for columns that were "
            "filled in later, and leave them out (--drop)"
        )


def audit_of(
    model: SurvivalModel,
    part: Part,
    settings: FitSettings,
    progress: bool | None,
    *,
    training: Part | None = None,
) -> AuditResult:
    """Audit a model on some rows by the settings of a run; rows of one group are a cluster."""
    clusters = known_clusters(part)
    if settings.group is not None and clusters is None:
        got = "no such column" if part.clusters is None else "one value of it"
        warnings.warn(
            f"these rows have {got}, {settings.group!r} (--group): intervals and tests take them for independent",
            stacklevel=2,
        )
    return audit(
        model,
        part.X,
        part.y,
        horizons=settings.horizons,
        groups=part.labels,
        covariates=part.covariates,
        clusters=clusters,
        training=None if training is None else (training.X, training.y),
        n_bootstrap="auto" if settings.resamples is None else settings.resamples,
        min_cell=settings.min_cell,
        seed=settings.seed,
        time_unit=settings.time_unit,
        name=f"xcal {model.distribution} ({name_of(model)})",
        progress=progress,
    )


def figures(result: AuditResult) -> dict[str, float]:
    """Return the few numbers of an audit that a summary shows."""
    known = {value.metric: value.value for value in result if value.horizon is None and value.group is None}
    return {name: known[name] for name in FIGURES if name in known}


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Gather warnings as sentences, each once, to be shown in their place."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield told
        finally:
            told += dict.fromkeys(str(one.message) for one in caught if _for_people(one))


def _for_people(one: Any) -> bool:
    return not issubclass(one.category, DeprecationWarning | PendingDeprecationWarning | FutureWarning)
