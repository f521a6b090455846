"""`xcal.audit`: everything that can be said about a survival model on rows that it was not trained on."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_args

from xcal._checks import MIN_CELL, as_choice, as_number, fail
from xcal.metrics.inputs import Interpolation, as_min_cell
from xcal.training.result import shape_of_bar
from xcal.validation import arguments as checks
from xcal.validation.arguments import Censoring, LastSeen
from xcal.validation.measure import measure
from xcal.validation.methods import write_methods
from xcal.validation.result import AuditResult, Measurements
from xcal.validation.sample import (
    Sample,
    Source,
    few_times,
    landmark,
    people_of,
    read_predictions,
    samples_of,
)
from xcal.validation.study import Study, read_study
from xcal.validation.summary import Training, same_censoring, summarise_data
from xcal.validation.table_one import TableOne, of_audit
from xcal.validation.verdict import judge, of_all_causes

# --- What is shown while an audit resamples.

Report = Callable[[int, int], None]
Progress = bool | Report | None
_EXPECTED = "True, False, None or a function of (done, total)"


@contextmanager
def shown_progress(progress: Progress, what: str = "rows") -> Iterator[Report | None]:
    """Yield a function of (done, total), or None for silence.

    True shows a bar, False does not, None shows one if the standard error is a terminal.
    """
    if callable(progress):
        _check_arguments(progress)
        yield progress
        return
    if progress is False:
        yield None
        return
    if progress is not None and progress is not True:
        fail("progress", _EXPECTED, repr(progress))
    from tqdm import tqdm

    # disable=None: off unless the standard error is a terminal.
    shown: dict[str, Any] = {"disable": None if progress is None else False, "leave": False, **shape_of_bar()}
    with tqdm(desc="resampling", unit=f" {what}", unit_scale=True, **shown) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _check_arguments(progress: Report) -> None:
    """Refuse a function that does not take two numbers, before anything is computed."""
    try:
        signature = inspect.signature(progress)
    except (TypeError, ValueError):  # some functions of C do not say what they take
        return
    try:
        signature.bind(0, 0)
    except TypeError:
        fail("progress", _EXPECTED, f"{progress!r}, which takes {signature}")


# --- The audit.


def audit(
    model: Any = None,
    X: Any = None,
    y: Any = None,
    *,
    survival: Any = None,
    cif: Any = None,
    cdf: Any = None,
    risk: Any = None,
    times: Any = None,
    interpolation: Interpolation | None = None,
    horizons: Any = None,
    groups: Any = None,
    sites: Any = None,
    covariates: Any = None,
    clusters: Any = None,
    weights: Any = None,
    training: Any = None,
    cause: Any = None,
    thresholds: Any = None,
    landmarks: Any = None,
    censoring: Censoring = "auto",
    last_seen: LastSeen = "auto",
    min_cell: int = MIN_CELL,
    n_bootstrap: int | str = "auto",
    level: float = 0.95,
    seed: int = 0,
    time_unit: str = "",
    name: str | None = None,
    study: Any = None,
    progress: Progress = None,
) -> AuditResult:
    """Validate a survival model of any library, or its predictions, on rows that it was not trained on.

    Parameters
    ----------
    model
        A fitted model of lifelines, scikit-survival, pycox, XGBoost (AFT), hazardous or xcal, a torchsurv network
        inside `xcal.interop.TorchsurvWeibull` or `TorchsurvCox`, anything with `predict_survival_function`
        (`xcal.interop.supported` lists them), or survival curves as in `survival`.
    X
        Features of the rows, as the model takes them. With plain predictions only for `groups` and `covariates`.
        `SurvivalData` brings its own `y`.
    y
        Outcomes: `xcal.Surv`, a structured array as in scikit-survival, a data frame with columns time and event, or a
        pair (time, event). Of events of several causes, ``Surv(time=, cause=)``: each cause is then judged with the
        others as competing, beside all events, if the predictions say of which cause an event will be. Several rows of
        one `id` are those of a person whose covariates change: hazards are summed along them, and people are counted,
        drawn and judged. Groups and covariates are then those of the first row.
    survival, cif, cdf, risk
        Predictions in place of a model, one of them: survival curves (an array of shape (rows, times) with `times`, a
        data frame with times as column names or as index, or a list of functions), the incidence of each cause (an
        array of shape (rows, causes, times), or a mapping of causes to curves), F at each row's observed time, or the
        risk at one time with ``horizons=`` that time. Curves may come with F: between a few times they do not tell
        it. Of several rows of one `id`, `cdf` is the probability of the event between entry and time of each row.
    times : array-like, optional
        Times of the columns of `survival`; for a model, times at which its curves are kept.
    interpolation : {"linear", "previous"}, optional
        How plain curves are read between two times; "linear", and "previous" for step functions.
    horizons : number or array-like, optional
        Times at which risks are judged. By default about the quartiles of the event times; of curves at fewer than ten
        times, these.
    groups : optional
        Names of columns of X, a mapping of names to labels, a data frame, or one array of labels. A row without a label
        belongs to the group "missing".
    sites : optional
        Name of a column of X, or one label per row: hospitals, regions, studies. They are judged as groups, with AUC
        and Brier score too; values are averaged over sites by random effects, with how much the sites differ and the
        interval in which a new site is expected. Sites with fewer than 10 events are put together.
    covariates : optional
        What the rows are asked about in "for whom?", calibration given the covariates
        (`xcal.conditional_calibration`): a table, a mapping of names to values, or names of columns of X. By default
        all columns of X, of more than 50 those that go most with the predicted risk. Columns that cannot be used are
        named in the result.
    clusters : optional
        Name of a column of X, or one label per row: rows with the same label, those of one patient for instance, may
        depend on each other. Resamples then draw whole clusters, floor and test of D-calibration count clusters, and
        values that cannot are left out with the reason: one-calibration and "for whom?". Labels that are all different
        change nothing.
    weights : optional
        Name of a column of X, or one positive number per row: sampling weights, the inverse of the probability that the
        row was sampled, which may depend on its outcome (case-cohort studies, surveys). Only their ratios matter, and
        equal ones change nothing. Values are those of the whole from which the rows were sampled. Errors, floors and
        tests are design-based: a row is one observation whatever its weight. What cannot take weights is left out with
        the reason. `SurvivalData` brings its own.
    training : optional
        The rows the model was trained on: outcomes, or a pair (X, y). The result says where the two sets of rows
        differ. The censoring curve is then theirs, unless the audited rows are censored at other times.
    cause : str or int, optional
        Name or number of the one cause to judge, where events have several. Survival curves, or a risk, that say of no
        cause which it is are then read as those of this one.
    thresholds : array-like, optional
        Risks at which somebody might act, for the decision curve; by default .01 to .99.
    landmarks : number or array-like, optional
        Times at which those who have come so far are judged again, such as ``[365, 730]``: the rows still without the
        event then, with their risks from there on, S(s + t) / S(s). Horizons count from the landmark. Their values
        stand among those of groups, as "landmark = 365". Rows that came under observation later count from their entry.
    censoring : {"auto", "independent", "covariates"}
        "auto" tests whether censoring before the last horizon depends on the predicted risks or on the covariates, and
        if so corrects everything at horizons by a Cox model of the censoring; the result says so, with the values that
        were not corrected. "independent" never corrects, as in published guidelines; "covariates" always does.
    last_seen : {"auto", "exact", "end", "middle", "unknown"}
        For times in whole units, such as months: whether a row that was censored in month 7 was observed through all
        of it ("end") or half of it ("middle"). If that is not known ("unknown"), intervals of O/E, slope and ICI hold
        both cases, and tests give the larger p-value. "auto" takes coarse times for unknown, and others for exact.
    min_cell : int
        Rows below which nothing is told of a group, a bin of a histogram or the end of follow-up: so few could be one
        person. Such cells are merged with their neighbours, groups without their names, on the page, in the JSON and on
        the screen. Values and verdict are those of all rows. 0 shows everything.
    n_bootstrap : int or "auto"
        Resamples behind the intervals of discrimination and overall error, which the verdict does not read; calibration
        at horizons has intervals by formula. The model is not refitted. "auto" is 1,000 up to 10,000 rows and fewer up
        to 50,000. Beyond, it is 200 of a random part of 10,000 rows, with intervals scaled to all rows.
    level : float
        Coverage of the intervals.
    seed : int
        Of the resamples.
    time_unit : str
        Unit of the times, such as "months", for words and labels.
    name : str, optional
        Name of the model in the report, by default its class.
    study : optional
        What only the authors know (source of the data, eligibility, funding, ...), for the report and its checklists: a
        TOML file, which `xcal audit --new-study` writes to be filled in, or a table of its keys.
    progress : bool or callable, optional
        True shows a bar, False does not, None shows one on a terminal; a function is called with (done, total).

    Returns
    -------
    AuditResult
        Print it, or call ``.report("audit.html")``, ``.to_frame()``, ``.to_json()``, ``.plot("calibration")``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2.0, 500)
    >>> y = (rng.exponential(1 / rate), np.full(500, True))
    >>> times = np.array([0.25, 0.5, 1.0, 2.0])
    >>> result = audit(survival=np.exp(-rate[:, None] * times), times=times, y=y, horizons=1.0, n_bootstrap=0)
    >>> found = result.value("oe", horizon=1.0)  # the curves are true
    >>> found.lower < 1 < found.upper
    True
    """
    X, y = checks.unpacked(X, y)
    beside = checks.of_rows(
        model=model,
        survival=survival,
        cif=cif,
        cdf=cdf,
        risk=risk,
        groups=groups,
        sites=sites,
        covariates=covariates,
        clusters=clusters,
    )
    outcome = checks.read_outcome(y, X=X, beside=beside, people=True)
    checks.check_text("time_unit", time_unit)
    about = read_study(study)
    level = as_number("level", level, above=0, below=1)
    n_bootstrap, most_rows = checks.read_resamples(n_bootstrap, outcome.n)
    source = Source(model, X, outcome, survival, cif, cdf, risk, times, interpolation)
    found, at = read_predictions(source, horizons)
    causes = checks.read_causes(cause, outcome, found)
    given = few_times(found) if horizons is None and survival is not None and outcome.id is None else None
    found = replace(found, model=checks.read_name(name, found.model))
    train_x, train_y = checks.read_training(training)
    trained_on = train_y
    checks.check_same_causes(outcome, train_y)
    own_weights = checks.read_weights(weights, X, y, outcome.n)
    if own_weights is not None and (outcome.entry is not None or outcome.lower is not None):
        fail("weights", f"None beside {'intervals' if outcome.entry is None else 'times of entry'}", "weights")
    if own_weights is not None and censoring == "covariates":
        fail("censoring", "'auto' or 'independent' with weights: no model of the censoring takes them", repr(censoring))
    stretches, asked_seen = None, as_choice("last_seen", last_seen, get_args(LastSeen))
    if outcome.id is not None:
        people, found, stretches = people_of(source, found, asked_seen, as_min_cell(min_cell))
        outcome = people.outcome
        X, groups, sites, covariates, clusters = checks.first_rows(
            people, X=X, groups=groups, sites=sites, covariates=covariates, clusters=clusters
        )
    # Patients of another place or time are followed in another way: weights by the training rows would bias the values.
    # Whether weighted rows are, the test does not tell.
    if any(one is not None and not (one.entry is None and one.lower is None) for one in (outcome, train_y)):
        train_y = None  # what is compared counts rows as observed from the start, with known times
    alike = train_y is not None and own_weights is None and same_censoring(train_y, outcome)
    known = train_y if alike else None
    risk_of_rows = None if found.survival is None else 1 - found.survival.mean(axis=1)
    columns, left_out, no_covariates = checks.read_covariates(covariates, X, outcome, risk_of_rows)
    site, small_sites, of_sites = checks.read_sites(sites, X, outcome)
    labels = checks.read_groups(groups, X, outcome.n) | of_sites
    points = checks.read_landmarks(landmarks, source.outcome, labels, causes)
    of_rows: dict[str, Any] = {
        "covariates": columns,
        "clusters": checks.read_clusters(clusters, X, outcome.n),
        "weights": own_weights,
    }
    asked: dict[str, Any] = {
        "thresholds": checks.read_thresholds(thresholds),
        "left_out": left_out,
        "no_covariates": no_covariates,
        "last_seen": asked_seen,
        "censoring": as_choice("censoring", censoring, get_args(Censoring)),
        "min_cell": as_min_cell(min_cell),
    }
    chosen = horizons is None
    of_groups: dict[str, Any] = {"groups": labels, "site": site, "small_sites": small_sites, "training": known}
    of_groups["not_judged"] = () if given is None else tuple(float(t) for t in given if t not in at)
    come = (landmark(source, float(s), found, at, known, of_rows, asked, chosen_horizons=chosen) for s in points)
    whole: dict[str, Any] = {"landmarks": tuple(come), "stretches": stretches}
    samples = samples_of(outcome, found, at, causes, {**of_rows, **of_groups, **asked}, whole)
    drawn: dict[str, Any] = {"level": level, "n_bootstrap": n_bootstrap, "most_rows": most_rows, "seed": seed}
    table = of_audit(X, covariates, outcome, train_x, trained_on, columns, own_weights, asked["min_cell"])
    return _measured(samples, Training(X, train_x, train_y), time_unit, progress, table, about, **drawn)


def _measured(
    samples: Sequence[Sample],
    training: Training,
    time_unit: str,
    progress: Progress,
    table: TableOne,
    about: Study | None,
    *,
    level: float,
    n_bootstrap: int,
    most_rows: int | None,
    seed: int,
) -> AuditResult:
    """Measure the samples, and return the result of the first, with those of the others by their causes."""
    with shown_progress(progress) as told:
        drawn: dict[str, Any] = {"level": level, "n_bootstrap": n_bootstrap, "most_rows": most_rows, "seed": seed}
        parts = [measure(one, **drawn, progress=_part_of(told, k, len(samples))) for k, one in enumerate(samples)]
    # One answer for all causes: tests are corrected for those of the others, too.
    parts = [replace(one, n_families=one.n_families * len(parts)) for one in parts]
    each = {one.cause: part for one, part in zip(samples, parts, strict=True)}
    first, *others = (
        finish(one, part, training, time_unit, level, n_bootstrap, most_rows, seed, None if k else table, about, each)
        for k, (one, part) in enumerate(zip(samples, parts, strict=True))
    )
    by_cause = {one.cause: one for one in others}
    return replace(first, by_cause=by_cause, verdict=of_all_causes(first.verdict, by_cause))


def _part_of(told: Report | None, k: int, n: int) -> Report | None:
    """Return what tells the progress of part k of n."""
    return None if told is None else lambda done, total: told(k * total + done, n * total)


def finish(
    sample: Sample,
    measured: Measurements,
    training: Training,
    time_unit: str,
    level: float,
    n_bootstrap: int,
    resampled_rows: int | None,
    seed: int,
    table_one: TableOne | None = None,
    study: Study | None = None,
    each: Mapping[str, Measurements] = MappingProxyType({}),
) -> AuditResult:
    """Put the result together: what was measured, with the data, the verdict and the methods in words.

    `each` are the measurements by cause, with those of all events by "", where events have several causes.
    """
    found = sample.predictions
    together = each.get("", measured) if sample.cause else None
    causes = {} if sample.cause else {name: own for name, own in each.items() if name}
    data = summarise_data(sample, training, measured)
    judged = tuple(dict.fromkeys(value.group for value in measured.values if value.group is not None))
    return AuditResult(
        model=found.model,
        library=found.library,
        reading=found.reading,
        horizons=tuple(float(t) for t in sample.horizons),
        groups=judged,
        measured=measured,
        data=data,
        verdict=judge(found.model, measured, data, level=level, time_unit=time_unit, together=together),
        methods=write_methods(sample, measured, data, level, n_bootstrap, resampled_rows, time_unit, causes),
        time_unit=time_unit,
        level=level,
        n_bootstrap=n_bootstrap,
        seed=seed,
        resampled_rows=resampled_rows,
        min_cell=sample.rows.min_cell,
        landmarks=tuple(one.name for one in sample.landmarks if one.name in judged),
        table_one=table_one,
        study=study,
        cause=sample.cause,
    )
