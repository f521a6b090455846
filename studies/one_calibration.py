"""Size and power of the tests at one time: how often each rejects at 5 %.

Claim: the two defaults of `one_calibration`, "likelihood-ratio" where F at each row's observed time is given and
"effective-size" where it is not, reject a perfect model in about 5 % of data sets, from 200 rows on and whatever the
censoring; the others do not. Power is against a model whose hazards are 1.3 times too high.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from xcal.metrics import one_calibration

METHODS = (
    "likelihood-ratio",
    "effective-size",
    "gronnesby-borgan",
    "greenwood-nam-dagostino",
    "dagostino-nam",
    "hosmer-lemeshow",
)
# Mean censoring time that leaves so many of the rows censored.
CENSORING = {0.0: np.inf, 0.3: 2.6, 0.6: 0.63}
# By which about a quarter of the rows, or more than half, have had the event.
TIMES = (0.3, 1.0)


def rejected(task: tuple[int, int, float, float, float]) -> list[float]:
    seed, n, share, at, too_fast = task
    rng = np.random.default_rng(seed)
    rate = np.exp(0.7 * rng.normal(size=n))
    happens = rng.exponential(1 / rate)
    censors = rng.exponential(size=n) * CENSORING[share] if share else np.full(n, np.inf)
    time, event = np.minimum(happens, censors), happens <= censors
    probability, cdf = -np.expm1(-too_fast * rate * at), -np.expm1(-too_fast * rate * time)
    rows = {"at": at, "time": time, "event": event, "cdf": cdf}
    return [one_calibration(probability, **rows, method=method).p_value <= 0.05 for method in METHODS] + [event.mean()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=2000)
    parser.add_argument("--n", type=int, nargs="*", default=[200, 500, 2000])
    options, _ = parser.parse_known_args()
    print(f"share of {options.datasets:,} data sets rejected at 5 %, 10 groups asked for")
    print(f"{'model':>8}  {'n':>6}  {'censored':>8}  {'at':>4}  " + "  ".join(f"{m:>16.16}" for m in METHODS))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, too_fast in (("perfect", 1.0), ("1.3 x", 1.3)):
            for n in options.n:
                for share in CENSORING:
                    for at in TIMES:
                        tasks = [(k, n, share, at, too_fast) for k in range(options.datasets)]
                        *rates, events = np.mean(list(pool.map(rejected, tasks, chunksize=50)), axis=0)
                        cells = "  ".join(f"{rate:>16.3f}" for rate in rates)
                        print(f"{name:>8}  {n:>6,}  {1 - events:>8.0%}  {at:>4}  {cells}", flush=True)
    print(f"standard error of a size of .05: {(0.05 * 0.95 / options.datasets) ** 0.5:.3f}")


if __name__ == "__main__":
    main()
