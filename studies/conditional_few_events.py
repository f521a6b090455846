"""Conditional calibration where nearly all rows are censored: how often a right model is rejected.

Claims: the p-value of the subgroup that is named holds its level with few events, and so does the test over all rows as
long as there are some twenty events.

    python -m studies.conditional_few_events --datasets 200
"""

import argparse

import numpy as np

from xcal import conditional_calibration

# Ends of the uniform censoring times, beside event times of median hazard one.
ENDS = (0.5, 0.1, 0.03)


def right_model(n: int, end: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """F at the observed times of proportional hazards that depend on the first of five columns."""
    x = rng.standard_normal((n, 5))
    hazard = np.exp(x[:, 0])
    time, leaves = rng.exponential(1 / hazard), rng.uniform(0, end, n)
    return -np.expm1(-np.minimum(time, leaves) * hazard), time <= leaves, x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--n", type=int, nargs="*", default=[300, 1000, 4000])
    options, _ = parser.parse_known_args()
    print("right model, share of data sets with p <= .05")
    print("| rows | censored | events | all rows | subgroup |")
    for n in options.n:
        for end in ENDS:
            events, rejected = [], []
            for seed in range(options.datasets):
                # Other random numbers than those of the halves.
                u, event, x = right_model(n, end, np.random.default_rng((seed, 1)))
                found = conditional_calibration(u, event, x, n_draws=199, seed=seed)
                where = 1.0 if found.where is None else found.where.p_value
                events.append(event.sum())
                rejected.append(((found.p_value or 1.0) <= 0.05, where <= 0.05))
            share, mean = np.mean(rejected, axis=0), float(np.mean(events))
            error = np.sqrt(share * (1 - share) / options.datasets)
            tests = " | ".join(f"{s:.3f} ± {e:.3f}" for s, e in zip(share, error, strict=True))
            print(f"| {n:,} | {1 - mean / n:.0%} | {mean:.0f} | {tests} |", flush=True)


if __name__ == "__main__":
    main()
