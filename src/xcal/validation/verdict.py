"""The answer in plain words: can the probabilities be trusted, where not, how sure, on how many events.

Four questions are asked of all rows, and of each group: are the risks right on average (O/E), for each level of risk
(ICI, slope), over all times (D-calibration), and for all covariates (conditional calibration)? Each value is judged by
its interval against a range that is good enough, and by its test:

- "right": the interval lies in the range;
- "small": it does, and the test shows that the error is real;
- "off": the test shows an error, and the interval reaches beyond the range (that of a ratio must leave out 1, too);
- "wrong": the test shows it beyond doubt, and the whole interval lies outside the range;
- "unsure": anything else: with these events an error that matters cannot be told from none.

An error is shown if its p-value is below .02, and beyond doubt below .01, *corrected for all tests of the audit*. The
tests at horizons of all rows, of groups and of parts of covariates (`at_horizon`), D-calibration of all rows and of
groups, and the test given the covariates are families: p-values are corrected within each, and multiplied by the number
of families. So a model that is right is called off in about 2 of 100 audits, however many horizons and groups there
are, and distrusted in at most 1 (docs/audit.md has the rates that were measured).

Parts of covariates, such as the oldest quarter, are judged by their average alone (O/E). Where it lies outside the good
range and its test, corrected for the number of parts but not for the families, has a p-value below .1, the part is *in
doubt*: it is not called off, and keeps the model from being trusted until there are more events.

A calibration slope whose interval is wide says that the risks differ little between rows. It can show that something is
off, and its width alone does not keep a model from being trusted: the ICI bounds what the error can be.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from xcal.calibration.bins import N_BINS
from xcal.calibration.subgroups import departure_in_words
from xcal.metrics.intervals import POSITIVE, times_as_many
from xcal.metrics.rows import OF_CAUSE
from xcal.metrics.spec import GOOD_BINS, Key, Role, beside, good_range
from xcal.show.charts import p_in_words, time_in_words
from xcal.validation.next_steps import rounded_up
from xcal.validation.result import (
    Answer,
    AuditResult,
    AuditValue,
    DataSummary,
    ForWhom,
    Measurements,
    Sentence,
    Verdict,
)
from xcal.validation.summary import ENOUGH_EVENTS, furthest_apart
from xcal.validation.words import interval_in_words, listed, percent, times_in_words

# Ranges that are good enough: ratios of observed to expected events, slopes, and average errors of a risk, which may
# not exceed a share of the mean risk either. That of the bins of D-calibration is `GOOD_BINS`.
GOOD_RATIO, GOOD_SLOPE, (_, GOOD_ICI) = (good_range(metric) for metric in ("oe", "slope", "ici"))
GOOD_ICI_SHARE = 0.25
OFF_LEVEL, WRONG_LEVEL = 0.02, 0.01
# P-value of one test below which it stands beside what is called good enough.
_QUESTIONED = 0.05
# How many times as many events as intervals of the right width need. An interval of that width lies in the range only
# if its middle does not move, and does so in half of all audits of a right model or fewer; with twice as many events in
# nine of ten (`python -m studies.audit_coverage --events-needed`).
_SLACK = 2.0
# Share of the good range of O/E that coarse times may use up before they, and not the events, are what is lacking.
_COARSE = 0.5
# Findings that one sentence tells in full, and groups that one names; the rest is counted.
_MOST_WORDS, _MOST_GROUPS = 2, 3
State = Literal["right", "small", "unsure", "off", "wrong"]
# Share of what is wrong with the bins of F that a few words must tell to stand for it.
_MOSTLY = 0.5
_BAD: tuple[State, ...] = ("off", "wrong")


@dataclass(frozen=True)
class Finding:
    """One value, judged.

    Attributes
    ----------
    value : AuditValue
    state : str
    brief : str
        What would be the matter, in a few words.
    words : str
        The same with the numbers.
    short : str
        A phrase for what is good or uncertain, where the value and its interval do not say it.
    lacks : float
        How many times as many events make the interval as wide as the good range; 1 where these do.
    p_value, corrected : float
        Of its test, alone and corrected for all tests of the audit; NaN where there is none.
    """

    value: AuditValue
    state: State
    brief: str
    words: str
    short: str = ""
    lacks: float = 1.0
    p_value: float = math.nan
    corrected: float = math.nan

    @property
    def group(self) -> str | None:
        """Group of the value."""
        return self.value.group


def judge(
    model: str,
    measured: Measurements,
    data: DataSummary,
    *,
    level: float,
    time_unit: str,
    together: Measurements | None = None,
) -> Verdict:
    """Return whether the probabilities can be trusted, in words.

    Where one cause of several is judged, `together` is what was measured of all of them.
    """
    findings = list(judged(measured, level=level, time_unit=time_unit))
    whole = [finding for finding in findings if finding.group is None]
    in_groups = [finding for finding in findings if finding.group is not None and finding.state in _BAD]
    of_parts = list(in_parts(measured, level, time_unit))
    in_groups += [finding for finding in of_parts if finding.state in _BAD]
    doubts = [finding for finding in of_parts if finding.state == "unsure" and not _is_good_ratio(finding.value.value)]
    for_whom, faint = given_covariates(measured), faintly_given_covariates(measured)
    partly = in_groups if for_whom is None else [*in_groups, for_whom]
    kind = _level(whole, partly, doubts, data)
    coarse = _too_coarse(measured, time_unit) if kind == "unknown" else ""
    needed = None if coarse else events_needed([*whole, *doubts], data)
    sentences = [
        *_where(whole, in_groups, kind, time_unit),
        *([Sentence(f"For whom: {faint if for_whom is None else for_whom.words}.")] if for_whom or faint else []),
        *_small(whole, time_unit),
        *(
            Sentence(f"In doubt where {finding.group}, and perhaps chance: {finding.words}.", finding.group)
            for finding in doubts
        ),
        *_not_wrong(whole, needed, time_unit),
        *_order(measured, level),
        _how_sure(data),
        *_small_groups(measured),
        *(Sentence(f"{one.what}. {one.effect}") for one in data.concerns if one.serious),
    ]
    headline = _headline(model, kind, whole, partly, doubts, data, needed)
    if coarse:
        headline = f"These times are too coarse to say whether the probabilities of {model} can be trusted: {coarse}."
    answers = (*_answers(whole, time_unit, together), _for_whom(measured, partly, doubts, faint))
    return Verdict(headline, kind, tuple(sentences), needed if kind == "unknown" else None, answers)


# The questions of a verdict, and the values that answer them.
_ALL_TIMES = "All times"
_QUESTIONS = {
    "On average": ("oe", "event_ratio"),
    "Level of risk": ("ici", "slope"),
    _ALL_TIMES: ("d_calibration", "cause_calibration"),
}
_STATES: tuple[State, ...] = ("wrong", "off", "unsure", "small", "right")


def _answers(whole: Sequence[Finding], time_unit: str, together: Measurements | None) -> Iterator[Answer]:
    """Answer each question by the worst of its values."""
    for question, metrics in _QUESTIONS.items():
        own = [finding for finding in whole if finding.value.metric in metrics]
        if not own:
            of_cause = together is not None and question == _ALL_TIMES
            why = _by_cause(together) if of_cause else "Not measured: these predictions do not tell."
            yield Answer(question, "unknown", why)
            continue
        # A wide interval of the slope alone only says that risks differ little.
        telling = [finding for finding in own if finding.value.metric != "slope" or finding.state != "unsure"] or own
        state = min((finding.state for finding in telling), key=_STATES.index)
        found = [finding for finding in telling if finding.state == state]
        if state in _BAD:
            text = _worst(found, state)[0].words
        else:
            said = {"unsure": "too uncertain to say", "small": "a small error, but no chance", "right": "good enough"}
            text = f"{said[state]}: {'; '.join(in_short(found, time_unit))}"
        yield Answer(question, state, f"{text[:1].upper()}{text[1:]}.")


def _by_cause(together: Measurements | None) -> str:
    """Tell of D-calibration by cause, which is of all causes together, where one cause is judged."""
    values: _Values = {} if together is None else {value.key: value for value in together.values}
    value = values.get(Key("cause_calibration"))
    floor, p_value = (None, None) if value is None else (_beside(values, value, "floor"), _beside(values, value, "p"))
    if value is None or floor is None or p_value is None:
        return f"Not measured: {OF_CAUSE}."
    return (
        f"Not measured of one cause alone. Of all causes together: {_scale_of_causes(value, floor)} "
        f"({p_in_words(p_value.value)})."
    )


def _for_whom(measured: Measurements, partly: Sequence[Finding], doubts: Sequence[Finding], faint: str) -> Answer:
    """Answer for whom the model is right: in groups, in parts of covariates, given all of them."""
    question, asked = "For whom", measured.for_whom is not None
    if partly:
        state = "wrong" if any(finding.state == "wrong" for finding in partly) else "off"
        return Answer(question, state, f"Off in {_named(partly)}.")
    if doubts:
        return Answer(question, "unsure", f"In doubt in {_named(doubts)}, and perhaps chance.")
    if faint:
        return Answer(question, "small", f"{faint[:1].upper()}{faint[1:]}.")
    if asked or any(value.group is not None for value in measured.values):
        return Answer(question, "right", "No group and no covariate was found for which it is off.")
    return Answer(question, "unknown", "Not asked: no groups and no covariates were given.")


def _named(findings: Sequence[Finding]) -> str:
    return listed(_few(list(dict.fromkeys(str(finding.group) for finding in findings)), _MOST_GROUPS, "group"))


def judged(measured: Measurements, *, level: float, time_unit: str) -> Iterator[Finding]:
    """Judge every value of calibration, for all rows and for each group."""
    values: _Values = {value.key: value for value in measured.values}
    families = measured.n_families
    shapes = {
        one.group: departure_in_words(one.mass, one.edges, least=_MOSTLY)
        for one in measured.pit
        if one.method == "uniform"
    }
    for value in values.values():
        when = "" if value.horizon is None else f" by {time_in_words(value.horizon, time_unit)}"
        judges: dict[str, Callable[..., Finding | None]] = {
            "oe": _of_ratio,
            "event_ratio": _of_events,
            "slope": _of_slope,
            "ici": _of_error,
            "d_calibration": partial(_of_d_calibration, shapes),
            "cause_calibration": _of_causes,
        }
        if value.metric in judges:
            finding = judges[value.metric](value, values, families, when, level)
            if finding is not None:
                yield finding


_Values = dict[Key, AuditValue]


def _beside(values: _Values, value: AuditValue, role: Role) -> AuditValue | None:
    """Return what is said about a value, such as its floor."""
    return values.get(replace(value.key, metric=beside(value.metric, role)))


def _tested(values: _Values, value: AuditValue, families: int) -> tuple[float, float]:
    """Return the p-value of a value's test, alone and corrected for all tests of the audit; NaN where it has none."""
    alone, corrected = _beside(values, value, "p"), _beside(values, value, "p_corrected")
    found = alone if corrected is None else corrected
    if found is None:
        return math.nan, math.nan
    return (found if alone is None else alone).value, min(1.0, found.value * families)


