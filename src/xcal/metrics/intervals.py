"""Bootstrap intervals: percentiles for most metrics, and for distances from a perfect model what the noise allows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import MANY, as_count, as_number, fail
from xcal.calibration.clusters import Clusters
from xcal.metrics.inputs import Vector


@dataclass(frozen=True)
class Distance:
    """How a metric that is zero at best measures the length of a vector of deviations.

    Such a metric grows under resampling: the noise of the resample is added to that of the sample, and percentiles lie
    above the truth, without ever reaching zero. The deviations themselves do no such thing. If those of the sample are
    within r of the true ones, so is their length (the triangle inequality), and the distance between the deviations of
    a resample and of the sample says how large r is.

    Attributes
    ----------
    deviations : callable
        ``(points, rows)``: the deviations estimated from `rows`, at the places that `points` gives. Two calls with the
        same points can be subtracted.
    lengths : mapping
        For each name of a value, the length that it measures.
    squared : bool
        Whether the value is the square of that length.
    """

    deviations: Callable[[Any, Any], Vector]
    lengths: Mapping[str, Callable[[Vector], float]]
    squared: bool


def euclidean(deviations: Vector) -> float:
    """Root of the sum of squares."""
    return float(np.sqrt(np.square(deviations).sum()))


def resampled_rows(n: int, clusters: Clusters | None, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw rows with replacement, as many as there are; or whole clusters with replacement, as many as there are.

    Clusters are drawn by their place in the order of the labels. Clusters of one row each, labelled in the order of the
    rows, give the same draws as no clusters.
    """
    if clusters is None:
        return generator.integers(n, size=n)
    order = np.argsort(clusters.codes, kind="stable")
    sizes = np.bincount(clusters.codes, minlength=clusters.count)
    first = np.cumsum(sizes) - sizes
    drawn = generator.integers(clusters.count, size=clusters.count)
    # Place of each drawn row within its cluster: 0, 1, ..., and again for the next one.
    before = np.repeat(np.cumsum(sizes[drawn]) - sizes[drawn], sizes[drawn])
    place = np.arange(before.size) - before
    rows: npt.NDArray[np.int64] = order[np.repeat(first[drawn], sizes[drawn]) + place]
    return rows


def check_bootstrap(n_bootstrap: Any, level: Any, generator: Any) -> None:
    """Check what a function with bootstrap intervals was asked for."""
    as_count("n_bootstrap", n_bootstrap, at_least=0, at_most=MANY)
    as_number("level", level, above=0, below=1)
    if n_bootstrap and not isinstance(generator, np.random.Generator):
        fail("generator", "a numpy.random.Generator when n_bootstrap is set", type(generator).__name__)


def percentile_interval(draws: Sequence[float], level: float) -> tuple[float, float]:
    """Percentile interval over the resamples in which the metric was defined."""
    defined = [value for value in draws if np.isfinite(value)]
    if not defined:
        return float("nan"), float("nan")
    lower, upper = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)


def distance_interval(value: float, lengths: Sequence[float], level: float, squared: bool) -> tuple[float, float]:
    """Interval of a distance, from the lengths of the differences between resamples and sample; see `Distance`."""
    defined = [length for length in lengths if np.isfinite(length)]
    if not defined or not np.isfinite(value):
        return float("nan"), float("nan")
    # The true difference is one more of its kind: among B resamples it is below the k-th smallest in k of B + 1 cases.
    reach, power = float(np.quantile(defined, level, method="weibull")), 2 if squared else 1
    length = value ** (1 / power)
    return max(0.0, length - reach) ** power, (length + reach) ** power
