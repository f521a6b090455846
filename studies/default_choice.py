"""Is the default choice right? Every weight, with and without a map of F, under many rules, on eighteen data sets.

Claim: the default of `SurvivalPath.select` is on no data set worse than lambda 0 by more than one standard error, in
likelihood or integrated Brier score, and better where something is wrong. The table says so, or what else would be.

- Each record is a fold: a path with the defaults of the estimators (three seeds, averaged) and four weights on the rows
  of four folds of five, and its 12 candidates on the fifth: each weight as it is, with the Kaplan-Meier map of F ("km")
  and with the average of maps of `Recalibrated(method="auto")` ("auto", as a line through 1,000 points). A map is
  fitted to all rows to fit on, each by networks that have not seen it.
- A rule sees what `SurvivalPath.fit` can see: every candidate cross-fitted on the rows to fit on, and on the validation
  rows. All rules are read off the same record, so that they can be compared without training again.
- Data: real tables, at most ``--rows`` rows of each, picked at random; "rotterdam to gbsg" is fitted to a part of the
  Rotterdam rows and measured on all of GBSG. Simulated: four laws of `studies._laws`, a third of the rows censored.
- NLL is by density, IBS the Brier score integrated to the 90 % quantile of the times, C Harrell's. D-calibration has 10
  bins and is that of all folds together, each row with the F of the model that has not seen it.
- ± is the standard error over folds of the difference to lambda 0.

Each fold is a line of JSON in ``--out``; the same command again resumes. ``--show`` prints what is there.
"""

import argparse
import json
import time as clock
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from studies._laws import draw
from studies.remedies import numbers_of, table
from xcal import SurvivalPath, concordance_index, d_calibration
from xcal._files import write_whole
from xcal.data import SurvivalData
from xcal.datasets import data_directory, load_metabric, load_support
from xcal.estimators.decision import fitted_map, trained_as
from xcal.estimators.fitted import combined
from xcal.estimators.selection import joined, measured, measured_table
from xcal.estimators.settings import Settings
from xcal.metrics import integrated_brier_score, kaplan_meier
from xcal.objectives import nll
from xcal.recalibration import KaplanMeierRecalibration
from xcal.recalibration.registry import AveragedRecalibration

N_FOLDS, N_BINS, N_TIMES, N_POINTS = 5, 10, 50, 1000
FAMILIES = ("mtlr", "weibull")
MAPS = ("none", "km", "auto")
LAMBDAS = (0, 10, 100, 500)
FOLDER = Path("runs/default_choice")


def numbers(frame: pd.DataFrame) -> np.ndarray:
    """Categories as indicators, missing values as the median."""
    found = pd.get_dummies(frame, drop_first=True).astype(float)
    return found.fillna(found.median()).to_numpy()


def of_sksurv(name: str, time: str, event: str) -> SurvivalData:
    _, values = numbers_of(name, time, event)
    return table(values[:, 2:], values[:, 0], values[:, 1] == 1)


def of_aids() -> SurvivalData:
    from sksurv import datasets

    x, y = datasets.load_aids()
    return table(numbers(x), y["time"], y["censor"])


def of_kidney() -> SurvivalData:
    from lifelines import datasets

    frame = datasets.load_kidney_transplant()
    return table(numbers(frame.drop(columns=["time", "death"])), frame.time.to_numpy(float), frame.death == 1)


def of_file(path: str) -> pd.DataFrame:
    return pd.read_csv(data_directory() / path)


def of_mgus() -> SurvivalData:
    """Plasma cell malignancy or death, whatever comes first."""
    frame = of_file("coarsened/mgus2.csv")
    return table(numbers(frame[["age", "sex", "hgb", "creat", "mspike"]]), frame.time.to_numpy(float), frame.cause > 0)


def of_pbc() -> SurvivalData:
    """First visits of the patients, until the end of their last interval."""
    frame = of_file("coarsened/pbcseq.csv").sort_values(["id", "start"])
    first, last = frame.groupby("id").first(), frame.groupby("id").last()
    return table(numbers(first[["age", "lbili", "albumin", "edema"]]), last.stop.to_numpy(float), last.event == 1)


