"""Models that are trained together: all of a stacked path, or one of a sequential one."""

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from xcal.training.config import TrainingConfig
from xcal.training.fingerprint import settings_digest, tensor_digest
from xcal.training.plan import Plan
from xcal.training.problem import Problem
from xcal.training.result import Floats
from xcal.training.rows import contents
from xcal.training.stack import MakeNetwork, Stack

# Settings of how a run is done; a checkpoint of another way of doing it is as good.
_HOW = {"checkpoint_every", "cuda_graphs"}


@dataclass(frozen=True, eq=False)
class Group:
    """Models that are trained together: every lambda with every seed.

    Attributes
    ----------
    seeds, lambdas : list
        `lambdas` are the weights at the start; they change where a target is asked for.
    problem : Problem
        What they are trained on.
    plan : Plan
        How the work of a step is cut among threads.
    """

    seeds: list[int]
    lambdas: list[float]
    problem: Problem
    plan: Plan

    def separate(self) -> list["Group"]:
        """Return the same models, each to be trained on its own."""
        return [
            Group([seed], [lam], replace(self.problem, penalised=lam > 0), self.plan)
            for seed in self.seeds
            for lam in self.lambdas
        ]

    @property
    def first_lambdas(self) -> Floats:
        """Weight of each model at the start, ordered by seed and then by lambda."""
        return np.tile(np.array(self.lambdas, dtype=np.float64), len(self.seeds))

    def make_stack(self, make_network: MakeNetwork) -> Stack:
        """Make the models; done when their turn comes, so that a sequential path holds one at a time."""
        x = self.problem.train.x
        stack = Stack(make_network, self.seeds, len(self.lambdas), x.device, x.dtype, together=self.plan.together)
        stack.look_for_randomness(x[:2])
        return stack

    def fingerprint(self, config: TrainingConfig, stack: Stack) -> str:
        """Everything that decides the result, as text; a checkpoint of another run is told by it."""
        problem = self.problem
        digests = self._digests() if problem.across is None else problem.across.digests()
        n_train, n_validation = problem.n_rows
        shapes = {name: list(leaf.shape[1:]) for name, leaf in stack.leaves.items()}
        template = stack.template
        return json.dumps(
            {
                "version": 2,
                "config": {key: value for key, value in asdict(config).items() if key not in _HOW},
                "lambdas": [self.lambdas] * len(self.seeds),
                "target_dcal": problem.target_dcal,
                "dcal_floor": problem.dcal_floor,
                "seeds": self.seeds,
                "penalty": asdict(problem.penalty),
                "calibration_bins": problem.edges.shape[0] - 1,
                "family": [type(problem.family).__name__, settings_digest("family", problem.family)],
                "objective": [_name(problem.objective), settings_digest("objective", problem.objective)],
                "network": [type(template).__name__, shapes, settings_digest("network", template, weights=False)],
                "initial weights": tensor_digest(stack.snapshot().values()),
                "train": [n_train, digests.pop("train")],
                "validation": [n_validation, digests.pop("validation")],
                "dtype": str(problem.train.x.dtype),
                **digests,
            }
        )

    def _digests(self) -> dict[str, str]:
        """Short names of the contents of the rows, and of the features of the conditional penalty."""
        problem = self.problem
        found = {name: tensor_digest(contents(getattr(problem, name))) for name in ("train", "validation")}
        features = [each for each in (problem.row_features, problem.validation_features) if each is not None]
        if features:
            found["row features"] = tensor_digest(features)
        return found


def _name(objective: Any) -> str:
    """Return a name for people."""
    if isinstance(objective, partial):
        return _name(objective.func)
    return str(getattr(objective, "__qualname__", type(objective).__qualname__))
