"""What a survival model of any library says about rows: the one form that everything here reads."""

from dataclasses import dataclass

from xcal._checks import FloatArray
from xcal.metrics.curves import Interpolation
from xcal.metrics.inputs import Vector


@dataclass(frozen=True, eq=False, repr=False)
class ModelPredictions:
    """Predictions for n rows, checked; what the model does not give is None.

    Attributes
    ----------
    model, library : str
        Names for people, as in "CoxPHFitter" and "lifelines"; "survival curves" and "none" for plain numbers.
    n : int
        Rows.
    survival, times : arrays of shape (n, m) and (m,), or None
        Survival probabilities on increasing times.
    interpolation : {"linear", "previous"}
        How the curves are read between two of `times`: as in `xcal.metrics`.
    risk, risk_horizon : array of shape (n,) and float, or None
        Probability of an event by the one time `risk_horizon`, for a model that gives no more than this.
    cdf : array of shape (n,), or None
        F at each row's own time, where the model gives it exactly; else it is read off the curves.
    nll : array of shape (n,), or None
        Negative log-likelihood of each row (density at an event, survival at a censoring), where there is a density.
    reading : tuple of str
        Sentences for the report: how the curves were obtained, how they are read between the times, and what happens
        past the last of them.
    """

    model: str
    library: str
    n: int
    survival: FloatArray | None = None
    times: Vector | None = None
    interpolation: Interpolation = "linear"
    risk: Vector | None = None
    risk_horizon: float | None = None
    cdf: Vector | None = None
    nll: Vector | None = None
    reading: tuple[str, ...] = ()
