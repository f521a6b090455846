"""The censored share: what a row censored at F leaves in each bin, as its event is uniform on [F, 1].

In its own bin [a, b) that is (b - F) / (1 - F) = 1 - (1 - b) / (1 - F), in every later bin (b - a) / (1 - F), and
nothing in earlier ones (paper, section 3.3).

Measuring uses the functions here. Training needs the same in torch, with a gradient, as the mass above each edge:
`membership.exact_above`. It stands once more in the two places that speed asks for, `small_batch.SmallRows` (on a
CPU) and `kernels.cumulative_features` (on a GPU). ``tests/calibration/test_censored_share.py`` holds all that run on a
CPU to one sum of exact fractions; the kernel is held to `membership` in ``test_penalty.py``.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

Floats = npt.NDArray[np.float64]
Numbers = TypeVar("Numbers", Floats, Tensor)


def rest(cdf: Floats, edges: Floats) -> Floats:
    """Return 1 - F, with F held at the left edge of the last bin.

    A row there leaves everything in that bin, so its own 1 - F is not needed; held, it stays above zero.
    """
    left: Floats = 1 - np.minimum(cdf, edges[-2])
    return left


def share_of_bin(number: int, bins: npt.NDArray[np.intp], left: Floats, edges: Floats) -> Floats:
    """Share of every row in one bin, (n,), from the rows' own bins and what `rest` gives for them."""
    a, b = edges[number], edges[number + 1]
    return np.where(bins == number, 1 - (1 - b) / left, np.where(bins < number, (b - a) / left, 0.0))


def mass_of_bins(happened: Numbers, censored: Numbers, inverse: Numbers, earlier: Numbers, edges: Numbers) -> Numbers:
    """Sum of the shares in each bin, (..., B), from sums over the rows of each bin.

    Parameters
    ----------
    happened, censored
        Number, or weight, of the events and of the censored rows of each bin.
    inverse, earlier
        Sum of one over `rest` of the censored rows of each bin, and of those of all earlier bins.
    edges
        Shape (B + 1,).
    """
    above, width = 1 - edges[1:], edges[1:] - edges[:-1]
    return happened + censored - above * inverse + width * earlier
