"""The answer in plain words: can the probabilities be trusted, where not, how sure, on how many events.

It follows from the findings (`xcal.validation.findings`). Below a number of events the answer is never "trust", and it
is "distrust" only if one thing is clearly wrong or two different ones are: one interval of several that just misses the
good range is not enough.
"""

import math
from collections.abc import Iterable, Iterator

from xcal.validation.findings import Finding, faintly_given_covariates, given_covariates, has_interval, judged
from xcal.validation.measurements import AuditValue, Measurements
from xcal.validation.result import DataSummary, Verdict
from xcal.validation.summary import ENOUGH_EVENTS
from xcal.validation.words import interval_in_words, listed, times_in_words

# Findings that one sentence tells in full, and groups that one names; the rest is counted.
_MOST_WORDS, _MOST_GROUPS = 2, 3


def judge(model: str, measured: Measurements, data: DataSummary, *, level: float, time_unit: str) -> Verdict:
    """Say whether the probabilities can be trusted."""
    findings = list(judged(measured, level=level, time_unit=time_unit))
    whole = [finding for finding in findings if finding.group is None]
    in_groups = [finding for finding in findings if finding.group is not None and _counts_in_group(finding)]
    for_whom, faint = given_covariates(measured), faintly_given_covariates(measured)
    partly = in_groups if for_whom is None else [*in_groups, for_whom]
    kind = _level(whole, partly, data)
    sentences = list(_where(whole, in_groups, kind))
    sentences += [f"For whom: {faint if for_whom is None else for_whom.words}."] if for_whom or faint else []
    sentences += list(_not_wrong(whole, time_unit))
    sentences += [*_order(measured, level), _how_sure(data, whole), *_small_groups(measured), *_worries(data)]
    return Verdict(_headline(model, kind, whole, partly, data, faint), kind, tuple(sentences))


def _counts_in_group(finding: Finding) -> bool:
    """Whether a finding within a group is more than what chance brings when many groups are looked at.

    Of many intervals some miss the ideal by chance; few lie outside of the good range as a whole. The p-values of
    D-calibration are corrected for the number of groups.
    """
    return finding.state == "wrong" or (finding.state == "off" and finding.corrected)


def _level(whole: list[Finding], in_groups: list[Finding], data: DataSummary) -> str:
    """Give the level: with few events nothing is trusted, and only what is clearly wrong is distrusted."""
    states = {finding.state for finding in whole}
    few = data.n_events < ENOUGH_EVENTS
    wrong = [finding for finding in whole if finding.state == "wrong"]
    shown = any(finding.clear for finding in wrong) or len({finding.value.metric for finding in wrong}) > 1
    if wrong and (shown or not few):
        return "distrust"
    if not whole or few:
        return "unknown"
    if states != {"right"} or in_groups or any(concern.serious for concern in data.concerns):
        return "caution"
    return "trust"


def _headline(
    model: str, level: str, whole: list[Finding], in_groups: list[Finding], data: DataSummary, faint: str
) -> str:
    if level == "distrust":
        why = listed([finding.brief for finding in _worst(whole, "wrong")[:2]])
        return f"The probabilities of {model} cannot be trusted as they are: {why}."
    if level == "unknown":
        if not whole:
            return f"Nothing could be computed that says whether the probabilities of {model} can be trusted."
        off = any(finding.state in ("off", "wrong") for finding in whole)
        end = "; what there is speaks against it" if off else ""
        events = "1 event is" if data.n_events == 1 else f"{data.n_events:,} events are"
        return f"{events} too few to say whether the probabilities of {model} can be trusted{end}."
    if level == "trust":
        return f"The probabilities of {model} can be trusted on rows like these."
    states = {finding.state for finding in whole}
    if "off" in states:
        why = listed([finding.brief for finding in _worst(whole, "off")[:2]])
    elif in_groups:
        names = sorted({str(finding.group) for finding in in_groups})
        why = f"they hold over all rows, but not in {listed(_few(names, _MOST_GROUPS, 'group'))}"
    elif faint:
        why = "nothing speaks against them over all rows together, but they seem to be off for some"
    elif "unsure" in states and not any(has_interval(f.value) for f in whole if f.state == "unsure"):
        why = "nothing speaks against them, but some values have no interval to judge by, as nothing was resampled"
    elif "unsure" in states:
        why = "nothing speaks against them, but the evidence is too weak to trust them"
    else:
        why = "the values are good, but the data limit what they can show"
    return f"Use the probabilities of {model} with caution: {why}."


