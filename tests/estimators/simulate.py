"""Log-normal times with a known risk, censored in one of two ways."""

from dataclasses import dataclass

import numpy as np

from xcal import Surv


@dataclass(frozen=True, eq=False)
class Data:
    x: np.ndarray
    y: np.ndarray
    location: np.ndarray  # of log-time: the true order of the rows


def survival_rows(n, *, seed=0, censoring="random", unit=1.0):
    """`censoring` "late" ends the study at a fixed time, which about half of the rows outlive."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    location = 0.8 * x[:, 0] - 0.5 * x[:, 1]
    happens = np.exp(location + 0.6 * rng.normal(size=n))
    leaves = np.exp(0.7 + rng.normal(size=n)) if censoring == "random" else np.ones(n)
    time = np.minimum(happens, leaves) * unit
    return Data(x, Surv(time=time, event=happens <= leaves), location)
