"""Whether the model orders patients, how large its errors are, and whether it would help to decide."""

from collections.abc import Sequence

import numpy as np

from xcal.charts.words import time_in_words
from xcal.pages import Block, Chart, Key, Row, Section, Text
from xcal.validation import charts, performance_charts
from xcal.validation.charts import by_horizon, keys
from xcal.validation.labels import find, label, names
from xcal.validation.result import AuditResult
from xcal.validation.sections.parts import (
    Results,
    beside_picture,
    for_each_horizon,
    nothing,
    numbers,
    reasons,
    with_intervals,
)
from xcal.validation.words import range_in_words


def ordering(results: Results, horizons: Sequence[float]) -> Section:
    """Show whether the model orders patients."""
    heading, short = "Does it tell who is at higher risk?", "Ordering"
    over_all = [m for m in ("harrell", "uno", "antolini") if any(find(result, m) for result in results)]
    at_time = [t for t in horizons if any(find(result, "auc", t) for result in results)]
    pictures = []
    if over_all:
        wanted: list[tuple[str, str, float | None, str | None]] = [(label(m).name, m, None, None) for m in over_all]
        reading = "Of two patients, how often the one with the higher risk has the event first. 0.5 is a coin."
        pictures.append(with_intervals(results, wanted, "Concordance", None, "Concordance over all times", reading))
    if at_time:
        wanted = [(time_in_words(t, results[0].time_unit), "auc", t, None) for t in at_time]
        reading = "How often a patient with the event by then had a higher risk than one without it. 0.5 is a coin."
        pictures.append(with_intervals(results, wanted, "AUC", None, "AUC at each horizon", reading))
    if not pictures:
        return Section(heading, tuple(nothing(results, "harrell", "uno", "antolini", "auc", "horizon")), short)
    blocks: list[Block] = [Row(tuple(pictures))]
    if len(results) > 1:
        blocks.append(numbers(results, [(metric, None) for metric in over_all]))
    return Section(heading, (*blocks, *reasons(results, "harrell", "uno", "antolini", "auc")), short)


def overall_error(results: Results, horizons: Sequence[float]) -> Section:
    """Show how large the errors are."""
    heading, short = "How large are the errors overall?", "Overall error"
    has_curve = any(np.isfinite(result.measured.over_time.brier).any() for result in results)
    metrics = [m for m in ("brier", "ipa") if any(find(r, m, t) for r in results for t in horizons)]
    blocks: list[Block] = []
    side: list[Block] = []
    if metrics:
        side.append(for_each_horizon(horizons, lambda t: numbers(results, [(m, t) for m in metrics])))
    over_all = [(m, None) for m in ("ibs", "nll") if any(find(result, m) for result in results)]
    if over_all:
        side += [Text(f"Over all times{_range(results)}", "note"), numbers(results, over_all)]
    if has_curve:
        moments: Sequence[float | None] = horizons or [None]
        made = [performance_charts.brier(results, t) for t in moments]
        picture = Chart(
            tuple(spec for spec, _ in made),
            tuple(alt for _, alt in made),
            follows=("horizon",) if len(made) > 1 else (),
            keys=(*keys(results), Key("Kaplan-Meier, which knows no covariates", "reference", "dashed")),
            reading="The squared error of the risks, lower is better. The gap to the dashed line is what the "
            "covariates save; IPA is that gap as a share.",
        )
        blocks.append(beside_picture(results, picture, side))
    else:
        blocks += side
    if not blocks:
        return Section(heading, tuple(nothing(results, "horizon", "brier", "ipa", "ibs")), short)
    return Section(heading, (*blocks, *reasons(results, "brier", "ipa", "ibs", "nll")), short)


def _range(results: Results) -> str:
    """Say over which times the Brier score was averaged; curves may end at different times."""
    ends = [result.measured.ibs_range for result in results if result.measured.ibs_range is not None]
    told = [range_in_words(one, results[0].time_unit) for one in ends]
    return f"; the Brier score averaged from {' and '.join(dict.fromkeys(told))}" if told else ""


def usefulness(results: Results, horizons: Sequence[float]) -> Section:
    """Show whether the model helps to decide."""
    heading, short = "Would it help to decide?", "Usefulness"
    if not any(charts.same(result.measured.decision, t) for result in results for t in horizons):
        return Section(heading, tuple(nothing(results, "horizon", "net_benefit", "decision")), short)
    legend = (*keys(results), Key("act on everybody", "reference", "dashed"), Key("act on nobody", "reference"))
    picture = by_horizon(
        horizons,
        lambda t: performance_charts.decision(results, t),
        keys=legend,
        reading="Choose the risk at which you would act. The model helps where its line is above both others; the "
        "height is the net share of patients rightly acted on.",
    )
    return Section(heading, (picture, *reasons(results, "net_benefit", "decision")), short)


def by_outcome(results: Results, horizons: Sequence[float]) -> Section:
    """Show the risks of those with and without the event."""
    heading, short = "Which risks did those with the event have?", "Risks"
    if not any(charts.same(result.measured.risks, t) for result in results for t in horizons):
        return Section(heading, tuple(nothing(results, "horizon", "risks")), short)

    def picture(name: str, result: AuditResult) -> Chart:
        return by_horizon(
            horizons,
            lambda t: performance_charts.risks_by_outcome(result, t, results),
            keys=performance_charts.outcome_keys(result),
            title=name if len(results) > 1 else "",
            reading="The further the two colours are apart, the better the model separates. Each group sums to 100%; "
            "of censored rows the outcome is not known.",
        )

    pictures = tuple(picture(name, result) for name, result in zip(names(results), results, strict=True))
    return Section(heading, (Row(pictures) if len(pictures) > 1 else pictures[0],), short)
