"""`SurvivalPath().fit(X, y)` beside gradient boosting: seconds, memory, and the quality of what it chose.

Claims: on 2,400 rows and 51 columns a default path takes seconds where lambda 0 is right (mtlr), and longer where it is
not and every weight is trained (weibull); 180,000 rows and 30 columns take minutes on two cores and seconds on an H200
(``--sizes 180000x30 --device cuda``). All are measured on rows that no model has seen: Harrell's C, the Brier score
integrated to the 90 % quantile of the times, D-calibration in 10 bins with its floor.

The peer is XGBoost's AFT model of 200 trees, where xgboost is installed. Times are log-Student with effects that are
no straight lines; half of the rows are censored. Seconds of the processor are beside those of the clock; memory is the
peak of the process, which each fit has to itself.
"""

import argparse
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import numpy as np

from xcal import SurvivalPath, concordance_index, d_calibration
from xcal._devices import usable_threads
from xcal.metrics import integrated_brier_score

N_NEW = 20_000
HEADS = ("seconds", "processor", "peak MB", "C", "IBS x 1,000", "D-cal x 1,000", "floor", "choice")
DIGITS = (1, 1, 0, 4, 1, 2, 2)
Line = tuple[float, float, float, float, float, float, float, str]


def rows(n: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, times and events."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, columns)).astype(np.float32)
    location = 0.6 * x[:, 0] - 0.5 * np.abs(x[:, 1]) + 0.4 * np.sin(2 * x[:, 2]) + 0.3 * x[:, 3] * x[:, 4]
    happens = np.exp(location + 0.5 * rng.standard_t(4, n))
    leaves = rng.exponential(1.6, n)
    return x, np.minimum(happens, leaves), happens <= leaves


class Boosted:
    """XGBoost's AFT model, 200 trees."""

    SCALE = 0.5

    def __init__(self, x: np.ndarray, y: tuple[np.ndarray, np.ndarray]) -> None:
        import xgboost

        data = xgboost.DMatrix(x)
        data.set_float_info("label_lower_bound", y[0])
        data.set_float_info("label_upper_bound", np.where(y[1], y[0], np.inf))
        settings = {"objective": "survival:aft", "aft_loss_distribution": "logistic", "eta": 0.1, "max_depth": 3}
        settings |= {"aft_loss_distribution_scale": self.SCALE, "tree_method": "hist", "nthread": usable_threads()}
        self.trees = xgboost.train(settings, data, 200)

    def survival(self, x: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Survival probabilities; `times` has one row for all or one for each."""
        import xgboost

        middle = np.log(self.trees.predict(xgboost.DMatrix(x)))[:, None]
        return np.asarray(1 / (1 + np.exp((np.log(times) - middle) / self.SCALE)))


def measure(name: str, n: int, columns: int, options: dict[str, Any]) -> Line:
    """Fit in this process, and measure on new rows."""
    warnings.simplefilter("ignore")
    x, t, e = rows(n + N_NEW, columns)
    new_x, new_t, new_e = x[n:], t[n:], e[n:]
    x, y = x[:n].copy(), (t[:n].copy(), e[:n].copy())
    import torch

    clock, used, choice = time.perf_counter(), time.process_time(), ""
    if name == "xgboost":
        model: Any = Boosted(x, y)
    else:
        model = SurvivalPath(**options, progress=False).fit(x, y)
        choice = f"{model.selection_.lam:g}{' recalibrated' if model.selection_.recalibrated else ''}"
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    clock, used = time.perf_counter() - clock, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    grid = np.quantile(new_t, np.linspace(0.02, 0.9, 50))
    if name == "xgboost":
        survival = model.survival(new_x, grid)
        risk = 1 - survival.mean(axis=1)
        found = d_calibration(1 - model.survival(new_x, new_t[:, None])[:, 0], new_e, n_bins=10)
    else:
        survival, risk = model.predict_survival_function(new_x, grid, extrapolate=True), model.predict(new_x)
        found = model.d_calibration(new_x, (new_t, new_e), n_bins=10)
    c = concordance_index(time=new_t, event=new_e, risk=risk).value
    brier = integrated_brier_score(survival, grid, time=new_t, event=new_e).value
    return clock, used, peak, c, 1e3 * brier, 1e3 * found.value, 1e3 * found.floor, choice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=["2400x51"], help="rows x columns, such as 180000x30")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--distributions", nargs="*", default=["mtlr", "weibull"])
    parser.add_argument("--path", nargs="*", help="'always' trains every weight first; 'when_needed' is the default")
    options, _ = parser.parse_known_args()
    print(f"{usable_threads()} threads, {options.device}")
    print(f"{'':32s}" + "".join(f"{head:>15s}" for head in HEADS))
    for size in options.sizes:
        n, columns = (int(number) for number in size.split("x"))
        tasks: dict[str, dict[str, Any]] = {}
        for distribution in options.distributions:
            for how in options.path or [None]:
                own = {"distribution": distribution, "device": options.device} | ({} if how is None else {"path": how})
                tasks[" ".join(filter(None, (distribution, how)))] = own
        if find_spec("xgboost") is not None:
            tasks["xgboost"] = {}
        for name, own in tasks.items():
            # A process of its own, so that the peak is its own.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
                *numbers, choice = alone.submit(measure, name, n, columns, own).result()
            cells = [f"{value:15.{digits}f}" for value, digits in zip(numbers, DIGITS, strict=True)]
            print(f"{size + ', ' + name:32s}{''.join(cells)}{choice:>15s}", flush=True)


if __name__ == "__main__":
    main()
