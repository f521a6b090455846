"""Epochs of a conditional path, chosen by D-calibration or by conditional calibration K of the validation rows.

Claim: by K, which the penalty asks for, models with a large weight are better on new rows, and others no worse.

The data, folds and models of `studies.for_whom_real`, lambda 10, 100 and 1000, one seed. Each path is trained twice,
and nothing but the score of an epoch differs: objective + lambda times K, or times the excess of D-calibration. Printed
are differences on the test rows, K less D-calibration, means over the data sets ± the standard error over folds.

    python -m studies.conditional_epochs --out epochs.jsonl
"""

import argparse
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from studies._for_whom import BINS, TIMES, Line, Mapped, append, lines_of, measured, values_of
from studies.for_whom_real import DATA, FAMILIES, FOLDS, LAMBDAS, rows_of
from xcal.calibration import KernelFeatures
from xcal.data import SurvivalData
from xcal.estimators.fitting import train_on
from xcal.estimators.settings import Settings
from xcal.training.problem import Problem

RULES = ("D-calibration", "K")
SHOWN = {"k": 2, "dcal": 2, "nll": 3, "ibs": 4, "concordance": 3}


def run(data: str, family: str, fold: int, most_rows: int) -> list[Line]:
    train, validation, test, _ = rows_of(data, fold, most_rows)
    joined = (np.concatenate([getattr(p, of) for p in (train, validation)]) for of in ("x", "time", "event"))
    seen = SurvivalData(*joined)
    grid = np.linspace(0.0, float(np.quantile(np.concatenate([seen.time, test.time]), 0.9)), TIMES)
    settings = Settings(distribution=family, epochs=100, patience=20, progress=False)
    everyone, nothing = [np.ones(test.n, dtype=bool)], np.zeros(test.n, dtype=int)
    lines = []
    for rule in RULES:
        # Without sums of features there is no K, and D-calibration takes its place.
        sums = Problem._n_feature_sums if rule == "K" else property(lambda problem: 0)
        with patch.object(Problem, "_n_feature_sums", sums):
            _, models = train_on(
                train, validation, settings, lambdas=LAMBDAS, seeds=(fold,), conditional=KernelFeatures()
            )
        for model in models:
            plain = Mapped(lambda some, m=model: m.distribution(test.x[some]), (None,))
            found = measured(values_of(plain, test, nothing, grid), seen, test, test.x, everyone, grid)
            line = {"data": data, "family": family, "fold": fold, "rule": rule, "lam": model.lam}
            lines.append(line | {name: found[name] for name in SHOWN})
    return lines


def show(path: Path) -> None:
    found = {tuple(line[k] for k in ("family", "lam", "fold", "data", "rule")): line for line in lines_of(path)}
    print(f"K less D-calibration; K and D-calibration in 1e-3, {BINS} bins")
    for family in FAMILIES:
        for lam in LAMBDAS:
            texts = []
            for measure, digits in SHOWN.items():
                by_fold: dict[int, list[float]] = defaultdict(list)
                for (*own, fold, data, rule), line in found.items():
                    if own == [family, lam] and rule == "K":
                        before = found[family, lam, fold, data, "D-calibration"]
                        by_fold[fold].append(line[measure] - before[measure])
                means = [np.mean(values) for values in by_fold.values()]
                error = np.std(means, ddof=1) / len(means) ** 0.5 if len(means) > 1 else np.nan
                texts.append(f"{measure} {np.mean(means):+.{digits}f} ± {error:.{digits}f}")
            print(f"{family}, lambda {lam:g}: " + ", ".join(texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("conditional_epochs.jsonl"))
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--folds", type=int, default=FOLDS)
    options, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    done = {(line["data"], line["family"], line["fold"]) for line in lines_of(options.out)}
    for fold in range(options.folds):
        for data in DATA:
            for family in FAMILIES:
                if (data, family, fold) not in done:
                    append(options.out, run(data, family, fold, options.rows))
    show(options.out)


if __name__ == "__main__":
    main()
