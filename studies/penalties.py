"""What else the penalty could be: temperatures, the unbiased estimator, annealing, a running mean of the bins, batches.

Trains models of a gamma table, or of `mnist-dense`, as published (8 lambdas, 3 seeds) with each, and counts the
D-calibration levels of the paper's penalty at which it has the lower NLL and the higher concordance (`xcal compare
--equal-dcal`), with the paper's penalty, or the one that ``--against`` names, from the records. About six seconds for
each model and penalty on a GPU, and minutes per seed on a CPU.

    python -m studies.penalties --table gamma-uncensored --only "default" "temperature 0.25"
    python -m studies.penalties --against ours --epochs appendix --only "anneal to 0.25" "anneal to 0.5"
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal.calibration.membership import SoftBins, exact_above
from xcal.calibration.penalty import unchecked_penalty
from xcal.training import fit_path, problem
from xcal_paper import load_spec
from xcal_paper.comparison import Level, Point, compare, level_at, point_of
from xcal_paper.data import TableData, load_data
from xcal_paper.evaluation import test_metrics
from xcal_paper.models import make_family, make_network, make_objective
from xcal_paper.spec import ModelSpec, Spec

Penalty = Callable[..., Tensor]
METRICS = ("nll", "dcal", "dcal_floor", "concordance")


class Counted:
    """A penalty that knows how far training is, on the device, so that it can be recorded with the step."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.step: Tensor | None = None

    def done(self, like: Tensor) -> Tensor:
        """Share of the training that is done, and one step more."""
        if self.step is None:
            self.step = torch.zeros((), device=like.device)
        self.step.add_(1)
        return (self.step / self.steps).clamp(max=1.0)


class Annealed(Counted):
    """The default penalty with a temperature that falls from `first` to `last` by equal factors."""

    def __init__(self, steps: int, first: float, last: float) -> None:
        super().__init__(steps)
        self.first, self.last = first, last

    def __call__(self, cdf: Tensor, event: Tensor, edges: Tensor, spec: SoftBins, weights: Any) -> Tensor:
        """Penalty of a batch."""
        temperature = self.first * (self.last / self.first) ** self.done(cdf)
        edge = edges.to(cdf.dtype)
        happened = torch.sigmoid((cdf.unsqueeze(-1) - edge[1:-1]) * (len(edges) - 1) / temperature)
        features = torch.where(event.unsqueeze(-1), happened, exact_above(cdf, edge))
        return spec.residual(features.mean(-2), edge).square().sum(-1)


class Ramped(Counted):
    """The default penalty, or another, its weight rising from 0 to lambda in the first half of training."""

    def __init__(self, steps: int, penalty: Penalty = unchecked_penalty) -> None:
        super().__init__(steps)
        self.penalty = penalty

    def __call__(self, *arguments: Any) -> Tensor:
        """Penalty of a batch, times what the weight has risen to."""
        return self.penalty(*arguments) * (2 * self.done(arguments[0])).clamp(max=1.0)


class Running(Counted):
    """Bins averaged over the last batches in the place of the batch's own: the gradient is 2 x their mean x slope."""

    def __init__(self, steps: int, keep: float) -> None:
        super().__init__(steps)
        self.keep = keep
        self.mean: Tensor | None = None

    def __call__(self, cdf: Tensor, event: Tensor, edges: Tensor, spec: SoftBins, weights: Any) -> Tensor:
        """Return a number whose gradient is the running mean's."""
        edge = edges.to(cdf.dtype)
        own = spec.residual(spec.features(cdf, event, edge).mean(-2), edge)
        if self.mean is None:
            self.mean = torch.zeros_like(own)
        self.mean.mul_(self.keep).add_(own.detach(), alpha=1 - self.keep)
        mean = self.mean / (1 - self.keep ** (self.done(cdf) * self.steps))
        return 2 * (mean * own).sum(-1) - mean.square().sum(-1)


@dataclass(frozen=True)
class Trial:
    """A penalty, or what stands in for it, a batch size, and whether the weight rises as with `--penalty ramped`."""

    soft: SoftBins = field(default_factory=SoftBins)
    stand_in: Callable[[int], Penalty] | None = None
    batch: int | None = None
    ramped: bool = False


