"""The values that a path is judged by, and the rules that choose by them; `decision` says of which rows they are.

First the values: of every network (`frontier`) and of every model that `SurvivalPath.select` may return
(`measured_table`), on the same rows. Then the rules, each of which needs such a table alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from xcal._checks import BoolArray, Floats, as_choice, as_number, fail
from xcal.calibration.bins import as_clusters, bin_edges, sum_of_squares
from xcal.calibration.conditional import ConditionalCalibration
from xcal.calibration.histogram import residuals
from xcal.calibration.significance import p_in_words
from xcal.calibration.subgroups import RandomFeatures, as_columns
from xcal.data.survival import SurvivalData
from xcal.distributions import SurvivalDistribution
from xcal.estimators.fitted import FittedModel, Own, PredictingModel
from xcal.estimators.settings import FEATURES
from xcal.objectives import nll
from xcal.recalibration.predictor import pairs_in_order


def dcal_influence(own: Own, rows: SurvivalData, n_bins: int) -> Floats:
    """First-order effect of each row on D-calibration, ``(n,)``: the spread of its mean is that of D-calibration.

    With a row's deviations d_j = (its share of bin j) - width, D-calibration is the sum over j of mean(d_j)^2; its
    derivative in the weight of a row is 2 sum mean(d_j) (d_j - mean(d_j)).
    """
    deviation = own.deviations(rows, n_bins)
    weights = np.ones(rows.n) if rows.weights is None else rows.weights / rows.weights.mean()
    mean = weights @ deviation / rows.n
    return np.asarray(2 * weights * ((deviation - mean) @ mean))


def weighted_mean(values: Floats, rows: SurvivalData) -> float:
    """Mean of one value per row, by the weights of the rows if they have some."""
    return float(values.mean() if rows.weights is None else np.average(values, weights=rows.weights))


def gap_error(values: Floats, base: Floats, groups: Any = None, weights: Floats | None = None) -> float:
    """Estimate the error, over the rows, of the difference between two means; 0 for a model and itself.

    Rows with the same label in `groups` may depend on each other; without it all are independent. With `weights` the
    means are weighted, and the error is that of their ratio of sums: design-based.

    All models see the same rows, and most of what makes a row's value large or small is common to all of them. The
    error of the difference is therefore far smaller than that of either value.
    """
    gap = values - base
    if weights is not None:
        own = weights * (gap - np.average(gap, weights=weights)) / weights.sum()
        return float(np.sqrt(sum_of_squares(own, None if groups is None else as_clusters(groups, gap.size))))
    if groups is None:
        return float(np.std(gap) / np.sqrt(base.size))
    return float(np.sqrt(sum_of_squares(gap - gap.mean(), as_clusters(groups, gap.size))) / gap.size)


# --- K of models on rows, calibration given the covariates, and its test.


DRAWS = 999  # random signs behind a p-value
# Rows that are read at a time, and that fix the scale of the columns.
_ROWS = 10_000


def conditional_values(cdf: Floats, x: Any, event: BoolArray, weights: Floats | None, n_bins: int) -> Floats:
    """Conditional calibration K of some models on the same rows, less what noise gives, (models,).

    The value of `xcal.conditional_calibration` for rows with weights, without its test. `cdf` is (models, n); features
    `x` in a file are read a piece at a time.
    """
    return _summed(cdf, x, event, weights, n_bins).values


class ConditionalJudgement(NamedTuple):
    """K of some models on the same rows less what noise gives, ``(models,)``.

    With the standard error of how far each is from the first, and the p-value of `xcal.conditional_calibration`.
    """

    values: Floats
    gap_errors: Floats
    p_values: Floats


def judge_conditional(
    cdf: Floats, x: Any, event: BoolArray, weights: Floats | None, n_bins: int
) -> ConditionalJudgement:
    """Measure and test K of some models; arguments as in `conditional_values`."""
    found = _summed(cdf, x, event, weights, n_bins)
    edges, weight = bin_edges(n_bins), np.ones(event.size) if weights is None else weights
    meters = [ConditionalCalibration(lambda h: h, edges, average_apart=True) for _ in cdf]
    influence, rng = np.empty(cdf.shape), np.random.default_rng(0)
    for part in _conditional_parts(event.size):
        w = weight[part]
        h = found.features(as_columns(np.asarray(x[part]), w.size))
        # Blocks of the test must not follow the order of the rows, which may be that of their times.
        order = rng.permutation(w.size)
        for k, u in enumerate(cdf[:, part]):
            influence[k, part] = 2 * w * ((h @ found.means[k]) * residuals(u, event[part], edges)).sum(axis=1)
            meters[k].update(u[order], event[part][order], h[order], w[order])
    errors = [gap_error(own, influence[0]) for own in influence * (event.size / weight.sum())]
    tests = [meter.compute(DRAWS, np.random.default_rng(0))[3] for meter in meters]
    return ConditionalJudgement(found.values, np.array(errors), np.array(tests, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class _Summed:
    """K of some models, (models,), the means of features times residuals behind it, and the features."""

    values: Floats
    means: Floats  # (models, M, B)
    features: RandomFeatures


def _summed(cdf: Floats, x: Any, event: BoolArray, weights: Floats | None, n_bins: int) -> _Summed:
    edges = bin_edges(n_bins)
    # The first rows fix the scale of the columns: those of a file are not read twice.
    features = FEATURES.draw(as_columns(np.asarray(x[:_ROWS]), min(_ROWS, event.size)))
    sums = np.zeros((cdf.shape[0], FEATURES.n_features, n_bins))
    own = np.zeros(cdf.shape[0])
    weight = np.ones(event.size) if weights is None else weights
    for part in _conditional_parts(event.size):
        w = weight[part]
        h = features(as_columns(np.asarray(x[part]), w.size))
        length = np.square(w) * np.square(h).sum(axis=1)
        for k, u in enumerate(cdf[:, part]):
            r = residuals(u, event[part], edges)
            sums[k] += h.T @ (w[:, None] * r)
            own[k] += length @ np.square(r).sum(axis=1)
    pairs = weight.sum() ** 2 - np.square(weight).sum()
    values = (np.square(sums).sum(axis=(1, 2)) - own) / pairs if pairs > 0 else np.full(own.size, np.nan)
    return _Summed(np.asarray(values), sums / weight.sum(), features)


def _conditional_parts(n: int) -> Iterator[slice]:
    return (slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS))


RULES = ("when_needed", "one_standard_error")
_MEASURES = ("nll", "dcal", "concordance")
# A model is off if a perfect one would look as bad in fewer than this share of samples.
_LEVEL = 0.05
# A larger weight must lower D-calibration by so many standard errors. Two and not one: its epoch was chosen on the same
# rows, partly for a low D-calibration.
_CLEAR = 2.0
# Numbers of a file that are read at a time.
_NUMBERS = 1 << 21
# With fewer validation events the test shows little: with 25 it finds hazards twice too high in six of ten samples,
# with 8 in two of ten.
FEWEST_EVENTS = 25

# --- Values of every network.


def frontier(models: Sequence[FittedModel], rows: SurvivalData, n_bins: int, *, one_group: bool) -> pd.DataFrame:
    """Values of every network on the validation rows, one line each; see `SurvivalPath.frontier_`."""
    losses = np.stack([_losses(model, rows) for model in models])
    owns = [model.own(rows) for model in models]
    frame = pd.DataFrame([_network_line(*parts, rows, n_bins) for parts in zip(models, losses, owns, strict=True)])
    frame["conditional"] = _conditional(owns, rows, n_bins)
    # With a target each seed has found its own weight: all seeds together are the one answer.
    groups = np.zeros(len(frame)) if one_group else frame["lambda"].to_numpy()
    finished = np.isfinite(frame["nll"].to_numpy())
    by_row = _means_by_group(losses, groups, finished)
    lowest = min(by_row, key=lambda group: weighted_mean(by_row[group], rows))
    frame["nll_gap_se"] = _gap_errors(by_row, groups, lowest, rows, rows.weights)
    influence = _means_by_group(np.stack([dcal_influence(own, rows, n_bins) for own in owns]), groups, finished)
    frame["dcal_gap_se"] = _gap_errors(influence, groups, min(influence), rows)
    for name in _MEASURES:
        frame[f"{name}_sd"] = frame.groupby(groups)[name].transform("std")
    return frame


def _losses(model: FittedModel, rows: SurvivalData) -> Floats:
    """Negative log-likelihood of each row."""
    # Rows in a file are not read all at once.
    parts = rows.batches(rows.n if isinstance(rows.x, np.ndarray) else max(1, _NUMBERS // rows.x.shape[1]))
    return np.concatenate([_nll(model.distribution(part.x), part) for part in parts])


def _nll(law: SurvivalDistribution, rows: SurvivalData) -> Floats:
    """Negative log-likelihood of what is known of each row."""
    time, happened = torch.from_numpy(rows.time), torch.from_numpy(rows.event if rows.cause is None else rows.cause)
    entry, lower = (None if own is None else torch.from_numpy(own) for own in (rows.entry, rows.lower))
    return np.asarray(nll(law, time, happened, entry=entry, lower=lower).numpy())


def _conditional(owns: Sequence[Own], rows: SurvivalData, n_bins: int) -> Floats:
    """K of some models; not known of rows that are seen in part, or have causes."""
    if not rows.plain:
        return np.full(len(owns), np.nan)
    return conditional_values(np.stack([own.cdf for own in owns]), rows.x, rows.event, rows.weights, n_bins)


def _network_line(model: FittedModel, losses: Floats, own: Own, rows: SurvivalData, n_bins: int) -> dict[str, Any]:
    finished = model.best_epoch >= 0
    tested, (concordant, comparable) = own.calibration(rows, n_bins), pairs(model, rows)
    return {
        "lambda": model.lam,
        "seed": model.seed,
        "nll": weighted_mean(losses, rows) if finished else np.nan,
        "dcal": float(model.history.dcal[model.best_epoch, 0]) if finished else np.nan,
        "dcal_floor": tested.floor,
        "dcal_p": tested.p_value,
        "concordance": concordant / comparable if comparable > 0 else np.nan,
        "total": float(model.history.total[model.best_epoch, 0]) if finished else np.nan,
        "best_epoch": model.best_epoch,
    }


def _means_by_group(values: Floats, groups: Floats, finished: BoolArray) -> dict[float, Floats]:
    """For each group with finished models, the mean over these of their values for each row."""
    known = np.unique(groups[finished])
    return {float(group): values[(groups == group) & finished].mean(0) for group in known}


def _gap_errors(
    by_row: dict[float, Floats], groups: Floats, reference: float, rows: SurvivalData, weights: Floats | None = None
) -> Floats:
    """Estimate the error, over the rows, of how far each line's group is from the reference; 0 for the reference."""
    errors = {group: gap_error(values, by_row[reference], rows.groups, weights) for group, values in by_row.items()}
    return np.array([errors.get(float(group), np.nan) for group in groups])


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds of each lambda, and the standard deviations."""
    groups = frame.groupby("lambda")
    means = groups[["nll", "nll_gap_se", "dcal", "dcal_gap_se", "dcal_floor", "conditional", "concordance"]].mean()
    spread = groups[[f"{name}_sd" for name in _MEASURES]].first()
    return means.join(groups["dcal_p"].agg(_common_p_value)).join(spread)


def _common_p_value(values: "pd.Series[float]") -> float:
    """One p-value for all seeds of a weight, valid whatever their dependence: Rüger's, of more than half of them.

    That k of K p-values are below p happens by chance with a probability of at most K p / k.
    """
    k = values.size // 2 + 1
    return float(np.minimum(1.0, values.size / k * np.sort(values.to_numpy())[k - 1]))


# --- Values of every model that may be chosen: the networks of a weight together, as they are or recalibrated.


@dataclass(frozen=True, eq=False)
class Measured:
    """One candidate on rows that its networks have not seen.

    `losses` and `own` are the negative log-likelihood of each row, and F at its observed time. Of the `comparable`
    pairs of rows `predict` puts the `concordant` in order (ties count one half); both rows of a pair are by one and
    the same model, as risks of two models are on scales of their own: between the rows of two folds their order tells
    nothing.
    """

    lam: float
    recalibrated: bool
    losses: Floats
    own: Own
    concordant: float
    comparable: float


def measured(lam: float, model: PredictingModel, rows: SurvivalData) -> Measured:
    """Measure a model, recalibrated or not."""
    return Measured(lam, model.recalibration is not None, *losses_and_own(model, rows), *pairs(model, rows))


def losses_and_own(model: PredictingModel, rows: SurvivalData) -> tuple[Floats, Own]:
    """Negative log-likelihood of each row, and F at its observed time."""
    law = model.distribution(rows.x)
    return _nll(law, rows), Own.of(law, rows)


def pairs(model: PredictingModel, rows: SurvivalData) -> tuple[float, float]:
    """Pairs in order, and pairs that can be compared; see `pairs_in_order`."""
    return pairs_in_order(rows.outcome, partial(model.risk, rows.x), rows.weights)


def joined(parts: Sequence[tuple[npt.NDArray[np.intp], Measured]]) -> Measured:
    """Put the values of parts together, each of which comes with the numbers of its rows; pairs are within parts."""
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    first = parts[0][1]
    losses = np.concatenate([part.losses for _, part in parts])[order]
    own = Own.joined([part.own for _, part in parts], order)
    concordant, comparable = (sum(getattr(part, name) for _, part in parts) for name in ("concordant", "comparable"))
    return Measured(first.lam, first.recalibrated, losses, own, concordant, comparable)


def measured_table(
    lines: Sequence[Measured], rows: SurvivalData, n_bins: int, *, conditional: bool = False
) -> pd.DataFrame:
    """One line for each candidate; errors are those of the distance to the first, the smallest weight as it is.

    With `conditional` the test of calibration given the covariates too, and the error of its value.
    """
    first = lines[0]
    base = dcal_influence(first.own, rows, n_bins)
    table = pd.DataFrame([_candidate_line(one, first, base, rows, n_bins) for one in lines])
    if not conditional:
        return table.assign(conditional=_conditional([one.own for one in lines], rows, n_bins))
    given = (np.stack([one.own.cdf for one in lines]), rows.x, rows.event, rows.weights, n_bins)
    values, gap_errors, p_values = judge_conditional(*given)
    return table.assign(conditional=values, conditional_gap_se=gap_errors, conditional_p=p_values)


def _candidate_line(one: Measured, first: Measured, base: Floats, rows: SurvivalData, n_bins: int) -> dict[str, Any]:
    tested = one.own.calibration(rows, n_bins)
    return {
        "lambda": one.lam,
        "recalibrated": one.recalibrated,
        "nll": weighted_mean(one.losses, rows),
        "nll_gap_se": gap_error(one.losses, first.losses, rows.groups, rows.weights),
        "dcal": tested.value,
        "dcal_gap_se": gap_error(dcal_influence(one.own, rows, n_bins), base, rows.groups),
        "dcal_floor": tested.floor,
        "dcal_p": tested.p_value,
        "concordance": one.concordant / one.comparable if one.comparable > 0 else np.nan,
    }


def as_candidates(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds in the form of a table of candidates, for a path whose candidates were not measured."""
    return summarise(_finished(frame)).reset_index().assign(recalibrated=False)


