"""How often D-calibration by cause calls a true model wrong, and how often it finds a wrong one.

``python -m studies.causes --datasets 2000`` prints one line per setting. Two Weibull causes whose hazards cross from
row to row; censoring depends on the covariate. True incidences are integrated numerically.
"""

import argparse

import numpy as np

from xcal.calibration.causes import cause_calibration

# Steps are small where the hazards of early events are steep.
GRID = 12 * np.linspace(0.0, 1.0, 161) ** 2
# Rows, and the latest censoring at x = 0: 30 censors 4 % of the rows, 0.35 80 %.
SETTINGS = ((100, 3.0), (300, 30.0), (300, 1.0), (1000, 3.0), (1000, 0.35), (5000, 1.0))
MODELS = ("true", "x 1.25", "even")


def drawn(n: int, latest: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw covariate, time and cause (0: censored) of n rows."""
    x = rng.normal(size=n)
    first = rng.exponential(size=n) ** np.exp(-0.4 * x) / 0.6
    second = (rng.exponential(size=n) / (0.35 * np.exp(0.5 * x))) ** (1 / 0.8)
    censored = rng.uniform(0, latest, n) * np.exp(0.3 * x)
    event = np.minimum(first, second)
    return x, np.minimum(event, censored), np.where(censored < event, 0, np.where(first < second, 1, 2))


def incidences(x: np.ndarray, model: str) -> np.ndarray:
    """Return the incidences of a model, shape (n, 2, times): the true one, or one that is wrong in a known way."""
    first = (0.6 * GRID) ** np.exp(0.4 * x)[:, None] * (1.25 if model == "x 1.25" else 1.0)
    second = 0.35 * np.exp(0.5 * x)[:, None] * GRID**0.8
    lost = -np.diff(np.exp(-first - second), axis=1)
    steps = np.stack([np.diff(first, axis=1), np.diff(second, axis=1)], axis=1)
    share = (
        steps / np.maximum(steps.sum(axis=1, keepdims=True), 1e-300) if model != "even" else np.full(steps.shape, 0.5)
    )
    return np.cumsum(np.concatenate([np.zeros((x.size, 2, 1)), lost[:, None] * share], axis=2), axis=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=200, help="data sets of a setting")
    parser.add_argument("--draws", type=int, default=999, help="draws of the reference")
    options = parser.parse_args()
    print("| rows | censored | model | p < .05 | standard error | value | floor |\n|---|---|---|---|---|---|---|")
    for n, latest in SETTINGS:
        # Wrong models need fewer data sets: their standard error is that of a share far from .05.
        for model, datasets in zip(MODELS, (options.datasets, *[max(1, options.datasets // 10)] * 2), strict=True):
            rng = np.random.default_rng(7)
            found, censored = [], []
            for _ in range(datasets):
                x, time, cause = drawn(n, latest, rng)
                curves = incidences(x, model)
                found.append(cause_calibration(curves, GRID, time=time, cause=cause, draws=options.draws))
                censored.append(np.mean(cause == 0))
            rejected = float(np.mean([one.p_value < 0.05 for one in found]))
            error = np.sqrt(rejected * (1 - rejected) / datasets)
            value, floor = (np.mean([getattr(one, name) for one in found]) for name in ("value", "floor"))
            line = f"| {n:,} | {np.mean(censored):.0%} | {model} | {rejected:.3f} | {error:.3f} "
            print(f"{line}| {value:.5f} | {floor:.5f} |", flush=True)


if __name__ == "__main__":
    main()