TRIALS = {
    "default": Trial(),
    "temperature 0.1": Trial(SoftBins(temperature=0.1)),
    "temperature 0.25": Trial(SoftBins(temperature=0.25)),
    "temperature 1": Trial(SoftBins(temperature=1.0)),
    "temperature 2": Trial(SoftBins(temperature=2.0)),
    "unbiased": Trial(SoftBins(estimator="unbiased")),
    "temperature 1, unbiased": Trial(SoftBins(temperature=1.0, estimator="unbiased")),
    "temperature 2 to 0.1": Trial(stand_in=lambda steps: Annealed(steps, 2.0, 0.1)),
    "temperature 0.5 to 0.05": Trial(stand_in=lambda steps: Annealed(steps, 0.5, 0.05)),
    "lambda rising": Trial(stand_in=Ramped),
    "lambda rising, temperature 2 to 0.1": Trial(stand_in=lambda steps: Ramped(steps, Annealed(steps, 2.0, 0.1))),
    "anneal to 0.1": Trial(SoftBins(temperature=0.1), ramped=True),
    "anneal to 0.25": Trial(SoftBins(temperature=0.25), ramped=True),
    "anneal to 0.5": Trial(SoftBins(temperature=0.5), ramped=True),
    "running mean 0.9": Trial(stand_in=lambda steps: Running(steps, 0.9)),
    "running mean 0.99": Trial(stand_in=lambda steps: Running(steps, 0.99)),
    "batch 500": Trial(batch=500),
    "batch 4000": Trial(batch=4000),
}


def path_of(trial: Trial, spec: Spec, model: ModelSpec, data: TableData) -> dict[float, Point]:
    """Train all lambdas and seeds; mean metrics on the test rows by lambda."""
    settings = spec.variants["as-published"]
    training = spec.training_of(model, "as-published")
    training = training if trial.batch is None else replace(training, batch_size=trial.batch)
    family = make_family(model, "as-published", data.edges)
    make = make_network(model, settings, tuple(data.train.x.shape[1:]), family.n_outputs)
    steps = training.epochs * -(-len(data.train.time) // training.batch_size)
    metrics = []
    config = training.config("ramped" if trial.ramped else "paper")
    # One by one, as a stand-in that counts its calls counts the steps of one training; others are trained together.
    for seeds in [spec.seeds] if trial.stand_in is None else [(seed,) for seed in spec.seeds]:
        used = unchecked_penalty if trial.stand_in is None else trial.stand_in(steps)
        problem.unchecked_penalty = used  # type: ignore[assignment]  # what is tried here is not for the library
        try:
            path = fit_path(
                make, family, data.train, data.validation, lambdas=spec.lambdas, seeds=seeds,
                objective=make_objective(model, "as-published"), penalty=trial.soft,
                calibration_bins=spec.calibration_bins, config=config, progress=False,
            )  # fmt: skip
        finally:
            problem.unchecked_penalty = unchecked_penalty
        metrics += test_metrics(path, data, "as-published", spec.calibration_bins, None)[0]
    count = len(spec.lambdas)
    return {
        lam: {name: float(np.mean([f[name] for f in metrics[k::count]])) for name in METRICS}
        for k, lam in enumerate(spec.lambdas)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="gamma-uncensored")
    models = ["lognormal-nll", "lognormal-scrps", "categorical-ni", "mtlr-ni"]
    parser.add_argument("--models", "--rows", nargs="+", default=models)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=list(TRIALS), default=list(TRIALS))
    parser.add_argument("--against", choices=["paper", "ours", "ramped"], default="paper")
    parser.add_argument("--epochs", help="a trial of the table, as appendix; by default the table's epochs")
    parser.add_argument("--results", type=Path, default=Path("paper/results"))
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    spec = load_spec(chosen.table).of_penalty(chosen.against).narrowed(seeds=chosen.seeds, epochs=chosen.epochs)
    data = load_data(spec, "as-published", spec.seeds[0], device, None)
    other = compare(chosen.table, penalty=chosen.against, epochs=chosen.epochs, results=chosen.results)
    other = replace(other, records=[record for record in other.records if record.seed in chosen.seeds])
    models = [model for model in spec.models if model.name in chosen.models]
    theirs = {
        model.name: {lam: p for lam in other.path_lambdas if lam > 0 and (p := point_of(other, model.name, lam))}
        for model in models
    }
    for name in chosen.only:
        every: list[Level] = []
        for model in models:
            start = time.perf_counter()
            found = path_of(TRIALS[name], spec, model, data)
            own = {lam: point for lam, point in found.items() if lam > 0 and np.isfinite(list(point.values())).all()}
            levels = [level_at(model.name, lam, p, theirs[model.name], own) for lam, p in theirs[model.name].items()]
            every += levels
            print(f"{name}, {model.name}: {counts(levels)}, {time.perf_counter() - start:.1f} s")
            for metric, form in (("nll", "{:.3f}"), ("dcal", "{:.1e}"), ("concordance", "{:.3f}")):
                print(f"    {metric:12s}", *(form.format(point[metric]) for point in found.values()))
        print(f"{chosen.table}, {name}: {counts(every)} of the levels of {chosen.against}", flush=True)


def counts(levels: list[Level]) -> str:
    won, matched = sum(level.both for level in levels), sum(level.matched for level in levels)
    return f"{won} won and {matched} matched or better of {len(levels)}"


if __name__ == "__main__":
    main()
