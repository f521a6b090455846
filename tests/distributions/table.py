"""Every distribution, with parameters, times and a scipy twin: the table that the contract tests run over.

A newcomer gets a line here and must pass everything in ``tests/contracts/test_distributions.py``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import integrate, optimize, special, stats
from torch import Tensor

from xcal.distributions import MTLR, Categorical, LogisticHazard, LogLogistic, LogNormal, SurvivalDistribution, Weibull
from xcal.distributions.causes import CauseBins, CauseHazards
from xcal_paper.published import Shifted

EDGES = torch.tensor([0.25, 0.5, 1.0, 1.75, 3.0, 4.5], dtype=torch.float64)
N_BINS = EDGES.shape[0] - 1


class StepTwin:
    """scipy's discrete law of the bin index, read as the step reading says."""

    def __init__(self, mass: npt.NDArray[np.float64]) -> None:
        self.law = stats.rv_discrete(values=(np.arange(mass.size), mass / mass.sum()))
        self.edges = EDGES.numpy()

    def bin(self, time: npt.ArrayLike) -> npt.NDArray[np.intp]:
        return np.searchsorted(self.edges[1:-1], time, side="left")

    def cdf(self, time: npt.ArrayLike) -> npt.ArrayLike:
        return self.law.cdf(self.bin(time))

    def sf(self, time: npt.ArrayLike) -> npt.ArrayLike:
        return self.law.sf(self.bin(time))

    def logsf(self, time: npt.ArrayLike) -> npt.ArrayLike:
        return np.log(np.array([self.law.pmf(np.arange(k + 1, N_BINS)).sum() for k in self.bin(time)]))

    def ppf(self, p: npt.ArrayLike) -> npt.ArrayLike:
        return self.edges[1 + self.law.ppf(p).astype(int)]

    def mean(self) -> float:
        return float(self.law.expect(lambda k: self.edges[1 + k.astype(int)]))


class FirstOf:
    """The earliest of independent times: S is the product of theirs."""

    def __init__(self, *laws: Any) -> None:
        self.laws = laws

    def logsf(self, time: npt.ArrayLike) -> npt.ArrayLike:
        return sum(law.logsf(time) for law in self.laws)

    def sf(self, time: npt.ArrayLike) -> npt.ArrayLike:
        return np.exp(self.logsf(time))

    def cdf(self, time: npt.ArrayLike) -> npt.ArrayLike:
        return -np.expm1(self.logsf(time))

    def pdf(self, time: npt.ArrayLike) -> npt.ArrayLike:
        return sum(np.exp(law.logpdf(time) - law.logsf(time)) for law in self.laws) * self.sf(time)

    def logpdf(self, time: npt.ArrayLike) -> npt.ArrayLike:
        return np.log(self.pdf(time))

    def ppf(self, p: npt.ArrayLike) -> npt.ArrayLike:
        return np.array([optimize.brentq(lambda t, q=q: self.cdf(t) - q, 1e-9, 1e3, xtol=1e-14, rtol=1e-13) for q in p])

    def mean(self) -> float:
        ends = [0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 100.0, np.inf]
        return sum(integrate.quad(self.sf, *pair, epsabs=1e-14, epsrel=1e-12)[0] for pair in pairwise(ends))


@dataclass(frozen=True)
class Case:
    """One distribution under test."""

    name: str
    make: Callable[..., SurvivalDistribution]
    parameters: tuple[Tensor, ...]
    twins: tuple[object, ...]
    # Smooth: F is continuous, so that it has a density and a two-sided inverse.
    smooth: bool = True
    # Parameters of nearly certain times, early and late ones, as training reaches them on sharp data.
    sharp: tuple[Tensor, ...] = ()
    # Times at which everything is smooth and no tail has rounded away.
    times: tuple[float, ...] = (0.3, 0.62, 0.9, 1.3, 2.2, 3.7)

    @property
    def dist(self) -> SurvivalDistribution:
        return self.make(*self.parameters)

    @property
    def n(self) -> int:
        return int(self.dist.batch_shape[-1])

    def float32(self) -> tuple[Tensor, ...]:
        return tuple(p.float() for p in self.parameters)


