"""A search small enough for a test; in a file of its own, so that another process can start it quickly."""

import numpy as np

from xcal import Surv, SurvivalPath, tune
from xcal.tuning import Range

PATH = SurvivalPath(lambdas=(0, 10), seeds=1, epochs=2, cross_fit=0, batch_size=100)
SPACE = {"learning_rate": Range(1e-4, 1e-1, log=True), "hidden": [(4,), (8, 8)], "dropout": Range(0.0, 0.5)}


def rows(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    happens, leaves = rng.exponential(np.exp(X[:, 0])), rng.exponential(2.0, n)
    return X, Surv(time=np.minimum(happens, leaves), event=happens <= leaves)


def search(**options):
    return tune(PATH, SPACE, *rows(), **{"n_trials": 4, "folds": 2, "batch": 2} | options)
