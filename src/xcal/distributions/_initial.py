"""Initial values from training times: a probability plot for the continuous families, bin shares for the discrete.

Both go through the Kaplan-Meier curve, so that censored rows count for what they are.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, as_event, as_time, fail
from xcal._kaplan_meier import fit_kaplan_meier

_Floats = npt.NDArray[np.float64]


def checked(time: object, event: object) -> tuple[_Floats, BoolArray]:
    """Check the training times of a public function; at least one event is needed to place anything."""
    times = as_time(time).astype(np.float64)
    events = as_event(event, times.shape[0], reference="time")
    if not events.any():
        fail("event", "at least one event, for a first guess", "none: every row is censored")
    return times, events


def _event_curve(time: _Floats, event: BoolArray) -> tuple[_Floats, _Floats]:
    """Distinct event times, and the Kaplan-Meier curve just after each."""
    curve = fit_kaplan_meier(time, event)
    drops = curve.counts > 0
    return curve.times[drops], curve.survival[drops]


def location_and_scale(time: object, event: object, quantile: Callable[[_Floats], _Floats]) -> tuple[float, float]:
    """Location and scale of log-time by a probability plot.

    Log event times are regressed on the standard law's quantiles at the Kaplan-Meier estimate of F, taken half-way
    up each step so that it stays inside (0, 1). One distinct event time says nothing about the scale: it is then 1.
    """
    times, events = checked(time, event)
    zero = events & (times <= 0)
    if zero.any():
        fail(
            "time",
            "event times larger than zero (a continuous family has no likelihood for an event at time zero; move such "
            "rows to a small positive time or use a discrete family)",
            times[zero][0],
            int(np.argmax(zero)),
        )
    distinct, survival = _event_curve(times, events)
    middle = 1.0 - (np.concatenate([[1.0], survival[:-1]]) + survival) / 2.0
    z, log_time = quantile(middle), np.log(distinct)
    spread = np.sum((z - z.mean()) ** 2)
    scale = float(np.sum((z - z.mean()) * log_time) / spread) if distinct.size > 1 else 1.0
    return float(log_time.mean() - scale * z.mean()), scale


def bin_logits(time: object, event: object, edges: _Floats) -> _Floats:
    """Log-shares of the bins under the Kaplan-Meier curve.

    Half a row is added to every bin (Jeffreys' prior), so that an empty one starts small and not at minus infinity.
    What the curve leaves after its last event goes to the last bin.
    """
    times, events = checked(time, event)
    distinct, survival = _event_curve(times, events)
    drops = -np.diff(np.concatenate([[1.0], survival]))
    n_bins = edges.size - 1
    index = np.searchsorted(edges[1:-1], distinct, side="left")
    share = np.bincount(index, weights=drops, minlength=n_bins)
    share[-1] += survival[-1]
    logits: _Floats = np.log((times.size * share + 0.5) / (times.size + 0.5 * n_bins))
    return logits
