"""How often an audit trusts a true model, and whether it sees four kinds of wrong ones.

Claim: of true models, whatever their hazards and however their rows are censored, at most 1 % are distrusted, at most
5 % are called off in any sentence (groups included), and at least 90 % are trusted with 3,000 events. With 1,000 events
models with 1.5 times the hazards, or too sure of themselves, are trusted in at most 1 % and called off in at least
95 %; models that are wrong in a fifth of the rows, and Cox models of crossing hazards, are trusted in at most 20 %.

Every audit has the verdict's values only (no resamples), three covariates, and 2, 6 or 20 groups in turn. Results are
added to a file of JSON lines; run the same command again to resume.
"""

import argparse
import json
import math
import os
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from studies._laws import CENSORED, FIFTH, LAWS, draw, grid, predicted, share_of_events
from xcal import audit
from xcal._files import write_whole
from xcal.validation.verdict import GOOD_RATIO, faintly_given_covariates, given_covariates, in_parts, judged

ROWS = (100, 300, 1000, 5000)
GROUPS = (2, 6, 20)
RECORD = Path(__file__).with_suffix(".jsonl")
LEVELS = ("trust", "unknown", "caution", "distrust")


def cells(kind: str) -> list[tuple]:
    """Cells of a table: law, rows, share censored, whether censoring depends on covariates, model, data sets."""
    found = []
    for i, law in enumerate(LAWS):
        if kind == "true":
            for j, n in enumerate(ROWS):
                found.append((law, n, CENSORED[(i + j) % 3], bool((i + j // 2) % 2), "true", 200 if n <= 1000 else 50))
        else:
            for j in range(2):
                share, depends = CENSORED[(i + j) % 3], bool((i + j) % 2)
                n = round((3000 if kind == "many" else 1000) / share_of_events(law, share, depends))
                models = ["hazards x 1.5", "over-confident", "wrong in a fifth"]
                models += ["Cox model"] if law in ("varying shape", "heavy tails") else []
                found += [(law, n, share, depends, model, 50) for model in (["true"] if kind == "many" else models)]
    return found


def curves_of(law: str, model: str, x: np.ndarray, times: np.ndarray, censoring: tuple, seed: list[int]) -> np.ndarray:
    """Curves of the model on a grid of times."""
    return _cox(law, x, times, censoring, seed) if model == "Cox model" else predicted(law, model, x, times)


def _cox(law: str, x: np.ndarray, times: np.ndarray, censoring: tuple, seed: list[int]) -> np.ndarray:
    """Return the curves of a Cox model of 4,000 other rows of the same law."""
    import pandas as pd
    from lifelines import CoxPHFitter

    own, time, event = draw(law, 4000, *censoring, [*seed, 1])
    table = pd.DataFrame(own, columns=list("abc")).assign(time=time, event=event)
    fitted = CoxPHFitter().fit(table, "time", "event")
    return fitted.predict_survival_function(pd.DataFrame(x, columns=list("abc")), times=times).to_numpy().T


def answer(task: tuple) -> dict:
    """Audit one data set."""
    law, n, share, depends, model, seed = task
    numbers = [LAWS.index(law), n, round(100 * share), int(depends), seed]
    x, time, event = draw(law, n, share, depends, numbers)
    times = grid(law, time)
    curves = curves_of(law, model, x, times, (share, depends), numbers)
    groups = np.random.default_rng([*numbers, 2]).integers(0, GROUPS[seed % 3], n).astype(str)
    result = audit(
        survival=np.clip(curves, 0, 1),
        times=times,
        y=(time, event),
        covariates={"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]},
        groups={"g": groups},
        thresholds=[0.5],
        n_bootstrap=0,
        seed=seed,
        progress=False,
    )
    verdict, measured = result.verdict, result.measured
    findings = list(judged(measured, level=0.95, time_unit=""))
    # What a sentence of the verdict tells: of all rows also an error that is small.
    off = [f"{f.value.metric} {f.state}" for f in findings if f.group is None and f.state in ("off", "wrong", "small")]
    in_groups = [*(f for f in findings if f.group is not None), *in_parts(measured, 0.95, "")]
    off += [f"{f.value.metric} {f.state} in a group" for f in in_groups if f.state in ("off", "wrong")]
    # Parts in doubt: not called off, and nothing is trusted before there are more events.
    unsure = [f.value.value for f in in_parts(measured, 0.95, "") if f.state == "unsure"]
    doubts = sum(not GOOD_RATIO[0] <= ratio <= GOOD_RATIO[1] for ratio in unsure)
    off += ["for whom"] if given_covariates(measured) or faintly_given_covariates(measured) else []
    return {
        **dict(zip(("law", "rows", "censored", "depends", "model", "seed"), task, strict=True)),
        "events": int(event.sum()),
        "level": verdict.level,
        "off": off,
        "doubts": doubts,
        "known": _known(model, law, curves, times, x, time, event),
    }


def _known(
    model: str, law: str, curves: np.ndarray, times: np.ndarray, x: np.ndarray, time: np.ndarray, event: np.ndarray
) -> bool | None:
    """Whether a test that knows where the error is sees it: events less those the model expects, weighted.

    The weights are the fifth of the rows that is wrong, or of a Cox model the log of the true hazard over its own, at
    each time of each row.
    """
    if model not in ("wrong in a fifth", "Cox model"):
        return None
    grid, whole = np.append(0.0, times), np.concatenate([np.ones((len(x), 1)), np.clip(curves, 1e-12, 1)], axis=1)
    hazard = -np.diff(np.log(np.minimum.accumulate(whole, axis=1)), axis=1)
    if model == "Cox model":
        true = np.concatenate([np.ones((len(x), 1)), np.clip(predicted(law, "true", x, times), 1e-12, 1)], axis=1)
        # A step function has no hazard between its steps: where one of the two is 0 there is nothing to compare.
        own = -np.diff(np.log(true), axis=1)
        weight = np.log(np.divide(own, hazard, out=np.ones_like(own), where=(own > 0) & (hazard > 0)))
    else:
        weight = np.repeat(x[:, 1:2] > FIFTH, times.size, axis=1).astype(float)
    cell = np.clip(np.searchsorted(grid, time, side="left") - 1, 0, times.size - 1)
    # The share of each cell during which the row was observed.
    seen = np.clip((time[:, None] - grid[:-1]) / np.diff(grid), 0, 1)
    happened = (event * weight[np.arange(len(x)), cell]).sum()
    expected, variance = ((weight**power * hazard * seen).sum() for power in (1, 2))
    return bool(2 * ndtr(-abs(happened - expected) / variance**0.5) < 0.05)


def add_known(record: Path) -> None:
    """Add what the test that knows where the error is says to lines of the record that were made before it."""
    lines = _lines(record)
    for line in lines:
        if line["known"] is None and line["model"] == "Cox model":
            law, n, share, depends, model, seed = _task(line)
            numbers = [LAWS.index(law), n, round(100 * share), int(depends), seed]
            x, time, event = draw(law, n, share, depends, numbers)
            times = grid(law, time)
            curves = curves_of(law, model, x, times, (share, depends), numbers)
            line["known"] = _known(model, law, curves, times, x, time, event)
    write_whole(record, "".join(json.dumps(line) + "\n" for line in lines).encode())


def run(options: argparse.Namespace) -> None:
    """Work off what the record does not have yet."""
    done = {_task(line) for line in _lines(options.record)}
    tasks = []
    for kind in options.tables:
        for *cell, sets in cells(kind):
            if cell[0] not in options.laws or (options.models and cell[-1] not in ("true", *options.models)):
                continue
            if options.rows and cell[1] not in options.rows:
                continue
            tasks += [(*cell, seed) for seed in range(options.data_sets or sets) if (*cell, seed) not in done]
    tasks.sort(key=lambda task: (task[-1] // 10, task))  # some of every cell first
    print(f"{len(tasks):,} audits to make, {len(done):,} in {options.record}", flush=True)
    with ProcessPoolExecutor(options.processes) as pool, options.record.open("a") as record:
        for k, found in enumerate(pool.map(answer, tasks, chunksize=5)):
            record.write(json.dumps(found) + "\n")
            record.flush()
            if (k + 1) % 500 == 0:
                print(f"{k + 1:,} of {len(tasks):,}", flush=True)


def _lines(record: Path) -> list[dict]:
    if not record.exists():
        return []
    return [json.loads(line) for line in record.read_text().splitlines()]


def _task(line: dict) -> tuple:
    return tuple(line[name] for name in ("law", "rows", "censored", "depends", "model", "seed"))


WANTED = (
    ('true model: "cannot be trusted"', "at most 1 % in every cell"),
    ("true model: any sentence that says it is off, groups included", "at most 5 % in every cell"),
    ('true model with 3,000 events: "can be trusted"', "at least 90 %"),
    ('hazards × 1.5 and over-confident, 1,000 events: "can be trusted"', "at most 1 %"),
    ('the same: "off" or "cannot be trusted"', "at least 95 %"),
    ('wrong in a fifth of the rows, 1,000 events: "can be trusted"', "at most 20 %"),
    ('Cox model on crossing hazards, 1,000 events: "can be trusted"', "at most 20 %"),
)


def _cells(record: Path) -> dict[tuple, list[dict]]:
    found = defaultdict(list)
    for line in _lines(record):
        found[_task(line)[:-1]].append(line)
    return dict(sorted(found.items(), key=lambda item: (item[0][4], item[0])))


def _trusted(line: dict) -> bool:
    return line["level"] == "trust"


def _called_off(line: dict) -> bool:
    return line["level"] == "distrust" or bool(line["off"])


def _share(lines: list[dict], what: Callable[[dict], bool]) -> tuple[float, float]:
    """Return the share of audits with an answer, and its standard error."""
    share = float(np.mean([what(line) for line in lines]))
    return share, math.sqrt(share * (1 - share) / len(lines))


def targets(record: Path) -> list[str]:
    """Return a table of what is wanted of a verdict, and the cell that is furthest from it."""
    cells = _cells(record)
    true = {cell: lines for cell, lines in cells.items() if cell[4] == "true"}
    many = {cell: lines for cell, lines in true.items() if cell[1] not in ROWS}
    plain, fifth, cox = (
        {cell: lines for cell, lines in cells.items() if cell[4] in models}
        for models in (("hazards x 1.5", "over-confident"), ("wrong in a fifth",), ("Cox model",))
    )
    asked = (
        (true, lambda line: line["level"] == "distrust", max),
        (true, _called_off, max),
        (many, _trusted, min),
        (plain, _trusted, max),
        (plain, _called_off, min),
        (fifth, _trusted, max),
        (cox, _trusted, max),
    )
    head = ["", "wanted", "the cell furthest from it", "over all cells", "a test that knows where"]
    table = [_line(head), "|" + "---|" * len(head)]
    for (name, wanted), (some, what, furthest) in zip(WANTED, asked, strict=True):
        if not some:
            continue
        shares = {cell: _share(lines, what) for cell, lines in some.items()}
        cell = furthest(shares, key=lambda one: shares[one][0])
        share, error = shares[cell]
        where = f"{100 * share:.1f} % ± {100 * error:.1f} ({cell[0]}, {cell[1]:,} rows, {_how(cell)} censored)"
        if len({one for one, _ in shares.values()}) == 1:
            where = "the same in all"
        whole = f"{100 * _share([line for lines in some.values() for line in lines], what)[0]:.1f} %"
        table.append(_line([name, wanted, where, whole, _power([*some.values()])]))
    return table


def _line(cells: list[str]) -> str:
    return " ".join(["|", *(f"{cell} |" if cell else "|" for cell in cells)])


def _how(cell: tuple) -> str:
    return f"{100 * cell[2]:.0f} %{' by x' if cell[3] else ''}"


def _power(cells: list[list[dict]]) -> str:
    """Return the power of a test that knows where the error is, in its worst cell; "" where there is none."""
    known = [[line["known"] for line in lines if line["known"] is not None] for lines in cells]
    return f"{min(float(np.mean(one)) for one in known):.2f}" if known and all(known) else ""


def table_of_cells(record: Path, *, true: bool) -> list[str]:
    """Return the shares of each answer by cell, of true or of wrong models."""
    model = [] if true else ["model"]
    head = ["law", *model, "rows", "events", "censored", "data sets", "can be trusted", "too weak to say"]
    head += ["somewhat off", "cannot be trusted", 'any sentence "off"', *([] if true else ["a test that knows where"])]
    table = [_line(head), "|" + "---|" * len(head)]
    for cell, lines in _cells(record).items():
        if (cell[4] == "true") != true:
            continue
        shares = [np.mean([line["level"] == level for line in lines]) for level in LEVELS]
        shares.append(np.mean([_called_off(line) for line in lines]))
        events = np.mean([line["events"] for line in lines])
        row = [cell[0], *([] if true else [cell[4]]), f"{cell[1]:,}", f"{events:,.0f}", _how(cell), str(len(lines))]
        table.append(_line([*row, *(f"{share:.3f}" for share in shares), *([] if true else [_power([lines])])]))
    return table


def show(record: Path) -> None:
    """Print the tables of docs/studies/audit."""
    for lines in (targets(record), table_of_cells(record, true=True), table_of_cells(record, true=False)):
        print("\n".join(lines), end="\n\n")
    print(by_groups(record))


def compare(record: Path, other: Path) -> None:
    """Print which audits that both records have end with another answer, and how often true models are in doubt."""
    kept = {_task(line): line for line in _lines(other)}
    both = [(line, kept[_task(line)]) for line in _lines(record) if _task(line) in kept]
    changed = [(line, old) for line, old in both if (line["level"], not line["off"]) != (old["level"], not old["off"])]
    print(f"{len(both) - len(changed):,} of {len(both):,} audits that both records have give the same answer")
    for line, old in changed:
        print(f"  {_task(line)}: {old['level']} {old['off']} -> {line['level']} {line['off']}")
    for rows in sorted({line["rows"] for line in _lines(record) if line["rows"] in ROWS}):
        true = [
            line for line in _lines(record) if line["model"] == "true" and line["rows"] == rows and "doubts" in line
        ]
        if true:
            share = np.mean([line["doubts"] > 0 for line in true])
            print(f"true models, {rows:,} rows: a part in doubt in {share:.3f} of {len(true):,}")


def by_groups(record: Path) -> str:
    """Return how often anything is said to be off of true models, by the number of groups."""
    true = [line for line in _lines(record) if line["model"] == "true"]
    shares = [_share([line for line in true if line["seed"] % 3 == k], _called_off)[0] for k in range(len(GROUPS))]
    found = ", ".join(f"{100 * share:.1f} % with {groups}" for groups, share in zip(GROUPS, shares, strict=True))
    return f"By the number of groups, any sentence says of true models that they are off in {found}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=["true", "many", "wrong"], choices=["true", "many", "wrong"])
    parser.add_argument("--data-sets", type=int, default=None, help="of every cell; by default 200, or 50 if large")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--show", action="store_true", help="print what the record holds, and audit nothing")
    parser.add_argument("--laws", nargs="*", default=LAWS, choices=LAWS)
    parser.add_argument("--models", nargs="*", default=None, help="of the wrong ones; a Cox model needs lifelines")
    parser.add_argument("--rows", nargs="*", type=int, help="only cells with so many rows, such as 20134 6675")
    parser.add_argument("--compare", type=Path, help="print which answers differ from those of another record")
    parser.add_argument("--known", action="store_true", help="add the test that knows where the error is to the record")
    options, _ = parser.parse_known_args()
    if options.known:
        add_known(options.record)
        return
    if not options.show:
        run(options)
    show(options.record)
    if options.compare:
        compare(options.record, options.compare)


if __name__ == "__main__":
    main()
