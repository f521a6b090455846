"""The answer in plain words: can the probabilities be trusted, where not, how sure, on how many events.

Each figure is judged by its interval against a range of values that are good enough:

- "right": the whole interval lies in the range;
- "wrong": no part of it does;
- "off": it holds values in and out of the range, and not the value of a perfect model;
- "unsure": it holds the value of a perfect model, and values out of the range.

D-calibration has a test in place of an interval. Few events make wide intervals, so that nothing is "right" by them;
and below a number of events the answer is never "trust", whatever the intervals say.
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
# D-calibration: level of its test, and how far the bins may be off on average (root mean square, as a share of what a
# bin should hold) before it matters, after what noise adds is taken away.
TEST_LEVEL = 0.05
GOOD_BIN_ERROR = 0.10
# Bins of D-calibration where the histogram is not at hand.
BINS = 10

State = Literal["right", "wrong", "off", "unsure"]


@dataclass(frozen=True)
class Finding:
    """One figure, judged, in words."""

    state: State
    words: str
    group: str | None = None


def judge(model: str, measured: Measurements, data: DataSummary, *, level: float, time_unit: str) -> Verdict:
    """Say whether the probabilities can be trusted."""
    findings = list(judged(measured, level=level, time_unit=time_unit))
    whole = [finding for finding in findings if finding.group is None]
    in_groups = [finding for finding in findings if finding.group is not None and finding.state in ("wrong", "off")]
    kind = _level(whole, in_groups, data)
    sentences = [*_where(whole, in_groups), *_order(measured, level), _how_sure(data, whole), *_worries(data)]
    return Verdict(_headline(model, kind, whole, in_groups, data), kind, tuple(sentences))


def judged(measured: Measurements, *, level: float, time_unit: str) -> Iterator[Finding]:
    """Judge every figure of calibration, for all rows and for each group."""
    values = {(value.metric, value.horizon, value.group): value for value in measured.values}
    for (metric, horizon, group), value in values.items():
        when = "" if horizon is None else f" by {time_in_words(horizon, time_unit)}"
        if metric == "oe":
            yield _of_ratio(value, values, when, level)
        elif metric == "cox_slope" and math.isfinite(value.value):
            yield Finding(interval_state(value, 1.0, GOOD_SLOPE), _slope_words(value, level, when), group)
        elif metric == "ici":
            yield Finding(interval_state(value, 0.0, (0.0, GOOD_ICI)), _ici_words(value, level, when), group)
        elif metric == "d_calibration":
            finding = _of_d_calibration(value, values, measured)
            if finding is not None:
                yield finding


def interval_state(value: AuditValue, ideal: float, good: tuple[float, float]) -> State:
    """Judge an interval; without one, the value alone says "off" or "unsure" and never more.

    Examples
    --------
    >>> interval_state(AuditValue("oe", 1.0, None, 1.0, 0.9, 1.1), 1.0, (0.8, 1.25))
    'right'
    >>> interval_state(AuditValue("oe", 1.0, None, 1.0, 0.6, 1.7), 1.0, (0.8, 1.25))
    'unsure'
    """
    low, high = good
    if not (math.isfinite(value.lower) and math.isfinite(value.upper)):
        return "unsure" if low <= value.value <= high else "off"
    if value.upper < low or value.lower > high:
        return "wrong"
    if low <= value.lower and value.upper <= high:
        return "right"
    return "unsure" if value.lower <= ideal <= value.upper else "off"


_Values = dict[tuple[str, float | None, str | None], AuditValue]


def _of_ratio(value: AuditValue, values: _Values, when: str, level: float) -> Finding:
    predicted, observed = (values.get((name, value.horizon, value.group)) for name in ("mean_risk", "observed_risk"))
    ratio = f"O/E {value.value:.2f}{interval_in_words(value, level)}"
    words = ratio
    if predicted is not None and observed is not None:
        words = f"{percent(predicted.value)} of events predicted and {percent(observed.value)} observed{when} ({ratio})"
    state = interval_state(value, 1.0, GOOD_RATIO)
    if state in ("wrong", "off"):
        words += ": the risk is " + ("underestimated" if value.value > 1 else "overestimated")
    return Finding(state, words, value.group)


def _slope_words(value: AuditValue, level: float, when: str) -> str:
    words = f"calibration slope {value.value:.2f}{interval_in_words(value, level)}{when}"
    if value.upper < 1:
        return f"{words}: the risks are too extreme"
    return f"{words}: the risks differ too little between rows" if value.lower > 1 else words


def _ici_words(value: AuditValue, level: float, when: str) -> str:
    return f"risks{when} are off by {100 * value.value:.1f} points on average{interval_in_words(value, level, 100)}"


def _of_d_calibration(value: AuditValue, values: _Values, measured: Measurements) -> Finding | None:
    """Judge D-calibration by its test, and by how much of it noise does not explain."""
    tested = values.get(("d_calibration_p_corrected", None, value.group)) or values.get(
        ("d_calibration_p", None, value.group)
    )
    floor = values.get(("d_calibration_floor", None, value.group))
    if tested is None or floor is None or not math.isfinite(tested.value):
        return None
    error = bin_error(value.value, floor.value, _bins(measured))
    p = f"p = {tested.value:.2g}" if tested.value >= 1e-4 else "p < 0.0001"
    words = f"D-calibration {value.value:.2g}, where a perfect model scores {floor.value:.2g} on average ({p})"
    if tested.value >= TEST_LEVEL:
        return Finding("right" if error <= GOOD_BIN_ERROR else "unsure", words, value.group)
    words += f": over all times the predicted probabilities are off by {error:.0%} of a bin on average"
    return Finding("wrong" if error > GOOD_BIN_ERROR else "off", words, value.group)


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
        return f"The probabilities of {model} cannot be trusted as they are on these rows."
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
        why = "they are somewhat off"
    elif in_groups:
        why = f"they hold over all rows, but not in {listed(sorted({str(f.group) for f in in_groups})[:3])}"
    elif "unsure" in states:
        why = "nothing speaks against them, but the evidence is too weak to trust them"
    else:
        why = "the figures are good, but the data limit what they can show"
    return f"Use the probabilities of {model} with caution: {why}."


def _where(whole: list[Finding], in_groups: list[Finding]) -> Iterator[str]:
    """What is wrong, what is off, what is unsure and what is right, in this order."""
    titles: dict[State, str] = {
        "wrong": "Wrong",
        "off": "Somewhat off",
        "unsure": "Not certain",
        "right": "Good",
    }
    for state, title in titles.items():
        found = [finding.words for finding in whole if finding.state == state]
        if found:
            yield f"{title}: {'; '.join(found)}."
    groups: dict[str, list[str]] = {}
    for finding in in_groups:
        groups.setdefault(str(finding.group), []).append(finding.words)
    for group, words in groups.items():
        yield f"Where {group}: {'; '.join(words)}."


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
