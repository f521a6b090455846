"""All results as pages: one page per file of records, the frontiers as pictures, and one page that lists them."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_args

from xcal._files import write_whole
from xcal.experiments.data import PathLike
from xcal.experiments.paper_comparison import PARTS, Comparison, compare
from xcal.experiments.penalty_comparison import PenaltyComparison, compare_penalties
from xcal.experiments.records import is_trial
from xcal.experiments.spec import Penalty, Variant
from xcal.experiments.spec_file import load_spec, table_names
from xcal.report.frontier_picture import OF, draw_frontier
from xcal.report.tables import as_csv, markdown

# The paper's tables with enough test rows to tell two penalties apart.
_LARGE = ("gamma-censored", "gamma-uncensored", "mnist-censored", "mnist-uncensored")


def write_pages(results: PathLike) -> list[Path]:
    """Write the pages and pictures of every file of records below `results`, and ``README.md``, which lists them.

    Returns
    -------
    list of Path
        What was written, the list last.
    """
    folder = Path(results)
    found = list(_with_records(folder))
    written = [page for comparison in found for page in _write_tables(comparison, folder)]
    penalties = []
    for table, variant, part, trial in dict.fromkeys(
        (c.spec.table, c.variant, c.part, c.trial) for c in found if c.spec.kind == "path"
    ):
        epochs = trial or None
        for of in OF:
            picture = _place(folder, table, part, trial) / f"{variant}.{of}{_ending(trial)}.png"
            written.append(
                draw_frontier(table, picture, of=of, variant=variant, epochs=epochs, results=folder, part=part)
            )
        if part:
            continue  # a part shows that everything works; penalties are compared on the paper's data
        own = [penalty for penalty in get_args(Penalty) if penalty != "paper"]
        ours = (compare_penalties(table, variant=variant, penalty=p, epochs=epochs, results=folder) for p in own)
        penalties += [comparison for comparison in ours if comparison.levels]
    index = folder / "README.md"
    lines = [*_scores(found), *(_penalties(penalties) if penalties else [])]
    write_whole(index, ("\n".join(lines) + "\n").encode())
    return [*written, index]


def _with_records(folder: Path) -> Iterator[Comparison]:
    for table in table_names():
        spec = load_spec(table)
        penalties = get_args(Penalty) if spec.kind == "path" else ("paper",)
        parts = PARTS if spec.data.name == "mimic" else ("",)
        for epochs, variant, penalty, part in product((None, *spec.trials), get_args(Variant), penalties, parts):
            found = compare(table, variant=variant, penalty=penalty, epochs=epochs, results=folder, part=part)
            if any(not epochs or is_trial(spec, found.spec, spec.model(r.model), variant) for r in found.records):
                yield found


def _place(folder: Path, table: str, part: str, trial: str) -> Path:
    return folder / table / part / ("trial" if trial else "")


def _ending(trial: str) -> str:
    return f".{trial}" if trial else ""


def _write_tables(comparison: Comparison, folder: Path) -> Iterator[Path]:
    place = _place(folder, comparison.spec.table, comparison.part, comparison.trial)
    for ending, make in (("md", markdown), ("csv", as_csv)):
        page = place / f"{comparison.variant}.{comparison.penalty}{_ending(comparison.trial)}.{ending}"
        write_whole(page, make(comparison).encode())
        yield page


def _scores(found: list[Comparison]) -> list[str]:
    lines = [
        "# Results",
        "",
        "Made by `xcal results-page` from the records in this folder. A score is the share of cells that match the "
        "paper's value or are better; cells without a record are counted separately. A name in brackets is a part of "
        "the data, or a trial: other epochs than the table's (`--epochs NAME`).",
        "",
        "| table | variant | penalty | score | cells compared | cells missing | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in found:
        place = _place(Path(), c.spec.table, c.part, c.trial).as_posix()
        of = f" ({c.part or c.trial})" if c.part or c.trial else ""
        link = f"[{c.spec.title}{of}]({place}/{c.variant}.{c.penalty}{_ending(c.trial)}.md)"
        lines.append(
            f"| {link} | {c.variant} | {c.penalty} | {c.score:.2f} | {len(c.compared)} | {c.n_missing} "
            f"| {len(c.records)} |"
        )
    return lines


def _penalties(found: list[PenaltyComparison]) -> list[str]:
    lines = [
        "",
        "## Our penalty against the paper's",
        "",
        "At each level of D-calibration that the paper's penalty reaches: is the lowest NLL of our penalty lower, "
        "and its highest concordance higher, everything else equal? Matched or better: NLL not higher by "
        "more than .05, concordance not lower by more than .02.",
        "",
        "| table | variant | penalty | levels | both | lower NLL | higher concordance | matched or better |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in found:
        values = (c.share, c.share_nll, c.share_concordance, c.share_matched)
        shares = " | ".join(f"{value:.0%}" for value in values)
        name = f"{c.table} ({c.trial})" if c.trial else c.table
        lines.append(f"| {name} | {c.variant} | {c.penalty} | {len(c.levels)} | {shares} |")
    large = [c for c in found if c.table in _LARGE and (c.variant, c.penalty) == ("as-published", "ours")]
    # Of a table that was run for several numbers of epochs, the run with the most levels.
    whole = {c.table: c for c in sorted(large, key=lambda c: len(c.levels))}
    levels = [level for c in whole.values() for level in c.levels]
    if levels:
        both, matched = (sum(getattr(level, name) for level in levels) for name in ("both", "matched"))
        share = f"both at {both} of {len(levels)} levels, {both / len(levels):.0%}"
        lines += ["", f"Gamma and MNIST tables together, as published: {share}; matched or better at {matched}."]
    return lines
