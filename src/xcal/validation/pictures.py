"""The pictures of a report with matplotlib, for papers: axes in, axes out.

They show what the charts of the page show, from the same results; `charts` and `performance_charts` are their twins.
"""

import math
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from xcal._checks import as_choice, fail
from xcal.show.charts import heights, narrowest, risk_limit, time_in_words, time_title
from xcal.validation.charts import OUTCOMES, benefit_limits, drawn_parts, same
from xcal.validation.result import AuditResult, AuditValue
from xcal.validation.words import ESTIMATORS, find, label, missing

MODEL, OBSERVED, REFERENCE = "#0072b2", "#1a1f26", "#8a929c"
_OUTCOMES = {"with_event": "#d55e00", "without_event": "#009e73", "censored": REFERENCE}
_DASHED = {"color": REFERENCE, "linestyle": "--", "linewidth": 1.2}
Draw = Callable[[Any, AuditResult, float | None, str | None], bool]


def draw(
    result: AuditResult, kind: str, ax: Any = None, *, horizon: float | None = None, group: str | None = None
) -> Any:
    """Draw one picture into `ax`, and give the axes back.

    Parameters
    ----------
    result : AuditResult
    kind : str
        One of `KINDS`.
    ax : matplotlib axes, optional
        A new figure by default.
    horizon : float, optional
        One of the result's horizons; by default the middle one, as on the page.
    group : str, optional
        A group, "variable = label", for "calibration" and "pit"; by default all rows.

    Returns
    -------
    matplotlib axes
        Where the predictions do not allow the picture, they say why.
    """
    as_choice("kind", kind, KINDS)
    chosen = _horizon(result, horizon)
    if group is not None and group not in result.groups:
        known = ", ".join(map(repr, result.groups)) or "none, as no groups were given"
        fail("group", f"one of the groups ({known})", repr(group))
    if group is not None and kind not in _BY_GROUP:
        fail("group", f"None, as only {' and '.join(_BY_GROUP)} are drawn by group", repr(group))
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(5.2, 4.0), layout="constrained")
    make, reasons = _PICTURES[kind]
    if make(ax, result, chosen, group):
        ax.spines[["top", "right"]].set_visible(False)
    else:
        _say_why(ax, result, reasons)
    return ax


def _horizon(result: AuditResult, horizon: float | None) -> float | None:
    if horizon is None:
        return result.horizons[len(result.horizons) // 2] if result.horizons else None
    if horizon not in result.horizons:
        known = ", ".join(f"{t:g}" for t in result.horizons) or "it has none"
        fail("horizon", f"one of the result's horizons ({known})", repr(horizon))
    return horizon


def _say_why(ax: Any, result: AuditResult, reasons: tuple[str, ...]) -> None:
    why = missing(result, *reasons) or ["the predictions given do not allow this picture"]
    words = textwrap.fill(f"Not shown: {why[0]}", 36)
    ax.text(0.5, 0.5, words, ha="center", va="center", color=REFERENCE, parse_math=False, transform=ax.transAxes)
    ax.set_axis_off()


def _percent(axis: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0))


def _legend(ax: Any, **more: Any) -> None:
    ax.legend(frameon=False, fontsize=9, **more)


