"""D-calibration over chunks, processes or files: a few numbers per bin, which can be added up."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from xcal._checks import MANY, as_choice, as_count, as_event, as_numpy, as_probability, check_rows, fail
from xcal.calibration.bins import bin_edges
from xcal.calibration.dcalibration import check_choices, pearson_caution
from xcal.calibration.histogram import SUMS, BinSums, weighted
from xcal.calibration.inverse_weights import as_censoring_survival, inverse_weights, lost_mass_caution
from xcal.calibration.measured_rows import result
from xcal.calibration.redistribution import redistributed_counts, value_range
from xcal.calibration.results import DCalibrationResult, Method, PValue
from xcal.calibration.significance import akritas, pearson
from xcal.calibration.tally import Tally


class DCalibration:
    """Accumulate D-calibration without holding the rows.

    The result equals `d_calibration` on all rows at once, for "uniform" and for "ipcw" with a given G. For "km" too, up
    to `grid_cells` distinct values of F. Beyond that the rows are counted on a grid of so many cells, and the value of
    the rows is within `error_bound` of the result's, in any case; a warning says where that tells little.

    Parameters
    ----------
    n_bins, edges
        As in `d_calibration`.
    method : {"uniform", "ipcw", "km"}
    p_value : {"akritas", "pearson"} or None
        A simulated p-value needs the rows.
    grid_cells : int, default 10000
        For "km", at least ten times the number of bins. State and error are in proportion to it and to its inverse.
        Chunks should be all float32 or all float64: a value on an edge is rounded as its own type is.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> meter = DCalibration(n_bins=10)
    >>> for _ in range(5):
    ...     _ = meter.update(rng.random(200), np.ones(200))
    >>> meter.compute().n
    1000
    """

    def __init__(
        self,
        *,
        n_bins: int = 10,
        edges: Any = None,
        method: Method = "uniform",
        p_value: Literal["akritas", "pearson"] | None = "akritas",
        grid_cells: int = 10_000,
    ) -> None:
        as_choice("method", method, get_args(Method))
        as_choice("p_value", p_value, get_args(PValue), or_none=True)
        if p_value not in ("akritas", "pearson", None):
            fail("p_value", "'akritas', 'pearson' or None: a simulated null needs the rows", repr(p_value))
        check_choices(method, p_value, False, method == "ipcw")
        self.edges = bin_edges(n_bins, edges)
        self.method, self.p_value = method, p_value
        n_bins = self.edges.size - 1
        grid_cells = as_count("grid_cells", grid_cells, at_least=1, at_most=MANY)
        if grid_cells < 10 * n_bins:
            fail("grid_cells", f"an integer of at least ten times the {n_bins} bins", repr(grid_cells))
        self._sums = BinSums(self.edges)
        self._weights = np.zeros((2, n_bins))
        self._tally = Tally(self.edges, grid_cells)

    def update(self, cdf: Any, event: Any, *, censoring_survival: Any = None) -> Self:
        """Add rows. `censoring_survival` is for "ipcw": the user's G just before each row's time."""
        if np.size(as_numpy("cdf", cdf)) == 0 and np.size(as_numpy("event", event)) == 0:
            return self  # a chunk from which everything was filtered
        check_rows({"cdf": cdf, "event": event, "censoring_survival": censoring_survival})
        u = as_probability("cdf", cdf)
        happened = as_event(event, u.size)
        if self.method == "ipcw" and censoring_survival is None:
            fail(
                "censoring_survival",
                "the probability of being uncensored, one number per row, with method='ipcw'",
                None,
            )
        if self.method != "ipcw" and censoring_survival is not None:
            fail("censoring_survival", f"None with method={self.method!r}", "an array")
        if self.method == "ipcw" and happened.any():
            g = as_censoring_survival(censoring_survival, happened)
            self._weights += inverse_weights(u, happened, g, self.edges)
        if self.method == "km":
            self._tally.add(u, happened)
        self._sums.add(u, happened, hazard=self.p_value == "akritas")
        return self

    def merge(self, other: "DCalibration") -> Self:
        """Add what another accumulator with the same settings has seen."""
        alike = isinstance(other, DCalibration) and (self.method, self.p_value) == (other.method, other.p_value)
        if not (alike and np.array_equal(self.edges, other.edges) and self._tally.limit == other._tally.limit):
            fail("other", "an accumulator with the same bins, method, p_value and grid_cells", repr(other))
        self._sums.merge(other._sums)
        self._tally.merge(other._tally)
        self._weights += other._weights
        return self

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state as arrays by name, to be written to a file or sent to another process."""
        state = {f"sums.{name}": getattr(self._sums, name).copy() for name in SUMS}
        if self.method == "ipcw":
            state["weights"] = self._weights.copy()
        if self.method == "km":
            state |= {f"tally.{name}": values for name, values in self._tally.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Replace the state by one from `state_dict` of an accumulator with the same settings."""
        wanted = self.state_dict()
        if set(state) != set(wanted):
            fail("state", f"the entries {', '.join(sorted(wanted))}", ", ".join(sorted(map(str, state))))
        given = {name: np.asarray(values) for name, values in state.items()}
        for name, values in given.items():
            if not name.startswith("tally.") and values.shape != wanted[name].shape:
                fail(f"state[{name!r}]", f"numbers of shape {wanted[name].shape}", f"shape {values.shape}")
        for name in SUMS:
            setattr(self._sums, name, given[f"sums.{name}"].astype(np.float64))
        if self.method == "ipcw":
            self._weights = given["weights"].astype(np.float64)
        if self.method == "km":
            self._tally.load_state_dict({name: given[f"tally.{name}"] for name in self._tally.state_dict()})
        return self

    def compute(self) -> DCalibrationResult:
        """Return D-calibration of all rows seen so far."""
        n, n_censored = self._sums.n, self._sums.n_censored
        if n == 0:
            raise ValueError("DCalibration: expected at least one row before compute(), got none; call update() first")
        bound = 0.0
        if self.method == "uniform":
            masses = self._sums.uniform()
        elif self.method == "ipcw":
            if not self._weights[0].any():
                fail("event", "at least one event, as method='ipcw' uses events only", "none")
            masses = weighted(self._weights[0], self._weights[1], self.edges)
            if caution := lost_mass_caution(self._weights[0].sum(), self._weights[1].sum(), n):
                warnings.warn(caution, stacklevel=2)
        else:
            cells = self._tally.cells()
            masses = redistributed_counts(cells)
            if not cells.exact:
                value = masses.value(self.edges)
                low, high = value_range(cells, np.diff(self.edges))
                bound = max(high - value, value - low, 0.0)
                if caution := _coarse_caution(value, bound, masses.floor):
                    warnings.warn(caution, stacklevel=2)
        test = None
        if self.p_value == "akritas":
            test = akritas(self._sums)
        elif self.p_value == "pearson":
            if caution := pearson_caution(n, n_censored):
                warnings.warn(caution, stacklevel=2)
            test = pearson(masses.histogram, n, self.edges)
        whole = result(masses, self.edges, test, n, n_censored, self.method, self.p_value)
        return replace(whole, error_bound=bound)

    def __repr__(self) -> str:
        return (
            f"DCalibration(n_bins={self.edges.size - 1}, method={self.method!r}, p_value={self.p_value!r}): "
            f"{self._sums.n:,} rows"
        )


def _coarse_caution(value: float, bound: float, floor: float) -> str | None:
    """Return what to tell a user whose rows lie too close together for the grid."""
    if bound <= max(floor, value / 10):
        return None
    return (
        f"D-calibration of the rows lies within {bound:.2g} of {value:.2g}, and the grid cannot tell where: too many "
        "of them share a cell. Use more grid_cells, or d_calibration on the rows."
    )
