"""How often an audit trusts a true model, and distrusts one whose hazards are wrong by half.

Claim: the answer "distrust" about a true model comes in at most about one data set in a hundred, with few events too,
and "trust" in a model with one and a half times the true hazards never. Printed are the shares of each answer over
many simulated data sets, with their standard errors.
"""

import argparse
import math
from collections import Counter

import numpy as np

from xcal import audit

LEVELS = ("trust", "caution", "unknown", "distrust")
TIMES = np.linspace(0.05, 3.0, 60)


def answer(n: int, hazard_ratio: float, seed: int, resamples: int) -> tuple[str, int]:
    """Audit curves whose hazards are `hazard_ratio` times the true ones, and give the answer and the events."""
    rng = np.random.default_rng([n, seed])
    rate = np.exp(0.7 * rng.normal(size=n))
    happens, leaves = rng.exponential(1 / rate), rng.exponential(2.0, size=n)
    event = happens <= leaves
    curves = np.exp(-hazard_ratio * rate[:, None] * TIMES)
    y = (np.minimum(happens, leaves), event)
    result = audit(survival=curves, times=TIMES, y=y, n_bootstrap=resamples, seed=seed, progress=False)
    return result.verdict.level, int(event.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[60, 300])
    parser.add_argument("--ratios", type=float, nargs="*", default=[1.0, 1.5])
    parser.add_argument("--data-sets", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=200)
    options, _ = parser.parse_known_args()
    print(f"{options.data_sets} data sets each; shares in %, with standard errors")
    print(f"{'rows':>6}  {'events':>6}  {'hazards':>8}  " + "  ".join(f"{level:>12}" for level in LEVELS))
    for n in options.rows:
        for ratio in options.ratios:
            found = [answer(n, ratio, seed, options.resamples) for seed in range(options.data_sets)]
            counts = Counter(level for level, _ in found)
            events = np.mean([count for _, count in found])
            cells = []
            for level in LEVELS:
                share = counts[level] / len(found)
                error = math.sqrt(share * (1 - share) / len(found))
                cells.append(f"{100 * share:6.1f} ({100 * error:3.1f})")
            print(f"{n:>6}  {events:>6.0f}  {ratio:>7g}x  " + "  ".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
