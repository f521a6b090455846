"""What an audit says at one horizon, where the truth is known: bias, intervals, floors and tests.

Claims, over laws with proportional and crossing hazards, heavy tails, a cured fraction and whole months, 300 and 1,000
rows, 20 to 85 % censored, independently or depending on covariates:

- the ICI of a true model is its floor on average, whatever the hazards; by a Cox model (`ici_cox`) it is not;
- 95 % intervals hold the truth in 92 % of data sets or more;
- tests reject a true model in about 5 % of data sets.

The horizon is the median event time. True values are those of the population: what the model would score on very many
rows whose probabilities are known. `--rows-per-cluster 5`: rows that share covariates and whose times are alike, with
`clusters=`, or by `--naive` without. `--censoring independent`: values that are not corrected. Four other tables:

- `--smoothers`: three ways to draw the calibration curve;
- `--biases`: values of a true model where censoring depends on covariates, uncorrected and as the audit gives them;
- `--comparisons`: two models that are equally good; how often `compare_models` shows a difference, line by line, and
  how often it says "better" or "worse" of any main line. With `--rows-per-cluster 5`, and `--naive`, too;
- `--events-needed`: of true models whose events are too few to say, how often so many as the verdict asks for tell, and
  how often half as many, to which the intervals are as wide as the range that is good enough.
"""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np

from studies._laws import CENSORED, LAWS, draw, grid, predicted, share_of_events, survival
from xcal import audit, compare_models
from xcal.data.surv import Outcome
from xcal.metrics import calibration_slope, cox_ici
from xcal.metrics.pseudo_values import jackknife
from xcal.validation.comparison import is_main
from xcal.validation.result import AuditResult, AuditValue, Verdict

NAMES = ("oe", "slope", "ici", "e50", "e90", "emax", "auc", "brier", "ipa", "benefit")
# Risk from which one would act, of the net benefit.
THRESHOLD = 0.3
TESTS = ("oe_p", "slope_p", "ici_p", "d_calibration_p")
MODELS = ("true", "hazards x 1.5", "over-confident")


@cache
def horizon(law: str, share: float, depends: bool) -> float:
    """Return the median event time, rounded."""
    _, time, event = draw(law, 20_000, share, depends, [97])
    at = float(np.median(time[event]))
    return round(at) if law in ("months", "visits") else float(f"{at:.2g}")


@cache
def population(law: str, model: str, at: float) -> dict[str, float]:
    """Return true values, from very many rows whose outcomes are known as probabilities."""
    x = np.random.default_rng(10**6).normal(size=(200_000, 3))
    moment = np.array([at])
    truth, said = 1 - survival(law, x, moment)[:, 0], np.clip(1 - predicted(law, model, x, moment)[:, 0], 0, 1)
    order = np.argsort(said)
    case, control = truth[order], (1 - truth)[order]
    below = np.cumsum(control) - control / 2
    error = float((truth * (1 - said) ** 2 + (1 - truth) * said**2).mean())
    by_level = np.array_split(order, 500)  # neighbours in the predicted risk
    distance = [abs(truth[rows].mean() - said[rows].mean()) for rows in by_level]
    distances = {"ici": np.mean(distance), "e50": np.median(distance), "e90": np.quantile(distance, 0.9)}
    distances["emax"] = np.max(distance)
    acted = said >= THRESHOLD
    return {
        "oe": float(truth.mean() / said.mean()),
        "slope": 1.0 if model == "true" else _true_slope(said, truth),
        **{name: 0.0 if model == "true" else float(value) for name, value in distances.items()},
        "auc": float(case @ below / (case.sum() * control.sum())),
        "brier": error,
        "ipa": float(1 - error / (truth.mean() * (1 - truth.mean()))),
        "benefit": float((acted * (truth - (1 - truth) * THRESHOLD / (1 - THRESHOLD))).mean()),
    }


def _true_slope(said: np.ndarray, truth: np.ndarray) -> float:
    """Return the slope of outcomes that are drawn for many rows."""
    happens = np.where(np.random.default_rng(1).random(truth.size) < truth, 0.5, 2.0)
    return calibration_slope(said, at=1.0, time=happens, event=np.full(truth.size, True)).slope


