"""What SIGKILL at random moments destroys: nothing that was finished.

Claim: `fit_path` with checkpoints, `xcal reproduce`, `xcal tune`'s search, `xcal fit` and `xcal evaluate`
are killed at random moments, again and again. After every kill what was finished can be read, and nothing is half
written. When the same command is let to its end, its results are those of a run that nobody killed: the same bytes,
apart from times of day.

`python -m benchmarks.sweep_kills` does the same to a sweep on Ray.

A child process is forked from one that has imported everything, so that moments are spread over the work and not over
the imports. Needs Linux.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SPEC = """
table = "small"
kind = "path"
title = "A small table"
paper = "gamma-censored"
variant = "as-published"
lambdas = {lambdas}
seeds = {seeds}
calibration_bins = 20
time_bins = 10
job = "run"
[data]
name = "gamma"
seed = 0
n = [{n}, 300, 400]
groups = "mean-quartiles"
[training]
epochs = {epochs}
batch_size = 200
learning_rate = 1e-3
[variants.as-published]
bias = true
test_rows = 250
[variants.corrected]
[[models]]
name = "lognormal-nll"
label = "Log-normal"
distribution = "lognormal"
network = "mlp"
hidden = [16]
[[models]]
name = "mtlr-i"
label = "MTLR"
distribution = "mtlr"
interpolation = "linear"
network = "linear"
"""


@dataclass(frozen=True)
class Victim:
    """A command: what it does in a folder, and how many pieces of its work are finished there.

    `finished` raises an error if anything cannot be read. `essence` is everything that the command has made, without
    times of day.
    """

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], None]
    finished: Callable[[Path], int]
    essence: Callable[[Path], str]


@dataclass(frozen=True)
class Count:
    """What happened to a victim."""

    name: str
    kills: int
    ends: int
    unreadable: int
    lost: int
    different: int

    @property
    def survived(self) -> bool:
        """Whether nothing was destroyed."""
        return not (self.unreadable or self.lost or self.different)


def digest(*contents: bytes) -> str:
    seen = hashlib.sha256()
    for content in contents:
        seen.update(hashlib.sha256(content).digest())
    return seen.hexdigest()


def without_times(path: Path) -> str:
    """Return the records of a file, without what the clock decides."""
    clock = ("written", "group_seconds", "seconds", "check")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return json.dumps([{k: v for k, v in line.items() if k not in clock} for line in lines])


# --- the victims -----------------------------------------------------------------------------------------------------


def nothing(folder: Path) -> None:
    """Prepare nothing."""


def train(folder: Path) -> None:
    import torch

    from xcal import TrainingConfig, fit_path
    from xcal._files import write_whole
    from xcal.data import SurvivalData
    from xcal.distributions import family
    from xcal.networks import MLP

    made = torch.Generator().manual_seed(0)
    x = torch.randn(600, 4, generator=made)
    rows = SurvivalData(x, time=torch.rand(600, generator=made) + 0.1, event=torch.rand(600, generator=made) < 0.7)
    config = TrainingConfig(epochs=20, batch_size=50, checkpoint_every=1)
    network = lambda: MLP(4, 2, hidden=(16,), dropout=0.3)  # noqa: E731
    found = fit_path(
        network, family("lognormal"), rows, rows, lambdas=(0.0, 10.0), seeds=(0, 1), config=config, checkpoint=folder
    )
    weights = [found.network(k).state_dict() for k in range(found.n_models)]
    content = [value.numpy().tobytes() for state in weights for _, value in sorted(state.items())]
    write_whole(folder / "result", digest(*content, found.history.total.tobytes()).encode())


def epochs_done(folder: Path) -> int:
    from xcal.training.checkpoint import read_tensors

    path = folder / "path.ckpt"
    return int(read_tensors(path)["run.epoch"][0]) if path.exists() else 0


def write_spec(folder: Path) -> None:
    (folder / "small.toml").write_text(SPEC.format(lambdas=[0, 10], seeds=[0, 1], n=600, epochs=3))


def reproduce(folder: Path) -> None:
    from xcal.experiments import reproduce as run

    run(folder / "small.toml", results=folder, device="cpu", progress=False)


def records(folder: Path) -> int:
    from xcal.experiments import RecordFile

    path = folder / "small" / "as-published.paper.jsonl"
    found, corrupt = RecordFile(path).read()
    lines = len(path.read_bytes().splitlines()) if path.exists() else 0
    if corrupt or lines != len(found):
        raise ValueError("a record is damaged, or there twice")
    return lines


def search(folder: Path) -> None:
    import numpy as np

    from xcal import Surv, SurvivalPath, tune

    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = Surv(time=rng.exponential(np.exp(X[:, 0])), event=np.ones(150, dtype=bool))
    path = SurvivalPath(lambdas=(0, 10), seeds=1, epochs=2, cross_fit=0)
    tune(path, {"dropout": [0.0, 0.2, 0.4]}, X, y, n_trials=4, folds=2, batch=2, records=folder / "trials.jsonl")


def trials(folder: Path) -> int:
    path = folder / "trials.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if len({line["number"] for line in lines}) != len(lines):
        raise ValueError("a trial is there twice")
    return len(lines)


def command(*arguments: object) -> None:
    import warnings

    from xcal.cli.app import app

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        app([str(argument) for argument in arguments], standalone_mode=False)


def write_patients(folder: Path) -> None:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    age = rng.normal(60, 10, 240).round()
    time_, leaves = rng.exponential(np.exp(-(age - 60) / 20)) * 30, rng.uniform(5, 60, 240)
    frame = pd.DataFrame({"age": age, "months": np.minimum(time_, leaves), "died": (time_ <= leaves).astype(int)})
    frame.to_csv(folder / "patients.csv", index=False)
    fit_with_seed(folder, 1)


def fit_with_seed(folder: Path, seed: int) -> None:
    small = ("--lambdas", "0,10", "--seeds", 1, "--epochs", 3, "--resamples", 0, "--seed", seed)
    file, out = folder / "patients.csv", folder / "run"
    command("fit", file, "--time", "months", "--event", "died", *small, "--overwrite", "--out", out)


def a_whole_run(folder: Path) -> int:
    """Return the seed of the run in the folder, all of whose files must be its own."""
    from xcal.cli.workflow.run_folder import FILES, read_run, read_summary

    model, settings = read_run(folder / "run")
    chosen = read_summary(folder / "run")["chosen"]
    if chosen["lambda"] != model.xcal_lambda or not all((folder / "run" / name).is_file() for name in FILES):
        raise ValueError("files of two runs")
    return 1 - settings.seed


def files_of_run(folder: Path) -> str:
    from xcal.cli.workflow.run_folder import FILES

    # The run knows where its file is, and that is another folder each time.
    here = str(folder.resolve()).encode()
    return digest(*((folder / "run" / name).read_bytes().replace(here, b"") for name in FILES))


def evaluate(folder: Path) -> None:
    from xcal._files import write_whole

    reading, writing = os.pipe()
    kept = os.dup(1)
    os.dup2(writing, 1)
    command("evaluate", folder / "run", folder / "patients.csv", "--resamples", 0)
    sys.stdout.flush()
    os.dup2(kept, 1)
    os.close(writing)
    write_whole(folder / "printed", os.read(reading, 1 << 16))


VICTIMS = (
    Victim("fit_path", nothing, train, epochs_done, lambda f: (f / "result").read_text()),
    Victim(
        "reproduce",
        write_spec,
        reproduce,
        records,
        lambda f: without_times(f / "small" / "as-published.paper.jsonl"),
    ),
    Victim("tune", nothing, search, trials, lambda f: without_times(f / "trials.jsonl")),
    Victim("fit", write_patients, lambda f: fit_with_seed(f, 0), a_whole_run, files_of_run),
    Victim("evaluate", write_patients, evaluate, lambda f: a_whole_run(f) + 0, lambda f: (f / "printed").read_text()),
)


# --- killing ---------------------------------------------------------------------------------------------------------


def forked(work: Callable[[], object]) -> int:
    """Start the work in a child process that prints nothing but its errors."""
    child = os.fork()
    if child:
        return child
    shown, silence = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        work()
    except BaseException:
        os.dup2(shown, 2)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def strike(victim: Victim, kills: int, rng: random.Random, root: Path) -> Count:
    """Kill a command so often, and compare what it makes with that of one that nobody killed."""
    reference = Path(tempfile.mkdtemp(dir=root))
    os.waitpid(forked(lambda: victim.prepare(reference)), 0)
    start = time.monotonic()
    _, status = os.waitpid(forked(lambda: victim.run(reference)), 0)
    if status:
        raise RuntimeError(f"{victim.name}: the run that nobody kills fails")
    duration, expected = time.monotonic() - start, victim.essence(reference)
    dealt = ends = unreadable = lost = different = before = 0
    folder: Path | None = None
    while dealt < kills or folder is not None:
        if folder is None:
            folder, before = Path(tempfile.mkdtemp(dir=root)), 0
            os.waitpid(forked(lambda where=folder: victim.prepare(where)), 0)
        child = forked(lambda where=folder: victim.run(where))
        if dealt < kills:
            time.sleep(rng.uniform(0.0, duration))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            dealt += 1
            try:
                after = victim.finished(folder)
            except Exception as error:
                print(f"{victim.name}: {error!r}")
                unreadable, after = unreadable + 1, before
            lost, before = lost + (after < before), after
            continue
        ends += 1
        different += bool(status) or victim.essence(folder) != expected
        folder = None
    return Count(victim.name, dealt, ends, unreadable, lost, different)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each command (100 for the claim)")
    parser.add_argument("--only", default="", help="these commands, with commas: fit_path,reproduce,tune,fit,evaluate")
    parser.add_argument("--seed", type=int, default=0)
    options, _ = parser.parse_known_args()
    import xcal.cli.app
    import xcal.cli.workflow.fit_run
    import xcal.experiments
    import xcal.tuning  # noqa: F401  # so that no child spends its time on imports

    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'command':<12} {'kills':>6} {'ends':>5} {'unreadable':>11} {'lost':>5} {'different':>10}")
        wanted = options.only.split(",") if options.only else [victim.name for victim in VICTIMS]
        for victim in (victim for victim in VICTIMS if victim.name in wanted):
            found = strike(victim, options.kills, rng, Path(folder))
            print(
                f"{found.name:<12} {found.kills:>6} {found.ends:>5} {found.unreadable:>11} {found.lost:>5} "
                f"{found.different:>10}",
                flush=True,
            )


if __name__ == "__main__":
    main()
