"""Rows of an audit in the order of their times, with what is read off the model's predictions, and groups of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from xcal._checks import MIN_CELL, BoolArray, FloatArray, effective_units
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier, sortable_time, stable_sort
from xcal.calibration.bins import Clusters
from xcal.calibration.dcalibration import are_coarse, unit_starts, within_interval
from xcal.calibration.histogram import cumulative_hazard
from xcal.data.surv import Outcome
from xcal.metrics.censoring import CensoringModel
from xcal.metrics.curves import Interpolation, at_own_time, at_point
from xcal.metrics.inputs import Vector, is_small, told
from xcal.metrics.predictions import restricted_mean
from xcal.metrics.pseudo_values import HazardsSeen
from xcal.validation.result import Skipped
from xcal.validation.sample import MIN_EVENTS, Sample

Indices = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

# Times of survival curves from which F is read off between them.
FEWEST_POINTS = 10
_BELOW_ONE = float(np.nextafter(1.0, 0.0))

# Parts of its last interval during which a censored row may have been seen, by the option `last_seen` of `audit`.
_SEEN = {"exact": (1.0,), "end": (1.0,), "middle": (0.5,), "unknown": (1.0, 0.5)}


@dataclass(frozen=True, eq=False)
class Rows:
    """Outcomes and predictions of rows in time order, events before censored rows of the same time.

    Attributes
    ----------
    order : array of shape (n,)
        Where each row stood in the sample: what is given in the sample's order is brought into this one by it.
    time, event : arrays of shape (n,)
        Outcomes, sorted.
    survival, times, interpolation
        The model's curves, or None.
    risk : mapping of float to array of shape (n,)
        Predicted probability of an event by each horizon that the predictions reach.
    score : array of shape (n,), or None
        Larger for a later event: minus the risk by which the model itself orders rows, the restricted mean of the
        curve of a model that has none, or minus the risk of the one horizon.
    cdf, cdf_event : arrays of shape (n,), or None
        F at the observed time; where there are curves, rows past their end count as censored there. Where times are
        coarse (`seen`), an event's F is drawn evenly from the interval that its time stands for.
    seen : tuple of float
        Part of its last interval during which a censored row may have been observed. (1.0,) where times are exact;
        (1.0, 0.5) where they are in whole months, say, and nobody knows.
    cdfs : tuple of arrays of shape (n,)
        F for each of `seen`; the first is `cdf`. Empty where there is none.
    nll : array of shape (n,), or None
        Negative log-likelihoods.
    censoring : KaplanMeier or None
        Of the training rows; None to estimate it from these.
    no_cdf : str
        Why there is no F at the observed times, where there is none.
    censoring_model : CensoringModel or None
        Of these rows, where censoring depends on what is known of them: values at horizons are then corrected by it.
    clusters : Clusters or None
        Rows that depend on each other; None if all rows are independent.
    weights : array of shape (n,), or None
        Sampling weights in effective units; None if all are equal.
    min_cell : int
        Rows of a cell that is shown.
    entry, cdf_entry : arrays of shape (n,), or None
        Time from which each row was under observation, and F there; None if all were from 0 on. `risk` is then that of
        a row that has come to its entry, 0 for one that enters later, and so is `nll`. `cdf` is as it was predicted.
    lower, cdf_lower : arrays of shape (n,), or None
        Where events lie in intervals, the lower end of each, and F there; `time` and `cdf` are those of the upper end.
    """

    order: Indices
    time: FloatArray
    event: BoolArray
    survival: FloatArray | None
    times: Vector | None
    interpolation: Interpolation
    risk: Mapping[float, Vector]
    score: Vector | None
    cdf: FloatArray | None
    cdf_event: BoolArray
    nll: Vector | None
    censoring: KaplanMeier | None
    clusters: Clusters | None = None
    weights: Vector | None = None
    seen: tuple[float, ...] = (1.0,)
    cdfs: tuple[FloatArray, ...] = ()
    censoring_model: CensoringModel | None = None
    no_cdf: str = "it needs F at the observed times"
    min_cell: int = MIN_CELL
    entry: FloatArray | None = None
    cdf_entry: FloatArray | None = None
    lower: FloatArray | None = None
    cdf_lower: FloatArray | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.time.size

    @property
    def outcome(self) -> Outcome:
        """Times, events, times of entry and lower ends of intervals."""
        return Outcome(self.time, self.event, entry=self.entry, lower=self.lower)

    @property
    def by_values(self) -> bool:
        """Whether what happened by a horizon is known by pseudo-values alone, and not by Kaplan-Meier."""
        return self.censoring_model is not None or self.lower is not None

    @property
    def seen_in_part(self) -> str:
        """Why what takes rows as observed from the start, with known times, has no meaning; "" if it has."""
        if self.lower is not None:
            return "it needs times of events that are known, and these lie in intervals"
        return "" if self.entry is None else "it takes rows as observed from the start, and these have times of entry"

    @property
    def hazards(self) -> HazardsSeen:
        """What is known of the events, as cumulative hazards since entry."""
        assert self.cdf_lower is not None
        lower = self.cdf_lower if self.cdf_entry is None else since(self.cdf_lower, self.cdf_entry)
        upper = np.where(self.cdf_event, cumulative_hazard(self.cdfs_since_entry[0]), np.inf)
        return HazardsSeen(np.minimum(cumulative_hazard(lower), upper), upper)

    @property
    def cdfs_since_entry(self) -> tuple[FloatArray, ...]:
        """`cdfs` of rows that have come to their entry: the probability of an event between it and the last time."""
        if self.cdf_entry is None:
            return self.cdfs
        return tuple(since(cdf, self.cdf_entry) for cdf in self.cdfs)

    def entered_by(self, horizon: float) -> "Rows":
        """Return the rows that came under observation before a horizon: the others say nothing about it."""
        if self.entry is None:
            return self
        before = self.entry < horizon
        return self if before.all() else self.take(before)

    def take(self, chosen: BoolArray) -> "Rows":
        """Keep some of the rows, in the same order; `order` then counts within them."""
        places = np.full(self.n, -1, dtype=np.int64)
        own = np.sort(self.order[chosen])
        places[own] = np.arange(own.size)
        return replace(
            self,
            order=places[self.order[chosen]],
            time=self.time[chosen],
            event=self.event[chosen],
            cdf_event=self.cdf_event[chosen],
            survival=None if self.survival is None else self.survival[chosen],
            score=None if self.score is None else self.score[chosen],
            cdf=None if self.cdf is None else self.cdf[chosen],
            nll=None if self.nll is None else self.nll[chosen],
            risk={horizon: risk[chosen] for horizon, risk in self.risk.items()},
            cdfs=tuple(cdf[chosen] for cdf in self.cdfs),
            clusters=None if self.clusters is None else self.clusters.of_rows(chosen),
            weights=None if self.weights is None else effective_units(self.weights[chosen]),
            entry=None if self.entry is None else self.entry[chosen],
            cdf_entry=None if self.cdf_entry is None else self.cdf_entry[chosen],
            lower=None if self.lower is None else self.lower[chosen],
            cdf_lower=None if self.cdf_lower is None else self.cdf_lower[chosen],
            censoring_model=None if self.censoring_model is None else self.censoring_model.take(chosen),
        )


def read_rows(sample: Sample) -> tuple[Rows, tuple[Skipped, ...]]:
    """Sort the rows, read the predictions, and say which horizons they do not reach and why."""
    p = sample.predictions
    _, order = stable_sort(sortable_time(sample.time, sample.event))
    time, event = sample.time[order], sample.event[order]
    survival = None if p.survival is None else p.survival[order]
    entry = None if sample.entry is None else sample.entry[order]
    at_entry = None if p.cdf_entry is None else p.cdf_entry[order]
    risk, skipped = _risks(sample, survival, order, entry, at_entry)
    seen, cdfs, cdf_event = _observed_cdf(sample, survival, order, time, event)
    if at_entry is not None:  # later on F is no smaller, but for rounding
        at_entry = np.minimum.reduce([at_entry, *cdfs])
    score: Vector | None = None
    if p.risk_score is not None:
        score = -p.risk_score[order].astype(np.float64, copy=False)
    elif survival is not None and p.times is not None:
        score = restricted_mean(survival, p.times, p.interpolation).astype(np.float64, copy=False)
    elif p.risk is not None:
        score = -p.risk[order].astype(np.float64, copy=False)
    censoring = None
    if sample.training_time is not None and sample.training_event is not None:
        censoring = fit_kaplan_meier(sample.training_time, sample.training_event, "censoring")
    rows = Rows(
        order=order,
        time=time,
        event=event,
        survival=survival,
        times=p.times,
        interpolation=p.interpolation,
        risk=risk,
        score=score,
        cdf=cdfs[0] if cdfs else None,
        cdf_event=cdf_event,
        nll=None if p.nll is None else p.nll[order].astype(np.float64, copy=False),
        censoring=censoring,
        clusters=None if sample.clusters is None else sample.clusters.of_rows(order),
        weights=None if sample.weights is None else sample.weights[order],
        seen=seen,
        cdfs=cdfs,
        min_cell=sample.min_cell,
        entry=entry,
        cdf_entry=at_entry,
        lower=None if sample.lower is None else sample.lower[order],
        cdf_lower=None if p.cdf_lower is None else np.minimum(p.cdf_lower[order], cdfs[0]),
    )
    if not cdfs and p.times is not None:
        why = f"{rows.no_cdf}, which curves at {p.times.size} times do not tell; give it by cdf="
        rows = replace(rows, no_cdf=why)
    return rows, skipped


def since(later: FloatArray, earlier: FloatArray) -> Vector:
    """Return the probability of an event between two times, given none by the earlier, from F at both."""
    left = np.maximum(1 - earlier.astype(np.float64), np.finfo(np.float64).tiny)
    return np.clip(1 - (1 - later.astype(np.float64)) / left, 0.0, 1.0)


def _risks(
    sample: Sample,
    survival: FloatArray | None,
    order: Indices,
    entry: FloatArray | None,
    at_entry: FloatArray | None,
) -> tuple[dict[float, Vector], tuple[Skipped, ...]]:
    p, risk, skipped = sample.predictions, {}, []
    for horizon in map(float, sample.horizons):
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
    sample: Sample, survival: FloatArray | None, order: Indices, time: FloatArray, event: BoolArray
) -> tuple[tuple[float, ...], tuple[FloatArray, ...], BoolArray]:
    """Return how long censored rows may have been seen in their last interval, F for each of these, and the events.

    Of a row past the end of the curves, they say that it outlasted their end: F is the one of the end, and the row
    counts as censored.
    """
    p, seen = sample.predictions, _parts_seen(sample)
    if p.cdf is None and survival is None:
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
    begun = past if sample.lower is None or p.times is None else past & (sample.lower[order] >= p.times[-1])
    happened = event & ~begun
    if survival is None or (seen == (1.0,) and sample.last_seen != "end"):
        return seen, (cdf,), happened
    # F at the start of the interval, which a curve read between its times must not put above that at its end.
    start = np.minimum(at(unit_starts(sample.time)[order]), cdf)
    if p.cdf_entry is not None:
        start = np.maximum(start, np.minimum(p.cdf_entry[order], cdf))
    drawn = within_interval(cdf, start, happened, seed=0)
    middle = -np.expm1((np.log1p(-np.minimum(start, _BELOW_ONE)) + np.log1p(-np.minimum(cdf, _BELOW_ONE))) / 2)
    middle = np.clip(middle, start, cdf)
    versions = {1.0: drawn, 0.5: np.where(happened | past, drawn, middle)}
    return seen, tuple(versions[part] for part in seen), happened


def few_points(times: Vector, time: FloatArray) -> bool:
    """Return whether plain curves have so few points that F between them is anybody's guess.

    Not where every observed time is one of theirs, or past the last of them. A model says itself what lies between.
    """
    return times.size < FEWEST_POINTS and not np.isin(time[time <= times[-1]], times).all()


def _parts_seen(sample: Sample) -> tuple[float, ...]:
    """Return the part of its last interval during which a censored row was observed, or may have been."""
    if sample.lower is not None:
        return (1.0,)
    if sample.last_seen in _SEEN:
        return _SEEN[sample.last_seen]
    return (1.0, 0.5) if are_coarse(sample.time, sample.event) else (1.0,)


# --- The groups of an audit: which rows, and which are large enough to judge.


# Fewer clusters say next to nothing, of which whole ones are drawn.
MIN_CLUSTERS = 10


@dataclass(frozen=True, eq=False)
class Subgroup:
    """One group: its variable and label, its name "variable = label", which rows belong to it, and these rows."""

    variable: str
    label: str
    name: str
    members: BoolArray
    rows: Rows


def subgroups(sample: Sample, rows: Rows) -> tuple[list[Subgroup], list[Skipped]]:
    """Find the groups to judge, and the names of those that are too small with what is lacking.

    The name of a group of very few rows may itself be that of a person: such groups are counted, and not named.
    """
    judged, skipped, unnamed = [], [], 0
    for variable, label, name, own in rows_of_groups(sample, rows):
        if is_small(int(np.count_nonzero(own)), sample.min_cell):
            unnamed += 1
            continue
        members = rows.take(own)
        if why := too_few_to_judge(members, sample.min_cell):
            skipped.append(Skipped("group", why, group=name))
        else:
            judged.append(Subgroup(variable, label, name, own, members))
    if unnamed:
        groups = f"{unnamed} group{'' if unnamed == 1 else 's'} of fewer than {sample.min_cell} rows"
        why = "so few rows could be one person: neither names nor numbers are shown (min_cell=0 or --min-cell 0 does)"
        skipped.append(Skipped("group", why, group=groups))
    return judged, skipped


def too_few_to_judge(rows: Rows, min_cell: int) -> str:
    """Return why some rows are too few to be judged; "" if they are not."""
    n, n_events = rows.n, int(np.count_nonzero(rows.event))
    if n_events < MIN_EVENTS:
        known = min_cell < 2 or (n_events > 0 and told(n_events, n, min_cell) is not None)
        events = f"{n_events} event{'' if n_events == 1 else 's'}" if known else f"fewer than {MIN_EVENTS} events"
        return f"{events} in {n:,} rows: too few to judge, at least {MIN_EVENTS} are needed"
    if rows.clusters is not None and rows.clusters.count < MIN_CLUSTERS:
        return f"{rows.clusters.count} clusters of rows: too few to judge, at least {MIN_CLUSTERS} are needed"
    return ""


def rows_of_groups(sample: Sample, rows: Rows) -> Iterator[tuple[str, str, str, BoolArray]]:
    """Return variable, label, name and rows of every group, whatever its size."""
    for variable, labels in sample.groups.items():
        of_row = labels[rows.order]
        for label in np.unique(of_row):
            yield variable, str(label), f"{variable} = {label}", of_row == label