def of_tcga() -> SurvivalData:
    frame = of_file("tcga_gbmlgg/gbmlgg_picked_like.csv")
    frame = frame[frame.vital_status.notna() & (frame.time > 0)]
    columns = ["years_to_birth", "gender", "radiation_therapy", "karnofsky_performance_score", "histological_type"]
    return table(numbers(frame[columns]), frame.time.to_numpy(float), frame.vital_status == 1)


def of_breast() -> SurvivalData:
    """Recurrence or death, whatever comes first."""
    frame = pd.concat([of_file(f"competing_risks/{name}.csv") for name in ("development", "validation")])
    x = frame[["age", "size", "nodes_positive", "hr_negative"]].to_numpy(float)
    return table(x, frame.time.to_numpy(float), frame.cause > 0)


def of_rotterdam(name: str = "rotterdam") -> SurvivalData:
    """Recurrence or death; columns that both data sets have."""
    frame = of_file(f"rotterdam_gbsg/{name}.csv")
    if name == "gbsg":
        size, time, event = np.digitize(frame["size"], [20.01, 50.01]), frame.rfstime, frame.status == 1
    else:
        size = frame["size"].map({"<=20": 0, "20-50": 1, ">50": 2})
        early = (frame.death == 1) & (frame.recur == 0) & (frame.rtime < frame.dtime)
        time, event = frame.rtime.where(~early, frame.dtime), (frame.recur == 1) | (frame.death == 1)
    columns = frame[["age", "meno", "grade", "nodes", "pgr", "er", "hormon"]].assign(size=size)
    return table(columns.to_numpy(float), np.asarray(time, float), np.asarray(event))


def simulated(law: str) -> SurvivalData:
    """1,500 rows."""
    return table(*draw(law, 1500, 0.35, False, [7]))


def of_table(load: Callable[[], SurvivalData]) -> SurvivalData:
    rows = load()
    return table(rows.x, np.asarray(rows.time, dtype=float), rows.event)


LOAD: dict[str, Callable[[], SurvivalData]] = {
    "veterans": partial(of_sksurv, "veterans_lung_cancer", "Survival_in_days", "Status"),
    "pbc": of_pbc,
    "whas500": partial(of_sksurv, "whas500", "lenfol", "fstat"),
    "gbsg2": partial(of_sksurv, "gbsg2", "time", "cens"),
    "kidney": of_kidney,
    "tcga": of_tcga,
    "aids": of_aids,
    "mgus2": of_mgus,
    "breast": of_breast,
    "rotterdam": of_rotterdam,
    "rotterdam to gbsg": of_rotterdam,
    "metabric": partial(of_table, load_metabric),
    "support": partial(of_table, load_support),
    "flchain": partial(of_sksurv, "flchain", "futime", "death"),
    "proportional": partial(simulated, "proportional"),
    "varying shape": partial(simulated, "varying shape"),
    "heavy tails": partial(simulated, "heavy tails"),
    "cured": partial(simulated, "cured"),
}


# --- One fold: every candidate, as the rows to fit on see it and on new rows.


def averaged(cdf: np.ndarray, event: np.ndarray) -> KaplanMeierRecalibration:
    """Return the average of maps as a line through many points, which our models can predict with."""
    own = AveragedRecalibration.fit(cdf, event)
    knots = np.linspace(0, 1, N_POINTS + 1)
    levels = own.cdf(knots)
    rises = np.concatenate([[True], np.diff(levels) > 1e-12])
    rises[-2:] = levels[-2] < 1, True
    return KaplanMeierRecalibration(
        knots[rises], np.concatenate([levels[rises][:-1], [1.0]]), cdf.size, int(event.sum())
    )


MAKE: dict[str, Callable[..., Any]] = {"km": fitted_map, "auto": lambda p, r, w: averaged(p.cdf[w], r.event[w])}


