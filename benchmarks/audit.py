"""Seconds and memory of whole audits: 1,000 resamples of 10,000 rows, and a report about one million rows.

Claim: an audit of 10,000 rows and 50 times, with 3 horizons, 99 thresholds and 1,000 resamples, takes less than a
minute. The report of one million rows takes less than a minute and 4 GB too: by default a random part of so many rows
is resampled. Both from survival curves to the written file. Seconds of the processor are printed beside those of the
clock: on a machine with other work the clock says little. The peak is that of the process, curves included.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from xcal import audit
from xcal._devices import usable_threads

TIMES = np.linspace(0.06, 3.0, 50)


def rows(n: int, rng: np.random.Generator) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Curves in float32, as most models give them, and outcomes."""
    rate = np.exp(0.5 * rng.normal(size=n))
    happens, censors = rng.exponential(1 / rate), rng.exponential(size=n) * 2.4
    survival = np.empty((n, TIMES.size), dtype=np.float32)
    for k, t in enumerate(TIMES):
        survival[:, k] = np.exp(-1.1 * t * rate)
    return survival, (np.minimum(happens, censors), happens <= censors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--resamples", type=int, default=None, help="by default as many as the audit takes")
    options, _ = parser.parse_known_args()
    print(f"{usable_threads()} threads")
    columns = ("rows", "resamples", "seconds", "processor", "of the report", "peak MB")
    print("  ".join(f"{column:>13}" for column in columns))
    for n in options.rows:
        survival, y = rows(n, np.random.default_rng(0))
        asked = "auto" if options.resamples is None else options.resamples
        with tempfile.TemporaryDirectory() as folder:
            clock, processor = time.perf_counter(), time.process_time()
            result = audit(
                survival=survival, times=TIMES, y=y, horizons=[0.3, 0.7, 1.5], n_bootstrap=asked, progress=False
            )
            measured = time.process_time()
            result.report(Path(folder) / "audit.html")
            wall, end = time.perf_counter() - clock, time.process_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        part = "" if result.resampled_rows is None else f" x {result.resampled_rows:,}"
        cells = (
            f"{n:,}",
            f"{result.n_bootstrap:,}{part}",
            f"{wall:.1f}",
            f"{end - processor:.1f}",
            f"{end - measured:.1f}",
        )
        print("  ".join(f"{cell:>13}" for cell in (*cells, f"{peak:,.0f}")), flush=True)


if __name__ == "__main__":
    main()
