"""Training or recalibration: which makes a model right for whom? Simulated data, so that the truth is known.

Six settings, each with a model that is wrong in another way (and one that is right). Penalties on a path of lambdas:
marginal (X-CAL), within quadrants of the first two covariates, conditional. Each model as it is, recalibrated by one
map of F (Kaplan-Meier on the validation rows), and by one map per quadrant. Measured on 10,000 new rows without
censoring: conditional calibration K, D-calibration, the worst quadrant's D-calibration, NLL, integrated Brier score,
concordance, and the mean squared error of F against the truth. One line of JSON per model; ``--show`` prints the table.

    python -m studies.for_whom --out for_whom.jsonl
    python -m studies.for_whom --out for_whom.jsonl --show
"""

import argparse
import json
import zlib
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor, nn

from xcal import concordance_index, conditional_calibration, d_calibration, family, fit_path
from xcal.calibration import KernelFeatures
from xcal.data import SurvivalData
from xcal.distributions._bins import quantile_edges
from xcal.networks import MLP, Linear
from xcal.recalibration import KaplanMeierRecalibration
from xcal.training import TrainingConfig

LAMBDAS = (0.0, 1.0, 10.0, 100.0, 1000.0)
N_TEST, COLUMNS = 10_000, 4
MEASURES = ("k", "dcal", "worst", "nll", "ibs", "concordance", "truth")

Truth = Callable[[np.ndarray, np.ndarray], np.ndarray]  # F of (n, COLUMNS) rows at (n, m) or (n, 1) times


@dataclass(frozen=True)
class Setting:
    """Times are drawn by inverting `truth` numerically on log-times; the model is what `family` and `network` say."""

    what: str
    draw: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    truth: Truth
    family: str
    network: Callable[[int], nn.Module]
    n: int = 4000
    dependent: bool = False