def measured(task: tuple) -> dict[str, float]:
    """Audit one data set; for each metric its value and whether its interval holds the truth, for each test p."""
    law, n, share, depends, model, together, naive, resamples, censoring, seed = task
    x, time, event = draw(law, n, share, depends, [LAWS.index(law), n, round(100 * share), seed, 7], together=together)
    at, times = horizon(law, share, depends), grid(law, time)
    times = np.union1d(times, at)
    result = audit(
        survival=predicted(law, model, x, times),
        times=times,
        y=(time, event),
        covariates={"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]},
        horizons=at,
        thresholds=[THRESHOLD],
        censoring=censoring,
        clusters=None if naive or together == 1 else np.arange(n) // together,
        n_bootstrap=resamples,
        seed=seed,
        progress=False,
    )
    values = {value.metric: value for value in result if value.group is None}
    values |= {"benefit": _net_benefit(result)} if result.measured.decision else {}
    truth, found = population(law, model, at), {}
    for name in NAMES:
        if name in values and np.isfinite(values[name].value):
            found[name] = values[name].value
            found[f"{name} covered"] = values[name].lower <= truth[name] <= values[name].upper
            found[f"{name} bias"] = values[name].value - truth[name]
    found |= {name: values[name].value for name in (*TESTS, "ici_floor", "ici_cox", "cox_slope") if name in values}
    return found


def _net_benefit(result: AuditResult) -> AuditValue:
    (curve,) = result.measured.decision
    return AuditValue("benefit", curve.horizon, None, *(float(x[0]) for x in (curve.model, curve.lower, curve.upper)))


def cells(rows: list[int], models: list[str]) -> list[tuple]:
    """Law, rows, share censored, whether censoring depends on covariates, model."""
    found = []
    for model in models:
        for i, law in enumerate(LAWS):
            for j, n in enumerate(rows):
                found.append((law, n, CENSORED[(i + j) % 3], bool((i + j) % 2), model))
    return found


def show(options: argparse.Namespace) -> None:
    """Print one line per cell."""
    shown = "  ".join(f"{name:>6}" for name in NAMES)
    tests = "  ".join(f"{name:>6}" for name in ("oe", "slope", "ici", "D-cal"))
    print(f"{options.datasets} data sets each; standard error of 0.95: {(0.0475 / options.datasets) ** 0.5:.3f}")
    print(f"{'law':<14} {'rows':>5} {'censored':>9}  {'model':<15} {'ICI':>5} {'floor':>5} {'Cox':>5}  ", end="")
    print(f"{'slope':>5} {'Cox':>5}  {'O/E':>5}  covered: {shown}  p < .05: {tests}")
    with ProcessPoolExecutor(options.processes) as pool:
        for law, n, share, depends, model in cells(options.n, options.model):
            given = (options.rows_per_cluster, options.naive, options.resamples, options.censoring)
            tasks = [(law, n, share, depends, model, *given, seed) for seed in range(options.datasets)]
            found = list(pool.map(measured, tasks, chunksize=5))

            def mean(name: str, of: Callable[[float], float] = float, found: list[dict] = found) -> float:
                known = [of(one[name]) for one in found if name in one]
                return float(np.mean(known)) if known else float("nan")

            how = f"{share:.0%}{' by x' if depends else ''}"
            line = f"{law:<14} {n:>5,} {how:>9}  {model:<15} {mean('ici'):.3f} {mean('ici_floor'):.3f} "
            line += (
                f"{mean('ici_cox'):.3f}  {mean('slope'):>5.2f} {mean('cox_slope'):>5.2f}  {mean('oe'):>5.2f}           "
            )
            line += "  ".join(f"{mean(f'{name} covered'):>6.3f}" for name in NAMES)
            sizes = "  ".join(f"{mean(name, lambda p: p < 0.05):>6.3f}" for name in TESTS)
            print(f"{line}           {sizes}", flush=True)


def local_kaplan_meier(p: np.ndarray, time: np.ndarray, event: np.ndarray, at: float, span: float) -> np.ndarray:
    """Return the observed risk of each row by a Kaplan-Meier curve of its neighbours in the rank of the risk."""
    rank = np.argsort(np.argsort(p, kind="stable"), kind="stable") / p.size
    moments = np.unique(time[event & (time <= at)])
    died = [event & (time == moment) for moment in moments]
    places = np.linspace(0, 1, 26)
    curve = []
    for place in places:
        # The span reaches as far as it can: at the ends to one side.
        away = np.abs(rank - place)
        reach = max(span / 2, np.quantile(away, span))
        weight = np.clip(1 - (away / reach) ** 3, 0, None) ** 3
        left = 1.0
        for moment, dead in zip(moments, died, strict=True):
            at_risk = weight[time >= moment].sum()
            left *= 1 - weight[dead].sum() / at_risk if at_risk > 0 else 1.0
        curve.append(1 - left)
    return np.interp(rank, places, curve)


def smoothed(task: tuple) -> dict[str, float]:
    """Return the ICI of three smoothers, and how far each curve is from the true one."""
    from xcal.metrics.calibration_curve import smooth_calibration

    law, n, share, depends, model, seed = task
    x, time, event = draw(law, n, share, depends, [LAWS.index(law), n, round(100 * share), seed, 8])
    at = horizon(law, share, depends)
    p = np.clip(1 - predicted(law, model, x, np.array([at]))[:, 0], 0, 1)
    truth = p if model == "true" else _given_risk(law, model, at)(p)
    smooth = smooth_calibration(p, jackknife(Outcome(time, event), at))
    curves = {
        "pseudo-values": p + smooth.lines.at_rows(smooth.deviations),
        "local Kaplan-Meier": local_kaplan_meier(p, time, event, at, 1 / 3),
    }
    found = {
        f"{name} {what}": value for name, curve in curves.items() for what, value in _errors(p, curve, truth).items()
    }
    by_cox = cox_ici(p, at=at, time=time, event=event)
    cox = np.interp(p, by_cox.predicted, by_cox.observed)
    return found | {f"Cox model {what}": value for what, value in _errors(p, cox, truth).items()}


def _errors(p: np.ndarray, curve: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    return {"ICI": float(np.abs(p - curve).mean()), "rmse": float(np.sqrt(np.square(curve - truth).mean()))}


@cache
def _given_risk(law: str, model: str, at: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the true mean risk as a function of the predicted one."""
    x = np.random.default_rng(10**6).normal(size=(200_000, 3))
    moment = np.array([at])
    truth, said = 1 - survival(law, x, moment)[:, 0], np.clip(1 - predicted(law, model, x, moment)[:, 0], 0, 1)
    levels = np.array_split(np.argsort(said), 500)
    places, means = (np.array([values[rows].mean() for rows in levels]) for values in (said, truth))
    return lambda p: np.interp(p, places, means)


def compare_smoothers(options: argparse.Namespace) -> None:
    """Print the ICI of each smoother and the error of its curve, averaged over the data sets."""
    names = ("pseudo-values", "local Kaplan-Meier", "Cox model")
    print(f"{options.datasets} data sets each: mean ICI (its true value) and root mean square error of the curve")
    print(
        f"{'law':<14} {'rows':>5} {'censored':>9}  {'model':<15} {'true':>5}  " + "  ".join(f"{n:>18}" for n in names)
    )
    with ProcessPoolExecutor(options.processes) as pool:
        for law, n, share, depends, model in cells(options.n, options.model):
            tasks = [(law, n, share, depends, model, seed) for seed in range(options.datasets)]
            found = list(pool.map(smoothed, tasks, chunksize=5))
            mean = {name: float(np.nanmean([one[name] for one in found])) for name in found[0]}
            how = f"{share:.0%}{' by x' if depends else ''}"
            truth = population(law, model, horizon(law, share, depends))["ici"]
            line = "  ".join(f"{mean[f'{name} ICI']:>8.3f} ({mean[f'{name} rmse']:.3f}) " for name in names)
            print(f"{law:<14} {n:>5,} {how:>9}  {model:<15} {truth:.3f}  {line}", flush=True)


def show_biases(options: argparse.Namespace) -> None:
    """Print how far values of a true model are off on average where rows at high risk leave early."""
    names = ("oe", "auc", "brier", "ipa", "benefit")
    print(f"{options.datasets} data sets each, true model: mean value less the truth, uncorrected -> corrected (error)")
    print(f"{'law':<14} {'rows':>5} {'censored':>9}  " + "  ".join(f"{name:>24}" for name in names))
    with ProcessPoolExecutor(options.processes) as pool:
        for law in LAWS:
            for n in options.n:
                share = CENSORED[1]
                found = {
                    how: list(pool.map(measured, [(law, n, share, True, "true", 1, False, 0, how, s) for s in seeds]))
                    for seeds in [range(options.datasets)]
                    for how in ("independent", "auto")
                }
                shown = []
                for name in names:
                    plain, auto = (
                        np.array([d[f"{name} bias"] for d in f if f"{name} bias" in d]) for f in found.values()
                    )
                    error = auto.std() / auto.size**0.5
                    shown.append(f"{plain.mean():>+7.3f} -> {auto.mean():>+6.3f} ({error:.3f})")
                print(f"{law:<14} {n:>5,} {f'{share:.0%} by x':>9}  " + "  ".join(shown), flush=True)


def compared(task: tuple) -> tuple[list[bool], bool]:
    """Compare two models with errors of the same law: which intervals exclude zero, and whether any word says so."""
    law, n, share, together, naive, resamples, seed = task
    x, time, event = draw(law, n, share, False, [LAWS.index(law), n, round(100 * share), seed, 9], together=together)
    times, cluster = grid(law, time), np.arange(n) // together
    rng = np.random.default_rng([seed, 10])
    curves = survival(law, x, times)
    models = {name: curves ** np.exp(0.3 * rng.normal(size=n)[cluster])[:, None] for name in ("one", "other")}
    result = compare_models(
        models,
        y=(time, event),
        times=times,
        thresholds=[THRESHOLD],
        clusters=None if naive or together == 1 else cluster,
        n_bootstrap=resamples,
        seed=seed,
        progress=False,
    )
    horizons = result[result.first].horizons
    main = [value for value in result.differences["other"] if is_main(value, horizons) and np.isfinite(value.lower)]
    return [not value.lower <= 0 <= value.upper for value in main], bool(result.clear["other"])


def show_comparisons(options: argparse.Namespace) -> None:
    """Print how often two equally good models seem to differ."""
    print(f"{options.datasets} data sets each; standard error of 0.05: {(0.0475 / options.datasets) ** 0.5:.3f}")
    print(f"{'law':<14} {'rows':>5} {'censored':>9}  {'one line':>8}  {'any line':>8}  {'any word':>8}")
    with ProcessPoolExecutor(options.processes) as pool:
        for law in ("proportional", "varying shape", "heavy tails"):
            for n in options.n:
                given = (options.rows_per_cluster, options.naive, options.resamples)
                tasks = [(law, n, 0.6, *given, seed) for seed in range(options.datasets)]
                found = list(pool.map(compared, tasks, chunksize=5))
                single = np.mean([np.mean(lines) for lines, _ in found])
                anywhere, said = np.mean([any(lines) for lines, _ in found]), np.mean([word for _, word in found])
                print(f"{law:<14} {n:>5,} {0.6:>9.0%}  {single:>8.3f}  {anywhere:>8.3f}  {said:>8.3f}", flush=True)


def asked_again(task: tuple) -> tuple[int, list[bool]] | None:
    """Audit too few rows, then as many as the verdict asks for, and half as many: which of them say something."""
    law, n, share, seed = task
    first = _verdict_of_true(law, n, share, seed)
    if first.events_needed is None:
        return None
    rows = first.events_needed / share_of_events(law, share, False)
    again = [_verdict_of_true(law, round(part * rows), share, 1000 + seed) for part in (0.5, 1.0)]
    return first.events_needed, [one.level != "unknown" for one in again]


def _verdict_of_true(law: str, n: int, share: float, seed: int) -> Verdict:
    x, time, event = draw(law, n, share, False, [LAWS.index(law), n, round(100 * share), seed, 11])
    times = grid(law, time)
    curves = predicted(law, "true", x, times)
    return audit(survival=curves, times=times, y=(time, event), n_bootstrap=0, seed=seed, progress=False).verdict


def show_events_needed(options: argparse.Namespace) -> None:
    """Print how often the events that a verdict asks for are enough."""
    print(
        f"{options.datasets} data sets each, true model; standard error of 0.8: {(0.16 / options.datasets) ** 0.5:.2f}"
    )
    print(f"{'law':<14} {'rows':>5} {'censored':>9}  {'too few':>7}  {'asked for':>9}  {'half of it':>10}  {'all':>4}")
    with ProcessPoolExecutor(options.processes) as pool:
        for law, share in (("proportional", 0.2), ("varying shape", 0.2), ("heavy tails", 0.6)):
            for n in options.n:
                tasks = [(law, n, share, seed) for seed in range(options.datasets)]
                found = [one for one in pool.map(asked_again, tasks) if one is not None]
                asked = float(np.median([needed for needed, _ in found]))
                half, whole = np.mean([told for _, told in found], axis=0)
                print(
                    f"{law:<14} {n:>5,} {share:>9.0%}  {len(found):>7}  {asked:>9,.0f}  {half:>10.2f}  {whole:>4.2f}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=40)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--n", type=int, nargs="*", default=[300, 1000])
    parser.add_argument("--model", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--censoring", default="auto", choices=["auto", "independent", "covariates"])
    parser.add_argument("--rows-per-cluster", type=int, default=1)
    parser.add_argument("--naive", action="store_true", help="take rows for independent although they are in clusters")
    parser.add_argument("--smoothers", action="store_true", help="compare ways to draw the curve instead")
    parser.add_argument("--biases", action="store_true", help="values where censoring depends on covariates instead")
    parser.add_argument("--comparisons", action="store_true", help="two models that are equally good instead")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--events-needed", action="store_true", help="are the events that a verdict asks for enough?")
    options, _ = parser.parse_known_args()
    if options.events_needed:
        show_events_needed(options)
    elif options.biases:
        show_biases(options)
    elif options.comparisons:
        show_comparisons(options)
    else:
        (compare_smoothers if options.smoothers else show)(options)


if __name__ == "__main__":
    main()
