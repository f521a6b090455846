"""Samples for the tests of measuring: simulated rows with known curves."""

import numpy as np

from tests.metrics.simulate import survival_data
from xcal.calibration.subgroups import Column
from xcal.interop.predictions import ModelPredictions
from xcal.validation.sample import Sample

TIMES = np.linspace(0.1, 2.5, 25)
HORIZONS = np.array([0.3, 0.6, 1.0])
THRESHOLDS = np.array([0.1, 0.3, 0.5, 0.7])


def sample(n=300, *, seed=0, too_fast=1.0, grid=None, groups=True, interpolation="linear", dtype=np.float64, **changes):
    """Rows with survival curves; `changes` replace fields of the sample."""
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
    given = {
        "time": data.time,
        "event": data.event,
        "predictions": predictions,
        "horizons": HORIZONS,
        "thresholds": THRESHOLDS,
        "covariates": (Column("rate", data.rate),),
        "groups": {"sex": np.where(rng.uniform(size=n) < 0.5, "f", "m")} if groups else {},
    }
    return Sample(**given | changes)
