"""The rows of an audit: outcomes with what a model says of them, read at their observed times and at horizons."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xcal._checks import MIN_CELL, BoolArray, FloatArray, as_row, effective_units, fail, first_row
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration.bins import Clusters
from xcal.calibration.dcalibration import are_coarse, unit_starts, within_interval
from xcal.calibration.histogram import cumulative_hazard
from xcal.calibration.subgroups import Column
from xcal.data.surv import Outcome, clock
from xcal.interop import ModelPredictions, read_model
from xcal.interop import Rows as AskedRows
from xcal.interop.predictions import check_predictions, named_as
from xcal.interop.reading import is_plain, read_cdf, read_curves, read_incidence, read_risk
from xcal.metrics.inputs import Integers, Interpolation, Vector, at_own_time, at_point, in_words, restricted_mean
from xcal.metrics.rows import NO_CDF, OF_CAUSE, People, Rows, Stretches, along_rows, since
from xcal.metrics.spec import Skipped
from xcal.validation.arguments import (
    LANDMARK,
    NO_COVARIATES,
    Censoring,
    Labels,
    LastSeen,
    check_covered,
    check_entered,
    check_unit,
    default_horizons,
    read_horizons,
    supported_until,
)

# Times of survival curves from which F is read off between them.
FEWEST_POINTS = 10
_BELOW_ONE = float(np.nextafter(1.0, 0.0))

# Parts of its last interval during which a censored row may have been seen, by the option `last_seen` of `audit`.
_SEEN = {"exact": (1.0,), "end": (1.0,), "middle": (0.5,), "unknown": (1.0, 0.5)}


@dataclass(frozen=True, eq=False)
class Sample:
    """Checked rows of an audit, and what is asked about them; what there is of each row is in the order of `rows`."""

    rows: Rows
    predictions: ModelPredictions  # as they were read, in the order of the rows that were given
    cause: str  # the cause whose events are asked about, others competing; "" where all events are
    horizons: Vector  # increasing times at which the values of one time are computed, all within the follow-up
    thresholds: Vector  # risks at which somebody might act, for the decision curve
    groups: Mapping[str, Labels]  # for each variable, such as "sex", the group of each row
    covariates: tuple[Column, ...]  # what calibration is asked about given the covariates ("for whom?")
    left_out: tuple[tuple[str, str], ...]  # covariates that cannot be used, each with the reason
    no_covariates: str  # why there are no covariates; "" if there are
    last_seen: LastSeen  # how coarse times are treated, and censoring that depends on covariates; see `xcal.audit`
    censoring: Censoring
    unreached: tuple[Skipped, ...]  # horizons that the predictions do not reach
    not_judged: tuple[float, ...]  # times with predicted risks that too few rows reach to be horizons unless asked for
    site: str  # which of the groups are sites, over which values are averaged
    small_sites: str  # the label of those that have too few events to be judged alone; "" if there are none
    landmarks: tuple["Landmark", ...]  # times that some rows have come to, with these rows from there on


def sample_of(
    outcome: Outcome,
    predictions: ModelPredictions,
    horizons: Vector,
    *,
    thresholds: Vector | tuple[float, ...] = (),
    groups: Mapping[str, Labels] | None = None,
    training: Outcome | None = None,
    covariates: tuple[Column, ...] = (),
    left_out: tuple[tuple[str, str], ...] = (),
    no_covariates: str = NO_COVARIATES,
    clusters: Clusters | None = None,
    weights: Vector | None = None,
    last_seen: LastSeen = "auto",
    censoring: Censoring = "auto",
    min_cell: int = MIN_CELL,
    not_judged: tuple[float, ...] = (),
    site: str = "",
    small_sites: str = "",
    landmarks: tuple["Landmark", ...] = (),
    cause: str = "",
    event_free: FloatArray | None = None,
    stretches: Stretches | None = None,
) -> Sample:
    """Return checked rows in the order of their times, with the predictions read; see `Sample`.

    Of people whose covariates change, `stretches` are their rows, with the places of the people as they are given.
    `training` are the outcomes of the rows that the model was trained on, where the censoring curve is theirs.
    `weights` are in effective units, None if all are equal, and `clusters` None if all rows are independent. Of one
    cause, `event_free` is the probability of no event of any cause at the times of the curves.
    """
    p, order = predictions, outcome.order()
    own = outcome.take(order)
    survival = None if p.survival is None else p.survival[order]
    at_entry = None if p.cdf_entry is None else p.cdf_entry[order]
    risk, unreached = _risks(p, horizons, survival, order, own.entry, at_entry)
    if risk and clusters is None and all(part is None for part in (own.entry, own.lower, own.competing)):
        check_unit(max(risk), risk[max(risk)], own)
    seen, cdfs, cdf_event = _observed_cdf(p, last_seen, survival, order, own)
    if at_entry is not None:  # later on F is no smaller, but for rounding
        at_entry = np.minimum.reduce([at_entry, *cdfs])
    score: Vector | None = None  # by which the model itself orders rows; of one that does not, by its curves or risks
    if p.risk_score is not None:
        score = -p.risk_score[order].astype(np.float64, copy=False)
    elif survival is not None and p.times is not None:
        score = restricted_mean(survival, p.times, p.interpolation).astype(np.float64, copy=False)
    elif p.risk is not None:
        score = -p.risk[order].astype(np.float64, copy=False)
    if stretches is not None:
        stretches = replace(stretches, person=np.argsort(order)[stretches.person])
    no_cdf = NO_CDF if own.competing is None else OF_CAUSE
    if own.competing is None and not cdfs and p.times is not None:
        no_cdf = f"{NO_CDF}, which curves at {p.times.size} times do not tell; give it by cdf="
    rows = Rows(
        order=order,
        outcome=own,
        risk=risk,
        cdf_event=cdf_event,
        cdfs=cdfs,
        survival=survival,
        times=p.times,
        interpolation=p.interpolation,
        score=score,
        nll=None if p.nll is None else p.nll[order].astype(np.float64, copy=False),
        incidence=None if p.incidence is None or own.cause is None else p.incidence[order],
        event_free=None if event_free is None else event_free[order],
        cdf_entry=at_entry,
        cdf_lower=None if p.cdf_lower is None else np.minimum(p.cdf_lower[order], cdfs[0]),
        seen=seen,
        censoring=None if training is None else fit_kaplan_meier(training.time, training.event, "censoring"),
        clusters=None if clusters is None else clusters.of_rows(order),
        weights=None if weights is None else weights[order],
        min_cell=min_cell,
        no_cdf=no_cdf,
        stretches=stretches,
    )
    return Sample(
        rows=rows,
        predictions=predictions,
        cause=cause,
        horizons=horizons,
        thresholds=np.asarray(thresholds, dtype=np.float64),
        groups={variable: labels[order] for variable, labels in (groups or {}).items()},
        covariates=tuple(column.take(order) for column in covariates),
        left_out=left_out,
        no_covariates=no_covariates,
        last_seen=last_seen,
        censoring=censoring,
        unreached=unreached,
        not_judged=not_judged,
        site=site,
        small_sites=small_sites,
        landmarks=landmarks,
    )


def _risks(
    p: ModelPredictions,
    horizons: Vector,
    survival: FloatArray | None,
    order: Integers,
    entry: FloatArray | None,
    at_entry: FloatArray | None,
) -> tuple[dict[float, Vector], tuple[Skipped, ...]]:
    """Return the risks at every horizon that the predictions reach, and the others with the reason."""
    risk, skipped = {}, []
    for horizon in map(float, horizons):
        if survival is not None and p.times is not None:
            if horizon > p.times[-1]:
                skipped.append(Skipped("horizon", f"the model's curves end at {p.times[-1]:g}", horizon=horizon))
                continue
            # A survival curve given in float32 may leave [0, 1] by a rounding when it is interpolated.
            risk[horizon] = np.clip(1 - at_point(survival, p.times, horizon, p.interpolation), 0.0, 1.0)
            if entry is not None and at_entry is not None:
                risk[horizon] = np.where(entry < horizon, since(risk[horizon], at_entry), 0.0)
        elif p.risk is not None and p.risk_horizon == horizon:
            risk[horizon] = p.risk[order].astype(np.float64, copy=False)
        else:
            given = "F at the observed times" if p.risk is None else f"risks at {p.risk_horizon:g}"
            skipped.append(Skipped("horizon", f"the predictions are {given} only", horizon=horizon))
    return risk, tuple(skipped)


def _observed_cdf(
    p: ModelPredictions, last_seen: LastSeen, survival: FloatArray | None, order: Integers, own: Outcome
) -> tuple[tuple[float, ...], tuple[FloatArray, ...], BoolArray]:
    """Return how long censored rows may have been seen in their last interval, F for each of these, and the events.

    Of a row past the end of the curves, they say that it outlasted their end: F is the one of the end, and the row
    counts as censored. Where times are coarse, an event's F is drawn evenly from the interval that its time stands for.
    """
    time, event, seen = own.time, own.event, _parts_seen(last_seen, own)
    if own.competing is not None or (p.cdf is None and survival is None):
        return seen, (), event
    if p.cdf is None and p.library == "none" and p.times is not None and few_points(p.times, time):
        return seen, (), event
    past = np.full(time.size, False) if p.times is None else time > p.times[-1]

    def at(t: FloatArray) -> Vector:
        assert survival is not None
        assert p.times is not None
        return np.clip(1 - at_own_time(survival, p.times, t, p.interpolation), 0.0, 1.0)

    cdf = at(time) if p.cdf is None else p.cdf[order] if survival is None else np.where(past, at(time), p.cdf[order])
    # Of an event that may have come before the end of the curves, all of it did as far as they say.
    begun = past if own.lower is None or p.times is None else past & (own.lower >= p.times[-1])
    happened = event & ~begun
    if survival is None or (seen == (1.0,) and last_seen != "end"):
        return seen, (cdf,), happened
    # F at the start of the interval, which a curve read between its times must not put above that at its end.
    start = np.minimum(at(unit_starts(time)), cdf)
    if p.cdf_entry is not None:
        start = np.maximum(start, np.minimum(p.cdf_entry[order], cdf))
    drawn = within_interval(cdf, start, happened, seed=0)
    middle = -np.expm1((np.log1p(-np.minimum(start, _BELOW_ONE)) + np.log1p(-np.minimum(cdf, _BELOW_ONE))) / 2)
    middle = np.clip(middle, start, cdf)
    versions = {1.0: drawn, 0.5: np.where(happened | past, drawn, middle)}
    return seen, tuple(versions[part] for part in seen), happened


def _parts_seen(last_seen: LastSeen, own: Outcome) -> tuple[float, ...]:
    """Return the part of its last interval during which a censored row was observed, or may have been."""
    if own.lower is not None:
        return (1.0,)
    if last_seen in _SEEN:
        return _SEEN[last_seen]
    return (1.0, 0.5) if are_coarse(own.time, own.ended) else (1.0,)


def few_points(times: Vector, time: FloatArray) -> bool:
    """Return whether plain curves have so few points that F between them is anybody's guess.

    Not where every observed time is one of theirs, or past the last of them. A model says itself what lies between.
    """
    return times.size < FEWEST_POINTS and not np.isin(time[time <= times[-1]], times).all()


@dataclass(frozen=True, eq=False)
class Landmark:
    """Rows that have come to a time without the event: what happened to them later, and what is predicted from there.

    Times, horizons and predictions count from the landmark. Rows that came under observation after it are among them,
    from their entry on.
    """

    at: float
    sample: Sample | None  # None where nothing can be said of them
    why: str = ""  # the reason, there

    @property
    def name(self) -> str:
        """Name under which its values stand among those of groups."""
        return group_name(LANDMARK, f"{self.at:g}")


def group_name(variable: str, label: str) -> str:
    """Return the name of a group, "variable = label": no two have the same, as the first such sign parts them.

    Examples
    --------
    >>> group_name("sex", "f"), group_name("a", "b = c"), group_name("a = b", "c")
    ('sex = f', 'a = b = c', "'a = b' = c")
    """
    plain = " = " not in variable and not variable.startswith(("'", '"'))
    return f"{variable if plain else repr(variable)} = {label}"


# --- Predictions of rows, and of those who have come to a landmark.


@dataclass(frozen=True, eq=False)
class Source:
    """Where predictions come from: a model, or what was given in its place."""

    model: Any
    X: Any
    outcome: Outcome
    survival: Any
    cif: Any
    cdf: Any
    risk: Any
    times: Any
    interpolation: Interpolation | None

    @property
    def knows_every_time(self) -> bool:
        """Whether F can be asked for at any time of each row, and need not be read off curves."""
        return self.model is not None and not is_plain(self.model)

    def curves(self, at: Vector) -> ModelPredictions:
        """Read curves that are exact at some times."""
        time, event, times, causes = self.outcome.time, self.outcome.event, self.times, self.outcome.causes
        if self.survival is None and self.cif is None:
            if self.interpolation is not None:
                expected = "None for a model, which says itself how its curves are read"
                fail("interpolation", expected, self.interpolation)
            entry = None if self.outcome.id is None else self.outcome.starts()
            given: dict[str, Any] = {"times": times, "horizons": at, "causes": causes, "entry": entry}
            found = read_model(self.model, self.X, time=time, event=event, **given)
            return named_as(found, causes) if causes else found
        rows = AskedRows(time, event, None if times is None else as_row("times", times).astype(np.float64), at, causes)
        if self.cif is not None:
            found = read_incidence(self.cif, rows, times=times, interpolation=self.interpolation)
            return check_predictions(named_as(found, causes) if causes else found, rows.n)
        found = read_curves(self.survival, rows, times=times, interpolation=self.interpolation)
        if self.cdf is not None:
            exact = f"F at the observed times is as given, not read off the curves at {size_of(found)} times."
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


# Survival at the entry of a row below which the hazard from there on is rounding.
_LEAST_LEFT = 1e-10
# A time at which curves are asked for that are not needed.
_FIRST = float(np.finfo(np.float64).tiny)


def read_predictions(source: Source, horizons: Any) -> tuple[ModelPredictions, Vector]:
    """Read what is predicted about the rows, and choose or check the horizons."""
    outcome, cdf, risk, survival = source.outcome, source.cdf, source.risk, source.survival
    time, event, several = outcome.time, outcome.event, outcome.id is not None
    if several:
        _check_people(source, horizons)
        horizons = None
    in_part: dict[str, Any] = {"the times of entry": outcome.entry, "both ends of intervals": outcome.lower}
    for where, values in in_part.items():
        if values is not None and survival is None and source.model is None and not several:
            name = "cdf" if risk is None else "risk"
            fail(name, f"a model or survival curves, which tell F at {where}", f"{name} alone")
    given = [value for value in (source.model, survival, source.cif, risk) if value is not None]
    if not given and cdf is not None:
        given = [cdf]
    elif cdf is not None and survival is None:
        given.append(cdf)
    if len(given) != 1:
        got = "none" if not given else f"{len(given)} of them"
        fail("model, survival, cif, cdf, risk", "one of them, or survival with cdf", got)
    asked = None if horizons is None else read_horizons(horizons, time)
    rows = AskedRows(time, event)
    if cdf is not None and survival is None:
        if asked is not None:
            fail("horizons", "None with cdf=, which says nothing about one time", horizons)
        return check_predictions(read_cdf(cdf, rows), rows.n), np.empty(0)
    if risk is not None:
        if asked is None or asked.size != 1:
            fail("horizons", "the one time at which risk= was predicted", horizons)
        return check_predictions(read_risk(risk, float(asked[0]), rows), rows.n), asked
    at = default_horizons(time, event, entry=outcome.entry) if asked is None else asked
    if several:
        at = np.empty(0)
    found = source.curves(at)
    end = np.inf if found.times is None else float(found.times[-1])
    if asked is None and not several:
        # A few points of a curve are where somebody wanted to know the risk.
        points = None if source.model is not None else few_times(found)
        at = default_horizons(time, event, end, points, outcome.entry)
    check_covered(at, end)
    for where, values in in_part.items():
        if values is None:
            continue
        asked_of = np.concatenate([values[values > 0], *([] if found.cdf is not None else [time])])
        if found.library == "none" and found.times is not None and few_points(found.times, asked_of):
            few = f"curves at {FEWEST_POINTS} times or more, or at all {where.removeprefix('the ')} and outcomes"
            fail("survival", f"{few} (xcal predict --times): F is read off them there", f"{found.times.size} times")
    if outcome.lower is not None:
        found = _between(found, outcome, source)
    if outcome.entry is not None and not several:
        check_entered(at, outcome.entry)
        found = given_entry(found, outcome.entry, source.cdf_at(found, outcome.entry.astype(np.float64)))
    return found, at


def of_one_cause(found: ModelPredictions, k: int, causes: tuple[str, ...]) -> ModelPredictions:
    """Return what is predicted of one cause alone, that with number k; `causes` are those of the rows.

    Curves and risks of an event that says of no cause are then those of this one.
    """
    name, sentences = causes[k - 1], found.reading
    if found.incidence is None:
        if found.cdf is not None and found.survival is None:
            fail("cause", "None with cdf=: F of one cause of several is spread evenly for no model", repr(name))
        survival = found.survival
        told = f"One less the probability of no event is read as the risk of {name}, which others may come before."
        sentences = (*sentences, told if found.risk is None else f"The risk is read as that of {name}.")
    elif name not in found.causes:
        fail("cause", f"a cause that the model knows: {', '.join(found.causes)}", repr(name))
    else:
        survival = 1 - found.incidence[:, found.causes.index(name)]
    return replace(
        found,
        model=f"{name} by {found.model}",
        survival=survival,
        cdf=None,
        nll=None,
        risk_score=None,
        incidence=None,
        causes=(),
        reading=sentences,
    )


def samples_of(
    outcome: Outcome,
    found: ModelPredictions,
    at: Vector,
    causes: tuple[int, ...],
    given: dict[str, Any],
    of_all: dict[str, Any],
) -> list[Sample]:
    """Return the sample of all events, then that of each cause with the others as competing; of one cause it alone.

    `given` are arguments of `sample_of`, and `of_all` those for all events.
    """
    free, names = None if found.incidence is None else found.survival, outcome.causes
    samples = [] if len(causes) == 1 else [sample_of(outcome, found, at, **given, **of_all)]
    for k in causes:
        own = of_one_cause(found, k, names)
        samples.append(sample_of(outcome.among(k), own, at, cause=names[k - 1], event_free=free, **given))
    return samples


def _between(found: ModelPredictions, outcome: Outcome, source: Source) -> ModelPredictions:
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


def _check_people(source: Source, horizons: Any) -> None:
    """Refuse what has no meaning for people whose covariates change."""
    beside = "beside several rows of one id: what happens by a time depends on covariates that are not known before"
    if horizons is not None and np.size(horizons):
        fail("horizons", f"None {beside}", horizons)
    for name, values in {"risk": source.risk, "cif": source.cif}.items():
        if values is not None:
            fail(name, f"None {beside}", "values")
    if source.cdf is not None and source.survival is not None:
        fail("cdf", "None beside survival curves of several rows of one id, which tell it", "F too")


def people_of(
    source: Source, found: ModelPredictions, last_seen: LastSeen, min_cell: int
) -> tuple[People, ModelPredictions, Stretches]:
    """Put the rows of people together: what happened to these, what is predicted of them, and their rows."""
    outcome = source.outcome
    hazard, loss = _along(source, found)
    people = along_rows(hazard, outcome)
    n, cdf = people.time.size, people.cdf
    if last_seen != "exact" and are_coarse(people.time, people.event):
        # An event came in the last unit of its row, within which the hazard is taken as constant.
        start = outcome.starts()[people.last]
        share = np.minimum(people.time - unit_starts(people.time), people.time - start) / (people.time - start)
        early = -np.expm1(-np.bincount(people.person, hazard) + share * hazard[people.last])
        cdf = within_interval(cdf, np.clip(early, 0.0, cdf), people.event, seed=0)
    few = in_words(people.n_gaps, min_cell)
    gaps = f" {few[0].upper()}{few[1:]} of them were out of sight between two rows." if people.n_gaps else ""
    reading = (
        f"{outcome.n:,} rows are those of {n:,} people, whose covariates change: the hazard of a person is summed "
        f"along the rows, and F at the observed time is 1 - exp(-sum).{gaps}",
    )
    told = found.reading
    if found.survival is None and found.hazard is None:
        told = ("The probability of the event along each row was given, and nothing else.",)
    rows = sample_of(replace(outcome, id=None), replace(found, cdf=None, nll=None, hazard=None), np.empty(0)).rows
    of_each = replace(
        found,
        n=n,
        survival=None,
        cdf=cdf,
        cdf_entry=np.zeros(n) if people.entry.any() else None,
        nll=None if loss is None else np.bincount(people.person, loss).astype(np.float64),
        risk_score=None,
        hazard=None,
        reading=(*told, *reading),
    )
    return people, of_each, Stretches(rows, people.person[rows.order])


def _along(source: Source, found: ModelPredictions) -> tuple[Vector, Vector | None]:
    """Return the cumulative hazard along each row, from its entry to its time, and its likelihood if there is one."""
    outcome = source.outcome
    if found.hazard is not None:
        return found.hazard, found.nll
    if found.survival is None:  # the probability of the event along each row was given
        assert found.cdf is not None
        return cumulative_hazard(found.cdf), None
    entry = outcome.starts().astype(np.float64)
    if found.cdf is not None and source.knows_every_time:
        left, least = 1 - np.where(entry > 0, source.cdf_at(found, entry), 0.0), _LEAST_LEFT
        lived = cumulative_hazard(found.cdf)
    else:
        assert found.times is not None
        least = 0.0
        left, later = (at_own_time(found.survival, found.times, t, found.interpolation) for t in (entry, outcome.time))
        with np.errstate(divide="ignore"):  # a row whose curve falls to 0 has lived through all of it
            lived = -np.log(later)
    if (gone := left <= least).any():
        row = first_row(gone)
        expected = "a survival above 0 at the entry of every row (hazards: xcal.interop.HazardFunction)"
        fail("model" if source.survival is None else "survival", expected, f"{left[row]:g}", row)
    before = -np.log(left)
    return np.maximum(lived - before, 0.0), None if found.nll is None else found.nll - before


def landmark(
    source: Source,
    s: float,
    predictions: ModelPredictions,
    horizons: Vector,
    training: Outcome | None,
    of_rows: Mapping[str, Any],
    asked: Mapping[str, Any],
    *,
    chosen_horizons: bool,
) -> Landmark:
    """Return the rows that have come to a time, with what is predicted of them from there on.

    `of_rows` is what else is known of all rows, and `asked` what is asked of any, by the arguments of `sample_of`.
    Horizons that were chosen for all rows are those of the landmark as far as enough rows are under observation.
    """
    if source.model is None and source.survival is None and source.cif is None:
        fail("landmarks", "None with risks or F alone, which say nothing of other times", f"{s:g}")
    members = source.outcome.time > s
    later, found = source.outcome.after(s, members), predictions.take(members)
    if s > 0:
        found = source.curves(np.array([s + h for h in horizons]))
        assert found.survival is not None
        assert found.times is not None
        if s >= found.times[-1]:
            return Landmark(s, None, f"the model's curves end at {found.times[-1]:g}")
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
    supported = np.full(horizons.size, True)
    if chosen_horizons:
        supported = horizons <= supported_until(later.time, later.event, later.entry)
    weights, clusters = of_rows["weights"], of_rows["clusters"]
    own = sample_of(
        later,
        found,
        horizons[supported],
        training=known,
        not_judged=tuple(horizons[~supported]),
        covariates=tuple(column.take(members) for column in of_rows["covariates"]),
        clusters=None if clusters is None else clusters.of_rows(members),
        weights=None if weights is None else effective_units(weights[members]),
        **asked,
    )
    return Landmark(s, own)


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
        incidence=None,
        causes=(),
        end=None if found.end is None else found.end - s,
    )


def few_times(found: ModelPredictions) -> Vector | None:
    """Return the times of curves that are given at a few; None where they are many."""
    return found.times[found.times > 0] if found.times is not None and size_of(found) < FEWEST_POINTS else None


def size_of(found: ModelPredictions) -> int:
    """Return at how many times the curves are given."""
    return 0 if found.times is None else int(found.times.size)
