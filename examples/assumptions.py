"""
When assumptions fail
=====================

What each way of measuring D-calibration assumes, shown by breaking the assumptions one at a time.

Half of the rows are censored. Censoring may depend on a covariate, and so may the model's error: hazards 2 times too
high for half of the people and 0.6 times the true ones for the others. The truth is known in every case.
The gallery runs this on fewer rows than ``python examples/assumptions.py`` does.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

from xcal import d_calibration

EDGES = np.arange(11) / 10
CASES = {
    # name: (whether censoring depends on x, speed where x < 0, speed where x > 0)
    "perfect model": (False, 1.0, 1.0),
    "perfect, censoring depends on x": (True, 1.0, 1.0),
    "1.5x too fast": (False, 1.5, 1.5),
    "1.5x too fast, censoring depends on x": (True, 1.5, 1.5),
    "error depends on x": (False, 2.0, 0.6),
    "error and censoring depend on x": (True, 2.0, 0.6),
}


METHODS = {"uniform": "#d95f02", "ipcw, KM": "#1b9e77", "ipcw, own G": "#66a61e", "km": "#5e4fa2"}


def truth(low: float, high: float) -> float:
    """D-calibration on endless data: F of the event time is 1 - (1 - U)^speed."""
    mass = (np.diff(1 - (1 - EDGES) ** (1 / low)) + np.diff(1 - (1 - EDGES) ** (1 / high))) / 2
    return float(np.square(mass - 0.1).sum())


def estimates(n: int, dependence: float, low: float, high: float, rng: np.random.Generator) -> tuple[float, ...]:
    """Censored share, then D-calibration by each method on one data set."""
    x = rng.standard_normal(n)
    rate = np.exp(0.5 * x)
    leaving = np.exp(dependence * x)
    happens, leaves = rng.exponential(size=n) / rate, rng.exponential(size=n) / leaving
    time, event = np.minimum(happens, leaves), happens <= leaves
    cdf = -np.expm1(-np.where(x < 0, low, high) * rate * time)
    still_there = np.exp(-leaving * time)
    # The user's own G is taken as it is: without a bound a single row can outweigh thousands.
    still_there = np.maximum(still_there, 0.001)
    ways = (
        {},
        {"method": "ipcw", "time": time},
        {"method": "ipcw", "censoring_survival": still_there},
        {"method": "km"},
    )
    return 1 - event.mean(), *(d_calibration(cdf, event, p_value=None, **way).value for way in ways)


def draw(found: dict[str, np.ndarray], true: dict[str, float]) -> None:
    """Draw one group of bars for each case, one bar for each method, and the truth as a line across the group."""
    _, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    place = np.arange(len(found))
    for i, (method, colour) in enumerate(METHODS.items()):
        axis.bar(place + 0.2 * (i - 1.5), [values[i] for values in found.values()], 0.18, color=colour, label=method)
    axis.hlines(list(true.values()), place - 0.42, place + 0.42, color="black", lw=1.5, label="truth")
    axis.set_xticks(place, [name.replace(", ", ",\n").replace(" depend", "\ndepend") for name in found], fontsize=9)
    axis.set_ylabel("D-calibration")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, ncols=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20_000, help="rows of each data set")
    parser.add_argument("--seeds", type=int, default=10, help="data sets for each line")
    parser.add_argument("--dependence", type=float, default=1.0, help="log hazard of censoring per unit of x, if any")
    options = parser.parse_args()
    print(f"Mean D-calibration of {options.seeds} data sets of {options.n:,} rows, 10 bins")
    print(f"{'':<40}" + "".join(f"{name:>13}" for name in ("censored", "truth", *METHODS)))
    found, true = {}, {name: truth(low, high) for name, (_, low, high) in CASES.items()}
    for name, (depends, low, high) in CASES.items():
        dependence = options.dependence if depends else 0.0
        runs = [
            estimates(options.n, dependence, low, high, np.random.default_rng(seed)) for seed in range(options.seeds)
        ]
        share, *found[name] = np.mean(runs, axis=0)
        cells = "".join(f"{v:>13.4f}" for v in (true[name], *found[name]))
        print(f"{name:<40}{share:>13.0%}{cells}")
    draw(found, true)


if __name__ == "__main__":
    main()
