"""Samples for the tests of measuring: simulated rows with known curves."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.metrics.simulate import survival_data
from xcal.calibration.subgroups import Column
from xcal.data.surv import Outcome
from xcal.interop.predictions import ModelPredictions
from xcal.validation import measure as measuring
from xcal.validation.sample import sample_of

TIMES = np.linspace(0.1, 2.5, 25)
HORIZONS = np.array([0.3, 0.6, 1.0])
THRESHOLDS = np.array([0.1, 0.3, 0.5, 0.7])


@dataclass(frozen=True, eq=False)
class Given:
    """Rows as they are given, in any order; `replace` makes others of them."""

    time: Any
    event: Any
    predictions: ModelPredictions
    horizons: Any
    thresholds: Any = ()
    entry: Any = None
    asked: dict = field(default_factory=dict)  # all else that `sample_of` takes

    @property
    def made(self):
        """The sample of an audit."""
        outcome = Outcome(self.time, self.event, entry=self.entry)
        return sample_of(outcome, self.predictions, self.horizons, thresholds=self.thresholds, **self.asked)

    @property
    def rows(self):
        return self.made.rows

    def but(self, **changes):
        """The same with other fields, or asked other things."""
        own = {name: changes.pop(name) for name in list(changes) if name in self.__dataclass_fields__}
        return replace(self, **own, asked={**self.asked, **changes})


def measure(given, **options):
    """Measure rows as they are given."""
    return measuring.measure(given.made, **options)


def by_key(values, *, group=None):
    """Values of a result by metric and horizon, of one group."""
    return {(v.metric, v.horizon): v for v in values if v.group == group}


def sample(n=300, *, seed=0, too_fast=1.0, grid=None, groups=True, interpolation="linear", dtype=np.float64, **changes):
    """Rows with survival curves; `changes` replace what is given."""
    rng = np.random.default_rng(seed)
    data = survival_data(n, rng=rng, grid=grid)
    predictions = ModelPredictions(
        model="curves",
        library="none",
        n=n,
        survival=data.survival(TIMES, too_fast).astype(dtype),
        times=TIMES,
        interpolation=interpolation,
        nll=too_fast * data.rate * data.time - data.event * np.log(too_fast * data.rate),
    )
    asked = {
        "covariates": (Column("rate", data.rate),),
        "groups": {"sex": np.where(rng.uniform(size=n) < 0.5, "f", "m")} if groups else {},
    }
    return Given(data.time, data.event, predictions, HORIZONS, THRESHOLDS, asked=asked).but(**changes)
