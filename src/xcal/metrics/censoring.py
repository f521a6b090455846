"""The censoring curve behind inverse probability weights, and what to do where it is not known."""

import numpy as np

from xcal._checks import BoolArray, FloatArray, as_flag, fail
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier
from xcal.metrics.inputs import Vector


def as_censoring(
    censoring: KaplanMeier | None, time: FloatArray, event: BoolArray, weights: Vector | None = None
) -> KaplanMeier:
    """Use the given censoring curve, or estimate one from the data at hand."""
    if censoring is None:
        return fit_kaplan_meier(time, event, "censoring", weights)
    if not isinstance(censoring, KaplanMeier) or censoring.of != "censoring":
        got = f"a curve of {censoring.of!r}" if isinstance(censoring, KaplanMeier) else type(censoring).__name__
        fail("censoring", 'None or kaplan_meier(time=..., event=..., of="censoring")', got)
    return censoring


def censoring_survival(curve: KaplanMeier, t: FloatArray, *, left_limit: bool) -> tuple[Vector, BoolArray]:
    """Probability of not being censored by t, and where it is known.

    It is not known after the last time of the data behind the curve, and useless as a weight where it is zero. There
    the smallest positive value of the curve is given instead, for callers that choose to carry it on.

    Parameters
    ----------
    curve : KaplanMeier
        Of the censoring times.
    t : array
        Where to read it.
    left_limit : bool
        P(C >= t), the chance that an event at t was seen, instead of P(C > t). They differ only at times at which a
        row of the data behind the curve was censored.
    """
    value = curve.before(t) if as_flag("left_limit", left_limit) else curve.at(t)
    known = (np.asarray(t) <= curve.times[-1]) & (value > 0)
    positive = curve.survival[curve.survival > 0]
    last = float(positive.min()) if positive.size else 1.0
    return np.where(value > 0, value, last), np.asarray(known)
