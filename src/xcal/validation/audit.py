"""`xcal.audit`: everything that can be said about a survival model on rows that it was not trained on."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from xcal._checks import MIN_CELL, FloatArray, as_choice, as_number, as_numpy, as_row, fail
from xcal.calibration.histogram import cumulative_hazard
from xcal.data.features import loaded_features
from xcal.data.surv import Outcome, clock
from xcal.data.survival import SurvivalData, check_nothing_beside
from xcal.interop import ModelPredictions, Rows, read_model
from xcal.interop.predictions import check_predictions
from xcal.interop.reading import is_plain, read_cdf, read_curves, read_risk
from xcal.metrics import times as horizon_times
from xcal.metrics.curves import Interpolation, at_own_time
from xcal.metrics.inputs import Vector, as_min_cell
from xcal.training.result import shape_of_bar
from xcal.validation import sample as checks
from xcal.validation.measure import measure
from xcal.validation.methods import write_methods
from xcal.validation.result import AuditResult, Measurements
from xcal.validation.rows import FEWEST_POINTS, few_points, since
from xcal.validation.sample import Censoring, Landmark, LastSeen, Sample, read_covariates
from xcal.validation.study import Study, read_study
from xcal.validation.summary import Training, same_censoring, summarise_data
from xcal.validation.table_one import TableOne, of_audit
from xcal.validation.verdict import judge

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
        pair (time, event).
    survival, cdf, risk
        Predictions in place of a model, one of them: survival curves (an array of shape (rows, times) with `times`, a
        data frame with times as column names or as index, or a list of functions), F at each row's observed time, or
        the risk at one time with ``horizons=`` that time. Curves may come with F: between a few times they do not tell
        it.
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
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2.0, 500)
    >>> y = (rng.exponential(1 / rate), np.full(500, True))
    >>> times = np.array([0.25, 0.5, 1.0, 2.0])
    >>> result = audit(survival=np.exp(-rate[:, None] * times), times=times, y=y, horizons=1.0, n_bootstrap=0)
    >>> found = result.value("oe", horizon=1.0)  # the curves are true
    >>> found.lower < 1 < found.upper
    True
    """
    X, y = _unpacked(X, y)
    beside = checks.of_rows(
        model=model,
        survival=survival,
        cdf=cdf,
        risk=risk,
        groups=groups,
        sites=sites,
        covariates=covariates,
        clusters=clusters,
    )
    outcome = checks.read_outcome(y, X=X, beside=beside)
    checks.check_text("time_unit", time_unit)
    about = read_study(study)
    level = as_number("level", level, above=0, below=1)
    n_bootstrap, most_rows = checks.read_resamples(n_bootstrap, outcome.n)
    source = _Source(model, X, outcome, survival, cdf, risk, times, interpolation)
    found, at = _predictions(source, horizons)
    given = _few_times(found) if horizons is None and survival is not None else None
    if name is not None:
        checks.check_text("name", name)
        if not name:
            fail("name", "a name for the model", repr(name))
        found = replace(found, model=name)
    train_x, train_y = checks.read_training(training)
    trained_on = train_y
    own_weights = checks.read_weights(weights, X, y, outcome.n)
    if own_weights is not None and (outcome.entry is not None or outcome.lower is not None):
        fail("weights", f"None beside {'intervals' if outcome.entry is None else 'times of entry'}", "weights")
    if own_weights is not None and censoring == "covariates":
        fail("censoring", "'auto' or 'independent' with weights: no model of the censoring takes them", repr(censoring))
    # Patients of another place or time are followed in another way: weights by the training rows would bias the values.
    # Whether weighted rows are, the test does not tell.
    if any(one is not None and not (one.entry is None and one.lower is None) for one in (outcome, train_y)):
        train_y = None  # what is compared counts rows as observed from the start, with known times
    alike = train_y is not None and own_weights is None and same_censoring(train_y, outcome)
    known = train_y if alike else None
    risk_of_rows = None if found.survival is None else 1 - found.survival.mean(axis=1)
    columns, left_out, no_covariates = read_covariates(covariates, X, outcome, risk_of_rows)
    site, small_sites, of_sites = checks.read_sites(sites, X, outcome)
    labels = checks.read_groups(groups, X, outcome.n) | of_sites
    points = checks.read_landmarks(landmarks, outcome, labels)
    sample = Sample(
        outcome.time,
        outcome.event,
        found,
        at,
        checks.read_thresholds(thresholds),
        labels,
        None if known is None else known.time,
        None if known is None else known.event,
        columns,
        left_out,
        no_covariates,
        checks.read_clusters(clusters, X, outcome.n),
        own_weights,
        as_choice("last_seen", last_seen, get_args(LastSeen)),
        as_choice("censoring", censoring, get_args(Censoring)),
        as_min_cell(min_cell),
        () if given is None else tuple(float(t) for t in given if t not in at),
        site,
        small_sites,
        outcome.entry,
    )
    if points.size:
        chosen = horizons is None
        later = (_landmark(source, sample, float(s), known, chosen_horizons=chosen) for s in points)
        sample = replace(sample, landmarks=tuple(later))
    sample = replace(sample, lower=outcome.lower)
    with shown_progress(progress) as told:
        measured = measure(sample, level=level, n_bootstrap=n_bootstrap, most_rows=most_rows, seed=seed, progress=told)
    table = of_audit(X, covariates, outcome, train_x, trained_on, columns, own_weights, sample.min_cell)
    before = Training(X, train_x, train_y)
    return finish(sample, measured, before, time_unit, level, n_bootstrap, most_rows, seed, table, about)


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
) -> AuditResult:
    """Put the result together: what was measured, with the data, the verdict and the methods in words."""
    found = sample.predictions
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
        verdict=judge(found.model, measured, data, level=level, time_unit=time_unit),
        methods=write_methods(sample, measured, data, level, n_bootstrap, resampled_rows, time_unit),
        time_unit=time_unit,
        level=level,
        n_bootstrap=n_bootstrap,
        seed=seed,
        resampled_rows=resampled_rows,
        min_cell=sample.min_cell,
        landmarks=tuple(one.name for one in sample.landmarks if one.name in judged),
        table_one=table_one,
        study=study,
    )


