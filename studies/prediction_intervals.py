"""How often do prediction intervals hold the time of the event of a new row, and bands the curve; how wide are they.

Claim: `predict_lower_bound` and `predict_interval` hold at their level within two Monte-Carlo errors, for right and
wrong models, with 20 to 80 % censored rows, and where censoring depends on the covariates; the model's own quantiles do
so only if it is right. Bands hold the curve of endless held-out rows and seeds in 95 % of the cases.

1. Models that are given: the true law; the same distribution for all rows ("one for all"); the true law of one
   covariate alone ("half"); log-odds spread half as far again ("over-confident"). Each is put into `Recalibrated` with
   500 rows, and asked about 300 new ones, at 90 %. Laws and censorings are those of `studies._laws`: censoring
   depends on the first covariate, rows at high risk leave early, or on nothing.
2. Models that are trained on 500 rows: a Weibull network with its validation rows, and a Cox model with ``cv=5``; half
   as many data sets.
3. Bands of 300 held-out rows, 40 % censored, about the curves of 50 new rows at three times: of the true law and of the
   over-confident one with the maps of "km", "beta" and "auto", and of the mean of three networks, which has seen 300
   other rows. Does the band hold the curve that 30,000 held-out rows and, of networks, 20 seeds give ("limit"), and the
   true one? With the map of "auto" a third of the data sets; of
   networks a sixth, and two of the maps.

Columns of 1 and 2: coverage of the lower bound and of the interval over ``--runs`` data sets with its Monte-Carlo
error, the share of rows with a finite upper bound, coverage of the model's own 10 % quantile, and the lower bound over
that quantile and over the true 10 % quantile (medians over rows). A law whose follow-up ends where 3 % have not had the
event seldom has finite upper bounds at 95 %.

Each case is a line of JSON in ``--out``; the same command again adds what is missing. ``--show`` prints the tables.
"""

import argparse
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studies import _laws
from studies._records import append_line, read_lines, side_by_side
from xcal import Recalibrated, Surv
from xcal.estimators import SurvivalModel, SurvivalPath

LAWS, CENSORED = ("proportional", "varying shape", "heavy tails"), (0.2, 0.5, 0.8)
MODELS, TRAINED = ("true", "one for all", "half", "over-confident"), ("network", "Cox")
ROWS, NEW = 500, 300
MAPPED, MAPS, AT = ("true", "over-confident", "networks"), ("km", "beta", "auto"), np.array([0.2, 0.5, 1.0])
BAND_ROWS, BAND_NEW, ENDLESS, SEEDS = 300, 50, 30_000, 20


class Given:
    """A law, or what is known of it, as curves on a grid."""

    def __init__(self, law: str, kind: str, time: np.ndarray) -> None:
        self.law, self.kind = law, kind
        times = np.unique(np.quantile(time, np.linspace(0.002, 1, 300)))
        self.times_ = times[times > 0]

    def predict_survival_function(self, x: np.ndarray) -> np.ndarray:  # noqa: D102
        if self.kind == "one for all":
            return np.repeat(_laws.survival(self.law, np.zeros((1, 3)), self.times_), len(x), axis=0)
        if self.kind == "half":
            return _laws.survival(self.law, x * np.array([0.0, 1.0, 0.0]), self.times_)
        return _laws.predicted(self.law, self.kind, x, self.times_)


def predictor(law: str, kind: str, x: np.ndarray, time: np.ndarray, event: np.ndarray, seed: int) -> tuple:
    """Return what has intervals, and a function for the model's own quantile at 10 %."""
    y = Surv(time=time, event=event)
    if kind == "network":
        model = SurvivalModel("weibull", hidden=(16,), epochs=100, patience=10, progress=False, random_state=seed)
        model.fit(x, y)
        return model, lambda new: model.predict_quantile(new, 0.1, extrapolate=True)
    if kind == "Cox":
        from sksurv.linear_model import CoxPHSurvivalAnalysis

        found = Recalibrated(CoxPHSurvivalAnalysis(alpha=0.1), "km", cv=5, random_state=seed).fit(x, y)
    else:
        found = Recalibrated(Given(law, kind, time), "km").fit(x, y)
    own = found._asked(x)[0]
    return found, lambda new: own.bounds(new, np.array([0.1]))[:, 0]


def one(law: str, kind: str, censored: float, depends: bool, seed: int) -> list[float]:
    x, time, event = _laws.draw(law, ROWS, censored, depends, [seed, 1])
    rng = np.random.default_rng([seed, 2])
    new = rng.normal(size=(NEW, 3))
    happens = _laws.event_time(law, new, rng.random(NEW))
    found, naive = predictor(law, kind, x, time, event, seed)
    lower, interval, own = found.predict_lower_bound(new), found.predict_interval(new), naive(new)
    ideal = _laws.event_time(law, new, np.full(NEW, 0.1))
    return [
        float((happens >= lower).mean()),
        float(((happens >= interval[:, 0]) & (happens <= interval[:, 1])).mean()),
        float(np.isfinite(interval[:, 1]).mean()),
        float((happens >= own).mean()),
        float(np.median(lower) / np.median(own)),
        float(np.median(lower) / np.median(ideal)),
    ]