def state_of(value: AuditValue, perfect: float, good: tuple[float, float], p_value: float) -> State:
    """Judge an interval and a corrected p-value.

    Examples
    --------
    >>> state_of(AuditValue("oe", 1.0, None, 1.0, 0.9, 1.1), 1.0, (0.8, 1.25), 0.7)
    'right'
    >>> state_of(AuditValue("oe", 1.0, None, 0.9, 0.86, 0.94), 1.0, (0.8, 1.25), 0.001)
    'small'
    >>> state_of(AuditValue("oe", 1.0, None, 1.0, 0.6, 1.7), 1.0, (0.8, 1.25), 0.7)
    'unsure'
    >>> state_of(AuditValue("oe", 1.0, None, 0.6, 0.5, 0.7), 1.0, (0.8, 1.25), 0.001)
    'wrong'
    """
    low, high = good
    known = math.isfinite(value.lower) and math.isfinite(value.upper)
    inside = known and low <= value.lower and value.upper <= high
    # The interval of a distance says how large an error may be, and often holds zero where the test, which looks for
    # an error of any form, shows one: a p-value of .0001 is no good news then. Of a ratio both must agree.
    agree = perfect == 0 or not value.lower <= perfect <= value.upper
    if p_value < OFF_LEVEL and known and agree:
        if inside:
            return "small"
        outside = value.upper < low or value.lower > high
        return "wrong" if outside and p_value < WRONG_LEVEL else "off"
    return "right" if inside else "unsure"


