"""A smooth map of F with three parameters: beta calibration, fitted to censored rows."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit, log_expit, logit

from xcal._checks import BoolArray, as_count, as_number, fail
from xcal.recalibration.base import Floats, Recalibration, held_out_rows, own_log_survival, probabilities


@dataclass(frozen=True, eq=False, repr=False)
class BetaRecalibration(Recalibration):
    r"""The map of beta calibration (Kull, Silva Filho and Flach, 2017), as a map of F.

    .. math:: \mathrm{logit}\, G(u) = c + a \log u - b \log(1 - u), \quad a, b > 0

    It leaves a calibrated model as it is at a = b = 1, c = 0. The parameters maximise the likelihood of F at the
    observed times: an event contributes the slope of G, a censored row 1 - G. A normal prior with standard deviation 1
    on log a, log b and c, worth about one row, keeps them finite with few events.

    Nothing ends at the last event: the form of the map continues to F = 1. An event at an F of exactly 0 or 1 tells
    that it lies beyond the nearest other F, and a censored row at F = 1 that it outlived the largest F below 1.

    Attributes
    ----------
    a, b, c : float
        The parameters.
    n, n_events : int
        Rows and events that G was fitted to.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> too_fast = 1 - np.exp(-2 * rng.exponential(size=4000))
    >>> beta = BetaRecalibration.fit(too_fast, np.ones(4000))
    >>> bool(abs(beta.cdf(0.75) - 0.5) < 0.02)  # where half of the events have happened
    True
    """

    a: float
    b: float
    c: float
    n: int
    n_events: int

    @classmethod
    def fit(cls, cdf: Any, event: Any) -> Self:
        """Fit G to F at the observed times of rows that did not train the model.

        Parameters
        ----------
        cdf : array-like of shape (n,)
            F at each row's observed time.
        event : array-like of shape (n,)
            True or 1 where the event happened.
        """
        u, happened = held_out_rows(cdf, event)
        rows = _Likelihood.of(u, happened)
        from scipy.optimize import minimize  # takes longer to import than a small map to fit

        found = minimize(rows.loss_and_gradient, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-6})
        a, b, c = np.exp(found.x[0]), np.exp(found.x[1]), found.x[2]
        return cls(float(a), float(b), float(c), u.size, int(happened.sum()))

    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""
        values = probabilities(u)
        return np.asarray(expit(self._logit(values, _log1m(values))))

    def log_density(self, u: Any) -> Floats:
        """Log of the slope of G; at 0 and 1 it may be infinite."""
        values = probabilities(u)
        score = self._logit(values, _log1m(values))
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = log_expit(score) + log_expit(-score) + np.log(self.a / values + self.b / (1 - values))
        ends = np.where(values == 0, self._end(self.a, self.c), self._end(self.b, -self.c))
        return np.asarray(np.where((values > 0) & (values < 1), inside, ends))

    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1.

        Parameters
        ----------
        u : array-like
            F values of any shape.
        log_survival : array-like of the same shape, optional
            The model's own ``log(1 - F)``: with it the result is finite and exact where F rounds to 1.
        """
        values = probabilities(u)
        tail = _log1m(values) if log_survival is None else own_log_survival(log_survival, values)
        return np.asarray(log_expit(-self._logit(values, tail)))

    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`, by bisection on the scale of log-odds."""
        levels = probabilities(p, "p")
        with np.errstate(divide="ignore"):
            target = logit(levels)
        # G's log-odds at log-odds x: at least c + min(a, b) x for x > 0 and at most that for x < 0, less or more log 2.
        finite = np.where(np.isfinite(target), target, 0.0)
        reach = (np.abs(finite - self.c) + (self.a + self.b) * np.log(2)) / min(self.a, self.b) + 1
        low, high = -reach, reach
        for _ in range(100):
            middle = (low + high) / 2
            below = self.c + self.a * log_expit(middle) - self.b * log_expit(-middle) < finite
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        inside = expit((low + high) / 2)
        return np.asarray(np.where(np.isfinite(target), inside, levels))

    def content(self) -> dict[str, Any]:
        """Everything that the map holds, as numbers."""
        return {"a": self.a, "b": self.b, "c": self.c, "n": self.n, "n_events": self.n_events}

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> Self:
        """Make the map again from what `content` gave; anything else is refused."""
        if not isinstance(content, dict) or set(content) != {"a", "b", "c", "n", "n_events"}:
            fail("map", "a, b, c, n and n_events", type(content).__name__)
        return cls(
            as_number("a", content["a"], above=0),
            as_number("b", content["b"], above=0),
            as_number("c", content["c"]),
            as_count("n", content["n"], at_least=1),
            as_count("n_events", content["n_events"], at_least=1),
        )

    def _logit(self, u: Floats, log_survival: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(self.c + self.a * np.log(u) - self.b * log_survival)

    @staticmethod
    def _end(power: float, constant: float) -> float:
        """Log-slope at an end: G is like exp(constant) times the distance to the power there."""
        return constant if power == 1 else -np.inf if power > 1 else np.inf

    def __repr__(self) -> str:
        parameters = f"a={self.a:.3g}, b={self.b:.3g}, c={self.c:.3g}"
        return f"{type(self).__name__}({parameters}, from {self.n} rows with {self.n_events} events)"


def _log1m(u: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(-u))


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """Rows by what they tell: an event at u, an event above u or a censored row, an event below u."""

    at: Floats
    above: Floats
    below: Floats

    @classmethod
    def of(cls, u: Floats, event: BoolArray) -> "_Likelihood":
        inner = u[(u > 0) & (u < 1)]
        # Without any F inside, the ends tell about the middle.
        least, most = (inner.min(), inner.max()) if inner.size else (0.5, 0.5)
        inside = (u > 0) & (u < 1)
        outlived = ~event & (u > 0)
        above = np.concatenate([u[outlived & (u < 1)], np.full(int((u == 1).sum()), most)])
        return cls(u[event & inside], above, np.full(int((event & (u == 0)).sum()), least))

    def loss_and_gradient(self, parameters: Floats) -> tuple[float, Floats]:
        """Negative log-posterior and its gradient in (log a, log b, c)."""
        a, b, c = np.exp(parameters[0]), np.exp(parameters[1]), parameters[2]
        loss, gradient = float(parameters @ parameters) / 2, parameters.copy()
        for u, sign in ((self.above, 1.0), (self.below, -1.0)):
            log_u, log_v = np.log(u), np.log1p(-u)
            score = c + a * log_u - b * log_v
            loss -= float(log_expit(-sign * score).sum())
            slope = sign * expit(sign * score)
            gradient += [a * (slope @ log_u), -b * (slope @ log_v), slope.sum()]
        log_u, log_v = np.log(self.at), np.log1p(-self.at)
        score = c + a * log_u - b * log_v
        rate = a / self.at + b / (1 - self.at)
        loss -= float((log_expit(score) + log_expit(-score) + np.log(rate)).sum())
        slope = 2 * expit(score) - 1
        gradient += [
            a * (slope @ log_u - (1 / (self.at * rate)).sum()),
            b * (-(slope @ log_v) - (1 / ((1 - self.at) * rate)).sum()),
            slope.sum(),
        ]
        return loss, gradient