# --- Bands.


def curves(law: str, kind: str, method: str, n: int, seed: int) -> Any:
    """Return a model that is recalibrated on n rows."""
    x, time, event = _laws.draw(law, n, 0.4, False, [seed, n])
    inside = networks(law, seed) if kind == "networks" else Given(law, kind, np.linspace(0.005, 4, 400))
    return Recalibrated(inside, method).fit(x, Surv(time=time, event=event))


def networks(law: str, seed: int, n_seeds: int = 3) -> Any:
    """Return the mean of networks of 300 rows, the same rows whatever their number."""
    x, time, event = _laws.draw(law, BAND_ROWS, 0.4, False, [seed, 3])
    short: dict[str, Any] = {"hidden": (16,), "epochs": 100, "patience": 10, "progress": False, "cross_fit": 0}
    path = SurvivalPath((0,), seeds=n_seeds, distribution="weibull", random_state=seed + 1000 * n_seeds, **short)
    return path.fit(x, Surv(time=time, event=event)).model(0)


@cache
def limit_of(law: str, kind: str, method: str) -> Any:
    return curves(law, kind, method, ENDLESS, 1)


def one_band(law: str, kind: str, method: str, seed: int) -> list[float]:
    new = np.random.default_rng([seed, 4]).normal(size=(BAND_NEW, 3))
    band = curves(law, kind, method, BAND_ROWS, seed).predict_survival_function(new, AT, interval=True)
    if kind == "networks":
        x, time, event = _laws.draw(law, ENDLESS, 0.4, False, [seed, ENDLESS])
        ideal = Recalibrated(networks(law, seed, SEEDS), method).fit(x, Surv(time=time, event=event))
    else:
        ideal = limit_of(law, kind, method)
    limit, true = ideal.predict_survival_function(new, AT), _laws.survival(law, new, AT)
    held = [float(((curve >= band.lower) & (curve <= band.upper)).mean()) for curve in (limit, true)]
    return [*held, float((band.upper - band.lower).mean())]


# --- Cases, records and tables.

Case = tuple[str, str, Any, bool]  # law, model, share of censored rows or the method of a band, whether it depends
HEADS = ("lower bound", "interval", "finite", "own 10 %", "lower/own", "lower/true")
BAND_HEADS = ("holds the limit", "holds the truth", "width")


def cases() -> list[Case]:
    """All cases, the most telling first."""
    given: list[Case] = [(law, kind, c, d) for d in (True, False) for law in LAWS for kind in MODELS for c in CENSORED]
    trained: list[Case] = [(law, kind, CENSORED[1], d) for law in LAWS for kind in TRAINED for d in (True, False)]
    bands: list[Case] = [
        (LAWS[0], kind, method, False) for kind in MAPPED for method in MAPS if (kind, method) != ("networks", "beta")
    ]
    return [case for case in given + trained + bands if case[1] != "Cox" or find_spec("sksurv")]


def run(task: tuple[Case, int]) -> dict[str, Any]:
    """Mean and standard error of each column over data sets."""
    (law, kind, what, depends), runs = task
    warnings.simplefilter("ignore")  # of infinite bounds
    torch.set_num_threads(1)
    if isinstance(what, str):
        runs //= 6 if kind == "networks" else 3 if what == "auto" else 1
        values = np.array([one_band(law, kind, what, seed) for seed in range(runs)])
    else:
        runs = runs if kind in MODELS else runs // 2
        values = np.array([one(law, kind, what, depends, seed) for seed in range(runs)])
    error = values.std(axis=0, ddof=1) / np.sqrt(runs)
    return {"runs": runs, "mean": values.mean(axis=0).round(4).tolist(), "error": error.round(4).tolist()}


def show(lines: list[dict[str, Any]]) -> None:
    found = {tuple(line["case"]): line for line in lines}
    for bands, heads in ((False, HEADS), (True, BAND_HEADS)):
        print("\n| law | model | " + ("map" if bands else "censored | by x") + f" | {' | '.join(heads)} |")
        print("|---|---|---|" + "---|" * (len(heads) + (not bands)))
        for case in sorted((c for c in cases() if c in found), key=lambda c: (LAWS.index(c[0]), c[3])):
            law, kind, what, depends = case
            if isinstance(what, str) == bands:
                pairs = zip(found[case]["mean"], found[case]["error"], strict=True)
                first = what if bands else f"{what:.0%} | {'yes' if depends else 'no'}"
                print(f"| {law} | {kind} | {first} | " + " | ".join(f"{m:.3f} ± {e:.3f}" for m, e in pairs) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--models", nargs="*", default=sorted({case[1] for case in cases()}))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no other case after these")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    parser.add_argument("--show", action="store_true", help="print tables, and run nothing")
    options = parser.parse_args()
    lines = read_lines(options.out)
    if options.show:
        show(lines)
        return
    done = {tuple(line["case"]) for line in lines}
    tasks = [(case, options.runs) for case in cases() if case not in done and case[1] in options.models]
    for (case, _), found in side_by_side(run, tasks, options.workers, options.minutes):
        append_line(options.out, {"case": case} | found)


if __name__ == "__main__":
    main()