def _judged(
    value: AuditValue,
    perfect: float,
    good: tuple[float, float],
    tested: tuple[float, float],
    brief: str,
    words: str,
    short: str = "",
    lacks: float = 1.0,
) -> Finding:
    return Finding(value, state_of(value, perfect, good, tested[1]), brief, words, short, lacks, *tested)


def _of_ratio(value: AuditValue, values: _Values, families: int, when: str, level: float) -> Finding:
    predicted, observed = (values.get(replace(value.key, metric=name)) for name in ("mean_risk", "observed_risk"))
    ratio = f"O/E {value.value:.2f}{interval_in_words(value, level)}"
    brief = f"risks{when} are too {'low' if value.value > 1 else 'high'} on average"
    words = f"{brief} ({ratio})"
    if predicted is not None and observed is not None:
        both = f"{percent(predicted.value)} predicted, {percent(observed.value)} observed"
        words = f"{brief}, {both} ({ratio})"
    return _judged(value, 1.0, GOOD_RATIO, _tested(values, value, families), brief, words, lacks=_lacking(value))


def _of_events(value: AuditValue, values: _Values, families: int, when: str, level: float) -> Finding:
    """Judge the events for each that is expected over the time under observation, where rows have times of entry."""
    brief = f"events were {'more' if value.value > 1 else 'fewer'} than the model expects"
    words = f"{brief} ({value.value:.2f} for each{interval_in_words(value, level)})"
    return _judged(value, 1.0, GOOD_RATIO, _tested(values, value, families), brief, words, lacks=_lacking(value))


