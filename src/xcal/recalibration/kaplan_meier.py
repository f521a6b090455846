"""One increasing map of F, read off the Kaplan-Meier curve of F at the observed times."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import MANY, as_count, as_weights, effective_units
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.recalibration.base import Floats, held_out_rows
from xcal.recalibration.piecewise import PiecewiseRecalibration, through_points


@dataclass(frozen=True, eq=False, repr=False)
class KaplanMeierRecalibration(PiecewiseRecalibration):
    """An increasing map G of [0, 1] onto itself: the recalibrated model has ``F'(t | x) = G(F(t | x))``.

    If a model is calibrated, F at the event times is uniform. G is the Kaplan-Meier estimate of the distribution that
    F has instead, on rows that did not train the model, made of straight lines between a few knots so that a density
    exists. The map is the same for every row: it changes no order of risks at one level of F, and it corrects
    calibration over all rows, not within subgroups.

    Attributes
    ----------
    knots, levels : ndarray
        F and G(F) at the ends of the straight lines, both strictly increasing from 0 to 1.
    n, n_events : int
        Rows and events that G was fitted to.

    Notes
    -----
    Censoring must be independent of F at the event time, as for ``d_calibration(method="km")``. Where the curve ends
    below 1 because the last rows are censored, what is left lies evenly between the last event and F = 1; so does what
    lies below the first event. F outside the range seen thus keeps a positive density.

    A curve through every event would fit noise: its slope is as variable as the gaps between neighbouring values, which
    costs a new row 0.42 nats of likelihood on average however many rows there are. With k knots the cost is about
    k / (2 n_events).

    Examples
    --------
    A model whose hazards are twice too high, recalibrated:

    >>> import numpy as np
    >>> from xcal import d_calibration
    >>> rng = np.random.default_rng(0)
    >>> times = rng.exponential(size=(2, 4000))
    >>> seen, new = 1 - np.exp(-2 * times)
    >>> recalibration = KaplanMeierRecalibration.fit(seen, np.ones(4000))
    >>> recalibration
    KaplanMeierRecalibration(32 pieces, from 4000 rows with 4000 events)
    >>> d_calibration(new, np.ones(4000)).value > 0.03
    True
    >>> d_calibration(recalibration.cdf(new), np.ones(4000)).value < 0.001
    True
    """

    @classmethod
    def fit(
        cls, cdf: Any, event: Any, *, n_pieces: int | None = None, weights: Any = None
    ) -> "KaplanMeierRecalibration":
        """Fit G to F at the rows' observed times.

        Parameters
        ----------
        cdf : array-like of shape (n,)
            F at each row's observed time, of rows that did not train the model.
        event : array-like of shape (n,)
            True or 1 where the event happened.
        n_pieces : int, optional
            Straight lines of equal mass, at most; by default ``2 n_events^(1/3)``, rounded up, the usual number of
            bins of a histogram.
        weights : array-like of shape (n,), optional
            Sampling weights, one positive number per row, of the curve. The number of lines is then by the effective
            number of events.
        """
        u, happened = held_out_rows(cdf, event)
        n_events = int(happened.sum())
        w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
        own = None if w is None else effective_units(w[happened])
        pieces = _pieces(n_events if own is None else float(own.sum()), n_pieces)
        curve_u, curve_g = middle_curve(u, happened, w)
        last = curve_g[-2]
        # Knots at equal steps of G as far as events go, and at the last event if the curve ends early.
        wanted = np.arange(1, pieces) / pieces
        wanted = np.append(wanted[wanted < last], last) if 1 - last > 1.0 / pieces else wanted[wanted < last]
        knots, levels = through_points(np.interp(wanted, curve_g, curve_u), wanted)
        return cls(knots, levels, u.size, n_events)


def _pieces(n_events: float, asked: int | None) -> int:
    if asked is None:
        # The cube root of a cube may come out a hair above it.
        return int(np.ceil(2 * round(n_events ** (1 / 3), 9)))
    return as_count("n_pieces", asked, at_least=1, at_most=MANY)


def middle_curve(u: Floats, event: npt.NDArray[np.bool_], weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Half-way points of the steps of the Kaplan-Meier curve of F, between (0, 0) and (1, 1).

    Half-way, so that one event at u puts as much below u as above it, and tied events likewise. Steps at F = 0 or
    F = 1 have no room for that: their mass goes to the nearest piece.
    """
    curve = fit_kaplan_meier(u, event, weights=weights)
    after = 1 - curve.survival
    before = np.concatenate([[0.0], after[:-1]])
    inside = (curve.counts > 0) & (curve.times > 0) & (curve.times < 1)
    middle = (before + after)[inside] / 2
    return np.concatenate([[0.0], curve.times[inside], [1.0]]), np.concatenate([[0.0], middle, [1.0]])