def _rows(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


_GENERATOR = torch.Generator().manual_seed(7)
_LOGITS = torch.randn(3, N_BINS, generator=_GENERATOR, dtype=torch.float64)
_CELLS = torch.randn(3, 2, N_BINS, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
_SCORES = torch.randn(3, N_BINS - 1, generator=_GENERATOR, dtype=torch.float64)


def mtlr_mass(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The paper's equations, term by term: bin k < K has weight exp(sum of scores k to K - 1), bin K weight 1."""
    n_bins = scores.shape[-1] + 1
    weights = [np.exp(sum(scores[..., j] for j in range(k, n_bins - 1))) for k in range(n_bins - 1)]
    total = 1.0 + sum(weights)
    return np.stack([*(w / total for w in weights), 1.0 / total], axis=-1)


def hazard_mass(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Reach a bin, and have the event in it: a product for each bin."""
    hazard = special.expit(logits)
    reached = [np.prod(1 - hazard[..., :k], axis=-1) for k in range(hazard.shape[-1] + 1)]
    return np.stack([*(reached[k] * hazard[..., k] for k in range(hazard.shape[-1])), reached[-1]], axis=-1)


def _histograms(mass: npt.NDArray[np.float64]) -> tuple[object, ...]:
    return tuple(stats.rv_histogram((row, EDGES.numpy()), density=False) for row in mass)


def _steps(mass: npt.NDArray[np.float64]) -> tuple[object, ...]:
    return tuple(StepTwin(row) for row in mass)


# Early, middle and late; for the logits and scores, all mass in the first bin, in the last, and in one in the middle.
_SHARP_LOC = (_rows(-40.0, 0.0, 40.0), _rows(-10.0, -5.0, -20.0))
_SHARP_SCALE = (_rows(1e-20, 1e-3, 1e20), _rows(5.0, 40.0, 1e5))
_SHARP_LOGITS = 1e4 * torch.eye(N_BINS, dtype=torch.float64)[[0, N_BINS - 1, 2]]
_SHARP_SCORES = 1e4 * torch.tensor([[1.0] * (N_BINS - 1), [-1.0] * (N_BINS - 1), [-1.0, -1.0, 1.0, 1.0]]).double()
_CATEGORICAL_MASS = special.softmax(_LOGITS.numpy(), axis=-1)
_CELL_MASS = special.softmax(_CELLS.numpy().reshape(3, -1), axis=-1).reshape(3, 2, N_BINS).sum(1)
_MTLR_MASS = mtlr_mass(_SCORES.numpy())
_HAZARD_MASS = hazard_mass(_SCORES.numpy())

CASES = (
    Case(
        "lognormal",
        LogNormal,
        (_rows(0.0, 0.5, -0.3), _rows(0.1, -0.4, 0.7)),
        tuple(
            stats.lognorm(s=np.exp(s), scale=np.exp(m)) for m, s in zip((0.0, 0.5, -0.3), (0.1, -0.4, 0.7), strict=True)
        ),
        sharp=_SHARP_LOC,
    ),
    Case(
        "weibull",
        Weibull,
        (_rows(1.0, 2.5, 0.7), _rows(1.0, 1.7, 0.6)),
        tuple(stats.weibull_min(c=k, scale=s) for s, k in zip((1.0, 2.5, 0.7), (1.0, 1.7, 0.6), strict=True)),
        sharp=_SHARP_SCALE,
    ),
    Case(
        "loglogistic",
        LogLogistic,
        (_rows(1.0, 2.5, 0.7), _rows(1.4, 3.0, 0.8)),
        tuple(stats.fisk(c=k, scale=s) for s, k in zip((1.0, 2.5, 0.7), (1.4, 3.0, 0.8), strict=True)),
        sharp=_SHARP_SCALE,
    ),
    Case(
        "shifted-lognormal",
        lambda loc, log_scale: Shifted(LogNormal(loc, log_scale), 1e-4),
        (_rows(0.0, 0.5), _rows(-0.1, -0.4)),
        tuple(
            stats.lognorm(s=np.exp(s), scale=np.exp(m), loc=-1e-4)
            for m, s in zip((0.0, 0.5), (-0.1, -0.4), strict=True)
        ),
        sharp=_SHARP_LOC,
    ),
    Case(
        "categorical-linear",
        lambda logits: Categorical(logits, EDGES, "linear"),
        (_LOGITS,),
        _histograms(_CATEGORICAL_MASS),
        sharp=(_SHARP_LOGITS,),
    ),
    Case(
        "mtlr-linear",
        lambda scores: MTLR(scores, EDGES, "linear"),
        (_SCORES,),
        _histograms(_MTLR_MASS),
        sharp=(_SHARP_SCORES,),
    ),
    Case(
        "logistic-hazard-linear",
        lambda logits: LogisticHazard(logits, EDGES, "linear"),
        (_SCORES,),
        _histograms(_HAZARD_MASS),
        sharp=(_SHARP_SCORES,),
    ),
    Case(
        "logistic-hazard-step",
        lambda logits: LogisticHazard(logits, EDGES, "step"),
        (_SCORES,),
        _steps(_HAZARD_MASS),
        smooth=False,
        sharp=(_SHARP_SCORES,),
    ),
    Case(
        "categorical-step",
        lambda logits: Categorical(logits, EDGES, "step"),
        (_LOGITS,),
        _steps(_CATEGORICAL_MASS),
        smooth=False,
        sharp=(_SHARP_LOGITS,),
    ),
    # Laws of several causes, as those of the time of any event; by cause they are tested in test_causes.
    Case(
        "causes-linear",
        lambda logits: CauseBins(logits, EDGES, "linear"),
        (_CELLS,),
        _histograms(_CELL_MASS),
        sharp=(torch.stack([_SHARP_LOGITS, -_SHARP_LOGITS], dim=1),),
    ),
    Case(
        "causes-step",
        lambda logits: CauseBins(logits, EDGES, "step"),
        (_CELLS,),
        _steps(_CELL_MASS),
        smooth=False,
        sharp=(torch.stack([_SHARP_LOGITS, -_SHARP_LOGITS], dim=1),),
    ),
    Case(
        "causes-weibull",
        lambda *parts: CauseHazards([Weibull(*parts[:2]), Weibull(*parts[2:])], end=6.0),
        (_rows(1.0, 2.5, 0.7), _rows(1.0, 1.7, 0.6), _rows(2.0, 1.5, 3.0), _rows(0.7, 1.2, 2.0)),
        tuple(
            FirstOf(stats.weibull_min(c=k, scale=s), stats.weibull_min(c=other, scale=scale))
            for s, k, scale, other in zip(
                (1.0, 2.5, 0.7), (1.0, 1.7, 0.6), (2.0, 1.5, 3.0), (0.7, 1.2, 2.0), strict=True
            )
        ),
        sharp=(*_SHARP_SCALE, *_SHARP_SCALE),
    ),
    Case(
        "mtlr-step",
        lambda scores: MTLR(scores, EDGES, "step"),
        (_SCORES,),
        _steps(_MTLR_MASS),
        smooth=False,
        sharp=(_SHARP_SCORES,),
    ),
)
SMOOTH = tuple(case for case in CASES if case.smooth)
STEP = tuple(case for case in CASES if not case.smooth)
