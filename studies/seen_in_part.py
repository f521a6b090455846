"""Rows that are seen in part: sizes of the tests of a true model, and how often intervals hold the truth.

Claims, over rows half of which came under observation late, events that are known to lie between visits of three
widths, and both together, each with 0, 40 and 80 % of the rows censored, hazards that cross, 300 rows:

- every test of an audit rejects a true model in 3 to 7 % of data sets at 5 %;
- 95 % intervals of O/E, calibration slope and Brier score hold the truth in 92 % of data sets or more.

Each line of the record holds many data sets of one kind; the same command resumes. `--show` prints the tables of the
record without computing anything. `--quick` leaves out the tests at horizons and given covariates, which take most of
the time.
"""

import argparse
import os
import warnings
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from studies._records import append_line, read_lines, side_by_side
from xcal import Surv, audit
from xcal.data.surv import Outcome
from xcal.interop import ModelPredictions
from xcal.metrics.estimates import bootstrap, estimates
from xcal.metrics.of_rows import Asked
from xcal.metrics.pseudo_values import same_for_all
from xcal.metrics.rows import Rows
from xcal.validation.sample import sample_of

# Visits so far apart: within the early part of the curves, a third of the follow-up, and most of it.
WIDTHS = (0.1, 0.4, 1.2)
CENSORED = (0.0, 0.4, 0.8)
KINDS = ("entry", *(f"{kind} {width:g}" for kind in ("visits", "both") for width in WIDTHS))
HORIZONS = {"early": 0.3, "late": 0.8}
REMAINING = 0.1  # of the rows, at least, are under observation at a horizon
TIMES = np.concatenate([np.geomspace(1e-4, 0.09, 16), np.linspace(0.1, 2.0, 39), np.linspace(2.2, 6.0, 10)])
COVERED = ("oe", "slope", "brier", "event_ratio")
_NEVER = 1e9


def hazard(x: np.ndarray, t: np.ndarray | float) -> np.ndarray:
    """Cumulative hazards of Weibull laws whose shape depends on x: they cross."""
    return np.asarray(t) ** np.exp(0.6 * x)