def _is_good_ratio(ratio: float) -> bool:
    return GOOD_RATIO[0] <= ratio <= GOOD_RATIO[1]


def _lacking(ratio: AuditValue) -> float:
    """Return how many times as many events make the interval of a ratio as long as the good range to one side."""
    if not 0 < ratio.lower < ratio.upper < math.inf:
        return math.nan
    middle = math.sqrt(ratio.lower * ratio.upper)
    return times_as_many(ratio.lower / middle, ratio.upper / middle, GOOD_RATIO[1] - GOOD_RATIO[0], POSITIVE)


def _of_slope(value: AuditValue, values: _Values, families: int, when: str, level: float) -> Finding:
    brief = f"risks{when} are too extreme" if value.value < 1 else f"risks{when} are not spread widely enough"
    if value.value < 0 and value.upper < 0:
        brief = f"higher risks{when} come with later events (are they probabilities of survival?)"
    words = f"{brief} (calibration slope {value.value:.2f}{interval_in_words(value, level)})"
    return _judged(value, 1.0, GOOD_SLOPE, _tested(values, value, families), brief, words)


def _of_error(value: AuditValue, values: _Values, families: int, when: str, level: float) -> Finding:
    floor, excess = _beside(values, value, "floor"), _beside(values, value, "excess")
    observed = values.get(replace(value.key, metric="observed_risk"))
    most = GOOD_ICI if observed is None else min(GOOD_ICI, GOOD_ICI_SHARE * max(observed.value, 0.0))
    perfect = "" if floor is None else f"; a perfect model would show {100 * floor.value:.1f}"
    tested = _tested(values, value, families)
    # Noise is no error of the model: only what is left of the distance without it is told as such.
    known = value if excess is None else excess
    brief = f"risks{when} are not right for each level of risk"
    if value.lower > 0:
        brief = f"risks{when} are off by {100 * known.value:.1f} points on average"
    shown = f"ICI {100 * value.value:.1f} points{interval_in_words(value, level, factor=100, digits=1)}{perfect}"
    words = f"{brief} ({shown}{'' if math.isnan(tested[0]) else f'; {p_in_words(tested[0])}'})"
    lacks = times_as_many(0.0, value.upper, most) if most > 0 else math.nan
    return _judged(value, 0.0, (0.0, most), tested, brief, words, lacks=lacks)


