"""Mean negative log-likelihood of rows, for a model that has a density."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_floats, as_weights, effective_units, fail, first_row


@dataclass(frozen=True)
class MeanNLL:
    """Mean negative log-likelihood; smaller is better.

    Attributes
    ----------
    value : float
        Mean over the rows; infinite where the model held one of them to be impossible.
    standard_error : float
        Of the mean; NaN for one row or an infinite mean.
    n : int
        Rows.
    """

    value: float
    standard_error: float
    n: int


def mean_nll(nll: Any, *, weights: Any = None) -> MeanNLL:
    """Average the negative log-likelihoods of rows.

    Parameters
    ----------
    nll : array-like, shape (n,)
        Minus the log of the density at an event, minus the log of the survival probability at a censoring: one value
        per row, as `xcal.objectives.nll` gives. Values of two models can be compared only if both are of densities in
        the same unit of time. Positive infinity is an answer (the model held the row to be impossible), NaN is none.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row; the standard error is then design-based.

    Returns
    -------
    MeanNLL

    Examples
    --------
    >>> mean_nll([1.0, 2.0, 3.0]).value
    2.0
    """
    values = as_nll(nll)
    w = None if weights is None else effective_units(as_weights("weights", weights, values.size, reference="nll"))
    mean = float(values.mean() if w is None else w @ values / w.sum())
    error = float("nan")
    if values.size > 1 and np.isfinite(mean):
        error = float(values.std(ddof=1) / values.size**0.5)
        if w is not None:
            error = float(np.sqrt(np.square(w * (values - mean)).sum()) / w.sum())
    return MeanNLL(mean, error, values.size)


def as_nll(nll: Any) -> npt.NDArray[np.float64]:
    """One negative log-likelihood per row: numbers, or infinity for a row that the model held to be impossible."""
    values: npt.NDArray[np.float64] = as_floats("nll", nll).astype(np.float64, copy=False)
    bad = np.isnan(values) | (values == -np.inf)
    if bad.any():
        row = first_row(bad)
        fail("nll", "numbers, or infinity for an impossible row", values[row], row)
    return values
