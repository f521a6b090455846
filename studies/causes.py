"""How often D-calibration by cause calls a true model wrong, and how often it finds a wrong one.

``python -m studies.causes --datasets 2000`` prints one line per setting. Two Weibull causes whose hazards cross from
row to row; censoring depends on the covariate. True incidences are integrated numerically. ``--unit 0.25``: times are
rounded up to whole units, within which `cause_calibration` draws them.

``python -m studies.causes --audits 200 --records FILE`` audits the true model by cause, at times 0.5 and 1: how often
the 95 % intervals of O/E, slope, AUC and Brier score hold the truth, and how often a verdict, of a cause or on all of
them, calls it off or not to be trusted. Each audit is a line of JSON; the same command adds what is missing.
"""

import argparse
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from xcal import Surv, audit
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


# --- Audits of the true model.

AUDITED = ((500, 3.0), (1000, 1.5), (2000, 3.0))
HORIZONS = (0.5, 1.0)
COVERED = ("oe", "slope", "auc", "brier")


@cache
def truth() -> dict[tuple[str, str, float], float]:
    """Return what the true model scores on very many rows, by metric, cause and horizon."""
    x, found = np.random.default_rng(10**6).normal(size=50_000), {}
    curves = incidences(x, "true")
    for k in (1, 2):
        for h in HORIZONS:
            p = np.array([np.interp(h, GRID, one) for one in curves[:, k - 1]])
            order = np.argsort(p)
            case, control = p[order], 1 - p[order]
            auc = float(case @ (np.cumsum(control) - control / 2) / (case.sum() * control.sum()))
            values = {"oe": 1.0, "slope": 1.0, "auc": auc, "brier": float((p * (1 - p)).mean())}
            found |= {(name, str(k), h): value for name, value in values.items()}
    return found


def audited(n: int, latest: float, seed: int) -> dict[str, Any]:
    """Audit one data set; which intervals hold the truth, the test and the verdicts."""
    x, time, cause = drawn(n, latest, np.random.default_rng([n, round(10 * latest), seed]))
    given: dict[str, Any] = {"cif": incidences(x, "true"), "times": GRID, "y": Surv(time=time, cause=cause)}
    given |= {"horizons": HORIZONS, "covariates": {"x": x}, "n_bootstrap": 100, "seed": seed, "progress": False}
    result = audit(**given)
    held = {}
    for (name, k, h), value in truth().items():
        one = result.value(name, horizon=h, cause=k)
        held[f"{name} {k} {h:g}"] = bool(one.lower <= value <= one.upper)
    levels = {name: one.verdict.level for name, one in result.by_cause.items()}
    p_value = result.value("cause_calibration_p").value
    return {"n": n, "latest": latest, "seed": seed, **held, "p": p_value, "levels": levels, "all": result.verdict.level}


def of_audits(number: int, records: Path) -> None:
    """Add audits that are missing, and print the table."""
    lines = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
    known = {(line["n"], line["latest"], line["seed"]) for line in lines}
    for seed in range(number):
        for n, latest in AUDITED:
            if (n, latest, seed) not in known:
                lines.append(audited(n, latest, seed))
                with records.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print("| rows | audits | O/E | slope | AUC | Brier | CR-D p < .05 | a cause off or wrong | any off | any wrong |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for n, latest in AUDITED:
        own = [line for line in lines if (line["n"], line["latest"]) == (n, latest)]
        held = [np.mean([line[key] for line in own for key in line if key.startswith(f"{name} ")]) for name in COVERED]
        bad = ("caution", "distrust")
        of_cause = np.mean([level in bad for line in own for level in line["levels"].values()])
        of_any = [np.mean([line["all"] in some for line in own]) for some in (bad, bad[1:])]
        shares = [*held, np.mean([line["p"] < 0.05 for line in own]), of_cause, *of_any]
        print(f"| {n:,} | {len(own)} | {' | '.join(f'{share:.3f}' for share in shares)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=200, help="data sets of a setting")
    parser.add_argument("--draws", type=int, default=999, help="draws of the reference")
    parser.add_argument("--unit", type=float, default=0.0, help="times are rounded up to it")
    parser.add_argument("--audits", type=int, default=0, help="audits of a setting, in place of the tests")
    parser.add_argument("--records", type=Path, default=Path("studies/causes.jsonl"))
    options = parser.parse_args()
    if options.audits:
        of_audits(options.audits, options.records)
        return
    print("| rows | censored | model | p < .05 | standard error | value | floor |\n|---|---|---|---|---|---|---|")
    for n, latest in SETTINGS:
        # Wrong models need fewer data sets: their standard error is that of a share far from .05.
        for model, datasets in zip(MODELS, (options.datasets, *[max(1, options.datasets // 10)] * 2), strict=True):
            rng = np.random.default_rng(7)
            found, censored = [], []
            for _ in range(datasets):
                x, time, cause = drawn(n, latest, rng)
                time = np.ceil(time / options.unit) * options.unit if options.unit else time
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
