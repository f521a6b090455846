"""What the methods of `XCALLoss` return besides a penalty."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class PenaltySlopes:
    """A penalty, and its slope in F of every row.

    Attributes
    ----------
    value : Tensor of shape (...)
        The penalty.
    slopes : Tensor of shape (..., n)
        Its derivative in F of each row of this process, times the number of processes if there are several.
    """

    value: Tensor
    slopes: Tensor


@dataclass(frozen=True, eq=False)
class MeanAndPenalty:
    """The two parts of a loss: ``mean + lam * penalty``.

    Attributes
    ----------
    mean : Tensor of shape (...)
        Mean over all rows of one value per row, such as the negative log-likelihood.
    penalty : Tensor of shape (...)
        The penalty of the same rows.
    """

    mean: Tensor
    penalty: Tensor
