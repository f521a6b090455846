"""The public function for Kaplan-Meier curves."""

from typing import Any

from xcal._kaplan_meier import KaplanMeier, Of, fit_kaplan_meier
from xcal.metrics.inputs import as_choice, as_outcome, as_row_weights


def kaplan_meier(*, time: Any, event: Any, of: Of = "event", weights: Any = None) -> KaplanMeier:
    """Kaplan-Meier estimate from right-censored data.

    Parameters
    ----------
    time : array-like, shape (n,)
        Observed times, finite and not negative.
    event : array-like, shape (n,)
        True where the event happened, False where the row was censored.
    of : {"event", "censoring"}
        Estimate P(T > t), the survival curve, or G(t) = P(C > t), the curve that inverse probability of censoring
        weights need. At a time with both, the events count as coming first: the rows with an event at t are no
        longer at risk of being censored at t.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row. The curve is that of rows repeated as often as their weights say;
        its variance is design-based, the sum of squares of the rows' influences, as a row of weight 10 is one
        observation. Equal weights change nothing.

    Returns
    -------
    KaplanMeier
        With only censored rows the survival curve is 1 everywhere, with only events the censoring curve is.

    Examples
    --------
    >>> curve = kaplan_meier(time=[1, 2, 2, 3], event=[1, 1, 0, 1])
    >>> curve.at([0.5, 1, 2, 3])
    array([1.  , 0.75, 0.5 , 0.  ])
    >>> kaplan_meier(time=[1, 2, 2, 3], event=[1, 1, 0, 1], of="censoring").at([2, 3])
    array([0.5, 0.5])
    """
    time, event = as_outcome(time, event, weights=weights)
    chosen = as_choice("of", of, ("event", "censoring"))
    return fit_kaplan_meier(time, event, chosen, as_row_weights(weights, time.size))