def _where(whole: list[Finding], in_groups: list[Finding], kind: str) -> Iterator[str]:
    """Say the worst of what is wrong and off in full, over all rows and in groups."""
    wrong = "Wrong" if kind == "distrust" else "Wrong, if it is not chance"
    for state, title in (("wrong", wrong), ("off", "Somewhat off")):
        found = _worst(whole, state)
        if found:
            most = 1 if state == "off" and kind == "distrust" else _MOST_WORDS
            yield f"{title}: {_and_more(found, most, sum(finding.state == state for finding in whole))}."
    for group in dict.fromkeys(str(finding.group) for finding in in_groups):
        own = [finding for finding in in_groups if finding.group == group]
        yield f"Where {group}: {_and_more([*_worst(own, 'wrong'), *_worst(own, 'off')], 1, len(own))}."


def _not_wrong(whole: list[Finding], time_unit: str) -> Iterator[str]:
    """Say in short what is uncertain and what is good."""
    for state, title in (("unsure", "Too uncertain to say"), ("right", "Good")):
        short = in_short([finding for finding in whole if finding.state == state], time_unit)
        if short:
            yield f"{title}: {'; '.join(short)}."


def _worst(findings: list[Finding], state: str) -> list[Finding]:
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
    if value.metric == "oe":
        return abs(math.log(value.value)) if value.value > 0 else math.inf
    return abs(value.value - 1) if value.metric == "cox_slope" else value.value


def _and_more(found: list[Finding], most: int, total: int) -> str:
    """Write the first findings in full, and count the rest."""
    return "; ".join(_few([finding.words for finding in found], most, "value", total))


def _few(words: list[str], most: int, what: str, total: int | None = None) -> list[str]:
    """Give the first words, and how many more there are."""
    shown, more = words[:most], (len(words) if total is None else total) - min(most, len(words))
    return [*shown, f"{more} more {what}{'' if more == 1 else 's'}"] if more else shown


def in_short(findings: list[Finding], time_unit: str) -> list[str]:
    """One phrase per metric, over all its horizons, with how far the intervals reach."""
    found: dict[str, list[AuditValue]] = {}
    for finding in findings:
        if not finding.short:
            found.setdefault(finding.value.metric, []).append(finding.value)
    phrases = []
    for metric, values in found.items():
        name, factor, digits = _SHORT[metric]
        moments = [value.horizon for value in values if value.horizon is not None]
        when = f" by {times_in_words(moments, time_unit)}" if moments else ""
        text = f"{name}{when} {span([factor * value.value for value in values], digits)}"
        ends = [factor * end for value in values for end in (value.lower, value.upper) if math.isfinite(end)]
        reach = "interval" if len(ends) == 2 else "intervals from"
        phrases.append(f"{text} ({reach} {span(ends, digits)})" if ends else text)
    return phrases + [finding.short for finding in findings if finding.short]


# Name, factor and digits of a value in a short phrase.
_SHORT = {
    "oe": ("O/E", 1, 2),
    "cox_slope": ("calibration slope", 1, 2),
    "ici": ("average error in points", 100, 1),
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
            interval = interval_in_words(found, level, digits=3)
            yield f"Rows are put in order with {words} {found.value:.3f}{interval}."
            return


def _first(values: Iterable[AuditValue], metric: str) -> AuditValue | None:
    return next((v for v in values if v.metric == metric and v.group is None and math.isfinite(v.value)), None)


def _how_sure(data: DataSummary, whole: list[Finding]) -> str:
    events = "1 event" if data.n_events == 1 else f"{data.n_events:,} events"
    together = "" if data.n_clusters is None else f" of {data.n_clusters:,} clusters"
    evidence = f"This rests on {events} in {data.n:,} rows{together}"
    if data.n_events < ENOUGH_EVENTS:
        return f"{evidence}, fewer than the {ENOUGH_EVENTS} events advised: good values may be chance."
    unsure = any(finding.state == "unsure" for finding in whole)
    return f"{evidence}{': some intervals are too wide to judge by.' if unsure else ', enough to judge by.'}"


def _small_groups(measured: Measurements) -> Iterator[str]:
    """Name the groups that were not judged: their names are the ones that hold an equals sign."""
    small = [name for name, _ in measured.skipped if " = " in name and " in " not in name]
    if small:
        yield f"Too few events to judge: {listed(_few(small, _MOST_GROUPS, 'group'))}."


def _worries(data: DataSummary) -> Iterator[str]:
    for concern in data.concerns:
        if concern.serious:
            yield f"{concern.what}. {concern.effect}"