def _observed(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    over = result.measured.over_time
    if not np.isfinite(over.predicted).any():
        return False
    ax.fill_between(over.times, over.observed_lower, over.observed_upper, step="post", color=OBSERVED, alpha=0.12, lw=0)
    ax.step(over.times, over.observed, where="post", color=OBSERVED, label="observed (Kaplan-Meier)")
    ax.plot(over.times, over.predicted, color=MODEL, lw=2, label="mean prediction")
    if horizon is not None:
        ax.axvline(horizon, color=REFERENCE, ls=":", lw=1.2)
    ax.set(xlabel=time_title(result.time_unit), ylabel="Risk of the event", ylim=(0, None), xlim=(0, over.times[-1]))
    _percent(ax.yaxis)
    _legend(ax)
    return True


def _calibration(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    curve = same(result.measured.calibration, horizon, group)
    if curve is None or horizon is None:
        return False
    top = risk_limit([curve])
    ax.plot([0, top], [0, top], **_DASHED)
    ax.fill_between(curve.predicted, curve.lower, curve.upper, color=MODEL, alpha=0.16, lw=0)
    ax.plot(curve.predicted, curve.observed, color=MODEL, lw=2)
    ends = (curve.point_observed - curve.point_lower, curve.point_upper - curve.point_observed)
    ax.errorbar(
        curve.point_predicted,
        curve.point_observed,
        yerr=ends,
        fmt="o",
        color=MODEL,
        ms=4.5,
        elinewidth=1,
    )
    counts = heights(curve.risk_counts, curve.risk_edges, narrowest([curve.risk_edges]))
    ax.stairs(0.12 * top * counts / max(1.0, counts.max()), curve.risk_edges, fill=True, color=MODEL, alpha=0.25)
    at = f" at {time_in_words(horizon, result.time_unit)}"
    ax.set(xlim=(0, top), ylim=(0, top), xlabel=f"Predicted risk{at}", ylabel=f"Observed risk{at}", aspect="equal")
    _percent(ax.xaxis)
    _percent(ax.yaxis)
    if group is not None:
        ax.set_title(group, fontsize=10, parse_math=False)
    return True


def _pit(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    found = [one for one in result.measured.pit if one.group == group]
    if not found:
        return False
    one = found[0]
    base = narrowest([one.edges])
    ax.stairs(heights(one.mass, one.edges, base), one.edges, fill=True, color=MODEL, alpha=0.8)
    ax.stairs(heights(np.diff(one.edges), one.edges, base), one.edges, baseline=None, color=OBSERVED, ls="--", lw=1.2)
    for side in (one.lower, one.upper):
        ax.stairs(heights(side, one.edges, base), one.edges, baseline=None, color=OBSERVED, ls=":", lw=1.2)
    ax.set(xlim=(0, 1), ylim=(0, None), xlabel="F at the observed time", ylabel="Share of the rows")
    _percent(ax.yaxis)
    title = f"censored rows: {ESTIMATORS.get(one.method, one.method)}"
    ax.set_title(title if group is None else f"{group} ({title})", fontsize=10, parse_math=False)
    return True


def _pp(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    curve = result.measured.pp
    if curve is None:
        return False
    ax.plot([0, 1], [0, 1], **_DASHED)
    ax.fill_between(curve.predicted, curve.lower, curve.upper, color=MODEL, alpha=0.16, lw=0)
    ax.plot(curve.predicted, curve.observed, color=MODEL, lw=2)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="Predicted", ylabel="Observed", aspect="equal")
    return True


def _discrimination(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    wanted: list[tuple[str, str, float | None, str | None]]
    wanted = [(label(metric).name, metric, None, None) for metric in ("harrell", "uno", "antolini")]
    wanted += [(f"AUC at {time_in_words(t, result.time_unit)}", "auc", t, None) for t in result.horizons]
    return _dots(ax, result, wanted, "Concordance or AUC", None)


def _oe(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    return _dots(ax, result, [(time_in_words(t, result.time_unit), "oe", t, None) for t in result.horizons], "O/E", 1.0)


def _groups(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    if horizon is None or not result.groups:
        return False
    wanted: list[tuple[str, str, float | None, str | None]] = [("All rows", "oe", horizon, None)]
    wanted += [(name, "oe", horizon, name) for name in result.groups]
    return _dots(ax, result, wanted, f"O/E at {time_in_words(horizon, result.time_unit)}", 1.0)


def _dots(
    ax: Any,
    result: AuditResult,
    wanted: list[tuple[str, str, float | None, str | None]],
    title: str,
    reference: float | None,
) -> bool:
    """Draw values with intervals, one line each, the first on top."""
    found = [(name, find(result, metric, t, group)) for name, metric, t, group in wanted]
    return _lines(ax, [(name, value) for name, value in found if value is not None], title, reference)


def _lines(ax: Any, kept: list[tuple[str, AuditValue]], title: str, reference: float | None) -> bool:
    """Draw values, one line each."""
    if not kept:
        return False
    if reference is not None:
        ax.axvline(reference, color=REFERENCE, ls=":", lw=1.2)
    for place, (_, value) in enumerate(kept):
        if not (math.isnan(value.lower) or math.isnan(value.upper)):
            ax.plot([value.lower, value.upper], [place, place], color=MODEL, lw=1.5)
        ax.plot(value.value, place, "o", color=MODEL, ms=6)
    ax.set_yticks(range(len(kept)), [name for name, _ in kept])
    for text in ax.get_yticklabels():
        text.set_parse_math(False)
    ax.set(ylim=(len(kept) - 0.5, -0.5), xlabel=title)
    return True


def _for_whom(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    parts = [(name, found[0]) for name, found in drawn_parts([result])]
    kept = [(name, AuditValue("mean_f", None, None, p.mean, p.lower, p.upper)) for name, p in parts if p is not None]
    return _lines(ax, kept, "Mean of F at the event (0.5 is right)", 0.5)


def _brier(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    over = result.measured.over_time
    if not np.isfinite(over.brier).any():
        return False
    ax.plot(over.times, over.brier_null, **_DASHED, label="Kaplan-Meier")
    ax.plot(over.times, over.brier, color=MODEL, lw=2, label="model")
    ax.set(xlabel=time_title(result.time_unit), ylabel="Brier score", ylim=(0, None), xlim=(0, over.times[-1]))
    _legend(ax)
    return True


def _decision(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    curve = same(result.measured.decision, horizon)
    if curve is None or horizon is None:
        return False
    ax.plot(curve.threshold, curve.treat_all, **_DASHED, label="act on everybody")
    ax.axhline(0, color=REFERENCE, lw=1.2, label="act on nobody")
    ax.fill_between(curve.threshold, curve.lower, curve.upper, color=MODEL, alpha=0.16, lw=0)
    ax.plot(curve.threshold, curve.model, color=MODEL, lw=2, label="model")
    at = time_in_words(horizon, result.time_unit)
    ax.set(ylim=benefit_limits([curve]), xlabel=f"Threshold: act above this risk at {at}", ylabel="Net benefit")
    _percent(ax.xaxis)
    _legend(ax)
    return True


def _risks(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    found = same(result.measured.risks, horizon)
    if found is None or horizon is None:
        return False
    for field, text in OUTCOMES:
        counted = f"{text} ({getattr(found, f'n_{field}'):,})"
        colour, known = _OUTCOMES[field], field != "censored"
        if known:
            ax.stairs(getattr(found, field), found.edges, fill=True, color=colour, alpha=0.3)
        ax.stairs(getattr(found, field), found.edges, color=colour, ls="-" if known else "--", label=counted)
    ax.set(
        xlabel=f"Predicted risk at {time_in_words(horizon, result.time_unit)}", ylabel="Share of each", ylim=(0, None)
    )
    _percent(ax.xaxis)
    _percent(ax.yaxis)
    _legend(ax)
    return True


def _censoring(ax: Any, result: AuditResult, horizon: float | None, group: str | None) -> bool:
    over = result.measured.over_time
    ax.step(over.times, over.uncensored, where="post", color=REFERENCE, lw=2, label="not yet censored")
    ax.plot(over.times, over.at_risk / max(1, over.at_risk.max()), color=MODEL, lw=2, label="still followed")
    ax.set(xlabel=time_title(result.time_unit), ylabel="Share of the rows", ylim=(0, 1.02), xlim=(0, over.times[-1]))
    _percent(ax.yaxis)
    _legend(ax)
    return True


# For each kind what draws it, and the names under which the reasons for its absence are listed.
_PICTURES: dict[str, tuple[Draw, tuple[str, ...]]] = {
    "observed": (_observed, ("oe", "horizon")),
    "oe": (_oe, ("oe", "horizon")),
    "calibration": (_calibration, ("ici", "horizon", "calibration")),
    "pit": (_pit, ("d_calibration",)),
    "pp": (_pp, ("d_calibration",)),
    "discrimination": (_discrimination, ("harrell", "uno", "antolini", "auc")),
    "brier": (_brier, ("brier", "ibs", "horizon")),
    "decision": (_decision, ("net_benefit", "horizon")),
    "risks": (_risks, ("horizon", "risks")),
    "groups": (_groups, ("oe", "horizon")),
    "for_whom": (_for_whom, ("conditional_calibration",)),
    "censoring": (_censoring, ()),
}
KINDS: tuple[str, ...] = tuple(_PICTURES)
"""Kinds of pictures that `draw` accepts."""
_BY_GROUP = ("calibration", "pit")
