"""Every value of calibration judged: good enough, wrong, or too uncertain to say.

Each value is judged by its interval against a range of values that are good enough:

- "right": the whole interval lies in the range;
- "wrong": no part of it does;
- "off": it holds values in and out of the range, and not the value of a perfect model (for an average error, which is
  never 0 in a sample: the error itself is out of the range);
- "unsure": anything else.

D-calibration has a size and a test in place of an interval: an error that does not matter is "right" however clearly a
large sample shows it, and one that matters is "wrong" or "off" if the test shows it, else "unsure".

Of several intervals one misses the truth now and then, and intervals of few events miss it more often than they should.
What is "wrong" is "clear" if it would be so with an interval twice as wide, or a p-value below .0001.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from xcal.charts.words import p_in_words, time_in_words
from xcal.validation.measurements import AuditValue, ForWhom, Measurements
from xcal.validation.words import interval_in_words, percent

# Ranges that are good enough: ratios of observed to expected events, slopes, and average errors of a risk.
GOOD_RATIO = (0.8, 1.25)
GOOD_SLOPE = (0.8, 1.25)
GOOD_ICI = 0.05
# D-calibration: how far the bins may be off on average (root mean square, as a share of what a bin should hold, after
# what noise adds is taken away) before it matters, and the levels of its test from which a larger error is off and
# wrong. A perfect model is called wrong in at most one of a hundred samples.
GOOD_BIN_ERROR = 0.10
OFF_LEVEL, WRONG_LEVEL, CLEAR_LEVEL = 0.05, 0.01, 0.0001
# An interval this many times as wide shows what one of several intervals does not show by chance.
CLEAR_WIDTH = 2
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
    clear : bool
        Whether what is wrong would be so with an interval twice as wide.
    """

    value: AuditValue
    state: State
    words: str
    brief: str = ""
    short: str = ""
    corrected: bool = False
    clear: bool = False

    @property
    def group(self) -> str | None:
        """Group of the value."""
        return self.value.group


def judged(measured: Measurements, *, level: float, time_unit: str) -> Iterator[Finding]:
    """Judge every value of calibration, for all rows and for each group."""
    values = {(value.metric, value.horizon, value.group): value for value in measured.values}
    for (metric, horizon, group), value in values.items():
        when = "" if horizon is None else f" by {time_in_words(horizon, time_unit)}"
        if metric == "oe":
            yield _of_ratio(value, values, when, level)
        elif metric == "cox_slope":
            yield _of_slope(value, until_in_words(measured, time_unit, group), level)
        elif metric == "ici":
            yield _of_error(value, when, level)
        elif metric == "d_calibration":
            finding = _of_d_calibration(value, values, measured)
            if finding is not None:
                yield finding


def given_covariates(measured: Measurements) -> Finding | None:
    """Judge calibration given the covariates; None if nothing is off, or not by enough to matter.

    The subgroup that is most off is judged as a group is: by the error of its bins, and by its test. Without one that
    counts, the test of all smooth subgroups at once may show that there is something. As these are two tests, each
    p-value is doubled.
    """
    found = measured.for_whom
    if found is None:
        return None
    worst = found.subgroup
    if worst is not None:
        width = worst.edges[1:] - worst.edges[:-1]
        value, floor = (float((part**2).sum()) for part in (worst.mass - width, worst.mass_error))
        state = _state_of_bins(bin_error(value, floor, width.size), min(1.0, 2 * worst.p_value))
        if state in ("off", "wrong"):
            tested = f"{worst.n_tested:,} rows that were not searched, {p_in_words(worst.p_value)}"
            words = f"rows with {worst.rule}: {worst.finding} ({tested})"
            own = AuditValue("subgroup_p", None, f"rows with {worst.rule}", worst.p_value, math.nan, math.nan)
            return Finding(own, state, words, worst.finding, corrected=True)
    state = _state_of_bins(bin_error(found.value, 0.0, _bins(measured)), min(1.0, 2 * found.p_value))
    if state not in ("off", "wrong"):
        return None
    brief = _DIFFERS
    words = f"{brief}, and no one subgroup tells where ({conditional_in_words(found)})"
    own = AuditValue("conditional_calibration_p", None, "some rows", found.p_value, math.nan, math.nan)
    return Finding(own, state, words, brief, corrected=True)


def faintly_given_covariates(measured: Measurements) -> str:
    """Say that calibration surely differs with the covariates, by too little to matter; "" if that is not so."""
    found = measured.for_whom
    if found is None or not 2 * found.p_value < OFF_LEVEL or given_covariates(measured) is not None:
        return ""
    return f"{_DIFFERS}, on the whole by less than what counts as wrong ({conditional_in_words(found)})"


_DIFFERS = "calibration differs with the covariates"


def conditional_in_words(found: ForWhom) -> str:
    """Write conditional calibration beside what a right model scores, and the p-value of its test."""
    return (
        f"conditional calibration {found.value:.2g}, of a right model 0 ± {found.noise:.1g}, "
        f"{p_in_words(found.p_value)}"
    )


