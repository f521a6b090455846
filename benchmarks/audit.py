"""Seconds of audits beside the same metrics from scikit-survival, and seconds and memory of large audits.

Claims: an audit of a model on 720 rows and 51 columns, with 1,000 resamples, all tests and the question "for whom?",
takes less time than 1,000 resamples of two of its metrics (Harrell's C and the integrated Brier score) take in a loop
around scikit-survival's functions; a comparison of two models takes little more than two audits. An audit of 10,000
rows and 50 times, with 3 horizons, 99 thresholds and 1,000 resamples, takes less than a minute. The report of one
million rows takes less than a minute and 4 GB too: by default a random part of so many rows is resampled. All are from
survival curves or a model to the written file. ``--causes 3``: incidences of three causes, of 100,000 rows in a minute
of the processor and 2 GB. Seconds of the processor are printed beside those of the clock: on a
machine with other work the clock says little. The peak is that of the process, curves included.
"""

import argparse
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.path import rows as patients
from xcal import Surv, SurvivalModel, audit, compare_models
from xcal._devices import usable_threads

TIMES = np.linspace(0.06, 3.0, 50)
N_RESAMPLES = 1000


def rows(n: int, rng: np.random.Generator) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Curves in float32, as most models give them, and outcomes."""
    rate = np.exp(0.5 * rng.normal(size=n))
    happens, censors = rng.exponential(1 / rate), rng.exponential(size=n) * 2.4
    survival = np.empty((n, TIMES.size), dtype=np.float32)
    for k, t in enumerate(TIMES):
        survival[:, k] = np.exp(-1.1 * t * rate)
    return survival, (np.minimum(happens, censors), happens <= censors)


def rows_by_cause(n: int, causes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Incidences of causes in float32, shape (n, causes, times), and outcomes."""
    rates = np.exp(0.5 * rng.normal(size=(n, causes))) / causes
    happens, censors = rng.exponential(1 / rates), rng.exponential(size=n) * 2.4
    first = happens.min(axis=1)
    of_any = -np.expm1(-1.1 * rates.sum(axis=1)[:, None] * TIMES)
    cif = np.empty((n, causes, TIMES.size), dtype=np.float32)
    for k in range(causes):
        cif[:, k] = (rates[:, k] / rates.sum(axis=1))[:, None] * of_any
    cause = np.where(first <= censors, 1 + happens.argmin(axis=1), 0)
    return cif, Surv(time=np.minimum(first, censors), cause=cause)


def seconds(run: Callable[[], Any]) -> tuple[float, float]:
    """Of the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - processor


def of_a_model(n: int, columns: int) -> None:
    """Print seconds of an audit and of a comparison with 1,000 resamples, and of scikit-survival's two metrics."""
    x, t, e = patients(1200 + n, columns)
    y = Surv(time=t[1200:], event=e[1200:])
    fitted = {
        name: SurvivalModel(name, epochs=20, progress=False).fit(x[:1200], (t[:1200], e[:1200]))
        for name in ("mtlr", "weibull")
    }
    new = x[1200:]

    def audited() -> None:
        with tempfile.TemporaryDirectory() as folder:
            result = audit(fitted["mtlr"], new, y, n_bootstrap=N_RESAMPLES, progress=False)
            result.report(Path(folder) / "audit.html")

    def compared() -> None:
        with tempfile.TemporaryDirectory() as folder:
            result = compare_models(fitted, new, y, n_bootstrap=N_RESAMPLES, progress=False)
            result.report(Path(folder) / "comparison.html")

    def by_sksurv() -> None:
        from sksurv.metrics import concordance_index_censored, integrated_brier_score

        times = np.quantile(y["time"], np.linspace(0.05, 0.9, 50))
        survival, risk = fitted["mtlr"].predict_survival_function(new, times), fitted["mtlr"].predict(new)
        rng = np.random.default_rng(0)
        for _ in range(N_RESAMPLES):
            drawn = rng.integers(0, n, n)
            own = y[drawn]
            inside = times[(times > own["time"].min()) & (times < own["time"].max())]
            concordance_index_censored(own["event"], own["time"], risk[drawn])
            integrated_brier_score(own, own, survival[drawn][:, np.isin(times, inside)], inside)

    audited()  # what is imported and made once
    runs: dict[str, Callable[[], None]] = {"audit and its report": audited, "comparison of two, and its page": compared}
    if find_spec("sksurv"):
        runs["C and IBS by scikit-survival"] = by_sksurv
    print(f"{n} rows, {columns} columns, {N_RESAMPLES:,} resamples: seconds, of the processor, in units of the last")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        taken = {name: seconds(run) for name, run in runs.items()}
    *_, (_, unit) = taken.values()
    for name, (wall, processor) in taken.items():
        print(f"{name:>34}  {wall:6.2f}  {processor:6.2f}  {processor / unit:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument(
        "--causes", type=int, default=0, help="incidences of so many causes in place of survival curves"
    )
    parser.add_argument("--resamples", type=int, default=None, help="by default as many as the audit takes")
    options, _ = parser.parse_known_args()
    print(f"{usable_threads()} threads")
    if not options.causes:
        of_a_model(720, 51)
    columns = ("rows", "resamples", "seconds", "processor", "of the report", "peak MB")
    print("  ".join(f"{column:>13}" for column in columns))
    for n in options.rows:
        predicted: dict[str, Any] = {"times": TIMES}
        if options.causes:
            predicted["cif"], predicted["y"] = rows_by_cause(n, options.causes, np.random.default_rng(0))
        else:
            predicted["survival"], predicted["y"] = rows(n, np.random.default_rng(0))
        asked = "auto" if options.resamples is None else options.resamples
        with tempfile.TemporaryDirectory() as folder:
            clock, processor = time.perf_counter(), time.process_time()
            result = audit(**predicted, horizons=[0.3, 0.7, 1.5], n_bootstrap=asked, progress=False)
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
