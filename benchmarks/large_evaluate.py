"""Metrics of predictions in files that are larger than memory: time, rows per second, memory, and what bounds them.

Claim: ``xcal evaluate`` on a folder of parquet files takes memory that does not grow with the rows, under 1 GB beyond
what importing takes; two processes share the work of one, and the values are the same to 1e-12. Every limit is set to
its lowest, so that a small number of rows shows what a large one does. Up to four million rows the values are compared
with the exact ones. On a busy machine only the seconds of the CPU mean something; what the first process takes of them
while others count is what cannot be shared out.

``--millions 100`` for a hundred million rows of float32 numbers (ten columns, 3.6 GB of files, made in ``--folder`` and
removed again). By default four million rows: a piece of work has two million, so more processes have nothing to do with
fewer.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

HORIZONS = (0.25, 0.5, 1.0, 1.5, 2.0)
_SHARD = 1_600_000
_COMPARED = 4_000_000  # rows up to which the exact values are computed too


def write_shard(path: Path, n: int, seed: int) -> None:
    """Write rows of a model whose hazards are 1.2 times too high."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.3, 2.0, n)
    happens, censors = rng.exponential(1 / rate), rng.exponential(2.0, n)
    observed, event = np.minimum(happens, censors), happens <= censors
    hazard = 1.2 * rate
    columns: dict[str, Any] = {
        "time": observed,
        "event": event,
        "cdf": -np.expm1(-hazard * observed),
        "risk": rate,
        "nll": hazard * observed - event * np.log(hazard),
    }
    columns |= {f"S_{t:g}": np.exp(-hazard * t) for t in HORIZONS}
    table = {name: values if values.dtype == bool else values.astype(np.float32) for name, values in columns.items()}
    pq.write_table(pa.table(table), path, row_group_size=1 << 18, compression="none", use_dictionary=False)


def read_alone(folder: Path) -> tuple[float, float]:
    """Seconds by the clock and of the CPU to read and check all rows once, without counting anything."""
    from xcal.outofcore.passes import batches, cut, find_columns, opened, parquet_files

    files = parquet_files(folder)
    open_files = [opened(path) for path in files]
    groups = [[f.metadata.row_group(k).num_rows for k in range(f.metadata.num_row_groups)] for f in open_files]
    columns = find_columns(files, [f.schema_arrow for f in open_files], "time", "event", None)
    start, cpu = time.perf_counter(), time.process_time()
    for piece in cut(groups):
        for batch in batches(piece, files, columns):
            assert batch.n
    return time.perf_counter() - start, time.process_time() - cpu


def evaluated(folder: str, out: str, processes: int, exact_rows: int, bound: bool, found: Any) -> None:
    """Evaluate in a process of its own; its largest memory and its times go to `found`."""
    import torch

    from xcal.outofcore import EvaluationSettings, evaluate_folder

    for name in ("pyarrow.parquet", "pandas"):  # reading imports them: no memory of the rows
        import_module(name)
    torch.set_num_threads(1)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024
    settings = EvaluationSettings(processes=processes, exact_rows=exact_rows, ici_bound=bound, progress=False)
    start = time.perf_counter()
    evaluate_folder(folder, out, settings)
    seconds = time.perf_counter() - start
    spent = os.times()
    own, workers = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = spent.user + spent.system + spent.children_user + spent.children_system
    found.put((seconds, cpu, spent.user + spent.system, before, own, workers))


def in_new_process(*given: Any) -> tuple[float, float, float, int, int, int]:
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    process = context.Process(target=evaluated, args=(*given, found))
    process.start()
    measured: tuple[float, float, float, int, int, int] = found.get()
    process.join()
    return measured


def largest_difference(one: Path, other: Path) -> float:
    """Largest relative difference between the numbers of two results."""
    largest = 0.0
    for a, b in zip(*(json.loads(path.read_text())["metrics"] for path in (one, other)), strict=True):
        largest = max(largest, abs(a["value"] - b["value"]) / max(abs(a["value"]), 1e-300))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=4.0)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--folder", type=Path, default=None)
    options, _ = parser.parse_known_args()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        report(folder, round(options.millions * 1e6), options.processes)
    finally:
        shutil.rmtree(folder)


def report(folder: Path, n: int, processes: list[int]) -> None:
    rows = folder / "predictions"
    rows.mkdir()
    for k, start in enumerate(range(0, n, _SHARD)):
        write_shard(rows / f"part-{k:04d}.parquet", min(_SHARD, n - start), seed=k)
    size = sum(path.stat().st_size for path in rows.iterdir())
    print(f"{n:,} rows, {len(list(rows.iterdir()))} files, {size / 1e9:.2f} GB, {len(HORIZONS)} horizons", flush=True)
    read, read_cpu = read_alone(rows)
    print(f"reading and checking alone, once: {read:.1f} s ({read_cpu:.1f} s CPU, {size / read / 1e6:,.0f} MB/s)")
    times = f"{'processes':>9}  {'seconds':>8}  {'rows/s':>10}  {'CPU s':>7}  {'first':>6}"
    print(f"{times}  {'reading':>8}  {'memory':>9}  {'worker':>9}")
    # Grids, whatever the number of rows: with few of them this shows what many take.
    for k in processes:
        out = folder / f"metrics-{k}.json"
        seconds, cpu, first, before, own, workers = in_new_process(str(rows), str(out), k, 0, False)
        # Above what is resident after importing; of the largest worker, which imports the same.
        extra, each = (own - before) / 1024, max(0, workers - before) / 1024 if k > 1 else 0.0
        share = 2 * read_cpu / cpu
        times = f"{k:>9}  {seconds:>8.1f}  {n / seconds:>10,.0f}  {cpu:>7.1f}  {first:>6.1f}"
        print(f"{times}  {share:>8.0%}  {extra:>6.0f} MB  {each:>6.0f} MB", flush=True)
    outs = [folder / f"metrics-{k}.json" for k in processes]
    for other in outs[1:]:
        print(f"largest relative difference of a value: {largest_difference(outs[0], other):.1e}")
    if n <= _COMPARED:
        bounded = folder / "bounded.json"
        _, cpu, _, before, own, _ = in_new_process(str(rows), str(bounded), 1, 0, True)
        print(f"with the bound of ICI, one process: {cpu:.1f} s CPU, {(own - before) / 1024:.0f} MB")
        compare_with_exact(rows, bounded, n)


def compare_with_exact(rows: Path, on_grids: Path, n: int) -> None:
    """Print each value on grids beside that of the rows themselves, and the bound where there is one."""
    out = on_grids.with_name("exact.json")
    _, cpu, _, before, own, _ = in_new_process(str(rows), str(out), 1, n, False)
    print(f"with every row kept: {cpu:.1f} s CPU, {(own - before) / 1024:.0f} MB")
    print(f"{'metric':>20}  {'at':>5}  {'on grids':>12}  {'of the rows':>12}  {'difference':>10}  {'bound':>8}")
    for grid, exact in zip(*(json.loads(path.read_text())["metrics"] for path in (on_grids, out)), strict=True):
        off, bound = abs(grid["value"] - exact["value"]), grid.get("error_bound")
        at = "" if grid["at"] is None else f"{grid['at']:g}"
        values = f"{grid['value']:>12.6f}  {exact['value']:>12.6f}  {off:>10.1e}"
        print(f"{grid['name']:>20}  {at:>5}  {values}  {'' if bound is None else f'{bound:.1e}':>8}")


if __name__ == "__main__":
    main()
