"""D-calibration over chunks, processes or files: a few numbers per bin, which can be added up."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from xcal._checks import MANY, as_choice, as_count, as_event, as_numpy, as_probability, as_weights, check_rows, fail
from xcal.calibration.bins import Edges, bin_edges
from xcal.calibration.dcalibration import check_choices, pearson_caution
from xcal.calibration.histogram import SUMS, Array, BinSums, Floats, WeightedSums, weighted
from xcal.calibration.inverse_weights import as_censoring_survival, inverse_weights, lost_mass_caution
from xcal.calibration.measured_rows import result
from xcal.calibration.redistribution import redistributed_counts, value_range
from xcal.calibration.results import DCalibrationResult, Method, PValue
from xcal.calibration.significance import akritas, akritas_of_weights, pearson
from xcal.calibration.tally import Tally


class DCalibration:
    """Accumulate D-calibration without holding the rows.

    The result equals `d_calibration` on all rows at once, for "uniform" and for "ipcw" with a given G. For "km" too, up
    to `grid_cells` distinct values of F. Beyond that the rows are counted on a grid of so many cells, and the value of
    the rows is within `error_bound` of the result's, in any case; a warning says where that tells little. With sampling
    weights (`update`) "km" needs the rows, and is refused.

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
        # With weights all of the above is there too: it counts the rows, and is what equal weights come to.
        self._weighted: _Weighted | None = None

    def update(self, cdf: Any, event: Any, *, censoring_survival: Any = None, weights: Any = None) -> Self:
        """Add rows.

        Parameters
        ----------
        cdf, event : array-like of shape (n,)
            As in `d_calibration`.
        censoring_survival : array-like of shape (n,), optional
            For "ipcw": the user's G just before each row's time.
        weights : array-like of shape (n,), optional
            Sampling weights as in `d_calibration`, in the same units in all chunks: in every chunk or in none.
        """
        if np.size(as_numpy("cdf", cdf)) == 0 and np.size(as_numpy("event", event)) == 0:
            return self  # a chunk from which everything was filtered
        check_rows({"cdf": cdf, "event": event, "censoring_survival": censoring_survival, "weights": weights})
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
        w = None if weights is None else as_weights("weights", weights, u.size)
        self._expect_weights(w is not None)
        g = None
        if self.method == "ipcw" and happened.any():
            g = as_censoring_survival(censoring_survival, happened)
            self._weights += inverse_weights(u, happened, g, self.edges)
        if self.method == "km":
            self._tally.add(u, happened)
        self._sums.add(u, happened, hazard=self.p_value == "akritas")
        if w is not None:
            self._weighted = _Weighted(self.edges) if self._weighted is None else self._weighted
            self._weighted.add(u, happened, g, w, hazard=self.p_value == "akritas")
        return self

    def _expect_weights(self, given: bool) -> None:
        """Refuse weights where they have no meaning, and rows with weights beside rows without."""
        if given and self.method == "km":
            expected = "None with method='km', whose grid counts rows; use d_calibration on the rows"
            fail("weights", expected, "an array")
        if given and self.p_value == "pearson":
            fail("p_value", "'akritas' or None with weights", repr(self.p_value))
        if self._sums.n and given != (self._weighted is not None):
            fail("weights", "weights in every chunk, or in none", "some chunks with weights and some without")

    def merge(self, other: "DCalibration") -> Self:
        """Add what another accumulator with the same settings has seen."""
        alike = isinstance(other, DCalibration) and (self.method, self.p_value) == (other.method, other.p_value)
        if not (alike and np.array_equal(self.edges, other.edges) and self._tally.limit == other._tally.limit):
            fail("other", "an accumulator with the same bins, method, p_value and grid_cells", repr(other))
        if not other._sums.n:
            return self
        self._expect_weights(other._weighted is not None)
        if other._weighted is not None:
            self._weighted = _Weighted(self.edges) if self._weighted is None else self._weighted
            self._weighted.merge(other._weighted)
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
        return state if self._weighted is None else state | self._weighted.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Replace the state by one from `state_dict` of an accumulator with the same settings."""
        with_weights = any(str(name).startswith(_WEIGHTED) for name in state)
        weighted = _Weighted(self.edges) if with_weights else None
        plain = {name: values for name, values in self.state_dict().items() if not name.startswith(_WEIGHTED)}
        wanted = plain if weighted is None else plain | weighted.state_dict()
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
        if weighted is not None:
            weighted.load_state_dict(given)
        self._weighted = weighted
        return self

    def compute(self) -> DCalibrationResult:
        """Return D-calibration of all rows seen so far."""
        n, n_censored = self._sums.n, self._sums.n_censored
        if n == 0:
            raise ValueError("DCalibration: expected at least one row before compute(), got none; call update() first")
        bound, own = 0.0, self._weighted
        if own is not None and own.smallest == own.largest:  # equal weights say nothing
            own = None
        if self.method == "uniform":
            masses = self._sums.uniform() if own is None else own.sums.uniform()
        elif self.method == "ipcw":
            if not self._weights[0].any():
                fail("event", "at least one event, as method='ipcw' uses events only", "none")
            inverse, rows = (self._weights, float(n)) if own is None else (own.inverse, own.sums.total)
            masses = weighted(inverse[0], inverse[1], self.edges)
            if caution := lost_mass_caution(inverse[0].sum(), inverse[1].sum(), rows):
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
            test = akritas(self._sums) if own is None else akritas_of_weights(own.sums)
        elif self.p_value == "pearson":
            if caution := pearson_caution(n, n_censored):
                warnings.warn(caution, stacklevel=2)
            test = pearson(masses.histogram, n, self.edges)
        whole = result(masses, self.edges, test, n, n_censored, self.method, self.p_value)
        if self._weighted is not None:
            effective = float(n) if own is None else own.sums.effective
            whole = replace(whole, weight=self._weighted.sums.total, n_effective=effective)
        return replace(whole, error_bound=bound)

    def __repr__(self) -> str:
        return (
            f"DCalibration(n_bins={self.edges.size - 1}, method={self.method!r}, p_value={self.p_value!r}): "
            f"{self._sums.n:,} rows"
        )


_WEIGHTED = "weighted."


class _Weighted:
    """What is kept of rows with weights: their sums, those of weight / G for "ipcw", and the range of weights."""

    def __init__(self, edges: Edges) -> None:
        self.sums, self.inverse = WeightedSums(edges), np.zeros((2, edges.size - 1))
        self.smallest, self.largest = np.inf, 0.0

    def add(self, u: Array, event: npt.NDArray[np.bool_], g: Array | None, weights: Floats, *, hazard: bool) -> None:
        self.sums.add(u, event, weights, hazard=hazard)
        if g is not None:
            self.inverse += inverse_weights(u, event, g, self.sums.edges, weights=weights)
        self.smallest = min(self.smallest, float(weights.min()))
        self.largest = max(self.largest, float(weights.max()))

    def merge(self, other: "_Weighted") -> None:
        self.sums.numbers = self.sums.numbers + other.sums.numbers
        self.inverse += other.inverse
        self.smallest, self.largest = min(self.smallest, other.smallest), max(self.largest, other.largest)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        state = {"sums": self.sums.numbers, "inverse": self.inverse.copy()}
        state["range"] = np.array([self.smallest, self.largest])
        return {f"{_WEIGHTED}{name}": values for name, values in state.items()}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        self.sums.numbers = state[f"{_WEIGHTED}sums"].astype(np.float64)
        self.inverse = state[f"{_WEIGHTED}inverse"].astype(np.float64)
        self.smallest, self.largest = map(float, state[f"{_WEIGHTED}range"])


def _coarse_caution(value: float, bound: float, floor: float) -> str | None:
    """Return what to tell a user whose rows lie too close together for the grid."""
    if bound <= max(floor, value / 10):
        return None
    return (
        f"D-calibration of the rows lies within {bound:.2g} of {value:.2g}, and the grid cannot tell where: too many "
        "of them share a cell. Use more grid_cells, or d_calibration on the rows."
    )
