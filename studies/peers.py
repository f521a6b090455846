"""Other libraries' survival models behind one signature: train on some rows, give S of other rows at any times."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Curves = Callable[[Floats], Floats]  # times (m,) to S (n, m)


@dataclass(frozen=True, eq=False)
class Task:
    """One fold: rows to train on, a part of them kept for early stopping, and features to predict for.

    Features are standardised with the mean and deviation of the training rows.
    """

    x: npt.NDArray[np.float32]
    time: Floats
    event: npt.NDArray[np.bool_]
    held_out: npt.NDArray[np.bool_]
    new_x: npt.NDArray[np.float32]
    seed: int


Fit = Callable[[Task], Curves]
N_DURATIONS = 20


def lifelines_model(name: str) -> Fit:
    """Weibull or log-normal AFT, or Cox with Breslow's baseline; they need no early stopping and use every row."""

    def fit(task: Task) -> Curves:
        import lifelines
        import pandas as pd

        columns = [f"x{i}" for i in range(task.x.shape[1])]
        frame = pd.DataFrame(task.x.astype(np.float64), columns=columns)
        # A continuous law has no likelihood for an event at time zero.
        frame["time"] = np.maximum(task.time, task.time[task.time > 0].min() / 2)
        frame["event"] = task.event
        model = getattr(lifelines, name)()
        model.fit(frame, duration_col="time", event_col="event")
        new = pd.DataFrame(task.new_x.astype(np.float64), columns=columns)

        def curves(times: Floats) -> Floats:
            if name == "CoxPHFitter":
                # Read Breslow's steps as steps; lifelines would draw lines between them.
                baseline = model.baseline_cumulative_hazard_.iloc[:, 0]
                place = np.searchsorted(baseline.index.to_numpy(), times, side="right")
                hazard = np.concatenate([[0.0], baseline.to_numpy()])[place]
                return np.exp(-model.predict_partial_hazard(new).to_numpy()[:, None] * hazard)
            return model.predict_survival_function(new, times=np.maximum(times, 1e-12)).to_numpy().T

        return curves

    return fit


def pycox_model(name: str) -> Fit:
    """MTLR, DeepHit or PMF on 32-32 units with batch norm and dropout 0.1, on quantile times, interpolated."""

    def fit(task: Task) -> Curves:
        import torch
        import torchtuples as tt
        from pycox import models

        torch.manual_seed(task.seed)
        kind = getattr(models, name)
        transform = kind.label_transform(N_DURATIONS, scheme="quantiles")
        parts = {}
        time = task.time.astype(np.float32)
        transform.fit(time[~task.held_out], task.event[~task.held_out])
        for part, rows in (("train", ~task.held_out), ("held_out", task.held_out)):
            parts[part] = (task.x[rows], transform.transform(time[rows], task.event[rows]))
        network = tt.practical.MLPVanilla(
            task.x.shape[1], [32, 32], transform.out_features, batch_norm=True, dropout=0.1
        )
        extra: dict[str, Any] = {"alpha": 0.2, "sigma": 0.1} if name == "DeepHitSingle" else {}
        model = kind(network, tt.optim.Adam(0.01), duration_index=transform.cuts, **extra)
        with tempfile.TemporaryDirectory() as folder:
            stop = tt.callbacks.EarlyStopping(patience=10, file_path=str(Path(folder) / "weights.pt"))
            x, y = parts["train"]
            model.fit(x, y, 256, 500, [stop], verbose=False, val_data=parts["held_out"])
        fine = model.interpolate(10)
        table = fine.predict_surv_df(task.new_x)
        grid, values = table.index.to_numpy().astype(np.float64), table.to_numpy().astype(np.float64)

        def curves(times: Floats) -> Floats:
            # Past the last cut the curve stays where it is: no mass has been placed there.
            read = [np.interp(times, grid, column, left=1.0) for column in values.T]
            return np.clip(np.array(read), 0.0, 1.0)

        return curves

    return fit


PEERS: dict[str, Fit] = {
    "lifelines Weibull": lifelines_model("WeibullAFTFitter"),
    "lifelines log-normal": lifelines_model("LogNormalAFTFitter"),
    "lifelines Cox": lifelines_model("CoxPHFitter"),
    "pycox MTLR": pycox_model("MTLR"),
    "pycox DeepHit": pycox_model("DeepHitSingle"),
    "pycox PMF": pycox_model("PMF"),
}
