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

Each fold is a line of JSON in ``--out``; the same command again resumes. ``--show`` prints what is there. For a machine
without the libraries that the tables come from, ``--keep-tables FILE`` writes them here, and ``--tables FILE`` reads
them there.
"""

import argparse
import json
import time as clock
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from studies._laws import draw
from studies._records import append_line, read_lines, side_by_side
from studies.remedies import numbers_of, table
from xcal import SurvivalPath, concordance_index, d_calibration
from xcal.data import SurvivalData
from xcal.datasets import data_directory, load_metabric, load_support
from xcal.estimators.decision import trained_as
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
RECORD = Path(__file__).with_suffix(".jsonl")
TRANSPORTED, GBSG = "rotterdam to gbsg", "gbsg"


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
    TRANSPORTED: of_rotterdam,
    "metabric": partial(of_table, load_metabric),
    "support": partial(of_table, load_support),
    "flchain": partial(of_sksurv, "flchain", "futime", "death"),
    "proportional": partial(simulated, "proportional"),
    "varying shape": partial(simulated, "varying shape"),
    "heavy tails": partial(simulated, "heavy tails"),
    "cured": partial(simulated, "cured"),
}


def keep_tables(file: Path, most_rows: int) -> None:
    """Write the rows of all data sets, those of GBSG among them."""
    arrays = {}
    kept = {name: picked(name, most_rows) for name in LOAD} | {GBSG: of_rotterdam("gbsg")}
    for name, rows in kept.items():
        arrays |= {f"{name}/{part}": getattr(rows, part) for part in ("x", "time", "event")}
    np.savez_compressed(file, **arrays)


def picked(name: str, most_rows: int) -> SurvivalData:
    """At most so many rows of a data set, picked at random."""
    rows = LOAD[name]()
    if rows.n <= most_rows:
        return rows
    return rows[np.sort(np.random.default_rng(0).permutation(rows.n)[:most_rows])]


def both(name: str, most_rows: int, tables: Path | None) -> tuple[SurvivalData, SurvivalData | None]:
    """Rows of a data set, and the rows that judge where these are another one."""
    if tables is None:
        return picked(name, most_rows), of_rotterdam("gbsg") if name == TRANSPORTED else None
    with np.load(tables) as kept:
        own, other = (table(*(kept[f"{n}/{part}"] for part in ("x", "time", "event"))) for n in (name, GBSG))
    return own, other if name == TRANSPORTED else None


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


MAKE: dict[str, Callable[..., Any]] = {
    "km": lambda plain, rows, which: plain.own.recalibration(rows, which),
    "auto": lambda plain, rows, which: averaged(plain.own.cdf[which], rows.event[which]),
}


def run_fold(task: tuple[str, str, int], most_rows: int, tables: Path | None = None) -> dict[str, Any]:
    data, family, fold = task
    warnings.simplefilter("ignore")  # of few rows, again and again
    torch.set_num_threads(1)
    rows, elsewhere = both(data, most_rows, tables)
    part = rows.folds(N_FOLDS, seed=0)[fold]
    train, test = rows[part.train], rows[part.test] if elsewhere is None else elsewhere
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


# --- What the records say.


Key = tuple[float, str]


def candidates(line: dict[str, Any]) -> dict[Key, dict[str, Any]]:
    return {(one["lam"], one["map"]): one for one in line["lines"]}


def off(line: dict[str, Any]) -> bool:
    """Whether the cross-fitted rows show that lambda 0 is off."""
    p_value = candidates(line)[0.0, "none"]["seen"]["dcal_p"]
    return p_value is not None and p_value < 0.05


def by_default(line: dict[str, Any]) -> Key:
    """Return what the default takes by the cross-fitted rows; the path's own choice where lambda 0 and its map fail."""
    if not off(line):
        return 0.0, "none"
    plain, mapped = (candidates(line)[0.0, name]["seen"] for name in ("none", "km"))
    gain = (plain["dcal"] - plain["dcal_floor"]) - (mapped["dcal"] - mapped["dcal_floor"])
    if gain > 0 and mapped["nll"] - plain["nll"] <= mapped["nll_gap_se"]:
        return 0.0, "km"
    return line["select"][0], line["select"][1]


def lowest(line: dict[str, Any], price: float, lambdas: Iterable[float]) -> Key:
    """Of the cross-fitted candidates without or with the Kaplan-Meier map, the lowest NLL with a price on D-cal."""
    seen = {key: one["seen"] for key, one in candidates(line).items() if key[0] in lambdas and key[1] != "auto"}
    return min(seen, key=lambda key: seen[key]["nll"] + price * max(seen[key]["dcal"] - seen[key]["dcal_floor"], 0))


def dropping(line: dict[str, Any], most: float) -> Key:
    """Return what `SurvivalPath.select(max_concordance_drop=)` takes."""
    known = [one for one in line["validation"] if one["concordance"] is not None]
    best = max(one["concordance"] for one in known)
    one = min((one for one in known if best - one["concordance"] <= most), key=lambda one: one["dcal"])
    return one["lambda"], "km" if one["recalibrated"] else "none"


