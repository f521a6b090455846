"""Small real tables and models fitted on them, each fitted once for all tests."""

from functools import cache

import numpy as np
import pandas as pd


@cache
def whas500():
    """Numeric features, times and events: 250 rows to fit on, 250 to predict."""
    from sksurv.datasets import load_whas500

    x, y = load_whas500()
    x = x.astype(np.float64)[["age", "bmi", "chf", "gender", "hr", "sysbp"]]
    return x, np.asarray(y["lenfol"], dtype=np.float64), np.asarray(y["fstat"])


@cache
def gbsg2():
    from sksurv.datasets import load_gbsg2

    x, y = load_gbsg2()
    x = x.assign(
        horTh=(x["horTh"] == "yes").astype(float),
        menostat=(x["menostat"] == "Post").astype(float),
        tgrade=x["tgrade"].map({"I": 1.0, "II": 2.0, "III": 3.0}).astype(float),
    ).astype(np.float64)
    return x, np.asarray(y["time"], dtype=np.float64), np.asarray(y["cens"])


def halves(table):
    x, time, event = table
    train = np.arange(len(time)) % 2 == 0
    return (x[train], time[train], event[train]), (x[~train], time[~train], event[~train])


def joined(x, time, event):
    return x.assign(time=time, event=event.astype(int))


@cache
def lifelines_model(name, **options):
    import lifelines

    (x, time, event), _ = halves(whas500())
    return getattr(lifelines, name)(**options).fit(joined(x, time, event), "time", "event")


@cache
def forest():
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.util import Surv

    (x, time, event), _ = halves(gbsg2())
    model = RandomSurvivalForest(n_estimators=20, min_samples_leaf=15, random_state=0)
    return model.fit(x, Surv.from_arrays(event, time))


def new_rows(table=whas500):
    """Rows that no model was fitted on."""
    _, (x, time, event) = halves(table())
    assert isinstance(x, pd.DataFrame)
    return x, time, event