def _of_d_calibration(
    shapes: Mapping[str | None, str], value: AuditValue, values: _Values, families: int, when: str, level: float
) -> Finding | None:
    """Judge D-calibration, which has no horizon, by its test and by how much of it noise does not explain."""
    floor, excess = _beside(values, value, "floor"), _beside(values, value, "excess")
    tested = _tested(values, value, families)
    if math.isnan(tested[0]) or floor is None or excess is None:
        return None
    error, lower, upper = (math.sqrt(max(0.0, x) * N_BINS) for x in (excess.value, excess.lower, excess.upper))
    bin_error = AuditValue("bin_error", None, value.group, error, lower, upper)
    brief = f"over all times {shapes.get(value.group) or 'events come at other times than predicted'}"
    scale = f"D-calibration {value.value:.2g}, of a perfect model about {floor.value:.2g}"
    bins = f"bins of F hold {100 * error:.0f} % too many or too few events ({scale}, {p_in_words(tested[0])})"
    words = f"{brief}: {bins}"
    found = _judged(bin_error, 0.0, (0.0, GOOD_BINS), tested, brief, words, scale, times_as_many(0.0, upper, GOOD_BINS))
    return replace(found, value=value)


def _of_causes(value: AuditValue, values: _Values, families: int, when: str, level: float) -> Finding | None:
    """Judge D-calibration by cause, of which no interval is known: by its test, and by how large the error is."""
    floor, (alone, corrected) = _beside(values, value, "floor"), _tested(values, value, families)
    if floor is None or not corrected < OFF_LEVEL:
        return None  # D-calibration over all causes, and the values of each, say how large an error may be
    # As a share of what cells should hold, were they alike.
    error = math.sqrt(max(0.0, value.value - floor.value) * N_BINS)
    brief = "events are not of the causes, at the times, that are predicted"
    scale = _scale_of_causes(value, floor)
    words = f"{brief} ({scale}, {p_in_words(alone)})"
    return Finding(value, "off" if error > GOOD_BINS else "small", brief, words, scale, 1.0, alone, corrected)


def _scale_of_causes(value: AuditValue, floor: AuditValue) -> str:
    return f"D-calibration by cause {value.value:.2g}, of a perfect model about {floor.value:.2g}"


_LEVELS = ("trust", "unknown", "caution", "distrust")


def of_all_causes(verdict: Verdict, by_cause: Mapping[str, AuditResult]) -> Verdict:
    """Return the verdict of all events with those of the causes: no better than the worst of them."""
    said = tuple(Sentence(f"{name}: {one.verdict.headline}", f"cause {name}") for name, one in by_cause.items())
    worst = max((verdict, *(one.verdict for one in by_cause.values())), key=lambda one: _LEVELS.index(one.level))
    needed = worst.events_needed
    return replace(
        verdict, headline=worst.headline, level=worst.level, events_needed=needed, said=(*verdict.said, *said)
    )


def in_parts(measured: Measurements, level: float, time_unit: str) -> Iterator[Finding]:
    """Judge the risks on average in parts of covariates, such as the oldest quarter: the worst horizon of each."""
    families, worst = measured.n_families, dict[str, Finding]()
    for part in measured.parts:
        value = AuditValue("oe", part.horizon, part.name, part.value, part.lower, part.upper)
        state = state_of(value, 1.0, GOOD_RATIO, min(1.0, part.p_value * families))
        when = "" if part.horizon is None else f" by {time_in_words(part.horizon, time_unit)}"
        brief = f"risks{when} are too {'low' if part.value > 1 else 'high'}"
        counted = f"{part.n:,} rows" if part.n_events is None else f"{part.n_events:,} events in {part.n:,} rows"
        words = f"{brief} on average (O/E {part.value:.2f}{interval_in_words(value, level)}; {counted})"
        found = Finding(value, state, brief, words, lacks=_lacking(value))
        # The smallest p-value may belong to an error that is small, where one that is not stands beside it.
        if part.name not in worst or _weight(found) > _weight(worst[part.name]):
            worst[part.name] = found
    yield from worst.values()


def _weight(found: Finding) -> int:
    """Return how much the finding of a part says: that it is off, or in doubt, or nothing of either."""
    return 2 * (found.state in _BAD) + (found.state == "unsure" and not _is_good_ratio(found.value.value))


