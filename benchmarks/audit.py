"""Seconds of an audit's measurements: 1,000 resamples of 10,000 rows, and one million rows.

Claim: everything that an audit measures on 10,000 rows and 50 times, with 3 horizons, 99 thresholds and 1,000
resamples, takes less than a minute of processor time. One million rows with a few resamples take less than 4 GB.
Seconds of the processor are printed beside those of the clock: on a machine with other work the clock says little.
Those without resamples are the processor's.
"""

import argparse
import resource
import time

import numpy as np

from xcal._threads import usable_threads
from xcal.interop.predictions import ModelPredictions
from xcal.validation.measure import measure
from xcal.validation.sample import Sample

TIMES = np.linspace(0.06, 3.0, 50)


def rows(n: int, rng: np.random.Generator) -> Sample:
    """Rows with curves in float32, as most models give them."""
    rate = np.exp(0.5 * rng.normal(size=n))
    happens, censors = rng.exponential(1 / rate), rng.exponential(size=n) * 2.4
    survival = np.empty((n, TIMES.size), dtype=np.float32)
    for k, t in enumerate(TIMES):
        survival[:, k] = np.exp(-1.1 * t * rate)
    return Sample(
        time=np.minimum(happens, censors),
        event=happens <= censors,
        predictions=ModelPredictions(model="curves", library="none", n=n, survival=survival, times=TIMES),
        horizons=np.array([0.3, 0.7, 1.5]),
        thresholds=np.arange(1, 100) / 100,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000])
    parser.add_argument("--resamples", type=int, nargs="*", default=[1_000])
    options, _ = parser.parse_known_args()
    print(f"{usable_threads()} threads")
    columns = ("rows", "resamples", "seconds", "processor", "without resamples", "peak MB")
    print("  ".join(f"{column:>9}" for column in columns))
    for n, resamples in zip(options.rows, options.resamples, strict=True):
        sample = rows(n, np.random.default_rng(0))
        taken = []
        for count in (0, resamples):
            clock, processor = time.perf_counter(), time.process_time()
            measure(sample, n_bootstrap=count)
            taken.append((time.perf_counter() - clock, time.process_time() - processor))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        (_, before), (wall, cpu) = taken
        print(f"{n:>9,}  {resamples:>9,}  {wall:>9.1f}  {cpu:>9.1f}  {before:>17.1f}  {peak:>9,.0f}", flush=True)


if __name__ == "__main__":
    main()