def run_fold(data: str, family: str, fold: int, most_rows: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")  # of few rows, again and again
    torch.set_num_threads(1)
    rows = LOAD[data]()
    if rows.n > most_rows:
        rows = rows[np.sort(np.random.default_rng(0).permutation(rows.n)[:most_rows])]
    picked = rows.folds(N_FOLDS, seed=0)[fold]
    train, test = rows[picked.train], rows[picked.test]
    if data == "rotterdam to gbsg":
        test = of_rotterdam("gbsg")
    path = SurvivalPath(LAMBDAS, path="always", distribution=family, progress=False).fit(train)
    settings, n = Settings.of(path), train.n
    members: dict[float, list[Any]] = {}
    for model in path.fitted_:
        if model.best_epoch >= 0:
            members.setdefault(model.lam, []).append(model)
    folds, everything = train.folds(path.cross_fit, seed=0), np.arange(n)
    lines, models, names = [], [], []
    for lam, own in sorted(members.items()):
        networks = [(part, trained_as(own, train[part.train], settings)) for part in folds]
        plain = joined([(part.test, measured(lam, combined(nets), train[part.test])) for part, nets in networks])
        for name in MAPS:
            names.append((lam, name))
            if name == "none":
                lines.append(plain)
                models.append(combined(own))
                continue
            make = MAKE[name]
            lines.append(
                joined(
                    [
                        (p.test, measured(lam, combined(nets, make(plain, train, p.train)), train[p.test]))
                        for p, nets in networks
                    ]
                )
            )
            models.append(combined(own, make(plain, train, everything)))
    seen = measured_table(lines, train, settings.calibration_bins).drop(columns=["lambda", "recalibrated"])
    selection = path.selection_
    validation = path.candidates_[["lambda", "recalibrated", "nll", "dcal", "dcal_floor", "dcal_p", "concordance"]]
    end = float(np.quantile(rows.time, 0.9))
    return {
        "data": data,
        "family": family,
        "fold": fold,
        "rows": n,
        "events": int(train.event.sum()),
        "select": [selection.lam, "km" if selection.recalibrated else "none"],
        "validation": json.loads(validation.to_json(orient="records")),
        "lines": [
            {"lam": lam, "map": name, "seen": json.loads(line.to_json()), "new": on_new(model, train, test, end)}
            for (lam, name), (_, line), model in zip(names, seen.iterrows(), models, strict=True)
        ],
    }


def on_new(model: Any, train: SurvivalData, test: SurvivalData, end: float) -> dict[str, Any]:
    """Measure a model on rows that had no part in it."""
    distribution = model.distribution(test.x)
    time, event = torch.from_numpy(test.time), torch.from_numpy(test.event)
    grid = np.linspace(0.0, end, N_TIMES)
    censoring = kaplan_meier(time=train.time, event=train.event, of="censoring")
    outcome = {"time": test.time, "event": test.event}
    found = d_calibration(distribution.cdf(time).numpy(), test.event, n_bins=N_BINS, p_value=None)
    return {
        "n": test.n,
        "nll": float(nll(distribution, time, event, density=True).mean()),
        "ibs": integrated_brier_score(model.survival(test.x, grid), grid, **outcome, censoring=censoring).value,
        "c": concordance_index(**outcome, risk=model.risk(test.x)).value,
        "histogram": [float(share) for share in found.histogram],
        "floor": float(found.floor),
    }


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(LOAD), nargs="*", default=list(LOAD))
    parser.add_argument("--family", choices=FAMILIES, nargs="*", default=list(FAMILIES))
    parser.add_argument("--folds", type=int, default=N_FOLDS, help="so many of the five folds")
    parser.add_argument("--rows", type=int, default=1500, help="at most so many rows of a data set, picked at random")
    parser.add_argument("--out", type=Path, default=FOLDER / "default_choice.jsonl")
    parser.add_argument("--show", action="store_true", help="print what is there, and run nothing")
    options, _ = parser.parse_known_args()
    lines = read(options.out)
    done = {(line["data"], line["family"], line["fold"]) for line in lines}
    wanted = [(d, f, k) for k in range(options.folds) for d in options.data for f in options.family]
    todo = [] if options.show else [one for one in wanted if one not in done]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(todo, start=1):
        start = clock.perf_counter()
        lines.append(run_fold(*one, options.rows))
        write_whole(options.out, "".join(json.dumps(line) + "\n" for line in lines).encode())
        print(f"{number} of {len(todo)}: {one}: {clock.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