def _unpacked(X: Any, y: Any) -> tuple[Any, Any]:
    """Take outcomes and features out of `SurvivalData`."""
    if not isinstance(X, SurvivalData):
        return X, y
    check_nothing_beside({"y": y})
    features = as_numpy("X", loaded_features(X.x))
    if not X.feature_names:
        return features, X
    import pandas as pd

    return pd.DataFrame(features, columns=list(X.feature_names), copy=False), X


@dataclass(frozen=True, eq=False)
class _Source:
    """Where predictions come from: a model, or what was given in its place."""

    model: Any
    X: Any
    outcome: Outcome
    survival: Any
    cdf: Any
    risk: Any
    times: Any
    interpolation: Interpolation | None

    @property
    def knows_every_time(self) -> bool:
        """Whether F can be asked for at any time of each row, and need not be read off curves."""
        return self.survival is None and self.model is not None and not is_plain(self.model)

    def curves(self, at: Vector) -> ModelPredictions:
        """Read curves that are exact at some times."""
        time, event, times = self.outcome.time, self.outcome.event, self.times
        if self.survival is None:
            if self.interpolation is not None:
                expected = "None for a model, which says itself how its curves are read"
                fail("interpolation", expected, self.interpolation)
            return read_model(self.model, self.X, time=time, event=event, times=times, horizons=at)
        rows = Rows(time, event, None if times is None else as_row("times", times).astype(np.float64), at)
        found = read_curves(self.survival, rows, times=times, interpolation=self.interpolation)
        if self.cdf is not None:
            exact = f"F at the observed times is as given, not read off the curves at {_size(found)} times."
            found = replace(found, cdf=read_cdf(self.cdf, rows).cdf, reading=(*found.reading, exact))
        return check_predictions(found, rows.n)

    def cdf_at(self, found: ModelPredictions, t: Vector) -> Vector:
        """Return F of each row at a time of its own: asked of the model if it knows every time, or off its curves."""
        exact = None
        if found.cdf is not None and self.knows_every_time:
            # No more of its curves is asked for than one column.
            asked: dict[str, Any] = {"time": t, "event": np.zeros(t.size), "times": [max(float(t.max()), _FIRST)]}
            exact = read_model(self.model, self.X, **asked).cdf
        if exact is None:
            assert found.survival is not None
            assert found.times is not None
            exact = 1 - at_own_time(found.survival, found.times, t, found.interpolation)
        return np.asarray(np.clip(exact, 0.0, 1.0))