def given_covariates(measured: Measurements) -> Finding | None:
    """Judge calibration given the covariates; None if nothing is off, or not by enough to matter.

    The subgroup that is most off is judged by the error of its bins and by its test. Without one that counts, the test
    of all smooth subgroups at once may show that there is something. As these are two tests, each p-value is doubled.
    """
    found, families = measured.for_whom, measured.n_families
    if found is None:
        return None
    worst = found.subgroup
    if worst is not None and worst.error > GOOD_BINS and 2 * families * worst.p_value < OFF_LEVEL:
        tested = f"{worst.n_tested:,} rows that were not searched, {p_in_words(worst.p_value)}"
        words = f"rows with {worst.rule}: {worst.finding} ({tested})"
        own = AuditValue("subgroup_p", None, f"rows with {worst.rule}", worst.p_value, math.nan, math.nan)
        return Finding(own, "off", worst.finding, words)
    if differs_with_covariates(measured) and math.sqrt(max(0.0, found.value) * N_BINS) > GOOD_BINS:
        words = f"{_DIFFERS}, and no one subgroup tells where ({conditional_in_words(found)})"
        own = AuditValue("conditional_calibration_p", None, "some rows", found.p_value, math.nan, math.nan)
        return Finding(own, "off", _DIFFERS, words)
    return None


def differs_with_covariates(measured: Measurements) -> bool:
    """Return whether the test shows, corrected for all tests, that calibration differs with the covariates."""
    found = measured.for_whom
    return found is not None and 2 * measured.n_families * found.p_value < OFF_LEVEL


def faintly_given_covariates(measured: Measurements) -> str:
    """Return that calibration surely differs with the covariates, by too little to matter; "" if that is not so."""
    found = measured.for_whom
    if found is None or not differs_with_covariates(measured) or given_covariates(measured) is not None:
        return ""
    return f"{_DIFFERS}, on the whole by less than what counts as wrong ({conditional_in_words(found)})"


_DIFFERS = "calibration differs with the covariates"


def conditional_in_words(found: ForWhom) -> str:
    """Write conditional calibration beside what a right model scores, and the p-value of its test."""
    return (
        f"conditional calibration {found.value:.2g}, of a right model 0 ± {found.noise:.1g}, "
        f"{p_in_words(found.p_value)}"
    )


def _level(whole: Sequence[Finding], partly: Sequence[Finding], doubts: Sequence[Finding], data: DataSummary) -> str:
    """Return the level of the answer."""
    states = {finding.state for finding in whole}
    if "wrong" in states:
        return "distrust"
    if "off" in states:
        return "caution"
    if not whole or _unsure(whole) or data.n_events < ENOUGH_EVENTS:
        return "unknown"
    if partly or any(concern.serious for concern in data.concerns):
        return "caution"
    return "unknown" if doubts else "trust"


def _too_coarse(measured: Measurements, time_unit: str) -> str:
    """Return how far apart O/E is between the two ways to read times in whole units; "" if that does not matter."""
    if not measured.seen:
        return ""
    horizon, low, high = furthest_apart(measured)
    if not low > 0 or math.log(high / low) < _COARSE * math.log(GOOD_RATIO[1]):
        return ""
    when = time_in_words(horizon, time_unit)
    return f"O/E by {when} is {low:.2f} or {high:.2f}, depending on how long censored rows were seen"


def _unsure(whole: Sequence[Finding]) -> list[Finding]:
    """Return what is too uncertain to say; a slope whose interval is wide only says that risks differ little."""
    return [finding for finding in whole if finding.state == "unsure" and finding.value.metric != "slope"]


def events_needed(whole: Sequence[Finding], data: DataSummary) -> int:
    """Return how many events like these would tell in nine of ten audits of a right model; a round number.

    From how wide the intervals are: they shrink with the root of the number of events.
    """
    factors = [_SLACK * finding.lacks for finding in _unsure(whole) if math.isfinite(finding.lacks)]
    return rounded_up(max(ENOUGH_EVENTS, data.n_events * max([1.1, *factors])))