RULES: dict[str, Callable[[dict[str, Any]], Key]] = {
    "select()": by_default,
    "map of F always": lambda line: (0.0, "km"),
    "map of F if off": lambda line: (0.0, "km" if off(line) else "none"),
    "average of maps if off": lambda line: (0.0, "auto" if off(line) else "none"),
    "lowest NLL": lambda line: lowest(line, 0.0, LAMBDAS),
    "NLL + D-cal over its floor": lambda line: lowest(line, N_BINS, LAMBDAS),
    "the same, lambda 0 alone": lambda line: lowest(line, N_BINS, (0,)),
    "max_concordance_drop .02": lambda line: dropping(line, 0.02),
    "lambda 10": lambda line: (10.0, "none"),
    "lambda 100": lambda line: (100.0, "none"),
    "lambda 500": lambda line: (500.0, "none"),
}


def excess(folds: list[dict[str, Any]]) -> float:
    """D-calibration over its floor of the rows of all folds together."""
    counts = np.array([one["n"] for one in folds], dtype=float)
    histogram = np.average([one["histogram"] for one in folds], axis=0, weights=counts)
    floor = np.square(counts) @ [one["floor"] for one in folds] / counts.sum() ** 2
    return float(np.square(histogram - 1 / N_BINS).sum() - floor)


def told(gaps: np.ndarray, digits: int) -> str:
    error = gaps.std(ddof=1) / gaps.size**0.5 if gaps.size > 1 else np.nan
    return f"{gaps.mean():.{digits}f} ± {error:.{digits}f}"


def show(lines: list[dict[str, Any]]) -> None:
    """Print what each rule adds to lambda 0 on new rows, and of ``select()`` each data set."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        cells.setdefault((line["data"], line["family"]), []).append(line)
    heads = ("NLL x 1,000", "IBS x 1,000", "C", "D-cal x 1,000")
    print(f"{len(lines)} folds of {len(cells)} cells (a data set and a family): what a rule adds to lambda 0")
    print(f"{'':28}" + "".join(f"{head:>18}" for head in heads) + f"{'other than 0':>14}{'worse, better by 1 SE':>24}")
    for name, rule in RULES.items():
        gaps, calibration, worse, better, other = [], [], 0, 0, 0
        for own in cells.values():
            table = np.array([gaps_of(line, rule(line)) for line in own])
            gaps.append(table)
            calibration.append(changed_excess(own, rule))
            other += sum(rule(line) != (0.0, "none") for line in own)
            errors = table[:, :2].std(axis=0, ddof=1) / len(own) ** 0.5 if len(own) > 1 else np.full(2, np.nan)
            worse += bool((table[:, :2].mean(axis=0) > errors).any())
            better += bool((table[:, :2].mean(axis=0) < -errors).any())
        all_gaps = np.concatenate(gaps)
        shown = [told(all_gaps[:, k], digits) for k, digits in enumerate((1, 2, 4))]
        shown.append(told(np.array(calibration), 2))
        print(f"{name:28}" + "".join(f"{cell:>18}" for cell in shown) + f"{other:14d}{worse:14d},{better:9d}")
    print("\nselect() less lambda 0, by data set")
    for (data, family), own in sorted(cells.items()):
        rule = RULES["select()"]
        table = np.array([gaps_of(line, rule(line)) for line in own])
        shown = [told(table[:, k], digits) for k, digits in enumerate((1, 2, 4))]
        shown.append(f"{1e3 * excess([candidates(line)[0.0, 'none']['new'] for line in own]):.1f}")
        shown[-1] += f" {changed_excess(own, rule):+.1f}"
        chosen = ", ".join(f"{lam:g}{'r' if kind == 'km' else ''}" for lam, kind in map(rule, own))
        print(f"{data + ', ' + family:28}" + "".join(f"{cell:>18}" for cell in shown) + f"   {chosen}")


def gaps_of(line: dict[str, Any], key: Key) -> list[float]:
    """NLL, IBS and C of a candidate less those of lambda 0, on new rows."""
    new, base = candidates(line)[key]["new"], candidates(line)[0.0, "none"]["new"]
    return [scale * (new[name] - base[name]) for name, scale in (("nll", 1e3), ("ibs", 1e3), ("c", 1.0))]


def changed_excess(own: list[dict[str, Any]], rule: Callable[[dict[str, Any]], Key]) -> float:
    after, before = ([candidates(line)[pick(line)]["new"] for line in own] for pick in (rule, lambda _: (0.0, "none")))
    return 1e3 * (excess(after) - excess(before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(LOAD), nargs="*", default=list(LOAD))
    parser.add_argument("--family", choices=FAMILIES, nargs="*", default=list(FAMILIES))
    parser.add_argument("--folds", type=int, default=N_FOLDS, help="so many of the five folds")
    parser.add_argument("--rows", type=int, default=1500, help="at most so many rows of a data set, picked at random")
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--show", action="store_true", help="print what is there, and run nothing")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with a fold of its own")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after these")
    parser.add_argument("--tables", type=Path, help="read the rows from a file of --keep-tables")
    parser.add_argument("--keep-tables", type=Path, help="write the rows of all data sets to a file, and run nothing")
    options, _ = parser.parse_known_args()
    if options.keep_tables is not None:
        keep_tables(options.keep_tables, options.rows)
        return
    lines = read_lines(options.out)
    if options.show:
        show(lines)
        return
    done = {(line["data"], line["family"], line["fold"]) for line in lines}
    wanted = [(d, f, k) for k in range(options.folds) for d in options.data for f in options.family]
    todo = [one for one in wanted if one not in done]
    work = partial(run_fold, most_rows=options.rows, tables=options.tables)
    start = clock.perf_counter()
    for number, (task, line) in enumerate(side_by_side(work, todo, options.workers, options.minutes), start=1):
        append_line(options.out, line)
        print(f"{number} of {len(todo)}: {task}: {clock.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
