"""Penalty and recalibration by cause, for a network with the head of DeepHit, beside other models of several causes.

Goal: D-calibration by cause is halved at no more than .01 of concordance, and nothing is worse than no treatment by
more than a standard error.

- Data: 1,500 simulated rows (two Weibull causes whose hazards cross, 28 % censored), mgus2 and the breast cancer data
  of the external validation in BMJ 2022 (folder ``XCAL_DATA``), in five folds; the whole again for each of
  ``--repeats``.
- Networks: ``SurvivalPath`` with the family "categorical", time bins times causes, which can be right, and "lognormal",
  a log-normal hazard for each cause, which cannot. "none" is lambda 0, "recalibrated" its map by cause. "penalty" is,
  of the larger weights, the one with the lowest D-calibration of the validation rows whose likelihood there is at most
  one standard error worse; "both" has its map too. "select" is ``select()``.
- Others: SurvivalBoost of hazardous (whose version 0.2.0 has no Fine-Gray model), and Cox models of each cause by
  lifelines, put together; and Aalen and Johansen's curve, the same for all rows.
- Values on the rows of the fold that is left out, of the simulation on 3,000 new rows: D-calibration by cause (CR-D)
  less its floor, in 1e-3; how often its test says p < .05; integrated Brier score, mean over the causes, in 1e-3;
  negative log-likelihood of 10 time bins times causes, of which one hundredth is spread evenly, as curves with steps
  leave bins empty; Harrell's C by cause, the pairs of both causes together; the mean distance to the true incidences,
  where they are known, in 1e-3. Beside each mean stands that of the difference from no treatment, with its standard
  error over folds.

Each model of a fold is one line of JSON; the same command again adds what is missing. ``--show`` prints the table.
"""

import argparse
import os
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studies._records import append_line, read_lines, side_by_side
from xcal import SurvivalPath
from xcal.calibration import cause_calibration
from xcal.data import SurvivalData
from xcal.datasets import data_directory
from xcal.interop import read_model
from xcal.metrics import aalen_johansen, integrated_brier_score
from xcal.recalibration.predictor import pairs_in_order

N_FOLDS, N_BINS, N_TIMES, N_SEEDS, NEW = 5, 10, 80, 3, 3000
LAMBDAS = (0.0, 10.0, 100.0, 1000.0)
NETWORKS = ("categorical", "lognormal")
FAMILIES = (*NETWORKS, "others")
VALUES = ("crd", "rejected", "brier", "nll", "c", "error")


# --- The data.


def simulated(n: int = 1500, seed: int = 28) -> SurvivalData:
    """Draw two Weibull causes, of log-scales .3 + .6 a - .4 b and .6 + .5 b + .4 c, and of shapes 1.4 and .7."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    first, second = (np.exp(at) * rng.exponential(size=n) ** (1 / shape) for at, shape in of_causes(x))
    leaves, event = 0.2 + 1.2 * rng.exponential(size=n), np.minimum(first, second)
    cause = np.where(leaves < event, 0, np.where(first < second, 1, 2))
    return SurvivalData(x, np.minimum(event, leaves), cause=cause)


def of_causes(x: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Log-scale and shape of each cause."""
    return [(0.3 + 0.6 * x[:, 0] - 0.4 * x[:, 1], 1.4), (0.6 + 0.5 * x[:, 1] + 0.4 * x[:, 2], 0.7)]