def draw(kind: str, n: int, scale: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw rows: covariate, time, event, entry, and of intervals their lower ends; censored at times of this scale."""
    name, _, width = kind.partition(" ")
    m = 12 * n
    x = rng.normal(size=m)
    happens = rng.exponential(size=m) ** np.exp(-0.6 * x)
    leaves = scale * rng.weibull(1.5, m) if scale else np.full(m, _NEVER)
    late = (rng.random(m) < 0.5) & (name in ("entry", "both"))
    entry = np.where(late, rng.uniform(0, 0.8, m), 0.0)
    leaves = np.where(late, entry + leaves, leaves)
    event, there = happens <= leaves, happens > entry
    time, lower = np.minimum(happens, leaves), None
    if width:
        step = float(width)
        first = entry + rng.uniform(0, step, m)  # the visits of a row begin after its entry
        passed = np.floor((happens - first) / step)
        end, before = first + (passed + 1) * step, np.maximum(first + passed * step, entry)
        event, last = end <= leaves, np.maximum(first + np.floor((leaves - first) / step) * step, entry)
        lower, time = np.where(event, before, last), np.where(event, end, last)
        there &= event | (last > entry)  # of a row that left before its first visit nothing is known
    kept = np.flatnonzero(there)[:n]
    found = {"x": x, "time": time, "event": event, "entry": entry} | ({} if lower is None else {"lower": lower})
    return {key: values[kept] for key, values in found.items()}


@cache
def scale_of(kind: str, share: float) -> float:
    """Scale of the censoring times that leaves this share of rows censored; 0 for none."""
    if share == 0:
        return 0.0
    low, high = 1e-3, 1e3
    for _ in range(30):
        middle = (low * high) ** 0.5
        censored = 1 - draw(kind, 5_000, middle, np.random.default_rng(9))["event"].mean()
        low, high = (middle, high) if censored > share else (low, middle)
    return middle


@cache
def horizons_of(kind: str, share: float) -> dict[float, str]:
    """Horizons by which enough rows are still under observation, and their names."""
    rows = draw(kind, 5_000, scale_of(kind, share), np.random.default_rng(9))
    known = np.sort(rows["lower"] if "lower" in rows else rows["time"])[::-1]
    last = float(known[int(REMAINING * known.size)])
    found = {name: float(f"{min(h, last * h / HORIZONS['late']):.2g}") for name, h in HORIZONS.items()}
    return {h: name for name, h in found.items()}


@cache
def true_brier(kind: str, share: float) -> dict[float, float]:
    """Brier scores of the true model: the mean of p (1 - p) over rows that entered before the horizon."""
    rows = draw(kind, 50_000, scale_of(kind, share), np.random.default_rng(10))
    found = {}
    for h in horizons_of(kind, share):
        there = rows["entry"] < h
        risk = -np.expm1(hazard(rows["x"], rows["entry"]) - hazard(rows["x"], h))[there]
        found[h] = float((risk * (1 - risk)).mean())
    return found


def outcome(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Return what is known of the rows, as an audit takes it."""
    late = {"entry": rows["entry"]} if rows["entry"].any() else {}
    if "lower" in rows:
        return Surv(lower=rows["lower"], upper=np.where(rows["event"], rows["time"], np.inf), **late)
    return Surv(time=rows["time"], event=rows["event"], **late)


def rows_of(kind: str, drawn: dict[str, np.ndarray], horizons: list[float]) -> Rows:
    """Return what metrics are computed from, with F at every time exact."""
    x, late, times = drawn["x"], drawn["entry"].any(), np.union1d(TIMES, horizons)
    early = {name: drawn[name] for name in ("entry", "lower") if name in drawn and (late or name == "lower")}
    predictions = ModelPredictions(
        *(kind, "none", x.size),
        survival=np.exp(-hazard(x[:, None], times)),
        times=times,
        cdf=-np.expm1(-hazard(x, drawn["time"])),
        **{f"cdf_{name}": -np.expm1(-hazard(x, t)) for name, t in early.items()},
    )
    rows = sample_of(Outcome(drawn["time"], drawn["event"], **early), predictions, np.array(horizons)).rows
    # As in an audit: what happened by a horizon to rows of delayed entry is known by a model of the censoring.
    return replace(rows, censoring_model=same_for_all(rows.outcome)) if late and rows.lower is None else rows


def quickly(task: tuple[str, float, int, int, int, int]) -> dict:
    """Count for one kind what needs no draws of the model's own world."""
    kind, share, n, first, last, resamples = task
    scale, brier, names = scale_of(kind, share), true_brier(kind, share), horizons_of(kind, share)
    counts: dict[str, list[int]] = {}
    for seed in range(first, last):
        rng = np.random.default_rng([KINDS.index(kind), round(10 * share), n, seed])
        rows = rows_of(kind, draw(kind, n, scale, rng), list(names))
        found = estimates(rows, ("d_calibration_p", "event_ratio", "oe", "slope", "brier"), Asked())
        draws = bootstrap(rows, found, resamples, (seed,))
        for one, value in found.values.items():
            low, high = found.intervals.get(one, draws.interval(one, value, 0.95))
            count(counts, one.metric, one.horizon, value, (low, high), names, brier)
    return {"kind": kind, "censored": share, "n": n, "first": first, "last": last, "counts": counts}


def count(
    counts: dict[str, list[int]],
    metric: str,
    horizon: float | None,
    value: float,
    interval: tuple[float, float],
    names: dict[float, str],
    brier: dict[float, float],
) -> None:
    """Count a test that rejects, or an interval that holds the truth."""
    if metric.endswith("_p"):
        hit = value <= 0.05
    elif metric in COVERED and np.isfinite(interval[0]):
        truth = brier[horizon] if metric == "brier" and horizon is not None else 1.0
        hit = interval[0] <= truth <= interval[1]
    else:
        return
    one = counts.setdefault(metric if horizon is None else f"{metric} {names[horizon]}", [0, 0])
    one[0] += int(hit)
    one[1] += 1


def audited(task: tuple[str, float, int, int, int, int]) -> dict:
    """Audit data sets of one kind; count rejections of every test, and intervals that hold the truth."""
    kind, share, n, first, last, resamples = task
    scale, brier, names = scale_of(kind, share), true_brier(kind, share), horizons_of(kind, share)
    times = np.union1d(TIMES, list(names))
    counts: dict[str, list[int]] = {}
    warnings.simplefilter("ignore", UserWarning)
    for seed in range(first, last):
        rng = np.random.default_rng([KINDS.index(kind), round(10 * share), n, seed])
        rows = draw(kind, n, scale, rng)
        result = audit(
            survival=np.exp(-hazard(rows["x"][:, None], times)),
            times=times,
            cdf=-np.expm1(-hazard(rows["x"], rows["time"])),
            y=outcome(rows),
            horizons=list(names),
            covariates={"x": rows["x"]},
            n_bootstrap=resamples,
            seed=seed,
            progress=False,
        )
        for one in result:
            if one.group is None:
                count(counts, one.metric, one.horizon, one.value, (one.lower, one.upper), names, brier)
    return {"kind": kind, "censored": share, "n": n, "first": first, "last": last, "counts": counts}


def key(line: dict) -> tuple:
    """Which data sets a line is of."""
    return line["kind"], line["censored"], line["n"], line["first"], line["last"]


def show(lines: list[dict]) -> None:
    """Print how often tests reject, and how often intervals hold the truth."""
    total: dict[tuple[str, float, int], dict[str, list[int]]] = {}
    for line in lines:
        cell = total.setdefault((line["kind"], line["censored"], line["n"]), {})
        for name, (hits, of) in line["counts"].items():
            one = cell.setdefault(name, [0, 0])
            one[0], one[1] = one[0] + hits, one[1] + of
    for what, chosen in (("rejected at 5 %", "_p"), ("intervals that hold the truth", "")):
        names = sorted({name for cell in total.values() for name in cell if ("_p" in name) == bool(chosen)})
        print(
            f"\n{what}\n{'rows':>12} {'n':>5} {'censored':>8} {'data sets':>9}  " + "  ".join(f"{n:>16}" for n in names)
        )
        for (kind, share, n), cell in sorted(total.items(), key=lambda one: (KINDS.index(one[0][0]), one[0][1:])):
            shares = ["" if name not in cell else f"{cell[name][0] / cell[name][1]:.3f}" for name in names]
            most = max(of for _, of in cell.values())
            print(f"{kind:>12} {n:>5} {share:>8.0%} {most:>9,}  " + "  ".join(f"{one:>16}" for one in shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=2000)
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--resamples", type=int, default=40, help="behind the interval of the Brier score")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--each", type=int, default=50, help="data sets in a line of the record")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which nothing is begun any more")
    parser.add_argument("--out", type=Path, help="by default studies/seen_in_part.jsonl, or seen_in_part_quick.jsonl")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true")
    options, _ = parser.parse_known_args()
    options.out = options.out or Path(f"studies/seen_in_part{'_quick' if options.quick else ''}.jsonl")
    lines = read_lines(options.out)
    if not options.show:
        done = {key(line) for line in lines}
        # All kinds in turn, so that a record that was interrupted holds some of each.
        cells = product(range(0, options.datasets, options.each), options.kinds, CENSORED)
        tasks = [(kind, c, options.n, s, s + options.each, options.resamples) for s, kind, c in cells]
        left = [task for task in tasks if task[:5] not in done]
        for _, line in side_by_side(quickly if options.quick else audited, left, options.workers, options.minutes):
            append_line(options.out, line)
            lines.append(line)
    show(lines)


if __name__ == "__main__":
    main()