class OneScale(nn.Module):
    """A line for the location and one number for the scale of all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.location, self.scale = nn.Linear(COLUMNS, 1), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        location = self.location(x)
        return torch.cat([location, self.scale.expand_as(location)], dim=-1)


def bimodal_draw(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.exp(x[:, 1] + np.where(rng.random(len(x)) < 0.5, -1.2, 1.2) + 0.4 * rng.standard_normal(len(x)))


def bimodal(x: np.ndarray, time: np.ndarray) -> np.ndarray:
    z = np.log(time) - x[:, 1:2]
    return (norm.cdf((z + 1.2) / 0.4) + norm.cdf((z - 1.2) / 0.4)) / 2


def scales_draw(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.exp(x[:, 1] + np.exp(0.5 * x[:, 0]) * rng.standard_normal(len(x)))


def scales(x: np.ndarray, time: np.ndarray) -> np.ndarray:
    return norm.cdf((np.log(time) - x[:, 1:2]) / np.exp(0.5 * x[:, 0:1]))


def hidden_hazard(x: np.ndarray) -> np.ndarray:
    inside = (x[:, 0] > 0.5) & (x[:, 1] > 0.5)
    return np.exp(0.5 * x[:, 2] + np.log(3.0) * inside)


def hidden_draw(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.exponential(1 / hidden_hazard(x))


def hidden(x: np.ndarray, time: np.ndarray) -> np.ndarray:
    return 1 - np.exp(-time * hidden_hazard(x)[:, None])


def plain_draw(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.exp(x[:, 1] + 0.7 * rng.standard_normal(len(x)))


def plain(x: np.ndarray, time: np.ndarray) -> np.ndarray:
    return norm.cdf((np.log(time) - x[:, 1:2]) / 0.7)


def small_mlp(outputs: int) -> nn.Module:
    return MLP(COLUMNS, outputs, hidden=(64, 64))


SETTINGS = {
    "right": Setting("the model is right", plain_draw, plain, "lognormal", lambda k: Linear(COLUMNS, k)),
    "shape": Setting("two humps, a log-normal model", bimodal_draw, bimodal, "lognormal", small_mlp),
    "scale": Setting("many scales, one for all", scales_draw, scales, "lognormal", lambda _: OneScale()),
    "hidden": Setting("a hidden subgroup, a line", hidden_draw, hidden, "weibull", lambda k: Linear(COLUMNS, k)),
    "small": Setting("300 rows, a flexible model", scales_draw, scales, "categorical", small_mlp, n=300),
    "dependent": Setting(
        "censoring that knows the time", scales_draw, scales, "lognormal", lambda _: OneScale(), dependent=True
    ),
}


class Quadrants:
    """Indicators of the signs of the first two columns."""

    def of(self, x: Any) -> np.ndarray:  # noqa: D102
        return np.eye(4)[quadrant(np.asarray(x))]


def quadrant(x: np.ndarray) -> np.ndarray:
    return (x[:, 0] > 0) * 2 + (x[:, 1] > 0)


PENALTIES: dict[str, Any] = {"marginal": None, "quadrants": Quadrants(), "conditional": KernelFeatures(128)}


def rows(setting: Setting, n: int, rng: np.random.Generator) -> SurvivalData:
    x = rng.standard_normal((n, COLUMNS))
    time = setting.draw(x, rng)
    # About a third censored; where it is dependent, half of the rows that would live long are lost before.
    end = np.exp(rng.standard_normal(n) + 1.0 + 0.3 * x[:, 2])
    if setting.dependent:
        lost = (rng.random(n) < 0.5) & (time > np.median(time))
        end = np.where(lost, np.minimum(end, time * rng.random(n)), end)
    return SurvivalData(x.astype(np.float32), time=np.minimum(time, end).astype(np.float32), event=time <= end)


def measured(
    setting: Setting, x: np.ndarray, time: np.ndarray, f: np.ndarray, log_density: np.ndarray, grid: np.ndarray, at: Any
) -> dict[str, float]:
    """Everything about one model; `grid` (n, m) is F at the times `at`."""
    ones = np.ones(len(x), dtype=bool)
    by_quadrant = d_calibration(f, ones, n_bins=20, groups=quadrant(x), p_value=None).groups
    return {
        "k": conditional_calibration(f, ones, x, n_draws=0, where=False).value,
        "dcal": d_calibration(f, ones, n_bins=20, p_value=None).value,
        "worst": max(result.value for result in by_quadrant.values()),
        "nll": -float(log_density.mean()),
        "ibs": float(np.square((time[:, None] <= at) - grid).mean()),
        "concordance": concordance_index(predicted_time=-grid.mean(axis=1), time=time, event=ones).value,
        "truth": float(np.square(grid - setting.truth(x, np.broadcast_to(at, grid.shape))).mean()),
    }


def treatments(validation: SurvivalData, f_validation: np.ndarray) -> dict[str, Any]:
    """Return the maps of F: none, one for all rows, one for each quadrant."""
    event = np.asarray(validation.event)
    common = KaplanMeierRecalibration.fit(f_validation, event)
    where = quadrant(np.asarray(validation.x))
    maps = [
        KaplanMeierRecalibration.fit(f_validation[where == q], event[where == q]) if event[where == q].any() else common
        for q in range(4)
    ]
    return {"none": None, "one map": common, "map per quadrant": maps}


def mapped(how: Any, of: str, values: np.ndarray, where: np.ndarray) -> np.ndarray:
    if not isinstance(how, list):
        return np.asarray(getattr(how, of)(values))
    result = np.empty_like(values)
    for q, one in enumerate(how):
        result[where == q] = getattr(one, of)(values[where == q])
    return result


def run(name: str, seed: int, penalty: str, epochs: int, device: str) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    setting = SETTINGS[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    train, validation = rows(setting, setting.n, rng), rows(setting, max(100, setting.n // 4), rng)
    kind = (
        family("categorical", edges=quantile_edges(np.asarray(train.time), np.asarray(train.event), 20))
        if setting.family == "categorical"
        else family(setting.family)
    )
    path = fit_path(
        lambda: setting.network(kind.n_outputs),
        kind,
        train,
        validation,
        lambdas=LAMBDAS,
        config=TrainingConfig(epochs=epochs, batch_size=min(1000, setting.n // 4), learning_rate=3e-3),
        conditional=PENALTIES[penalty],
        device=device,
        progress=False,
    )
    x = rng.standard_normal((N_TEST, COLUMNS))
    time = setting.draw(x, rng)
    at = np.quantile(time, np.arange(1, 20) / 20)
    lines = []
    for model, lam in enumerate(LAMBDAS):
        with torch.no_grad():
            d = path.distribution(model, torch.tensor(x, dtype=torch.float32, device=device))
            t = torch.tensor(time, dtype=torch.float32, device=device)
            f, log_density = (v.double().cpu().numpy() for v in (d.cdf(t), d.log_density(t)))
            grid = np.stack([d.cdf(torch.full_like(t, float(a))).double().cpu().numpy() for a in at], axis=1)
            own = path.distribution(model, torch.as_tensor(validation.x, device=device))
            f_validation = own.cdf(torch.as_tensor(validation.time, device=device)).double().cpu().numpy()
        here = quadrant(x)
        for treatment, how in treatments(validation, f_validation).items():
            if how is None:
                found = measured(setting, x, time, f, log_density, grid, at)
            else:
                spread = np.repeat(here, at.size)
                g = mapped(how, "cdf", f, here)
                slope = mapped(how, "log_density", f, here)
                new_grid = mapped(how, "cdf", grid.ravel(), spread).reshape(grid.shape)
                found = measured(setting, x, time, g, log_density + slope, new_grid, at)
            line = {"setting": name, "seed": seed, "penalty": penalty, "lam": lam, "treatment": treatment}
            lines.append(line | {"epochs": epochs} | found)
    return lines


def show(path: Path) -> None:
    cells: dict[tuple[str, str, str, float], list[list[float]]] = defaultdict(list)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if line["lam"] == 0 and line["penalty"] != "marginal":
            continue  # the same model
        cells[line["setting"], line["treatment"], line["penalty"], line["lam"]].append([line[m] for m in MEASURES])
    for setting, described in SETTINGS.items():
        print(f"\n{setting}: {described.what}")
        head = "".join(f"{m:>20}" for m in MEASURES)
        print(f"{'recalibration':<17}{'penalty':<12}{'lambda':>7}{head}")
        for (name, treatment, penalty, lam), values in cells.items():
            if name != setting:
                continue
            mean, error = np.mean(values, axis=0), np.std(values, axis=0, ddof=1) / len(values) ** 0.5
            text = "".join(f"{m:>11.3g} ± {e:<6.1g}" for m, e in zip(mean, error, strict=True))
            print(f"{treatment:<17}{'none' if lam == 0 else penalty:<12}{lam:>7g}{text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("for_whom.jsonl"))
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    options, _ = parser.parse_known_args()
    if not options.show:
        train_all(options)
    show(options.out)


def train_all(options: argparse.Namespace) -> None:
    """Train what is not in the record yet."""
    lines = map(json.loads, options.out.read_text().splitlines()) if options.out.exists() else ()
    done = {(line["setting"], line["seed"], line["penalty"], line["epochs"]) for line in lines}
    jobs = [
        (name, seed, penalty, options.epochs)
        for seed in range(options.seeds)
        for name in options.settings
        for penalty in PENALTIES
        if (name, seed, penalty, options.epochs) not in done
    ]
    # Fresh processes with one thread each: forked ones may hang where threads have been used.
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(run, *job, options.device): job for job in jobs}
        for future in as_completed(running):
            with options.out.open("a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in future.result()))
            print("{}, seed {}, {}".format(*running[future]), flush=True)


if __name__ == "__main__":
    main()
