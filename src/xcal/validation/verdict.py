"""The answer in plain words: can the probabilities be trusted, where not, how sure, on how many events.

Each figure is judged by its interval against a range of values that are good enough:

- "right": the whole interval lies in the range;
- "wrong": no part of it does;
- "off": it holds values in and out of the range, and not the value of a perfect model (for an average error, which is
  never 0 in a sample: the error itself is out of the range);
- "unsure": anything else.

D-calibration has a size and a test in place of an interval: an error that does not matter is "right" however clearly a
large sample shows it, and one that matters is "wrong" or "off" if the test shows it, else "unsure".

Few events make wide intervals, so that nothing is "right" by them; and below a number of events the answer is never
"trust", whatever the intervals say.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from xcal.validation.measurements import AuditValue, Measurements
from xcal.validation.result import DataSummary, Verdict
from xcal.validation.summary import ENOUGH_EVENTS
from xcal.validation.words import interval_in_words, listed, percent, time_in_words

# Ranges that are good enough: ratios of observed to expected events, slopes, and average errors of a risk.
GOOD_RATIO = (0.8, 1.25)
GOOD_SLOPE = (0.8, 1.25)
GOOD_ICI = 0.05
# D-calibration: how far the bins may be off on average (root mean square, as a share of what a bin should hold, after
# what noise adds is taken away) before it matters, and the levels of its test from which a larger error is off and
# wrong. A perfect model is called wrong in at most one of a hundred samples.
GOOD_BIN_ERROR = 0.10
OFF_LEVEL, WRONG_LEVEL = 0.05, 0.01
# Bins of D-calibration where the histogram is not at hand.
BINS = 10

State = Literal["right", "wrong", "off", "unsure"]


@dataclass(frozen=True)
class Finding:
    """One value, judged.

    Attributes
    ----------
    value : AuditValue
    state : str
    words : str
        The whole sentence, for what is wrong or off.
    brief : str
        What is the matter, in a few words; "" where nothing is.
    short : str
        A phrase for what is good or uncertain, where the value and its interval do not say it.
    corrected : bool
        Whether the judgement is corrected for the number of groups.
    """

    value: AuditValue
    state: State
    words: str
    brief: str = ""
    short: str = ""
    corrected: bool = False

    @property
    def group(self) -> str | None:
        """Group of the value."""
        return self.value.group


def judge(model: str, measured: Measurements, data: DataSummary, *, level: float, time_unit: str) -> Verdict:
    """Say whether the probabilities can be trusted."""
    findings = list(judged(measured, level=level, time_unit=time_unit))
    whole = [finding for finding in findings if finding.group is None]
    in_groups = [finding for finding in findings if finding.group is not None and _counts_in_group(finding)]
    kind = _level(whole, in_groups, data)
    sentences = [*_where(whole, in_groups), *_order(measured, level), _how_sure(data, whole), *_worries(data)]
    return Verdict(_headline(model, kind, whole, in_groups, data), kind, tuple(sentences))


def _counts_in_group(finding: Finding) -> bool:
    """Whether a finding within a group is more than what chance brings when many groups are looked at.

    Of many intervals some miss the ideal by chance; few lie outside of the good range as a whole. The p-values of
    D-calibration are corrected for the number of groups.
    """
    return finding.state == "wrong" or (finding.state == "off" and finding.corrected)


def judged(measured: Measurements, *, level: float, time_unit: str) -> Iterator[Finding]:
    """Judge every value of calibration, for all rows and for each group."""
    values = {(value.metric, value.horizon, value.group): value for value in measured.values}
    for (metric, horizon, _), value in values.items():
        when = "" if horizon is None else f" by {time_in_words(horizon, time_unit)}"
        if metric == "oe":
            yield _of_ratio(value, values, when, level)
        elif metric == "cox_slope":
            yield _of_slope(value, when, level)
        elif metric == "ici":
            yield _of_error(value, when, level)
        elif metric == "d_calibration":
            finding = _of_d_calibration(value, values, measured)
            if finding is not None:
                yield finding


def interval_state(value: AuditValue, ideal: float | None, good: tuple[float, float]) -> State:
    """Judge an interval; without one nothing is certain. `ideal` is None for an error, which is never 0 in a sample.

    Examples
    --------
    >>> interval_state(AuditValue("oe", 1.0, None, 1.0, 0.9, 1.1), 1.0, (0.8, 1.25))
    'right'
    >>> interval_state(AuditValue("oe", 1.0, None, 1.0, 0.6, 1.7), 1.0, (0.8, 1.25))
    'unsure'
    """
    low, high = good
    # Resamples without an event all give the same: an interval without a width is none.
    if not (math.isfinite(value.lower) and math.isfinite(value.upper)) or value.lower == value.upper:
        return "unsure"
    if value.upper < low or value.lower > high:
        return "wrong"
    if low <= value.lower and value.upper <= high:
        return "right"
    close = low <= value.value <= high if ideal is None else value.lower <= ideal <= value.upper
    return "unsure" if close else "off"


_Values = dict[tuple[str, float | None, str | None], AuditValue]


def _of_ratio(value: AuditValue, values: _Values, when: str, level: float) -> Finding:
    predicted, observed = (values.get((name, value.horizon, value.group)) for name in ("mean_risk", "observed_risk"))
    ratio = f"O/E {value.value:.2f}{interval_in_words(value, level)}"
    words = ratio
    if predicted is not None and observed is not None:
        words = f"a risk of {percent(predicted.value)} predicted and {percent(observed.value)} observed{when} ({ratio})"
    brief = f"risks{when} are too {'low' if value.value > 1 else 'high'} on average"
    return Finding(value, interval_state(value, 1.0, GOOD_RATIO), f"{words}: {brief}", brief)


def _of_slope(value: AuditValue, when: str, level: float) -> Finding:
    brief = f"risks{when} are too extreme" if value.value < 1 else f"risks{when} differ too little between rows"
    words = f"calibration slope {value.value:.2f}{interval_in_words(value, level)}: {brief}"
    return Finding(value, interval_state(value, 1.0, GOOD_SLOPE), words, brief)


def _of_error(value: AuditValue, when: str, level: float) -> Finding:
    brief = f"risks{when} are off by {100 * value.value:.1f} points on average"
    words = f"{brief} (ICI{interval_in_words(value, level, 100)} points)"
    return Finding(value, interval_state(value, None, (0.0, GOOD_ICI)), words, brief)


def _of_d_calibration(value: AuditValue, values: _Values, measured: Measurements) -> Finding | None:
    """Judge D-calibration by its test, and by how much of it noise does not explain."""
    corrected = values.get(("d_calibration_p_corrected", None, value.group))
    tested = values.get(("d_calibration_p", None, value.group)) if corrected is None else corrected
    floor = values.get(("d_calibration_floor", None, value.group))
    if tested is None or floor is None or not math.isfinite(tested.value):
        return None
    error = bin_error(value.value, floor.value, _bins(measured))
    brief = f"over all times the probabilities are off by {percent(error)} of a bin on average"
    short = d_calibration_in_words(value, floor, tested)
    if error <= GOOD_BIN_ERROR:
        state: State = "right"
    elif tested.value >= OFF_LEVEL:
        state = "unsure"
    else:
        state = "wrong" if tested.value < WRONG_LEVEL else "off"
    return Finding(value, state, f"{short}: {brief}", brief, short, corrected is not None)


def d_calibration_in_words(value: AuditValue, floor: AuditValue, tested: AuditValue) -> str:
    """Write D-calibration beside what a perfect model scores, and the p-value of its test."""
    p = f"p = {tested.value:.2g}" if tested.value >= 1e-4 else "p < 0.0001"
    return f"D-calibration {value.value:.2g}, where a perfect model scores {floor.value:.2g} on average ({p})"


def bin_error(value: float, floor: float, n_bins: int) -> float:
    """Root mean square error of the bins' masses as a share of 1 / n_bins, less what noise adds.

    Examples
    --------
    >>> bin_error(0.0015, 0.0005, 10)
    0.1
    """
    return math.sqrt(max(0.0, value - floor) * n_bins)


def _bins(measured: Measurements) -> int:
    return next((histogram.mass.size for histogram in measured.pit), BINS)


def _level(whole: list[Finding], in_groups: list[Finding], data: DataSummary) -> str:
    """Give the level: what is shown to be wrong counts at any number of events, what seems right does not."""
    states = {finding.state for finding in whole}
    if "wrong" in states:
        return "distrust"
    if not whole or data.n_events < ENOUGH_EVENTS:
        return "unknown"
    if states != {"right"} or in_groups or any(concern.serious for concern in data.concerns):
        return "caution"
    return "trust"


def _headline(model: str, level: str, whole: list[Finding], in_groups: list[Finding], data: DataSummary) -> str:
    if level == "distrust":
        why = listed([finding.brief for finding in whole if finding.state == "wrong"][:2])
        return f"The probabilities of {model} cannot be trusted as they are: {why}."
    if level == "unknown":
        if not whole:
            return f"Nothing could be computed that says whether the probabilities of {model} can be trusted."
        off = any(finding.state == "off" for finding in whole)
        end = "; what there is speaks against it" if off else ""
        events = "1 event is" if data.n_events == 1 else f"{data.n_events:,} events are"
        return f"{events} too few to say whether the probabilities of {model} can be trusted{end}."
    if level == "trust":
        return f"The probabilities of {model} can be trusted on rows like these."
    states = {finding.state for finding in whole}
    if "off" in states:
        why = listed([finding.brief for finding in whole if finding.state == "off"][:2])
    elif in_groups:
        why = f"they hold over all rows, but not in {listed(sorted({str(f.group) for f in in_groups})[:3])}"
    elif "unsure" in states:
        why = "nothing speaks against them, but the evidence is too weak to trust them"
    else:
        why = "the figures are good, but the data limit what they can show"
    return f"Use the probabilities of {model} with caution: {why}."


def _where(whole: list[Finding], in_groups: list[Finding]) -> Iterator[str]:
    """Say what is wrong and what is off in full; what is uncertain and what is good in short."""
    for state, title in (("wrong", "Wrong"), ("off", "Somewhat off")):
        found = [finding.words for finding in whole if finding.state == state]
        if found:
            yield f"{title}: {'; '.join(found)}."
    for state, title in (("unsure", "Too uncertain to say"), ("right", "Good")):
        short = in_short([finding for finding in whole if finding.state == state])
        if short:
            yield f"{title}: {'; '.join(short)}."
    groups: dict[str, list[str]] = {}
    for finding in in_groups:
        groups.setdefault(str(finding.group), []).append(finding.words)
    for group, words in groups.items():
        yield f"Where {group}: {'; '.join(words)}."


def in_short(findings: list[Finding]) -> list[str]:
    """One phrase per metric, over all its horizons, with how far the intervals reach."""
    found: dict[str, list[AuditValue]] = {}
    for finding in findings:
        if not finding.short:
            found.setdefault(finding.value.metric, []).append(finding.value)
    phrases = []
    for metric, values in found.items():
        name, factor, digits = _SHORT[metric]
        text = f"{name} {span([factor * value.value for value in values], digits)}"
        ends = [factor * end for value in values for end in (value.lower, value.upper) if math.isfinite(end)]
        phrases.append(f"{text} (intervals from {span(ends, digits)})" if ends else text)
    return phrases + [finding.short for finding in findings if finding.short]


# Name, factor and digits of a value in a short phrase.
_SHORT = {
    "oe": ("O/E", 1, 2),
    "cox_slope": ("calibration slope", 1, 2),
    "ici": ("average error of a risk in points", 100, 1),
}


def span(numbers: list[float], digits: int) -> str:
    """Write the smallest and the largest of some numbers, or the one that they are.

    Examples
    --------
    >>> span([1.04, 0.93, 0.95], 2), span([0.5], 2)
    ('0.93 to 1.04', '0.50')
    """
    low, high = f"{min(numbers):.{digits}f}", f"{max(numbers):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _order(measured: Measurements, level: float) -> Iterator[str]:
    """Say how well the rows are ordered, which is no question of trust in a probability."""
    for name, words in (("harrell", "Harrell's concordance"), ("antolini", "Antolini's concordance")):
        found = _first(measured.values, name)
        if found is not None:
            yield f"Rows are put in order with {words} {found.value:.3f}{interval_in_words(found, level)}."
            return


def _first(values: Iterable[AuditValue], metric: str) -> AuditValue | None:
    return next((v for v in values if v.metric == metric and v.group is None and math.isfinite(v.value)), None)


def _how_sure(data: DataSummary, whole: list[Finding]) -> str:
    events = "1 event" if data.n_events == 1 else f"{data.n_events:,} events"
    evidence = f"This rests on {events} in {data.n:,} rows"
    if data.n_events < ENOUGH_EVENTS:
        return f"{evidence}, fewer than the {ENOUGH_EVENTS} events advised: good values may be chance."
    unsure = any(finding.state == "unsure" for finding in whole)
    return f"{evidence}{': some intervals are too wide to judge by.' if unsure else ', enough to judge by.'}"


def _worries(data: DataSummary) -> Iterator[str]:
    for concern in data.concerns:
        if concern.serious:
            yield f"{concern.what}. {concern.effect}"