def _headline(
    model: str,
    level: str,
    whole: Sequence[Finding],
    partly: Sequence[Finding],
    doubts: Sequence[Finding],
    data: DataSummary,
    needed: int | None,
) -> str:
    if level == "distrust":
        why = listed([finding.brief for finding in _worst(whole, "wrong")[:2]])
        return f"The probabilities of {model} cannot be trusted as they are: {why}."
    if level == "trust":
        return f"The probabilities of {model} can be trusted on rows like these."
    if level == "unknown":
        if not whole:
            return f"Nothing could be computed that says whether the probabilities of {model} can be trusted."
        events = "1 event is" if data.n_events == 1 else f"{data.n_events:,} events are"
        against = f"; they {_partly('do not hold', partly)}" if partly else ""
        against = against or (f"; they {_partly('may not hold', doubts)}" if doubts else "")
        few = f"{events} too few to say whether the probabilities of {model} can be trusted"
        enough = f": about {needed:,} would be enough" if needed else ""
        return f"{few}{enough}{against}."
    if any(finding.state == "off" for finding in whole):
        why = listed([finding.brief for finding in _worst(whole, "off")[:2]])
    elif partly:
        why = f"they {_partly('do not hold', partly)}"
    else:
        why = "the values are good, but the data limit what they can show"
    return f"Use the probabilities of {model} with caution: {why}."


def _partly(what: str, partly: Sequence[Finding]) -> str:
    return f"{what} in {_named(partly)}"


def _where(whole: Sequence[Finding], in_groups: Sequence[Finding], kind: str, time_unit: str) -> Iterator[Sentence]:
    """Return the worst of what is wrong and off in full, over all rows and in groups."""
    for state, title in (("wrong", "Wrong"), ("off", "Off")):
        found = _worst(whole, state)
        if found:
            most = 1 if state == "off" and kind == "distrust" else _MOST_WORDS
            same = [finding for finding in whole if finding.state == state]
            yield Sentence(f"{title}: {_and_more(found[:most], same, time_unit)}.")
    for group in dict.fromkeys(finding.group for finding in in_groups):
        own = [finding for finding in in_groups if finding.group == group]
        told = _and_more([*_worst(own, "wrong"), *_worst(own, "off")][:1], own, time_unit)
        yield Sentence(f"Where {group}: {told}.", group)


def _small(whole: Sequence[Finding], time_unit: str) -> Iterator[Sentence]:
    """Yield which errors are real and too small to matter."""
    small = _worst(whole, "small")
    if small:
        same = [finding for finding in whole if finding.state == "small"]
        yield Sentence(f"Small, but no chance: {_and_more(small[:_MOST_WORDS], same, time_unit)}.")


def _not_wrong(whole: Sequence[Finding], needed: int | None, time_unit: str) -> Iterator[Sentence]:
    """Yield in short what is uncertain and what is good enough."""
    unsure = in_short(_unsure(whole), time_unit)
    if unsure:
        enough = f" About {needed:,} events would tell." if needed else ""
        yield Sentence(f"Too uncertain to say: {'; '.join(unsure)}.{enough}")
    right = [finding for finding in whole if finding.state == "right"]
    questioned = [finding for finding in right if finding.p_value < _QUESTIONED]
    good = in_short([finding for finding in right if finding not in questioned], time_unit)
    if good:
        yield Sentence(f"Good enough: {'; '.join(good)}.")
    if questioned:
        told = (f"{in_short([one], time_unit)[0]}: {_p_values(one)}" for one in questioned)
        yield Sentence(f"Good enough, though a test alone questions it: {'; '.join(told)}.")
    slopes = [finding for finding in whole if finding.state == "unsure" and finding.value.metric == "slope"]
    if slopes:
        said = "; ".join(in_short(slopes, time_unit))
        yield Sentence(f"Uncertain, and the average error says how much it can matter: {said}.")


def _p_values(finding: Finding) -> str:
    if finding.corrected == finding.p_value:
        return p_in_words(finding.p_value)
    return f"{p_in_words(finding.p_value)}, among all tests {p_in_words(finding.corrected)}"


def _worst(findings: Iterable[Finding], state: str) -> list[Finding]:
    """Of each metric with this state the value that is furthest off, in the order of the table."""
    found: dict[str, Finding] = {}
    for finding in findings:
        metric = finding.value.metric
        if finding.state == state and (metric not in found or _distance(finding) > _distance(found[metric])):
            found[metric] = finding
    return list(found.values())


