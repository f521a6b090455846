"""How often do prediction intervals hold the time of the event of a new row, and how long are they.

Claim: `predict_lower_bound` and `predict_interval` hold at their level within two Monte-Carlo errors, for right and
wrong models, with 20 to 80 % censored rows, and where censoring depends on the covariates; the model's own quantiles do
so only if it is right.

1. Models that are given: the true law; the same distribution for all rows ("one for all"); the true law of one
   covariate alone ("half"); log-odds spread half as far again ("over-confident"). Each is put into `Recalibrated` with
   500 rows, and asked about 1,000 new ones, at 90 %. Laws and censorings are those of `studies._laws`: censoring
   depends on the first covariate, rows at high risk leave early, or on nothing.
2. Models that are trained on 500 rows: a Weibull network with its validation rows, and a Cox model with ``cv=5``; half
   as many data sets.

Printed: coverage of the lower bound and of the interval over ``--runs`` data sets with its Monte-Carlo error, the share
of rows with a finite upper bound, coverage of the model's own 10 % quantile, and the lower bound over that quantile and
over the true 10 % quantile (medians over rows). A law whose follow-up ends where 3 % have not had the event seldom has
finite upper bounds at 95 %.
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np

from studies import _laws
from xcal import Recalibrated, Surv
from xcal.estimators import SurvivalModel

LAWS, CENSORED = ("proportional", "varying shape", "heavy tails"), (0.2, 0.5, 0.8)
MODELS, TRAINED = ("true", "one for all", "half", "over-confident"), ("network", "Cox")
ROWS, NEW = 500, 1000


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

        found = Recalibrated(CoxPHSurvivalAnalysis(alpha=0.1), cv=5, random_state=seed).fit(x, y)
    else:
        found = Recalibrated(Given(law, kind, time)).fit(x, y)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--laws", nargs="*", choices=LAWS, default=LAWS)
    parser.add_argument("--models", nargs="*", choices=(*MODELS, *TRAINED), default=(*MODELS, *TRAINED))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of infinite bounds
    heads = ("lower bound", "interval", "finite", "own 10 %", "lower/own", "lower/ideal")
    print(f"{'':15}{'':16}{'censored':>9} {'depends':8}" + "".join(f"{head:>15}" for head in heads))
    told: Callable[[np.ndarray], str] = lambda v: f"{v.mean():.3f} ± {v.std(ddof=1) / np.sqrt(v.size):.3f}"  # noqa: E731
    for law in options.laws:
        for kind in options.models:
            for censored in CENSORED if kind in MODELS else CENSORED[1:2]:
                for depends in (False, True):
                    runs = options.runs if kind in MODELS else options.runs // 2
                    values = np.array([one(law, kind, censored, depends, seed) for seed in range(runs)])
                    cells = "".join(f"{told(column):>15}" for column in values.T)
                    print(f"{law:15}{kind:16}{censored:9.0%} {'x' if depends else '-':8}{cells}", flush=True)


if __name__ == "__main__":
    main()