def true_incidences(x: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Integrals of hazard times survival, in 40 steps between two times."""
    ends = np.append(0.0, times)
    fine = np.append(0.0, (ends[:-1, None] + np.diff(ends)[:, None] * np.arange(1, 41) / 40).ravel())
    hazards = np.stack([(fine / np.exp(at)[:, None]) ** shape for at, shape in of_causes(x)], axis=1)
    steps, of_any = np.diff(hazards, axis=2), np.diff(np.exp(-hazards.sum(axis=1)), axis=1)
    rises = -of_any[:, None] * steps / steps.sum(axis=1, keepdims=True)
    return np.cumsum(rises, axis=2)[:, :, 39::40]


def of_file(*names: str) -> SurvivalData:
    import pandas as pd

    frame = pd.concat([pd.read_csv(data_directory() / name) for name in names]).reset_index(drop=True)
    x = pd.get_dummies(frame.drop(columns=["id", "time", "cause"]), drop_first=True).astype(float)
    time = np.maximum(frame["time"].to_numpy(float), frame.loc[frame["time"] > 0, "time"].min() / 2)
    return SurvivalData(x.fillna(x.median()).to_numpy(), time, cause=frame["cause"].to_numpy())


DATA: dict[str, Callable[[], SurvivalData]] = {
    "simulated": simulated,
    "mgus2": lambda: of_file("coarsened/mgus2.csv"),
    "breast": lambda: of_file("competing_risks/development.csv", "competing_risks/validation.csv"),
}


@cache
def loaded(data: str) -> SurvivalData:
    return DATA[data]()


# --- The models: incidences (rows, causes, times) of the rows that are left out.


Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ours(distribution: str, train: SurvivalData, seed: int) -> dict[str, tuple[Predict, str]]:
    path = SurvivalPath(
        LAMBDAS, N_SEEDS, path="always", distribution=distribution, random_state=seed, progress=False
    ).fit(train)
    table = path.candidates_[~path.candidates_["recalibrated"].astype(bool)].set_index("lambda")
    larger = table[table.index > 0]
    cheap = larger[larger["nll"] - table.loc[0.0, "nll"] <= larger["nll_gap_se"]]
    lam = float((larger.iloc[:1] if cheap.empty else cheap)["dcal"].idxmin())
    models = {
        "none": path.model(0.0),
        "penalty": path.model(lam),
        "recalibrated": path.model(0.0, recalibrated=True),
        "both": path.model(lam, recalibrated=True),
        "select": path.select(),
    }

    def predicting(model: Any) -> Predict:
        return lambda x, times: model.predict_cumulative_incidence(x, times, extrapolate=True)

    said = {"penalty": f"lambda {lam:g}", "both": f"lambda {lam:g}", "select": path.selection_.reason}
    return {name: (predicting(model), said.get(name, "")) for name, model in models.items()}


def others(_: str, train: SurvivalData, seed: int) -> dict[str, tuple[Predict, str]]:
    import pandas as pd
    from hazardous import SurvivalBoost
    from lifelines import CoxPHFitter

    y = pd.DataFrame({"event": train.cause, "duration": train.time})
    boost = SurvivalBoost(random_state=seed, show_progressbar=False).fit(train.x, y)
    names = [f"x{k}" for k in range(train.x.shape[1])]

    def cox(k: int) -> Any:
        rows = pd.DataFrame(train.x, columns=names).assign(time=train.time, event=train.cause == k)
        return CoxPHFitter(penalizer=1e-4).fit(rows, "time", "event")

    by_cause = {"1": cox(1), "2": cox(2)}

    def read(model: Any, x: Any, times: np.ndarray) -> np.ndarray:
        nobody = np.zeros(len(x), dtype=int)
        found = read_model(model, x, time=np.full(len(x), times[-1]), event=nobody, times=times, causes=("1", "2"))
        assert found.incidence is not None
        return found.incidence

    def curve(x: np.ndarray, times: np.ndarray) -> np.ndarray:
        known = aalen_johansen(time=train.time, cause=train.cause)
        return np.tile(np.stack([known.at(times, of=k) for k in (1, 2)]), (len(x), 1, 1))

    return {
        "SurvivalBoost": (lambda x, times: read(boost, x, times), ""),
        "Cox by cause": (lambda x, times: read(by_cause, pd.DataFrame(x, columns=names), times), ""),
        "Aalen-Johansen": (curve, ""),
    }


# --- The values.


def measure(predict: Predict, train: SurvivalData, test: SurvivalData, *, truth: bool) -> dict[str, float | None]:
    end = float(np.quantile(train.time, 0.9))
    half = N_TIMES // 2
    events = np.quantile(train.time[train.event], np.arange(1, half) / half)
    grid = np.unique(np.concatenate([events, np.linspace(0, train.time.max(), half + 1)[1:]]))
    curves = predict(test.x, grid)
    tested = cause_calibration(curves, grid, time=test.time, cause=test.cause, n_bins=N_BINS)
    inside = grid[grid <= end]
    brier = []
    for k in (1, 2):
        competing = (test.cause > 0) & (test.cause != k)
        known = {"time": test.time, "event": test.cause == k, "competing": competing}
        brier.append(integrated_brier_score(1 - curves[:, k - 1, : inside.size], inside, **known).value)

    def risk(k: int | None) -> np.ndarray:
        assert k is not None
        return np.asarray(np.trapezoid(curves[:, k - 1, : inside.size], inside, axis=1))

    in_order, pairs = pairs_in_order(test.outcome, risk)
    off = np.abs(curves - true_incidences(test.x, grid))[..., : inside.size] if truth else None
    return {
        "crd": 1e3 * (tested.value - tested.floor),
        "rejected": float(tested.p_value < 0.05),
        "brier": 1e3 * float(np.mean(brier)),
        "nll": likelihood_of_bins(predict, train, test),
        "c": in_order / pairs,
        "error": None if off is None else 1e3 * float(off.mean()),
    }


def likelihood_of_bins(predict: Predict, train: SurvivalData, test: SurvivalData) -> float:
    """Mean negative log-likelihood of the bin and cause of an event, and of outliving half of a censoring's bin."""
    inner = np.unique(np.quantile(train.time[train.event], np.arange(1, N_BINS) / N_BINS))
    last = np.append(inner, 10 * train.time.max())
    masses = np.diff(predict(test.x, last), axis=2, prepend=0.0)
    beyond = np.maximum(1 - masses.sum(axis=(1, 2)), 0.0)
    masses[:, :, -1] += beyond[:, None] / masses.shape[1]
    masses = 0.99 * np.maximum(masses, 0.0) + 0.01 / (masses.shape[1] * masses.shape[2])
    place, rows = np.searchsorted(inner, test.time), np.arange(test.n)
    of_any = masses.sum(axis=1)
    after = np.cumsum(of_any[:, ::-1], axis=1)[:, ::-1][rows, place] - of_any[rows, place] / 2
    own = masses[rows, np.maximum(test.cause - 1, 0), place]
    return float(-np.log(np.where(test.event, own, after)).mean())


# --- The cells, their records and the table.


def cell(task: tuple[str, int, int, str]) -> list[dict[str, Any]]:
    data, repeat, fold, family = task
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = loaded(data)
    picked = rows.folds(N_FOLDS, seed=repeat)[fold]
    train, test = rows[picked.train], rows[picked.test]
    if data == "simulated":
        test = simulated(NEW, seed=1000 * repeat + fold)
    fitted = (ours if family in NETWORKS else others)(family, train, repeat)
    at = {"data": data, "repeat": repeat, "fold": fold, "family": family}
    return [
        at | {"model": name, "said": said} | measure(predict, train, test, truth=data == "simulated")
        for name, (predict, said) in fitted.items()
    ]


def show(lines: list[dict[str, Any]]) -> None:
    head = ("data", "family", "model", "folds", "CR-D", "p < .05", "Brier", "NLL", "C", "error")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for data in DATA:
        for family in FAMILIES:
            own = [line for line in lines if (line["data"], line["family"]) == (data, family)]
            base = {(line["repeat"], line["fold"]): line for line in own if line["model"] == "none"}
            for model in dict.fromkeys(line["model"] for line in own):
                found = [line for line in own if line["model"] == model]
                cells = [_mean(found, base, name) for name in VALUES]
                print(f"| {data} | {family} | {model} | {len(found)} | " + " | ".join(cells) + " |")


def _mean(found: list[dict[str, Any]], base: dict[tuple[int, int], dict[str, Any]], name: str) -> str:
    """Mean over folds, and in brackets that of the difference from no treatment with its standard error."""
    values = np.array([np.nan if line[name] is None else line[name] for line in found])
    if not values.size or np.isnan(values).all():
        return ""
    digits = {"nll": 3, "c": 3, "rejected": 2}.get(name, 1)
    told = f"{values.mean():.{digits}f}"
    pairs = [(line, base[at]) for line in found if (at := (line["repeat"], line["fold"])) in base]
    gaps = [line[name] - other[name] for line, other in pairs if line is not other]
    if name == "rejected" or len(gaps) < 2:
        return told
    return f"{told} ({np.mean(gaps):+.{digits}f} ± {np.std(gaps, ddof=1) / np.sqrt(len(gaps)):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    parser.add_argument("--datasets", nargs="*", choices=list(DATA), default=list(DATA))
    parser.add_argument("--families", nargs="*", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print the table of the records alone")
    options = parser.parse_args()
    lines = read_lines(options.out)
    known = {tuple(line[name] for name in ("data", "repeat", "fold", "family")) for line in lines}
    wanted = [
        (data, repeat, fold, family)
        for repeat in range(options.repeats)
        for fold in range(N_FOLDS)
        for data in options.datasets
        for family in options.families
        if (data, repeat, fold, family) not in known and not options.show
    ]
    os.environ["OMP_NUM_THREADS"] = "1"
    for _, done in side_by_side(cell, wanted, options.workers):
        lines += done
        for line in done:
            append_line(options.out, line)
    show(lines)


if __name__ == "__main__":
    main()
