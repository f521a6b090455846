"""What a measurement of D-calibration gives back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xcal._checks import MIN_CELL
from xcal.calibration.bins import Edges
from xcal.calibration.histogram import Floats

Method = Literal["uniform", "ipcw", "km"]
PValue = Literal["akritas", "simulated", "pearson"]
# A p-value below this is called a disagreement with a value that looks like noise.
_LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class DCalibrationResult:
    """D-calibration of one model on one set of rows.

    Attributes
    ----------
    value : float
        Sum over bins of (mass - width)^2: the D-cal of the paper. Zero is perfect.
    floor : float
        What a perfect model scores on average at this n and this censoring. A value near it is noise.
    histogram : ndarray of shape (n_bins,)
        Mass of each bin; sums to one.
    edges : ndarray of shape (n_bins + 1,)
        Bins are [a, b), the last one closed; a row on an edge counts once, in the bin on its right.
    statistic, p_value, df : float, float, int or None
        Test of a perfect model. None where no p-value was asked for; a simulated one has no degrees of freedom.
    n, n_censored : int
        Rows, and how many of them are censored.
    method, test : str
        How censored rows were treated, and which test gave the p-value.
    error_bound : float
        Largest possible difference of `value` from that of the rows themselves, up to rounding; above zero only where a
        fine grid stood in for them (`DCalibration` with ``method="km"`` and many rows).
    n_clusters : int or None
        Number of clusters, where `clusters` were given: `floor` and `p_value` are then those of dependent rows.
    weight, n_effective : float or None
        Sum of the weights, where `weights` were given, and the effective number of rows: rows of equal weight whose
        mean would be as noisy (Kish), the squared sum of the weights over the sum of their squares.
    """

    value: float
    floor: float
    histogram: Floats
    edges: Edges
    statistic: float | None
    p_value: float | None
    df: int | None
    n: int
    n_censored: int
    method: Method
    test: PValue | None
    error_bound: float = 0.0
    n_clusters: int | None = None
    weight: float | None = None
    n_effective: float | None = None

    def __repr__(self) -> str:
        head = f"D-calibration {self.value:.3g} ({self.method}; a perfect model scores {self.floor:.3g} on average)"
        censored = f"{self.n_censored:,} censored ({self.n_censored / self.n:.0%})"
        within = "" if self.n_clusters is None else f" in {self.n_clusters:,} clusters"
        weighted = "" if self.n_effective is None else f" with weights (effectively {self.n_effective:,.0f})"
        rows = f"{self.n:,} {'row' if self.n == 1 else 'rows'}{within}{weighted}, {censored}"
        tested = ""
        if self.p_value is not None:
            # Smaller than the smallest number there is: not zero.
            tested = f", p {f'= {self.p_value:.3g}' if self.p_value else '< 1e-300'} ({self.test})"
        widths = np.diff(self.edges)
        bars = "".join(
            "▁▂▃▄▅▆▇█"[min(7, max(0, round(3.5 * m / w)))] for m, w in zip(self.histogram, widths, strict=True)
        )
        told = [head, f"{rows}{tested}", f"mass of {widths.size} bins over width  {bars}  (equal heights: calibrated)"]
        return "\n".join(told + ([self.disagreement] if self.disagreement else []))

    @property
    def disagreement(self) -> str | None:
        """Return why value and test disagree, where they do: they answer two questions. None where they agree.

        The value asks how uneven the bins are, with censored rows spread out as `method` says; "uniform" spreads them
        evenly, so that they always look calibrated. Akritas' test asks whether as many events happened in each bin as
        the model expects, which no spreading can hide.
        """
        if self.p_value is None or self.test != "akritas" or not (self.p_value < _LEVEL and self.value <= self.floor):
            return None
        advice = "look at method='km'" if self.method == "uniform" else "trust the test"
        return (
            f"value and test disagree: the bins, with {self.n_censored / self.n:.0%} of the rows spread over them, are "
            f"no more uneven than noise,\nbut the events among them are not as many as the model expects; {advice}"
        )


def holm(p_values: Mapping[Any, float]) -> dict[Any, float]:
    """Holm's correction: the smallest of m p-values times m, the next times m - 1, and none below the one before."""
    adjusted: dict[Any, float] = {}
    largest = 0.0
    for k, label in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - k) * p_values[label]))
        adjusted[label] = largest
    return {label: adjusted[label] for label in p_values}


@dataclass(frozen=True, eq=False)
class GroupedDCalibration:
    """D-calibration of the whole and within each group.

    Attributes
    ----------
    whole : DCalibrationResult
    groups : mapping of label to DCalibrationResult
        Each with the p-value of its own test. Of many such p-values the smallest is small by chance; look at
        `adjusted_p_values` to say in which groups the model is off.
    """

    whole: DCalibrationResult
    groups: Mapping[Any, DCalibrationResult]

    @property
    def value(self) -> float:
        """D-calibration within groups, summed with the groups' shares of the rows, or of their weights."""
        shares = [(r.value, r.n if r.weight is None else r.weight) for r in self.groups.values()]
        return sum(value * share for value, share in shares) / sum(share for _, share in shares)

    @property
    def adjusted_p_values(self) -> Mapping[Any, float] | None:
        """P-value of each group, corrected by Holm's method for looking at all of them; None without p-values.

        With a perfect model the probability that any is at or below a level is at most that level, however the groups
        depend on each other, provided that the p-values themselves hold: those of "akritas" are up to twice too small
        far out in groups of a few hundred rows or fewer, those of "simulated" (with at least 20 times as many draws as
        groups) hold in any. The smallest of m is multiplied by m, the next by m - 1, and so on, and none is smaller
        than the one before it.
        """
        own = {label: r.p_value for label, r in self.groups.items() if r.p_value is not None}
        if len(own) < len(self.groups):
            return None
        return holm(own)

    def __repr__(self) -> str:
        adjusted = self.adjusted_p_values
        groups = {label: result for label, result in self.groups.items() if result.n >= MIN_CELL}
        width = max([5, *(len(str(label)) for label in groups)])
        head = f"{'group':>{width}}  {'n':>9}  {'censored':>8}  {'D-cal':>9}  {'floor':>9}  {'p':>8}  {'p (Holm)':>8}"
        lines = [head]
        for label, r in (("whole", self.whole), *groups.items()):
            corrected = None if adjusted is None or r is self.whole else adjusted[label]
            share = r.n_censored / r.n
            measured = f"{label!s:>{width}}  {r.n:>9,}  {share:>8.0%}  {r.value:>9.3g}  {r.floor:>9.3g}"
            lines.append(f"{measured}  {_shown(r.p_value):>8}  {_shown(corrected):>8}".rstrip())
        if adjusted:
            lines.append(f"p (Holm): corrected for looking at {len(adjusted)} groups")
        if few := len(self.groups) - len(groups):
            noun = "group" if few == 1 else "groups"
            lines.append(f"not shown: {few:,} {noun} of fewer than {MIN_CELL} rows (.groups has them)")
        return "\n".join(lines)


def _shown(p: float | None) -> str:
    """Write a p-value; one below the smallest number that a float can hold is not shown as zero."""
    return "" if p is None else f"{p:.3g}" if p else "<1e-300"
