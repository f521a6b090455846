"""Which features should conditional calibration have, and which test? Size and power for bandwidths and numbers.

Claim: the default (128 features, a bandwidth of 0.7 times the median distance between two rows, a test of the average
over all rows and of what differs from it apart) finds more than the median distance itself and a test of K, and holds
its size.

- A rule is the number of features, the bandwidth as a multiple of the median distance, and the test: "K" of the value
  as it is, or "apart".
- Alternatives, 1,000 rows with 5 and with 20 columns: those of `studies.conditional --parts power`, about 60 %
  censored (one scale for all where the true one depends on one column, on a mix of five, on the product of two); a
  corner of a tenth of the rows with hazards 2.5 times higher, half censored; and hazards 1.15 times higher for all
  rows, which D-calibration sees.
- Size: the right model of `studies.conditional --parts size`, 1,000 rows with 5 normal columns, 300 with 50 skewed.
- All rules see the same data sets and the same random signs (199), so that differences between them are sharper than
  the standard error of a share, 0.035 at most with 200 data sets.

    python -m studies.conditional_rules --datasets 200 --record rules.jsonl --processes 2

``--held-out 500 2000`` takes situations that nobody chose the rule on (`studies._held_out`), with so many rows: the
default, the rule before it, and a narrower and a wider kernel. Their effects are those first written down.

    python -m studies.conditional_rules --held-out 500 2000 --datasets 80 --record held_out.jsonl

``--record`` keeps what was found; run the same command again to resume, or with more data sets.
"""

import argparse
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.stats import norm

from studies._held_out import SITUATIONS, Columns
from studies.conditional import SCALES, one_scale, recorded, right_model
from xcal.calibration.bins import bin_edges
from xcal.calibration.conditional import p_value_of, parts_of
from xcal.calibration.histogram import residuals
from xcal.calibration.subgroups import BANDWIDTH, as_columns, random_features

Rule = tuple[int, float, bool]  # features, bandwidth, whether the average is tested apart
Data = tuple[np.ndarray, np.ndarray, np.ndarray]
DRAWS = 199
DEFAULT: Rule = (128, BANDWIDTH, True)
RULES: list[Rule] = [
    *((m, 1.0, False) for m in (32, 64, 128, 256)),
    *((128, factor, False) for factor in (0.25, 0.5, 0.6, 2.0)),
    *((128, factor, True) for factor in (0.25, 0.35, 0.5, 0.6, 0.7, 0.85, 1.0, 2.0)),
    *((m, BANDWIDTH, True) for m in (32, 64, 256)),
]
# Narrower, the default, wider, and what was before it.
HELD_OUT_RULES: list[Rule] = [(128, 0.5, True), DEFAULT, (128, 1.4, True), (128, 1.0, False)]


def corner(seed: int, p: int) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1000, p))
    inside = (x[:, 0] > norm.ppf(0.684)) & (x[:, 1] > norm.ppf(0.684))
    time, end = rng.exponential(np.where(inside, 1 / 2.5, 1.0)), rng.exponential(size=len(x))
    return 1 - np.exp(-np.minimum(time, end)), time <= end, x


def everyone(seed: int) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1000, 5))
    time, end = rng.exponential(1 / 1.15, size=len(x)), rng.exponential(1.5, size=len(x))
    return 1 - np.exp(-np.minimum(time, end)), time <= end, x


CELLS: dict[str, Callable[[int], Data]] = {
    **{f"{s}, {p}": lambda seed, s=s, p=p: one_scale(seed, 1000, 0.6, s, p) for p in (5, 20) for s in SCALES},
    **{f"corner, {p}": lambda seed, p=p: corner(seed, p) for p in (5, 20)},
    "all rows, 5": everyone,
    "right, 5": lambda seed: right_model(1000, 5, "normal", 0.6, np.random.default_rng(seed)),
    "right, 50 skewed": lambda seed: right_model(300, 50, "skewed", 0.8, np.random.default_rng(seed)),
}


def judged(u: np.ndarray, event: np.ndarray, columns: Columns, rules: list[Rule], seed: int) -> list[int]:
    """Which rules reject, in their order.

    The products of two rows' sums are those of their features times those of their residuals: the same test as that of
    `conditional_calibration` with a row in every block, and quicker for many rules.
    """
    r = residuals(u, event, bin_edges(20))
    pairs = r @ r.T
    found = []
    for m, factor, apart in rules:
        h = random_features(columns, m, None, np.random.default_rng(seed), narrower=factor)(columns)
        products = (h @ h.T) * pairs
        np.fill_diagonal(products, 0.0)
        mean = h.mean(axis=0)
        parts = parts_of(products, r, (h @ mean)[:, None] * r, float(mean @ mean)) if apart else [products]
        found.append(int(p_value_of(parts, DRAWS, np.random.default_rng(seed)) <= 0.05))
    return found


def rejected(task: tuple[int, int | None]) -> dict[str, list[int]]:
    """Which rules reject in each cell, or with a number of rows in each situation that was held out."""
    seed, n = task
    if n is not None:
        return {name: judged(*make(seed, n), HELD_OUT_RULES, seed) for name, make in SITUATIONS.items()}
    found = {}
    for name, cell in CELLS.items():
        u, event, x = cell(seed)
        found[name] = judged(u, event, as_columns(x, len(x)), RULES, seed)
    return found


def show(lines: list[dict], names: list[str], rules: list[Rule]) -> None:
    print(f"share of {len(lines)} data sets with p <= .05\n{'features, bandwidth, test':<30}" + " | ".join(names))
    for k, (m, factor, apart) in enumerate(rules):
        shares = [np.mean([line["rejected"][name][k] for line in lines]) for name in names]
        named = f"{m}, {factor:g}, {'apart' if apart else 'K'}"
        mark = " *" if (m, factor, apart) == DEFAULT else ""
        print(f"{named + mark:<30}" + "  ".join(f"{value:.2f}" for value in shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=20)
    parser.add_argument("--held-out", type=int, nargs="*", metavar="ROWS", help="the held-out situations, such as 500")
    parser.add_argument("--record", type=Path, default=Path("conditional_rules.jsonl"))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options, _ = parser.parse_known_args()
    wanted = options.held_out or [None]
    done = {(line["seed"], line.get("n")) for line in recorded(options.record)}
    tasks = [(seed, n) for n in wanted for seed in range(options.datasets) if (seed, n) not in done]
    with ProcessPoolExecutor(options.processes) as pool:
        for (seed, n), found in zip(tasks, pool.map(rejected, tasks), strict=True):
            with options.record.open("a") as file:
                file.write(json.dumps({"seed": seed, "n": n, "rejected": found}) + "\n")
    for n in wanted:
        lines = [line for line in recorded(options.record) if line.get("n") == n]
        if n is not None:
            print(f"held out, {n:,} rows: ", end="")
        show(lines, list(CELLS if n is None else SITUATIONS), RULES if n is None else HELD_OUT_RULES)


if __name__ == "__main__":
    main()
