"""Training or recalibration on real data, and for whom it makes a model right.

Claim: none in advance. `studies.for_whom` asks the same of simulated data, where the truth is known.

- Data: METABRIC, SUPPORT (folder ``XCAL_DATA``), FLCHAIN and GBSG2 (scikit-survival's copies, or what ``--export``
  wrote of them to ``XCAL_DATA``), at most ``--rows`` rows of each, folds ``table.folds(5, seed=0)``. A fifth of the
  training rows of a fold chooses epochs and weights, and is what maps are fitted to.
- Models: the estimators' networks with a Weibull distribution, which is wrong for most data, and with MTLR, free in
  form; lambda 0, 10, 100 and 1000, 100 epochs at most, a patience of 20; ``--seeds`` initial weights for each fold.
- Penalties: marginal (X-CAL), within thirds of age, conditional (128 features of all covariates). The weight of each is
  the largest whose NLL on the validation rows is at most one standard error above that of lambda 0.
- Each as it is, recalibrated by one map of F (Kaplan-Meier), and by one map per third of age.
- Measured on the test rows of the fold: conditional calibration K, D-calibration in excess of its floor, the largest
  excess among the halves of every covariate ("worst"; unknown to all methods), NLL by density, Brier score integrated
  to the 90 % quantile of the times, Harrell's concordance. K and D-calibration in 1e-3 with 10 bins.

One line of JSON per fold, seed and method; the same command again resumes. Values are means over folds and seeds, and
the errors those over folds of the difference to the model as trained without a penalty, seeds of a fold averaged.

    python -m studies.for_whom_real --out studies/for_whom_real.jsonl --rows 1500 --seeds 3 --processes 2
    python -m studies.for_whom_real --out studies/for_whom_real.jsonl --show --picture docs/_static/for_whom.png
"""

import argparse
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studies._for_whom import (
    MAPS,
    TIMES,
    Line,
    Mapped,
    against_none,
    append,
    cells_of,
    is_allowed,
    lines_of,
    maps_of,
    measured,
    show,
    show_together,
    values_of,
)
from studies.remedies import LOAD, export, thirds
from xcal.calibration import KernelFeatures
from xcal.data import SurvivalData
from xcal.datasets import data_directory
from xcal.estimators.fitted import FittedModel
from xcal.estimators.fitting import train_on
from xcal.estimators.settings import Settings

DATA = ("metabric", "support", "flchain", "gbsg2")
FAMILIES = ("weibull", "mtlr")
LAMBDAS = (0.0, 10.0, 100.0, 1000.0)
FOLDS, SMALLEST = 5, 50
PENALTIES = ("none", "marginal", "thirds of age", "conditional")


@dataclass(frozen=True)
class Thirds:
    """Indicators of the thirds of one column."""

    column: int

    def of(self, x: Any) -> np.ndarray:  # noqa: D102
        values = np.asarray(x)[:, self.column]
        return np.eye(3)[thirds(values, np.ones(values.size, dtype=bool))]


def loss_of(model: FittedModel, rows: SurvivalData) -> np.ndarray:
    nothing = np.zeros(rows.n, dtype=int)
    plain = Mapped(lambda chosen: model.distribution(rows.x[chosen]), (None,))
    return values_of(plain, rows, nothing, np.empty(0))["loss"]


def largest_allowed(models: tuple[FittedModel, ...], rows: SurvivalData) -> FittedModel:
    """Return the largest weight whose NLL is at most one standard error above that of lambda 0."""
    without = loss_of(models[0], rows)
    return [model for model in models if is_allowed(loss_of(model, rows), without)][-1]


def rows_of(data: str, fold: int, most_rows: int) -> tuple[SurvivalData, SurvivalData, SurvivalData, int]:
    """Rows to train, to validate and to test on, and the column of the age."""
    table, age = LOAD[data]()
    if table.n > most_rows:
        table = table[np.sort(np.random.default_rng(0).permutation(table.n)[:most_rows])]
    part = list(table.folds(FOLDS, seed=0))[fold]
    return (*table[part.train].split((0.8, 0.2), seed=fold), table[part.test], age)


def chosen_models(
    train: SurvivalData, validation: SurvivalData, settings: Settings, age: int, seed: int
) -> dict[str, FittedModel]:
    """Train every penalty, and give the model that is chosen from each."""
    chosen: dict[str, FittedModel] = {}
    makers = {"marginal": None, "thirds of age": Thirds(age), "conditional": KernelFeatures()}
    for penalty, maker in makers.items():
        _, models = train_on(train, validation, settings, lambdas=LAMBDAS, seeds=(seed,), conditional=maker)
        chosen.setdefault("none", models[0])
        chosen[penalty] = largest_allowed(models, validation)
    return chosen