def _distance(finding: Finding) -> float:
    """How far a value is off, to compare values of one metric."""
    value = finding.value
    if value.metric in ("oe", "event_ratio"):
        return abs(math.log(value.value)) if value.value > 0 else math.inf
    return abs(value.value - 1) if value.metric == "slope" else value.value


def _and_more(told: list[Finding], all_of_them: Sequence[Finding], time_unit: str) -> str:
    """Write some findings in full, and name the rest: the metric, and at which times."""
    rest: dict[str, list[float]] = {}
    for finding in all_of_them:
        if finding not in told:
            times = rest.setdefault(_NAMES.get(finding.value.metric, "D-calibration"), [])
            times += [] if finding.value.horizon is None else [finding.value.horizon]
    names = [f"{name} by {times_in_words(times, time_unit)}" if times else name for name, times in rest.items()]
    also = [f"also {listed(names)}"] if names else []
    return "; ".join([*(finding.words for finding in told), *also])


_NAMES = {"oe": "O/E", "slope": "the calibration slope", "ici": "the average error (ICI)"}


def _few(words: list[str], most: int, what: str) -> list[str]:
    """Return the first words, and how many more there are."""
    shown, more = words[:most], len(words) - min(most, len(words))
    return [*shown, f"{more} more {what}{'' if more == 1 else 's'}"] if more else shown


# Name, factor and digits of a value in a short phrase.
_SHORT = {
    "oe": ("O/E", 1, 2),
    "event_ratio": ("events per expected event", 1, 2),
    "slope": ("calibration slope", 1, 2),
    "ici": ("average error in points", 100, 1),
}


def in_short(findings: Sequence[Finding], time_unit: str) -> list[str]:
    """One phrase per metric, over all its horizons, with how far the intervals reach."""
    found: dict[str, list[AuditValue]] = {}
    for finding in findings:
        if not finding.short:
            found.setdefault(finding.value.metric, []).append(finding.value)
    phrases = []
    for metric, values in found.items():
        name, factor, digits = _SHORT[metric]
        moments = [value.horizon for value in values if value.horizon is not None]
        when = f" by {times_in_words(moments, time_unit)}:" if moments else ""
        text = f"{name}{when} {span([factor * value.value for value in values], digits)}"
        ends = [factor * end for value in values for end in (value.lower, value.upper) if math.isfinite(end)]
        reach = "interval" if len(ends) == 2 else "intervals from"
        phrases.append(f"{text} ({reach} {span(ends, digits)})" if ends else text)
    return phrases + [finding.short for finding in findings if finding.short]


def span(numbers: list[float], digits: int) -> str:
    """Write the smallest and the largest of some numbers, or the one that they are.

    Examples
    --------
    >>> span([1.04, 0.93, 0.95], 2), span([0.5], 2)
    ('0.93 to 1.04', '0.50')
    """
    low, high = f"{min(numbers):.{digits}f}", f"{max(numbers):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _order(measured: Measurements, level: float) -> Iterator[Sentence]:
    """Yield how well the rows are ordered, which is no question of trust in a probability."""
    for name, words in (("harrell", "Harrell's C"), ("antolini", "Antolini's C")):
        found = next((v for v in measured.values if v.metric == name and v.group is None), None)
        if found is not None and math.isfinite(found.value):
            interval = interval_in_words(found, level, digits=3)
            yield Sentence(f"Discrimination: {words} {found.value:.3f}{interval}.")
            return


def _how_sure(data: DataSummary) -> Sentence:
    events = "1 event" if data.n_events == 1 else f"{data.n_events:,} events"
    together = "" if data.n_clusters is None else f" of {data.n_clusters:,} clusters"
    few = ""
    if data.n_events < ENOUGH_EVENTS:
        few = f", fewer than the {ENOUGH_EVENTS} events advised: good values may be chance"
    weighted = "" if data.n_effective is None else f" with sampling weights (effectively {data.n_effective:,.0f} rows)"
    return Sentence(f"This rests on {events} in {data.n:,} rows{together}{weighted}{few}.")


def _small_groups(measured: Measurements) -> Iterator[Sentence]:
    """Name the groups that were not judged."""
    small = [one.group for one in measured.skipped if one.what == "group" and one.group is not None]
    if small:
        yield Sentence(f"Too few events to judge: {listed(_few(small, _MOST_GROUPS, 'group'))}.")
