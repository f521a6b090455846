"""Has a change of training cost quality? A default path on new rows, with two versions of the code.

Claim: none of one version alone. ``--out`` writes the values of this version; run the same command in a checkout of
another one, and ``--against`` prints the differences: mean ± standard error over repetitions, for each data set and
family.

Each repetition fits `SurvivalPath` with its defaults to two thirds of at most 1,500 rows and measures the model of
``select()`` on the others: Harrell's C, the Brier score integrated to the 90 % quantile of the times (IBS, in 1e-3),
the negative log-likelihood by density (in 1e-3), and D-calibration in 10 bins (in 1e-3). Seconds are of the processor.
"""

import argparse
import json
import time as clock
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studies.default_choice import LOAD, on_new
from xcal import SurvivalPath
from xcal._files import write_whole

DATA = ("metabric", "support", "flchain", "gbsg2", "proportional", "varying shape", "heavy tails")
FAMILIES = ("mtlr", "weibull")
VALUES = {"c": (1, 4), "ibs": (1e3, 2), "nll": (1e3, 1), "dcal": (1e3, 2), "seconds": (1, 1)}


def run(data: str, family: str, repetition: int, most_rows: int = 1500) -> dict[str, Any]:
    warnings.simplefilter("ignore")  # of few rows, again and again
    torch.set_num_threads(1)
    rows = LOAD[data]()
    rows = rows[np.random.default_rng(repetition).permutation(rows.n)[:most_rows]]
    train, new = rows.split((2 / 3, 1 / 3), seed=repetition)
    start = clock.process_time()
    path = SurvivalPath(distribution=family, progress=False).fit(train)
    seconds = clock.process_time() - start
    found = on_new(path.select().fitted_, train, new, float(np.quantile(rows.time, 0.9)))
    dcal = float(np.square(np.array(found.pop("histogram")) - 1 / 10).sum())
    key = {"data": data, "family": family, "repetition": repetition}
    return key | {name: found[name] for name in ("c", "ibs", "nll")} | {"dcal": dcal, "seconds": seconds}


def read(path: Path) -> dict[tuple[str, str, int], dict[str, float]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(line["data"], line["family"], line["repetition"]): line for line in lines}


def show(now: dict[tuple[str, str, int], Any], before: dict[tuple[str, str, int], Any]) -> None:
    print("now less before: mean ± standard error over repetitions" if before else "means")
    print(f"{'':<26}" + "".join(f"{name:>20}" for name in VALUES))
    both = sorted(set(now) & set(before)) if before else sorted(now)
    groups: dict[str, list[Any]] = {}
    for key in both:
        groups.setdefault(", ".join(key[:2]), []).append(key)
    for name, keys in (groups | {"all": both}).items():
        cells = []
        for value, (unit, digits) in VALUES.items():
            gap = unit * np.array([now[key][value] - (before[key][value] if before else 0) for key in keys])
            cells.append(f"{gap.mean():.{digits}f} ± {gap.std(ddof=1) / len(keys) ** 0.5:.{digits}f}")
        print(f"{name:<26}" + "".join(f"{cell:>20}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(LOAD), nargs="*", default=list(DATA))
    parser.add_argument("--family", choices=FAMILIES, nargs="*", default=list(FAMILIES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/quality.jsonl"))
    parser.add_argument("--against", type=Path, help="what another version has written")
    options, _ = parser.parse_known_args()
    done = read(options.out)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for key in ((d, f, k) for k in range(options.runs) for d in options.data for f in options.family):
        if key not in done and options.against is None:
            done[key] = run(*key)
            write_whole(options.out, "".join(json.dumps(line) + "\n" for line in done.values()).encode())
    show(done, {} if options.against is None else read(options.against))


if __name__ == "__main__":
    main()
