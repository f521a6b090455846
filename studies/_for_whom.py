"""What `for_whom_real` and `for_whom_mnist` share: maps of F, what is measured, the records and their tables."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xcal import conditional_calibration, d_calibration
from xcal.data import SurvivalData
from xcal.distributions import RecalibratedDistribution, SurvivalDistribution
from xcal.metrics import concordance_index, integrated_brier_score, kaplan_meier
from xcal.objectives import nll
from xcal.recalibration import KaplanMeierRecalibration

BINS, TIMES = 10, 50
NO_MAP, ONE_MAP, MAP_PER_GROUP = "no map", "one map", "map per group"
MAPS = (NO_MAP, ONE_MAP, MAP_PER_GROUP)
MEASURES = ("k", "dcal", "worst", "nll", "ibs", "concordance")

Line = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Mapped:
    """A model, as the distributions of some rows, with a map of F for all rows or for each group; None for no map."""

    distribution: Callable[[np.ndarray], SurvivalDistribution]  # of the rows with these numbers
    maps: tuple[KaplanMeierRecalibration | None, ...]

    def parts(self, n: int, group: np.ndarray) -> Iterator[tuple[np.ndarray, SurvivalDistribution]]:
        """Return the rows of each group and their distributions."""
        for k, own in enumerate(self.maps):
            chosen = np.flatnonzero(group == k) if len(self.maps) > 1 else np.arange(n)
            if chosen.size:
                plain = self.distribution(chosen)
                yield chosen, plain if own is None else RecalibratedDistribution(plain, own.knots, own.levels)


def values_of(mapped: Mapped, rows: SurvivalData, group: np.ndarray, grid: np.ndarray) -> dict[str, np.ndarray]:
    """F at the observed times, the negative log-likelihood and the survival curves of every row."""
    cdf, loss, curves = np.empty(rows.n), np.empty(rows.n), np.empty((rows.n, grid.size))
    for chosen, distribution in mapped.parts(rows.n, group):
        time, event = (torch.from_numpy(np.ascontiguousarray(v[chosen])) for v in (rows.time, rows.event))
        with torch.no_grad():
            cdf[chosen] = distribution.cdf(time).numpy()
            loss[chosen] = nll(distribution, time, event, density=True).numpy()
            for k, at in enumerate(grid):
                curves[chosen, k] = 1 - distribution.cdf(torch.full_like(time, float(at))).numpy()
    return {"cdf": np.clip(cdf, 0, 1), "loss": loss, "curves": np.clip(curves, 0, 1)}


def maps_of(cdf: np.ndarray, event: np.ndarray, group: np.ndarray) -> dict[str, tuple[Any, ...]]:
    """Fit one map to all rows, and one to each group; a group without events has the common one."""
    one = KaplanMeierRecalibration.fit(cdf, event)
    own = [
        KaplanMeierRecalibration.fit(cdf[group == k], event[group == k]) if event[group == k].any() else one
        for k in range(int(group.max()) + 1)
    ]
    return {NO_MAP: (None,), ONE_MAP: (one,), MAP_PER_GROUP: tuple(own)}


def excess(cdf: np.ndarray, event: np.ndarray) -> float:
    """D-calibration less its floor, in 1e-3."""
    result = d_calibration(cdf, event, n_bins=BINS, p_value=None)
    return 1e3 * (result.value - result.floor)


def measured(
    found: dict[str, np.ndarray],
    seen: SurvivalData,
    test: SurvivalData,
    columns: Any,
    sides: Sequence[np.ndarray],
    grid: np.ndarray,
) -> dict[str, float]:
    """All measures on the test rows: K by some columns, "worst" among parts of the rows; censoring as in `seen`."""
    cdf, event = found["cdf"], test.event
    censoring = kaplan_meier(time=seen.time, event=seen.event, of="censoring")
    outcome = {"time": test.time, "event": event}
    k = conditional_calibration(cdf, event, columns, n_bins=BINS, n_draws=0, where=False).value
    return {
        "k": 1e3 * k,
        "dcal": excess(cdf, event),
        "worst": max(excess(cdf[side], event[side]) for side in sides),
        "nll": float(found["loss"].mean()),
        "ibs": integrated_brier_score(found["curves"], grid, **outcome, censoring=censoring).value,
        "concordance": concordance_index(**outcome, predicted_time=np.trapezoid(found["curves"], grid, axis=1)).value,
    }


def is_allowed(loss: np.ndarray, without: np.ndarray) -> bool:
    """Whether the NLL of rows is at most one standard error above that without a penalty."""
    gap = loss - without
    return bool(gap.mean() <= gap.std() / gap.size**0.5)


# By data, family, penalty and map the lines by (fold, seed).
Cells = dict[tuple[str, str, str, str], dict[tuple[int, int], Line]]


def lines_of(path: Path) -> list[Line]:
    """Lines of a record; one that was cut off in the middle is left out."""
    if not path.exists():
        return []
    texts = path.read_text().splitlines(keepends=True)
    return [json.loads(text) for text in texts if text.endswith("\n")]


def append(path: Path, lines: Sequence[Line]) -> None:
    """Add lines to a record at once."""
    with path.open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def cells_of(path: Path, only: float | None = None) -> Cells:
    """Lines of the chosen weights; or those of one weight `only`, and those without a penalty."""
    cells: Cells = defaultdict(dict)
    for line in lines_of(path):
        if line.get("chosen", True) if only is None else line["lam"] == only or line["penalty"] == "none":
            key = (line["data"], line["family"], line["penalty"], line["map"])
            cells[key][line["fold"], line["seed"]] = line
    return cells


def against_none(cells: Cells, data: str, family: str, penalty: str, treatment: str, of: str) -> tuple[float, ...]:
    """Mean, and mean and standard error of the difference to the model as trained.

    Seeds of a fold are averaged first: they share its rows. With one fold the error is that over seeds.
    """
    own, base = cells[data, family, penalty, treatment], cells[data, family, "none", NO_MAP]
    both = sorted(set(own) & set(base))
    folds = {fold for fold, _ in both}
    gaps = defaultdict(list)
    for fold, seed in both:
        gaps[fold if len(folds) > 1 else seed].append(own[fold, seed][of] - base[fold, seed][of])
    means = [float(np.mean(values)) for values in gaps.values()]
    error = float(np.std(means, ddof=1)) / len(means) ** 0.5 if len(means) > 1 else float("nan")
    return float(np.mean([own[key][of] for key in both])), float(np.mean(means)), error


def show(path: Path, penalties: Sequence[str], only: float | None = None) -> None:
    cells = cells_of(path, only)
    for data, family in dict.fromkeys(key[:2] for key in cells):
        base = cells[data, family, "none", NO_MAP]
        rows = next(iter(base.values()))["rows"]
        runs = f"{len({fold for fold, _ in base})} folds, {len({seed for _, seed in base})} seeds"
        print(f"\n{data}, {rows:,} rows, {family}, {runs}")
        print(f"{'penalty':<20}{'map':<15}{'lambdas':<16}" + "".join(f"{m:>22}" for m in MEASURES))
        for penalty in penalties:
            for treatment in MAPS:
                own = cells[data, family, penalty, treatment]
                if not own:
                    continue
                lams = f"{np.median([line['lam'] for line in own.values()]):g}"
                lams += f" ({min(line['lam'] for line in own.values()):g} to {max(x['lam'] for x in own.values()):g})"
                shown = ""
                for m in MEASURES:
                    mean, gap, error = against_none(cells, data, family, penalty, treatment, m)
                    shown += f"{mean:>9.4g} {gap:>+6.2g} ± {error:<4.1g}"
                print(f"{penalty:<20}{treatment:<15}{lams:<16}{shown}")


def show_together(path: Path, penalties: Sequence[str]) -> None:
    """Mean over the data sets of the differences to the model as trained."""
    cells = cells_of(path)
    for family in dict.fromkeys(key[1] for key in cells):
        known = dict.fromkeys(key[0] for key in cells if key[1] == family)
        print(f"\n{family}, differences to the model as trained, mean over {', '.join(known)}")
        print(f"{'penalty':<20}{'map':<15}" + "".join(f"{m:>18}" for m in MEASURES))
        for penalty in penalties:
            for treatment in MAPS:
                shown = ""
                for m in MEASURES:
                    gaps = np.array([against_none(cells, data, family, penalty, treatment, m)[1:] for data in known])
                    error = float(np.square(gaps[:, 1]).sum() ** 0.5) / len(known)
                    shown += f"{gaps[:, 0].mean():>+11.2g} ± {error:<4.1g}"
                print(f"{penalty:<20}{treatment:<15}{shown}")