def run(data: str, family: str, fold: int, seed: int, most_rows: int) -> list[Line]:
    torch.set_num_threads(1)
    train, validation, test, age = rows_of(data, fold, most_rows)
    seen = SurvivalData(
        *(np.concatenate([getattr(p, of) for p in (train, validation)]) for of in ("x", "time", "event"))
    )
    cuts = np.quantile(train.x[:, age], [1 / 3, 2 / 3])
    group = {name: np.searchsorted(cuts, rows.x[:, age]) for name, rows in (("v", validation), ("t", test))}
    grid = np.linspace(0.0, float(np.quantile(np.concatenate([seen.time, test.time]), 0.9)), TIMES)
    halves = [test.x[:, k] > np.median(seen.x[:, k]) for k in range(test.x.shape[1])]
    sides = [side for half in halves for side in (half, ~half) if side.sum() >= SMALLEST]
    settings = Settings(distribution=family, epochs=100, patience=20, progress=False)
    lines = []
    for penalty, model in chosen_models(train, validation, settings, age, fold + FOLDS * seed).items():
        cdf = model.cdf_at_own(validation.x, validation.time)
        for treatment, maps in maps_of(cdf, validation.event, group["v"]).items():
            mapped = Mapped(lambda some, m=model: m.distribution(test.x[some]), maps)
            found = measured(values_of(mapped, test, group["t"], grid), seen, test, test.x, sides, grid)
            line = {"data": data, "family": family, "fold": fold, "seed": seed, "rows": seen.n + test.n}
            lines.append(line | {"penalty": penalty, "lam": model.lam, "map": treatment} | found)
    return lines


def picture(path: Path, out: Path) -> None:
    import matplotlib.pyplot as plt

    cells = cells_of(path)
    colours = dict(zip(PENALTIES, ("#1a1f26", "#0072b2", "#009e73", "#d55e00"), strict=True))
    shapes = dict(zip(MAPS, "os^", strict=True))
    fig, axes = plt.subplots(len(FAMILIES), len(DATA), figsize=(13, 6), layout="constrained", squeeze=False)
    for row, family in zip(axes, FAMILIES, strict=True):
        for ax, data in zip(row, DATA, strict=True):
            for penalty in PENALTIES:
                for treatment in MAPS:
                    k, x = (against_none(cells, data, family, penalty, treatment, m) for m in ("k", "nll"))
                    ax.errorbar(
                        x[1], k[0], xerr=x[2], yerr=k[2], fmt=shapes[treatment], color=colours[penalty], ms=6, lw=0.8
                    )
            ax.axvline(0, color="#8a929c", lw=0.8, ls=":")
            ax.axhline(0, color="#8a929c", lw=0.8, ls=":")
            ax.set_title(f"{data}, {family}", fontsize=10)
            ax.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("K on test rows, 1e-3 (0: right for all)")
    for ax in axes[-1]:
        ax.set_xlabel("NLL less that as trained")
    marks = [plt.Line2D([], [], color=c, marker="o", ls="", label=f"penalty: {p}") for p, c in colours.items()]
    marks += [plt.Line2D([], [], color="#8a929c", marker=s, ls="", label=t) for t, s in shapes.items()]
    fig.legend(handles=marks, loc="outside lower center", ncols=7, frameon=False, fontsize=9)
    fig.savefig(out, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("for_whom_real.jsonl"))
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--export", action="store_true", help="write scikit-survival's copies to XCAL_DATA, and stop")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--picture", type=Path)
    options, _ = parser.parse_known_args()
    if options.export:
        for name in ("flchain", "gbsg2"):
            print(export(name, data_directory()))
        return
    if not options.show:
        train_all(options)
    show(options.out, PENALTIES)
    show_together(options.out, PENALTIES)
    if options.picture is not None:
        picture(options.out, options.picture)


def train_all(options: argparse.Namespace) -> None:
    done = {(line["data"], line["family"], line["fold"], line["seed"]) for line in lines_of(options.out)}
    jobs = [
        (data, family, fold, seed)
        for seed in range(options.seeds)
        for fold in range(options.folds)
        for data in options.data
        for family in options.families
        if (data, family, fold, seed) not in done
    ]
    # Fresh processes with one thread each: forked ones may hang where threads have been used.
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(run, *job, options.rows): job for job in jobs}
        for future in as_completed(running):
            append(options.out, future.result())
            print("{}, {}, fold {}, seed {}".format(*running[future]), flush=True)


if __name__ == "__main__":
    main()
