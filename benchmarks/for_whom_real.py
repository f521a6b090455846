"""Training or recalibration on real data, and for whom it makes a model right.

Claim: none in advance. `benchmarks.for_whom` asks the same of simulated data, where the truth is known.

- Data: METABRIC, SUPPORT (folder ``XCAL_DATA``), FLCHAIN and GBSG2 (scikit-survival's copies), at most ``--rows`` rows
  of each, folds ``table.folds(5, seed=0)``. A fifth of the training rows of a fold chooses epochs and weights, and is
  what maps are fitted to.
- Models: the estimators' networks with a Weibull distribution, which is wrong for most data, and with MTLR, free in
  form; lambda 0, 10, 100 and 1000, one seed, 100 epochs at most, a patience of 20.
- Penalties: marginal (X-CAL), within thirds of age, conditional (128 features of all covariates). The weight of each is
  the largest whose NLL on the validation rows is at most one standard error above that of lambda 0.
- Each as it is, recalibrated by one map of F (Kaplan-Meier), and by one map per third of age.
- Measured on the test rows of the fold: conditional calibration K, D-calibration in excess of its floor, the largest
  excess among the halves of every covariate ("worst"; unknown to all methods), NLL by density, Brier score integrated
  to the 90 % quantile of the times, Harrell's concordance. K and D-calibration in 1e-3 with 10 bins.

One line of JSON per fold and method; the same command again resumes. Values are means over folds, and the errors those
over folds of the difference to the model as trained without a penalty.

    python -m benchmarks.for_whom_real --out benchmarks/for_whom_real.jsonl
    python -m benchmarks.for_whom_real --out benchmarks/for_whom_real.jsonl --show --picture docs/_static/for_whom.png
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.remedies import LOAD, thirds
from xcal import conditional_calibration, d_calibration
from xcal.calibration import KernelFeatures
from xcal.data import SurvivalData
from xcal.distributions import SurvivalDistribution
from xcal.estimators.fitted import FittedModel, combined
from xcal.estimators.fitting import train_on
from xcal.estimators.settings import Settings
from xcal.metrics import concordance_index, integrated_brier_score, kaplan_meier
from xcal.objectives import nll
from xcal.recalibration import KaplanMeierRecalibration

DATA = ("metabric", "support", "flchain", "gbsg2")
FAMILIES = ("weibull", "mtlr")
LAMBDAS = (0.0, 10.0, 100.0, 1000.0)
FOLDS, BINS, TIMES, SMALLEST = 5, 10, 50, 50
PENALTIES = ("none", "marginal", "thirds of age", "conditional")
MAPS = ("no map", "one map", "map per third")
MEASURES = ("k", "dcal", "worst", "nll", "ibs", "concordance")


@dataclass(frozen=True)
class Thirds:
    """Indicators of the thirds of one column."""

    column: int

    def of(self, x: Any) -> np.ndarray:  # noqa: D102
        values = np.asarray(x)[:, self.column]
        return np.eye(3)[thirds(values, np.ones(values.size, dtype=bool))]


@dataclass(frozen=True, eq=False)
class Mapped:
    """A model with a map of F for each group; None where there is none."""

    model: FittedModel
    maps: tuple[KaplanMeierRecalibration | None, ...]

    def parts(self, rows: SurvivalData, group: np.ndarray) -> Iterator[tuple[np.ndarray, SurvivalDistribution]]:
        """Give the rows of each group and their distributions."""
        for k, own in enumerate(self.maps):
            chosen = np.flatnonzero(group == k) if len(self.maps) > 1 else np.arange(rows.n)
            if chosen.size:
                yield chosen, combined((self.model,), own).distribution(rows.x[chosen])


def values_of(mapped: Mapped, rows: SurvivalData, group: np.ndarray, grid: np.ndarray) -> dict[str, np.ndarray]:
    """F at the own times, the negative log-likelihood and the survival curves of every row."""
    cdf, loss, curves = np.empty(rows.n), np.empty(rows.n), np.empty((rows.n, grid.size))
    for chosen, distribution in mapped.parts(rows, group):
        time, event = (torch.from_numpy(np.ascontiguousarray(v[chosen])) for v in (rows.time, rows.event))
        with torch.no_grad():
            cdf[chosen] = distribution.cdf(time).numpy()
            loss[chosen] = nll(distribution, time, event, density=True).numpy()
            for k, at in enumerate(grid):
                curves[chosen, k] = 1 - distribution.cdf(torch.full_like(time, float(at))).numpy()
    return {"cdf": np.clip(cdf, 0, 1), "loss": loss, "curves": np.clip(curves, 0, 1)}


def excess(cdf: np.ndarray, event: np.ndarray) -> float:
    result = d_calibration(cdf, event, n_bins=BINS, p_value=None)
    return 1e3 * (result.value - result.floor)


def measured(
    found: dict[str, np.ndarray], train: SurvivalData, test: SurvivalData, grid: np.ndarray
) -> dict[str, float]:
    cdf, event = found["cdf"], test.event
    halves = [test.x[:, k] > np.median(train.x[:, k]) for k in range(test.x.shape[1])]
    sides = [side for half in halves for side in (half, ~half) if side.sum() >= SMALLEST]
    censoring = kaplan_meier(time=train.time, event=train.event, of="censoring")
    outcome = {"time": test.time, "event": event}
    k = conditional_calibration(cdf, event, test.x, n_bins=BINS, n_draws=0, where=False).value
    return {
        "k": 1e3 * k,
        "dcal": excess(cdf, event),
        "worst": max(excess(cdf[side], event[side]) for side in sides),
        "nll": float(found["loss"].mean()),
        "ibs": integrated_brier_score(found["curves"], grid, **outcome, censoring=censoring).value,
        "concordance": concordance_index(**outcome, predicted_time=np.trapezoid(found["curves"], grid, axis=1)).value,
    }


def largest_allowed(models: tuple[FittedModel, ...], rows: SurvivalData) -> FittedModel:
    """Return the largest weight whose NLL is at most one standard error above that of lambda 0."""
    nothing = np.zeros(rows.n, dtype=int)
    losses = [values_of(Mapped(model, (None,)), rows, nothing, np.empty(0))["loss"] for model in models]
    gaps = [loss - losses[0] for loss in losses]
    allowed = [m for m, gap in zip(models, gaps, strict=True) if gap.mean() <= gap.std() / rows.n**0.5]
    return allowed[-1]


def maps_of(model: FittedModel, rows: SurvivalData, group: np.ndarray) -> dict[str, Mapped]:
    cdf = model.cdf_at_own(rows.x, rows.time)
    one = KaplanMeierRecalibration.fit(cdf, rows.event)
    own = [
        KaplanMeierRecalibration.fit(cdf[group == k], rows.event[group == k]) if rows.event[group == k].any() else one
        for k in range(3)
    ]
    return {
        "no map": Mapped(model, (None,)),
        "one map": Mapped(model, (one,)),
        "map per third": Mapped(model, tuple(own)),
    }


def run(data: str, family: str, fold: int, most_rows: int) -> list[dict[str, Any]]:
    table, age = LOAD[data]()
    if table.n > most_rows:
        table = table[np.sort(np.random.default_rng(0).permutation(table.n)[:most_rows])]
    part = list(table.folds(FOLDS, seed=0))[fold]
    rest, test = table[part.train], table[part.test]
    train, validation = rest.split((0.8, 0.2), seed=fold)
    cuts = np.quantile(train.x[:, age], [1 / 3, 2 / 3])
    group = {name: np.searchsorted(cuts, rows.x[:, age]) for name, rows in (("v", validation), ("t", test))}
    grid = np.linspace(0.0, float(np.quantile(table.time, 0.9)), TIMES)
    settings = Settings(distribution=family, epochs=100, patience=20, progress=False)
    makers = {"marginal": None, "thirds of age": Thirds(age), "conditional": KernelFeatures(128)}
    chosen: dict[str, FittedModel] = {}
    for penalty, maker in makers.items():
        _, models = train_on(train, validation, settings, lambdas=LAMBDAS, seeds=(fold,), conditional=maker)
        chosen.setdefault("none", models[0])
        chosen[penalty] = largest_allowed(models, validation)
    lines = []
    for penalty, model in chosen.items():
        for treatment, mapped in maps_of(model, validation, group["v"]).items():
            found = measured(values_of(mapped, test, group["t"], grid), rest, test, grid)
            line = {"data": data, "family": family, "fold": fold, "rows": table.n, "penalty": penalty}
            lines.append(line | {"lam": model.lam, "map": treatment} | found)
    return lines


Cells = dict[tuple[str, str, str, str], dict[int, dict[str, float]]]


def cells_of(path: Path) -> Cells:
    cells: Cells = defaultdict(dict)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        cells[line["data"], line["family"], line["penalty"], line["map"]][line["fold"]] = line
    return cells


def against_none(cells: Cells, data: str, family: str, penalty: str, treatment: str, of: str) -> tuple[float, ...]:
    """Mean over folds, and mean and standard error of the difference to the model as trained."""
    own, base = cells[data, family, penalty, treatment], cells[data, family, "none", "no map"]
    folds = sorted(set(own) & set(base))
    gaps = [own[fold][of] - base[fold][of] for fold in folds]
    error = float(np.std(gaps, ddof=1)) / len(folds) ** 0.5 if len(folds) > 1 else float("nan")
    return float(np.mean([own[fold][of] for fold in folds])), float(np.mean(gaps)), error


def show(path: Path) -> None:
    cells = cells_of(path)
    for data, family in dict.fromkeys(key[:2] for key in cells):
        base = cells[data, family, "none", "no map"]
        rows = next(iter(base.values()))["rows"]
        print(f"\n{data}, {rows:,} rows, {family}, {len(base)} folds")
        print(f"{'penalty':<15}{'map':<15}{'lambdas':<16}" + "".join(f"{m:>22}" for m in MEASURES))
        for penalty in PENALTIES:
            for treatment in MAPS:
                own = cells[data, family, penalty, treatment]
                lams = ",".join(f"{own[fold]['lam']:g}" for fold in sorted(own))
                shown = ""
                for m in MEASURES:
                    mean, gap, error = against_none(cells, data, family, penalty, treatment, m)
                    shown += f"{mean:>9.4g} {gap:>+6.2g} ± {error:<4.1g}"
                print(f"{penalty:<15}{treatment:<15}{lams:<16}{shown}")


def show_together(path: Path) -> None:
    """Mean over the data sets of the differences to the model as trained."""
    cells = cells_of(path)
    for family in dict.fromkeys(key[1] for key in cells):
        known = dict.fromkeys(key[0] for key in cells if key[1] == family)
        print(f"\n{family}, differences to the model as trained, mean over {', '.join(known)}")
        print(f"{'penalty':<15}{'map':<15}" + "".join(f"{m:>18}" for m in MEASURES))
        for penalty in PENALTIES:
            for treatment in MAPS:
                shown = ""
                for m in MEASURES:
                    gaps = np.array([against_none(cells, data, family, penalty, treatment, m)[1:] for data in known])
                    error = float(np.square(gaps[:, 1]).sum() ** 0.5) / len(known)
                    shown += f"{gaps[:, 0].mean():>+11.2g} ± {error:<4.1g}"
                print(f"{penalty:<15}{treatment:<15}{shown}")


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
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--picture", type=Path)
    options, _ = parser.parse_known_args()
    if not options.show:
        done = set(cells_of(options.out)) if options.out.exists() else set()
        known = {(*key[:2], fold) for key in done for fold in cells_of(options.out)[key]}
        for fold in range(options.folds):
            for data in options.data:
                for family in options.families:
                    if (data, family, fold) in known:
                        continue
                    lines = run(data, family, fold, options.rows)
                    with options.out.open("a") as file:
                        file.writelines(json.dumps(line) + "\n" for line in lines)
                    print(f"{data}, {family}, fold {fold}", flush=True)
    show(options.out)
    show_together(options.out)
    if options.picture is not None:
        picture(options.out, options.picture)


if __name__ == "__main__":
    main()