# A time at which curves are asked for that are not needed.
_FIRST = float(np.finfo(np.float64).tiny)


def _predictions(source: _Source, horizons: Any) -> tuple[ModelPredictions, Vector]:
    """Read what is predicted about the rows, and choose or check the horizons."""
    outcome, cdf, risk, survival = source.outcome, source.cdf, source.risk, source.survival
    time, event = outcome.time, outcome.event
    in_part: dict[str, Any] = {"the times of entry": outcome.entry, "both ends of intervals": outcome.lower}
    for where, values in in_part.items():
        if values is not None and survival is None and source.model is None:
            name = "cdf" if risk is None else "risk"
            fail(name, f"a model or survival curves, which tell F at {where}", f"{name} alone")
    given = [value for value in (source.model, survival, risk) if value is not None]
    if not given and cdf is not None:
        given = [cdf]
    elif cdf is not None and survival is None:
        given.append(cdf)
    if len(given) != 1:
        got = "none" if not given else f"{len(given)} of them"
        fail("model, survival, cdf, risk", "one of them, or survival with cdf", got)
    asked = None if horizons is None else horizon_times.read_horizons(horizons, time)
    rows = Rows(time, event)
    if cdf is not None and survival is None:
        if asked is not None:
            fail("horizons", "None with cdf=, which says nothing about one time", horizons)
        return check_predictions(read_cdf(cdf, rows), rows.n), np.empty(0)
    if risk is not None:
        if asked is None or asked.size != 1:
            fail("horizons", "the one time at which risk= was predicted", horizons)
        return check_predictions(read_risk(risk, float(asked[0]), rows), rows.n), asked
    at = horizon_times.default_horizons(time, event, entry=outcome.entry) if asked is None else asked
    found = source.curves(at)
    end = np.inf if found.times is None else float(found.times[-1])
    if asked is None:
        # A few points of a curve are where somebody wanted to know the risk.
        points = None if survival is None else _few_times(found)
        at = horizon_times.default_horizons(time, event, end, points, outcome.entry)
    horizon_times.check_covered(at, end)
    for where, values in in_part.items():
        if values is None:
            continue
        asked_of = np.concatenate([values[values > 0], *([] if found.cdf is not None else [time])])
        if found.library == "none" and found.times is not None and few_points(found.times, asked_of):
            few = f"curves at {FEWEST_POINTS} times or more, or at all {where.removeprefix('the ')} and outcomes"
            fail("survival", f"{few}: F is read off them there", f"{found.times.size} times")
    if outcome.lower is not None:
        found = _between(found, outcome, source)
    if outcome.entry is not None:
        horizon_times.check_entered(at, outcome.entry)
        found = given_entry(found, outcome.entry, source.cdf_at(found, outcome.entry.astype(np.float64)))
    return found, at