def with_untrained(frame: pd.DataFrame, untrained: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """Add a line for each model that was not trained: what is known of it, and NaN."""
    n = len(next(iter(untrained.values())))
    blank = {"recalibrated": False, "best_epoch": -1}
    columns = {name: [*frame[name], *untrained.get(name, [blank.get(name, np.nan)] * n)] for name in frame.columns}
    return pd.DataFrame(columns) if n else frame


def _finished(frame: pd.DataFrame) -> pd.DataFrame:
    """Lines of the candidates: a model without a finished epoch has no values, and is none."""
    return frame.dropna(subset=["nll", "dcal"])


# --- The rules.


@dataclass(frozen=True)
class Selection:
    """The model that a path chose by itself, and why.

    Attributes
    ----------
    lam : float
        The weight.
    recalibrated : bool
        Whether the Kaplan-Meier map of F was chosen with it.
    rule : str
        "when_needed" or "target_dcal".
    reason : str
        What was decided and why, in a sentence.
    at_floor : bool
        Whether the smallest weight stays because nothing shows that it is off.
    """

    lam: float
    rule: str
    reason: str
    recalibrated: bool = False
    at_floor: bool = False


@dataclass(frozen=True)
class _Judge:
    """The column by which the default rule judges; ``<column>_p`` is its test, ``<column>_gap_se`` its error."""

    column: str
    words: str
    floor: str | None  # column of what a perfect model scores; None where that is zero

    def excess(self, lines: Any) -> Any:
        """Value above what a perfect model scores, of one candidate or of several."""
        return lines[self.column] if self.floor is None else lines[self.column] - lines[self.floor]

    def described(self, line: "pd.Series[Any]") -> str:
        """Return what a candidate scores."""
        perfect = 0.0 if self.floor is None else line[self.floor]
        score = f"{self.words} {line[self.column]:.2g}, a perfect model scores {perfect:.2g}"
        return f"{score}, {p_in_words(line[f'{self.column}_p'])}"


_MARGINAL = _Judge("dcal", "D-calibration", "dcal_floor")
_CONDITIONAL = _Judge("conditional", "conditional calibration", None)


def cannot_judge(rows: SurvivalData, n_bins: int, judge: str = "validation rows") -> str | None:
    """Return why rows cannot show whether a model is calibrated; None if they can. `judge` is their name."""
    events = int(np.count_nonzero(rows.event))
    if events < FEWEST_EVENTS:
        return f"{events} events among {rows.n} {judge} are too few to judge calibration by"
    # Without covariates the Kaplan-Meier curve is a perfect model. If the test finds it off, that is the work of ties,
    # and no model can be judged by it. The factor is that of plotting positions: the last event is not at F = 1.
    perfect = Own.perfect(rows, rows.n / (rows.n + 1))
    p_value = None if rows.lower is not None else perfect.calibration(rows.replaced(groups=None), n_bins).p_value
    if p_value is not None and p_value < _LEVEL:
        distinct = np.unique(rows.time).size
        return f"{distinct} distinct times among {rows.n} {judge} are too few to judge calibration by"
    return None


def when_needed(table: pd.DataFrame, doubt: str | None = None, judge: str = "the validation rows") -> Selection:
    """Choose by the default rule of `SurvivalPath.select` from a table of candidates.

    `doubt` is the answer of `cannot_judge` for the rows that the table was measured on, and `judge` their name.
    """
    known = table.dropna(subset=["nll", "dcal"])
    plain = known[~known["recalibrated"].astype(bool)]
    own = plain.loc[plain["lambda"].idxmin()]
    first, others = float(own["lambda"]), known.drop(index=own.name)

    def stay(reason: str, *, at_floor: bool = False) -> Selection:
        return Selection(first, "when_needed", f"lambda {first:g}: {reason}", at_floor=at_floor)

    if doubt is not None:
        return stay(doubt)
    if others.empty:
        return stay("nothing else to choose from")
    # Of models that were trained for calibration given the covariates the table has its test.
    by = _CONDITIONAL if "conditional_p" in table else _MARGINAL
    off, p_value = by.described(own), f"{by.column}_p"
    # Not `>=`: a p-value that is not known shows nothing.
    if not own[p_value] < _LEVEL:
        told = f"at its floor, as far as {judge} can tell: nothing to correct ({off})"
        return stay(told, at_floor=True)
    shown = f"is off, as {judge} show ({off})"
    gain, cheap = by.excess(own) - by.excess(others), others["nll"] - own["nll"] <= others["nll_gap_se"]
    mapped = others[(others["lambda"] == first) & others["recalibrated"].astype(bool) & (gain > 0) & cheap]
    if by is _MARGINAL and len(mapped):
        # A map is made for this error, and fitted to other rows than those that it is measured on.
        chosen = mapped.iloc[0]
        reason = f"lambda {first:g} {shown}, and a map of F corrects it ({chosen[by.column]:.2g})"
        return Selection(first, "when_needed", f"{_named(chosen)}: {reason} without a visible loss of NLL", True)
    better = gain > _CLEAR * others[f"{by.column}_gap_se"]
    if not better.any():
        return stay(f"it {shown}, but nothing else is less so by more than chance")
    allowed = others[better & cheap]
    if allowed.empty:
        return stay(f"it {shown}, but all that is less so costs more than one standard error of NLL")
    calibrated = allowed[allowed[p_value] >= _LEVEL]
    if calibrated.empty:
        chosen, what = allowed.loc[allowed[by.column].idxmin()], f"has the lowest {by.words}"
    else:
        # A map that leaves the networks alone, then the smallest weight.
        chosen = calibrated.sort_values(["lambda", "recalibrated"], ascending=True).iloc[0]
        what = "is the smallest step that the test does not find off"
    reason = f"lambda {first:g} {shown}, and of what comes without a visible loss of NLL this {what}"
    told = f"{_named(chosen)}: {reason} ({chosen[by.column]:.2g})"
    return Selection(float(chosen["lambda"]), "when_needed", told, bool(chosen["recalibrated"]))


def is_settled(table: pd.DataFrame, selection: Selection) -> bool:
    """Return whether weights beyond those of the table, which are larger, could change nothing.

    It takes them for what the smallest one and its map of F leave off. D-calibration is what a map is made for;
    calibration given the covariates is not.
    """
    if selection.at_floor or not selection.recalibrated or "conditional_p" not in table:
        return selection.at_floor or selection.recalibrated
    chosen = (table["lambda"] == selection.lam) & table["recalibrated"].astype(bool)
    return not (table.loc[chosen, "conditional_p"] < _LEVEL).any()


def _named(candidate: "pd.Series[Any]") -> str:
    return f"lambda {candidate['lambda']:g}" + (", recalibrated" if candidate["recalibrated"] else "")


def nearest_to(table: pd.DataFrame, target: float) -> int:
    """Line of the lowest NLL among seeds at or below the target, else of the lowest D-calibration."""
    reached = table["dcal"] <= target
    return int(table.loc[reached, "nll"].idxmin() if reached.any() else table["dcal"].idxmin())


def by_target(table: pd.DataFrame, target: float) -> Selection:
    """Choose among seeds that each found a weight for the same target."""
    line = table.loc[nearest_to(table, target)]
    what = "the seed with the lowest NLL of those that reached" if line["dcal"] <= target else "the seed closest to"
    reason = f"lambda {line['lambda']:.4g}: {what} the target of {target:g}, with a D-calibration of {line['dcal']:.2g}"
    return Selection(float(line["lambda"]), "target_dcal", reason)


def largest_within_one_error(frame: pd.DataFrame) -> float:
    """Weight that the rule "one_standard_error" chooses by means over the seeds; see `SurvivalPath.select`."""
    summary = summarise(_finished(frame))
    return float(summary.index[summary["nll"] - summary["nll"].min() <= summary["nll_gap_se"]].max())


def check_rule(max_dcal: Any, max_concordance_drop: Any, rule: Any) -> None:
    """Check what is asked of `choose`."""
    limits = {"max_dcal": max_dcal, "max_concordance_drop": max_concordance_drop}
    given = [name for name, value in (limits | {"rule": rule}).items() if value is not None]
    if len(given) > 1:
        fail("select", "one rule at a time", " and ".join(given))
    for name, limit in limits.items():
        if limit is not None:
            as_number(name, limit, at_least=0)
    if rule is not None:
        as_choice("rule", rule, RULES)


def choose(
    table: pd.DataFrame, *, max_dcal: Any = None, max_concordance_drop: Any = None, rule: Any = None
) -> tuple[float, bool]:
    """Weight that a rule other than the default chooses from a table of candidates, and whether recalibrated."""
    check_rule(max_dcal, max_concordance_drop, rule)
    if max_dcal is not None:
        return _best(table, table["dcal"], "max_dcal", max_dcal, "nll")
    if max_concordance_drop is not None:
        drop = table["concordance"].max() - table["concordance"]
        return _best(table, drop, "max_concordance_drop", max_concordance_drop, "dcal")
    fail("rule", "one_standard_error (this path has a target)", repr(rule))


def _best(table: pd.DataFrame, value: "pd.Series[float]", name: str, given: Any, lowest: str) -> tuple[float, bool]:
    """Of the candidates whose value keeps to the limit that was given, the one with the lowest `lowest`."""
    limit = as_number(name, given, at_least=0)
    if value.isna().all():
        fail(name, "validation rows that can be compared in pairs", "none: too few events")
    allowed = value <= limit
    if not allowed.any():
        fail(name, f"at least {value.min():.3g}, which {_named(table.loc[value.idxmin()])} reaches", limit)
    line = table.loc[table.loc[allowed, lowest].idxmin()]
    return float(line["lambda"]), bool(line["recalibrated"])
