"""Conditional calibration: how often its test rejects a right model, what it finds, and what it costs.

Claims: a model that is right for every x is rejected at the nominal 5 %, whatever the size, the censoring (also where
it depends on x) and the number, correlation and skewness of the columns; a model that is right on average and wrong for
every row is rejected where D-calibration sees nothing, beside tests of groups and of the worst slab; a hidden subgroup
is found and named; a million rows take seconds.

    python -m studies.conditional --parts size --datasets 2000 --record size.jsonl

``--record`` keeps what was found; run the same command again to resume, or with more data sets. ``--show`` prints it:

    python -m studies.conditional --show --record studies/conditional_size.jsonl
"""

import argparse
import itertools
import json
import os
import resource
import time as clock
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.stats import norm

from xcal import audit, conditional_calibration, d_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.histogram import residuals
from xcal.validation.verdict import given_covariates

# Rate of an exponential censoring time beside an event time of rate one that gives about this share of censored rows.
RATES = {0.0: 0.0, 0.3: 0.43, 0.6: 1.5, 0.8: 4.0}
KINDS = ((5, "normal"), (50, "normal"), (5, "skewed"), (50, "skewed"))
# Data sets of a cell before the next cell has its turn, so that a run that is cut off has all cells.
ROUND = 100
SCALES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one column": lambda x: x[:, 0],
    "a mix of five": lambda x: x[:, :5].sum(axis=1) / 5**0.5,
    "a product of two": lambda x: x[:, 0] * x[:, 1],
}
DIRECTIONS, CUTS, SMALLEST_SLAB = 100, 20, 4  # of the worst slab: at least a fifth of the rows