def has_interval(value: AuditValue) -> bool:
    """Whether there is an interval; resamples without an event all give the same, and that is none."""
    return math.isfinite(value.lower) and math.isfinite(value.upper) and value.lower < value.upper


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
    if not has_interval(value):
        return "unsure"
    if value.upper < low or value.lower > high:
        return "wrong"
    if low <= value.lower and value.upper <= high:
        return "right"
    close = low <= value.value <= high if ideal is None else value.lower <= ideal <= value.upper
    return "unsure" if close else "off"


def is_clear(value: AuditValue, good: tuple[float, float], *, ratio: bool = False) -> bool:
    """Whether an interval lies outside of the good range even if it is made twice as wide; a ratio's on the log scale.

    Examples
    --------
    >>> is_clear(AuditValue("cox_slope", None, None, 0.5, 0.3, 0.7), (0.8, 1.25))
    False
    >>> is_clear(AuditValue("cox_slope", None, None, 0.5, 0.4, 0.6), (0.8, 1.25))
    True
    """
    if not has_interval(value):
        return False
    if ratio:
        low, high = (value.value * (end / value.value) ** CLEAR_WIDTH for end in (value.lower, value.upper))
    else:
        low, high = (value.value + CLEAR_WIDTH * (end - value.value) for end in (value.lower, value.upper))
    return high < good[0] or low > good[1]


_Values = dict[tuple[str, float | None, str | None], AuditValue]


def _of_ratio(value: AuditValue, values: _Values, when: str, level: float) -> Finding:
    predicted, observed = (values.get((name, value.horizon, value.group)) for name in ("mean_risk", "observed_risk"))
    ratio = f"O/E {value.value:.2f}{interval_in_words(value, level)}"
    brief = f"risks{when} are too {'low' if value.value > 1 else 'high'} on average"
    words = f"{brief} ({ratio})"
    if predicted is not None and observed is not None:
        both = f"{percent(predicted.value)} predicted, {percent(observed.value)} observed"
        words = f"{brief}, {both} ({ratio})"
    state = interval_state(value, 1.0, GOOD_RATIO)
    clear = is_clear(value, GOOD_RATIO, ratio=True)
    return Finding(value, state, words, brief, clear=clear)


def _of_slope(value: AuditValue, when: str, level: float) -> Finding:
    brief = f"risks{when} are too extreme" if value.value < 1 else f"risks{when} differ too little between rows"
    if value.value < 0 and value.upper < 0:
        brief = f"higher risks{when} come with later events (are they probabilities of survival?)"
    words = f"{brief} (calibration slope {value.value:.2f}{interval_in_words(value, level)})"
    reach = f" (interval {value.lower:.2f} to {value.upper:.2f})" if math.isfinite(value.lower + value.upper) else ""
    short = f"calibration slope{when} {value.value:.2f}{reach}"
    state = interval_state(value, 1.0, GOOD_SLOPE)
    return Finding(value, state, words, brief, short, clear=is_clear(value, GOOD_SLOPE))


def until_in_words(measured: Measurements, time_unit: str, group: str | None = None) -> str:
    """Say until when rows are followed for slope and intercept: the last horizon; "" where no horizon is known."""
    known = [v.horizon for v in measured.values if v.metric == "mean_risk" and v.group == group and v.horizon]
    return f" by {time_in_words(max(known), time_unit)}" if known else ""


def _of_error(value: AuditValue, when: str, level: float) -> Finding:
    brief = f"risks{when} are off by {100 * value.value:.1f} points on average"
    words = f"{brief} (ICI{interval_in_words(value, level, factor=100, digits=1)} points)"
    good = (0.0, GOOD_ICI)
    return Finding(value, interval_state(value, None, good), words, brief, clear=is_clear(value, good))


def _of_d_calibration(value: AuditValue, values: _Values, measured: Measurements) -> Finding | None:
    """Judge D-calibration by its test, and by how much of it noise does not explain."""
    corrected = values.get(("d_calibration_p_corrected", None, value.group))
    tested = values.get(("d_calibration_p", None, value.group)) if corrected is None else corrected
    floor = values.get(("d_calibration_floor", None, value.group))
    if tested is None or floor is None or not math.isfinite(tested.value):
        return None
    error = bin_error(value.value, floor.value, _bins(measured))
    brief = f"bins of risk over all times hold {100 * error:.0f} % too many or too few events"
    short = d_calibration_in_words(value, floor, tested)
    state = _state_of_bins(error, tested.value)
    clear = state == "wrong" and tested.value < CLEAR_LEVEL
    return Finding(value, state, f"{brief} ({short})", brief, short, corrected is not None, clear)


def _state_of_bins(error: float, p_value: float) -> State:
    """Judge an error of bins: what does not matter is right, and what matters is as sure as its test."""
    if error <= GOOD_BIN_ERROR:
        return "right"
    if p_value >= OFF_LEVEL:
        return "unsure"
    return "wrong" if p_value < WRONG_LEVEL else "off"


def d_calibration_in_words(value: AuditValue, floor: AuditValue, tested: AuditValue) -> str:
    """Write D-calibration beside what a perfect model scores, and the p-value of its test."""
    scale = f"D-calibration {value.value:.2g}, of a perfect model about {floor.value:.2g}"
    return f"{scale}, {p_in_words(tested.value)}"


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
