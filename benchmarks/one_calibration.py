"""Size of the tests at one time: how often each rejects a perfect model at 5 %.

Claim: Grønnesby and Borgan's test, which `evaluate` reports, holds its size down to a few hundred rows; the one with
Greenwood's variance rejects too often unless groups have many events, and joining those with fewer than five helps.
"""

import argparse

import numpy as np

from xcal.metrics import one_calibration

CASES = ((300, 0.3), (300, 1.0), (2000, 0.1), (2000, 1.0), (10_000, 1.0))


def rejected(n: int, at: float, rng: np.random.Generator) -> list[bool]:
    rate = np.exp(0.7 * rng.normal(size=n))
    happens, censors = rng.exponential(1 / rate), rng.exponential(1.5, size=n)
    time, event = np.minimum(happens, censors), happens <= censors
    probability, cdf = -np.expm1(-rate * at), -np.expm1(-rate * time)
    rows = {"at": at, "time": time, "event": event}
    results = [
        one_calibration(probability, **rows, method="gronnesby-borgan", cdf=cdf),
        one_calibration(probability, **rows, method="greenwood-nam-dagostino"),
        one_calibration(probability, **rows, method="greenwood-nam-dagostino", min_events=0),
        one_calibration(probability, **rows, method="dagostino-nam"),
    ]
    return [result.p_value <= 0.05 for result in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=1000)
    options, _ = parser.parse_known_args()
    rng = np.random.default_rng(0)
    heads = ("gronnesby-borgan", "greenwood", "greenwood, none joined", "dagostino-nam")
    print(f"share of {options.datasets:,} data sets on which a perfect model is rejected at 5 %, 10 groups")
    print(f"{'n':>7}  {'at':>4}  " + "  ".join(f"{h:>22}" for h in heads))
    for n, at in CASES:
        rates = np.mean([rejected(n, at, rng) for _ in range(options.datasets)], axis=0)
        print(f"{n:>7,}  {at:>4}  " + "  ".join(f"{r:>22.3f}" for r in rates), flush=True)
    print(f"standard error of a size of .05: {(0.05 * 0.95 / options.datasets) ** 0.5:.3f}")


if __name__ == "__main__":
    main()