def _between(found: ModelPredictions, outcome: Outcome, source: _Source) -> ModelPredictions:
    """Add F at the lower ends of intervals, and their likelihood, which needs a density for known times alone."""
    assert outcome.lower is not None
    upper = source.cdf_at(found, outcome.time.astype(np.float64)) if found.cdf is None else found.cdf
    lower = np.minimum(source.cdf_at(found, outcome.lower.astype(np.float64)), upper)
    inside = outcome.event & (outcome.lower < outcome.time)
    with np.errstate(divide="ignore"):  # an event where the model puts no mass has an infinite loss
        between = np.where(inside, -np.log(upper - lower), cumulative_hazard(upper))
    exact, loss = outcome.event & ~inside, found.nll
    if not exact.any():
        loss = between
    elif loss is not None:
        loss = np.where(exact, loss, between)
    given = "Of an event between two times the model says the difference of F there, which is also its likelihood."
    return replace(found, cdf_lower=lower, nll=loss, reading=(*found.reading, given))


def given_entry(found: ModelPredictions, entry: FloatArray, at_entry: Vector) -> ModelPredictions:
    """Add F at the times of entry, and the likelihood given entry."""
    at_entry = np.where(entry > 0, at_entry, 0.0)
    if found.cdf is not None:
        at_entry = np.minimum(at_entry, found.cdf)  # equal but for rounding, where time and entry are close
    loss = None if found.nll is None else found.nll - cumulative_hazard(at_entry)
    given = "Rows count from their time of entry on: what is predicted for them is divided by S at their entry."
    return replace(found, cdf_entry=at_entry, nll=loss, reading=(*found.reading, given))


def _landmark(
    source: _Source, sample: Sample, s: float, training: Outcome | None, *, chosen_horizons: bool
) -> Landmark:
    """Return the rows that have come to a time, with what is predicted of them from there on.

    Horizons that were chosen for all rows are those of the landmark as far as enough rows are under observation.
    """
    if source.model is None and source.survival is None:
        fail("landmarks", "None with risks or F alone, which say nothing of other times", f"{s:g}")
    members = source.outcome.time > s
    later, found = source.outcome.after(s, members), sample.predictions.take(members)
    if s > 0:
        found = source.curves(np.array([s + h for h in sample.horizons]))
        assert found.survival is not None
        assert found.times is not None
        if s >= found.times[-1]:
            return Landmark(s, None, f"the model's curves end at {found.times[-1]:g}", members)
        if found.library == "none" and few_points(found.times, np.array([s])):
            few = f"one of the times of the curves, or curves at {FEWEST_POINTS} times or more"
            fail("landmarks", f"{few}: S is read off them there", f"{s:g}")
        reached = source.cdf_at(found, np.full(members.size, s))
        late = np.zeros(members.size)
        if later.entry is not None and source.outcome.entry is not None:
            late = since(source.cdf_at(found, source.outcome.entry.astype(np.float64)), reached)
        found = _from_there(found, s, reached).take(members)
        if later.entry is not None:
            found = given_entry(found, later.entry, late[members])
    known = None if training is None else training.after(s, training.time > s)
    own = sample.later(later, found, members, known)
    if chosen_horizons:
        supported = sample.horizons <= horizon_times.supported_until(later.time, later.event, later.entry)
        own = replace(own, horizons=sample.horizons[supported], not_judged=tuple(sample.horizons[~supported]))
    return Landmark(s, own, "", members)


def _from_there(found: ModelPredictions, s: float, reached: Vector) -> ModelPredictions:
    """Return predictions of rows that have come to a time, from there on; `reached` is F at the time."""
    assert found.survival is not None
    assert found.times is not None
    later = found.times > s
    # The order of the rows is that of their risks from the landmark on, not the model's own from the start.
    return replace(
        found,
        survival=1 - since(1 - found.survival[:, later], reached[:, None]),
        times=clock(found.times[later], s).astype(np.float64, copy=False),
        cdf=None if found.cdf is None else since(found.cdf, reached),
        nll=None if found.nll is None else found.nll - cumulative_hazard(reached),
        risk_score=None,
        end=None if found.end is None else found.end - s,
    )


def _few_times(found: ModelPredictions) -> Vector | None:
    """Return the times of curves that are given at a few; None where they are many."""
    return found.times[found.times > 0] if found.times is not None and _size(found) < FEWEST_POINTS else None


def _size(found: ModelPredictions) -> int:
    return 0 if found.times is None else int(found.times.size)