def covariates(n: int, p: int, kind: str, rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal((n, p))
    if kind == "skewed":  # correlated by a common factor, then log-normal
        x = np.exp(0.7 * x + 0.7 * rng.standard_normal((n, 1)))
    return x


def right_model(n: int, p: int, kind: str, censored: float, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """F at the observed time under the true proportional hazards; censoring depends on x, too."""
    x = covariates(n, p, kind, rng)
    z = norm.ppf((x.argsort(axis=0).argsort(axis=0) + 0.5) / n)
    hazard = np.exp(0.5 * z[:, 0] - 0.3 * z[:, 1])
    time = rng.exponential(1 / hazard)
    end = rng.exponential(np.exp(0.5 * z[:, 2] - 0.3 * z[:, 0]) / RATES[censored]) if censored else np.full(n, np.inf)
    return 1 - np.exp(-np.minimum(time, end) * hazard), time <= end, x


def size_of(task: tuple[int, int, int, str, float]) -> tuple[bool, float]:
    seed, n, p, kind, censored = task
    u, event, x = right_model(n, p, kind, censored, np.random.default_rng(seed))
    found = conditional_calibration(u, event, x, n_draws=199, where=False, seed=seed)
    return (found.p_value or 1.0) <= 0.05, 1 - float(event.mean())


def one_scale(seed: int, n: int, censored: float, scale: str, p: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """F, events and columns: one scale for all where the truth has many, mapped to be uniform without censoring.

    The logarithm of the true scale is half of one column, of a mix of the first five, or of the product of two.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p))
    z = np.exp(0.5 * SCALES[scale](x)) * rng.standard_normal(n)
    draws = np.exp(0.5 * SCALES[scale](np.random.default_rng(0).standard_normal((200_000, 5))))
    draws = np.sort(draws * np.random.default_rng(1).standard_normal(200_000))
    cut = {0.0: np.inf, 0.3: 0.9, 0.6: 0.2, 0.8: -0.3}[censored]
    end = cut + rng.standard_normal(n) if np.isfinite(cut) else np.full(n, np.inf)
    return np.searchsorted(draws, np.minimum(z, end)) / draws.size, z <= end, x


def power_of(task: tuple[int, int, float, str]) -> tuple[bool, ...]:
    """Which tests reject a model with one scale for all where the truth has many (`one_scale`).

    Conditional calibration, Akritas' over all rows, within quadrants of the right column and another, within both
    halves of every column, and within the worst slab.
    """
    seed, n, censored, scale = task
    u, event, x = one_scale(seed, n, censored, scale)
    found = conditional_calibration(u, event, x, n_draws=199, where=False, seed=seed).p_value
    halves = [x[:, k] > np.median(x[:, k]) for k in range(x.shape[1])]
    p_values = (
        found or 1.0,
        akritas(u, event),
        bonferroni(u, event, [((x[:, 0] > 0) == a) & ((x[:, 1] > 0) == b) for a in (0, 1) for b in (0, 1)]),
        bonferroni(u, event, [side for half in halves for side in (half, ~half)]),
        worst_slab(u, event, x, np.random.default_rng([seed, 1])),
    )
    return tuple(p <= 0.05 for p in p_values)


def akritas(u: np.ndarray, event: np.ndarray) -> float:
    p = d_calibration(u, event, n_bins=20).p_value
    return 1.0 if p is None else p


def bonferroni(u: np.ndarray, event: np.ndarray, groups: list[np.ndarray]) -> float:
    return len(groups) * min(akritas(u[own], event[own]) for own in groups)


def worst_slab(u: np.ndarray, event: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> float:
    """Akritas' p-value within the slab a < v'x <= b that is furthest off: searched on one half, tested on the other.

    Slabs along random directions v as in the worst-slab coverage of Cauchois, Gupta and Duchi (2021), which CiPOT's
    paper uses; here the largest sum of squared residuals of D-calibration, times the rows of the slab.
    """
    half = len(u) // 2
    order = rng.permutation(len(u))
    here, there = order[:half], order[half:]
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    r = residuals(u[here], event[here], bin_edges(20))
    places = np.arange(CUTS + 1) * half // CUTS
    best, slab = -1.0, np.ones(there.size, dtype=bool)
    for _ in range(DIRECTIONS):
        v = rng.standard_normal(x.shape[1])
        along = z[here] @ v
        by = np.argsort(along)
        sums = np.concatenate([np.zeros((1, r.shape[1])), np.cumsum(r[by], axis=0)])[places]
        inside = sums[None, :] - sums[:, None]  # (from, to, bin)
        rows = (places[None, :] - places[:, None]).astype(float)
        wide = np.subtract.outer(np.arange(CUTS + 1), np.arange(CUTS + 1)).T >= SMALLEST_SLAB
        score = np.where(wide, np.square(inside).sum(axis=2) / np.where(wide, rows, 1.0), -1.0)
        start, stop = np.unravel_index(np.argmax(score), score.shape)
        if score[start, stop] > best:
            best = float(score[start, stop])
            low = -np.inf if start == 0 else along[by[places[start] - 1]]
            high = np.inf if stop == CUTS else along[by[places[stop] - 1]]
            other = z[there] @ v
            slab = (other > low) & (other <= high)
    return akritas(u[there][slab], event[there][slab]) if slab.sum() > 20 else 1.0


def planted(task: tuple[int, float]) -> tuple[bool, bool, bool]:
    """Half censored, 10 columns; in a tenth of the rows (x0 above its 68 %, x1 above its 68 %) the hazard is higher."""
    seed, ratio = task
    rng = np.random.default_rng(seed)
    n = 10_000
    x = rng.standard_normal((n, 10))
    inside = (x[:, 0] > norm.ppf(0.684)) & (x[:, 1] > norm.ppf(0.684))
    time, end = rng.exponential(np.where(inside, 1 / ratio, 1.0)), rng.exponential(size=n)
    event = time <= end
    found = conditional_calibration(1 - np.exp(-np.minimum(time, end)), event, x, n_draws=199, seed=seed)
    where = found.where
    assert where is not None
    named = "x0 >" in where.rule or "x1 >" in where.rule
    return (found.p_value or 1) <= 0.05, where.p_value <= 0.05, named and where.p_value <= 0.05


def rejections(pool: ProcessPoolExecutor, job: Callable[..., tuple[float, ...]], tasks: list[tuple]) -> np.ndarray:
    return np.mean(list(pool.map(job, tasks, chunksize=10)), axis=0)


def measure_sizes(pool: ProcessPoolExecutor, options: argparse.Namespace, record: Path) -> None:
    """Measure the cells in turns of ``ROUND`` data sets; one line of JSON for each turn of each cell."""
    done = {(tuple(line["cell"]), line["first"]) for line in recorded(record)}
    cells = [(n, p, kind, c) for n in options.n for p, kind in KINDS if kind in options.kinds for c in RATES]
    for first in range(0, options.datasets, ROUND):
        for cell in cells:
            if (cell, first) in done:
                continue
            seeds = range(first, min(first + ROUND, options.datasets))
            found = np.array(list(pool.map(size_of, [(seed, *cell) for seed in seeds], chunksize=10)))
            line = {"cell": cell, "first": first, "datasets": len(found)}
            line |= {"rejected": int(found[:, 0].sum()), "censored": float(found[:, 1].mean())}
            with record.open("a") as file:
                file.write(json.dumps(line) + "\n")


def recorded(record: Path) -> list[dict]:
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def show_sizes(record: Path) -> None:
    """Print the recorded cells as a table, and the shares over all cells of a number of rows."""
    counts: dict[tuple, np.ndarray] = defaultdict(lambda: np.zeros(3))
    for line in recorded(record):
        weighted = line["censored"] * line["datasets"]
        counts[tuple(line["cell"])] += (line["rejected"], line["datasets"], weighted)
    print("right model, share of data sets with p <= .05; in brackets the share of censored rows")
    print("| rows | columns | data sets |" + " |" * len(RATES))
    for n, (p, kind) in itertools.product(sorted({cell[0] for cell in counts}), KINDS):
        cells = [counts[n, p, kind, c] for c in RATES if (n, p, kind, c) in counts]
        if cells:
            shares = " | ".join(f"{r / total:.3f} ({censored / total:.0%})" for r, total, censored in cells)
            print(f"| {n:,} | {p} {kind} | {min(c[1] for c in cells):,.0f} | {shares} |")
    for n in sorted({cell[0] for cell in counts}):
        rejected, total, _ = sum(found for cell, found in counts.items() if cell[0] == n)
        print(f"all cells of {n:,} rows: {rejected / total:.4f} of {total:,.0f}")
    rates = [(found[0] / found[1], (0.05 * 0.95 / found[1]) ** 0.5) for found in counts.values()]
    low, high = min(rates), max(rates)
    print(f"lowest and highest cell: {low[0]:.3f} ± {low[1]:.3f}, {high[0]:.3f} ± {high[1]:.3f}")


def show_power(pool: ProcessPoolExecutor, options: argparse.Namespace) -> None:
    print(f"one scale for all where the truth has many, right on average: share of {options.datasets} rejected")
    print(
        "n, scale, censored: conditional | Akritas | quadrants (Bonferroni) | halves of 5 columns (same) | worst slab"
    )
    for n, scale in itertools.product(options.n, options.scales):
        for censored in options.censored:
            found = rejections(pool, power_of, [(seed, n, censored, scale) for seed in range(options.datasets)])
            shown = " | ".join(f"{share:.2f}" for share in found)
            print(f"{n:>5}, {scale}, about {censored:.0%}: {shown}", flush=True)


def alarm_of(task: tuple[int, int, float, float]) -> tuple[bool]:
    """Whether an audit of a right model says that it is off for some; a share of the numbers may be missing."""
    seed, n, censored, missing = task
    rng = np.random.default_rng(seed)
    u, event, x = right_model(n, 5, "normal", censored, rng)
    x[rng.uniform(size=x.shape) < missing] = np.nan
    # F itself serves as the time: only its order is used here.
    found = audit(cdf=u, y=(u, event), covariates=x, n_bootstrap=0, seed=seed)
    return (given_covariates(found.measured) is not None,)


def show_alarms(pool: ProcessPoolExecutor, options: argparse.Namespace) -> None:
    for n in options.n:
        for censored in (0.3, 0.8):
            (share,) = rejections(
                pool, alarm_of, [(seed, n, censored, options.missing) for seed in range(options.datasets)]
            )
            error = (share * (1 - share) / options.datasets) ** 0.5
            print(
                f"audit of a right model, n = {n:>5}, about {censored:.0%} censored: said to be off for some in "
                f"{share:.3f} ± {error:.3f} of {options.datasets} data sets",
                flush=True,
            )


def show_planted(pool: ProcessPoolExecutor, options: argparse.Namespace) -> None:
    for ratio in (1.0, 1.5):
        k, w, named = rejections(pool, planted, [(seed, ratio) for seed in range(options.datasets)])
        print(
            f"10,000 rows, half censored, hazard ratio {ratio} in a tenth: test rejects {k:.3f}, subgroup "
            f"confirmed {w:.3f}, confirmed and by its own columns {named:.3f}",
            flush=True,
        )


def show_speed() -> None:
    rng = np.random.default_rng(0)
    u, event, x = right_model(1_000_000, 10, "normal", 0.3, rng)
    start = clock.perf_counter()
    conditional_calibration(u, event, x)
    took = clock.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"1,000,000 rows, 10 columns, 128 features, 20 bins, 999 draws: {took:.1f} s, {peak:,.0f} MB in all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--n", type=int, nargs="*", default=[300, 1000, 5000])
    parser.add_argument("--missing", type=float, default=0.0, help="share of missing numbers in the audits of alarms")
    parser.add_argument("--kinds", nargs="*", default=["normal", "skewed"])
    parser.add_argument("--scales", nargs="*", default=list(SCALES), choices=list(SCALES))
    parser.add_argument("--censored", type=float, nargs="*", default=list(RATES), choices=list(RATES))
    parser.add_argument("--parts", nargs="*", default=["size", "power", "alarms", "planted", "speed"])
    parser.add_argument("--record", type=Path, default=Path("conditional_size.jsonl"))
    parser.add_argument("--show", action="store_true", help="print the sizes of the record, and measure nothing")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options, _ = parser.parse_known_args()
    if options.show:
        show_sizes(options.record)
        return
    with ProcessPoolExecutor(options.processes) as pool:
        if "size" in options.parts:
            measure_sizes(pool, options, options.record)
            show_sizes(options.record)
        if "power" in options.parts:
            show_power(pool, options)
        if "alarms" in options.parts:
            show_alarms(pool, options)
        if "planted" in options.parts:
            show_planted(pool, options)
    if "speed" in options.parts:
        show_speed()


if __name__ == "__main__":
    main()
