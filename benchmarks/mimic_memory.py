"""Loading and training on a prepared MIMIC-III folder whose features are larger than the memory allowed.

Claim: `load_mimic_los`, `fit_path` and `SurvivalPath` never hold the matrix. The process may take no more private
memory (RLIMIT_DATA) than a fraction of it; pages of the mapped file are the system's, and given back when others need
them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xcal_paper.mimic3 import feature_names

CHILD = """
import json, resource, sys, threading, time
import numpy as np, pandas, pyarrow.parquet, sklearn, torch
from xcal import SurvivalPath
from xcal.datasets import load_mimic_los
from xcal.distributions import family, quantile_edges
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

folder, allowed, estimator = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "SurvivalPath"
before, peak, done = status("RssAnon"), 0, threading.Event()
resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + allowed, resource.RLIM_INFINITY))

def watch():
    global peak
    while not done.is_set():
        peak = max(peak, status("RssAnon") - before)
        time.sleep(0.01)

try:
    np.ones(2 * allowed, np.uint8)
    raise SystemExit("the limit does not hold here")
except MemoryError:
    pass
threading.Thread(target=watch, daemon=True).start()
data = load_mimic_los(folder)
if estimator:
    path = SurvivalPath(lambdas=(0, 10), seeds=1, hidden=(16,), epochs=1, batch_size=1000, device="cpu")
    path.fit(data.train, validation_data=data.validation)
else:
    edges = quantile_edges(data.train.time, data.train.event, 20)
    fit_path(
        lambda: MLP(1428, 20, hidden=(16,)), family("categorical", edges=edges, interpolation="linear"),
        data.train, data.validation, lambdas=(0.0, 10.0), seeds=(0,),
        config=TrainingConfig(epochs=1, batch_size=1000, learning_rate=1e-3), device="cpu",
    )
done.set()
print(json.dumps(peak))
"""


def write_folder(folder: Path, rows: int) -> None:
    """Write features of so many rows, random numbers, in the form of a prepared folder."""
    rng, names, files = np.random.default_rng(0), feature_names(), {}
    share = rows // 3
    for split in ("train", "validation", "test"):
        path = folder / f"features/split={split}/block-00000.parquet"
        path.parent.mkdir(parents=True)
        writer, left = None, share
        while left:
            n = min(left, 16_384)
            columns = {"stay_id": rng.integers(1, 500, n, np.int32), "subject_id": rng.integers(1, 400, n, np.int32)}
            columns |= {"period_length": rng.integers(5, 99, n) * 1.0, "remaining": rng.exponential(60, n)}
            values = rng.normal(size=(len(names), n)).astype(np.float32)
            table = pa.table(columns | {"event": np.ones(n, bool)} | dict(zip(names, values, strict=True)))
            writer = writer or pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False)
            writer.write_table(table)
            left -= n
        writer.close()
        files[str(path.relative_to(folder))] = {"bytes": path.stat().st_size, "sha256": "", "rows": share}
    steps = {"stays": {"counts": {}, "files": {}}, "features": {"counts": {}, "files": files}}
    content = {"format": 1, "finished": True, "settings": {"death": "event"}, "steps": steps}
    (folder / "manifest.json").write_text(json.dumps(content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=180_000)
    parser.add_argument("--allowed", type=int, default=600, help="MB of private memory")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_folder(folder, options.rows)
        matrix = options.rows * 2 * len(feature_names()) * 4
        print(f"features {matrix / 1e6:,.0f} MB as a matrix, allowed {options.allowed} MB of private memory")
        for what in ("fit_path, file written first", "fit_path", "SurvivalPath"):
            done = subprocess.run(
                [sys.executable, "-c", CHILD, name, str(options.allowed * 10**6), what.split(",")[0]],
                # Allocators that reserve address space ahead, for every thread, would reach the limit without using it.
                env=os.environ
                | {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                print(f"{what:>30}  failed: {done.stderr.strip().splitlines()[-1]}")
            else:
                print(f"{what:>30}  at most {json.loads(done.stdout) / 1e6:,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
