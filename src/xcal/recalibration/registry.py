"""The methods of recalibration, each behind one name: an entry here feeds `Recalibrated`, its files and its tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xcal._checks import BoolArray, as_choice, fail
from xcal.recalibration.adjustments import Adjustment, Column, MapOfF, ShiftedQuantiles
from xcal.recalibration.base import Floats
from xcal.recalibration.beta import BetaRecalibration
from xcal.recalibration.cipot import CiPOTRecalibration
from xcal.recalibration.csd import ConformalQuantiles
from xcal.recalibration.grouped import GroupedRecalibration
from xcal.recalibration.isotonic import IsotonicRecalibration
from xcal.recalibration.kaplan_meier import KaplanMeierRecalibration


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that the model has not seen, and what it says of them.

    Attributes
    ----------
    time, happened : arrays of shape (n,)
        Outcomes.
    cdf, event : arrays of shape (n,)
        F at the observed times, and whether the event happened there (see `OwnValues`).
    quantiles : array of shape (n, k), or None
        The model's quantiles, for a method that asks for them.
    groups : array of shape (n,), or None
        For a method that has groups.
    """

    time: Floats
    happened: BoolArray
    cdf: Floats
    event: BoolArray
    quantiles: Floats | None = None
    groups: Any = None


@dataclass(frozen=True)
class Method:
    """One way to recalibrate.

    Attributes
    ----------
    name, summary : str
    fit : callable
        From held-out rows, a number of pieces and the column of groups to an `Adjustment`.
    restore : callable
        From the content of a file and the column of groups to the same.
    takes_pieces, asks_quantiles, asks_groups : bool
        Whether `n_pieces` means something, and what has to be read beside F.
    """

    name: str
    summary: str
    fit: Callable[[HeldOut, int | None, Column | None], Adjustment]
    restore: Callable[[dict[str, Any], Column | None], Adjustment]
    takes_pieces: bool = False
    asks_quantiles: bool = False
    asks_groups: bool = False


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "km",
            "Kaplan-Meier curve of F, in a few straight lines",
            lambda rows, pieces, _: MapOfF(KaplanMeierRecalibration.fit(rows.cdf, rows.event, n_pieces=pieces)),
            lambda content, _: MapOfF(KaplanMeierRecalibration.of_content(content)),
            takes_pieces=True,
        ),
        Method(
            "isotonic",
            "Kaplan-Meier curve of F, through every event",
            lambda rows, _, __: MapOfF(IsotonicRecalibration.fit(rows.cdf, rows.event)),
            lambda content, _: MapOfF(IsotonicRecalibration.of_content(content)),
        ),
        Method(
            "beta",
            "smooth map with three parameters, by censored likelihood",
            lambda rows, _, __: MapOfF(BetaRecalibration.fit(rows.cdf, rows.event)),
            lambda content, _: MapOfF(BetaRecalibration.of_content(content)),
        ),
        Method(
            "cipot",
            "conformal percentiles of F (Qi et al., NeurIPS 2024)",
            lambda rows, pieces, _: MapOfF(CiPOTRecalibration.fit(rows.cdf, rows.event, n_pieces=pieces)),
            lambda content, _: MapOfF(CiPOTRecalibration.of_content(content)),
            takes_pieces=True,
        ),
        Method(
            "csd",
            "conformal shifts of the quantiles in time (Qi et al., ICML 2024)",
            lambda rows, _, __: ShiftedQuantiles(ConformalQuantiles.fit(rows.quantiles, rows.time, rows.happened)),
            lambda content, _: ShiftedQuantiles(ConformalQuantiles.of_content(content)),
            takes_pieces=True,
            asks_quantiles=True,
        ),
        Method(
            "groups",
            "the map of 'km', and what each known group adds to it, shrunk",
            lambda rows, pieces, column: MapOfF(
                GroupedRecalibration.fit(rows.cdf, rows.event, rows.groups, n_pieces=pieces), column
            ),
            lambda content, column: MapOfF(GroupedRecalibration.of_content(content), column),
            takes_pieces=True,
            asks_groups=True,
        ),
    )
}


def as_method(name: Any, n_pieces: Any, group_column: Any) -> Method:
    """Find a method by its name, and check that it takes the options given beside it."""
    method = METHODS[as_choice("method", name, METHODS)]
    if n_pieces is not None and not method.takes_pieces:
        takers = ", ".join(repr(other.name) for other in METHODS.values() if other.takes_pieces)
        fail("n_pieces", f"None with method={name!r} (it is for {takers})", repr(n_pieces))
    if group_column is not None and not method.asks_groups:
        fail("group_column", f"None with method={name!r} (it is for 'groups')", repr(group_column))
    return method
