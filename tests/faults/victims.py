"""What `tests.faults.kills` kills: commands, how much of their work is finished, and what they make in the end."""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.small_table import small_table


@dataclass(frozen=True)
class Victim:
    """A command: what it does in a folder, and how many pieces of its work are finished there.

    `finished` raises an error if anything cannot be read. `essence` is everything that the command has made, without
    times of day. `arguments` are those of ``xcal`` in a shell, for what is a command.
    """

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], None]
    finished: Callable[[Path], int]
    essence: Callable[[Path], str]
    arguments: Callable[[Path], list[object]] | None = None


def digest(*contents: bytes) -> str:
    """Return one hash of several contents."""
    seen = hashlib.sha256()
    for content in contents:
        seen.update(hashlib.sha256(content).digest())
    return seen.hexdigest()


def without_times(path: Path) -> str:
    """Return the records of a file, without what the clock decides."""
    clock = ("written", "group_seconds", "seconds", "check")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return json.dumps([{k: v for k, v in line.items() if k not in clock} for line in lines])


def nothing(folder: Path) -> None:
    """Prepare nothing."""


# --- fit_path --------------------------------------------------------------------------------------------------------


def train(folder: Path) -> None:
    """Train a path with a checkpoint after every epoch, and write a hash of all weights."""
    import torch

    from xcal import TrainingConfig, fit_path
    from xcal._files import write_whole
    from xcal.data import SurvivalData
    from xcal.distributions import family
    from xcal.networks import MLP

    made = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=made)
    rows = SurvivalData(x, time=torch.rand(300, generator=made) + 0.1, event=torch.rand(300, generator=made) < 0.7)
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


# --- reproduce and tune ----------------------------------------------------------------------------------------------


def reproduction(folder: Path) -> list[object]:
    return ["reproduce", folder / "small.toml", "--results", folder, "--device", "cpu"]


def records(folder: Path) -> int:
    from xcal_paper import RecordFile

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


# --- fit, evaluate ---------------------------------------------------------------------------------------------------


def command(arguments: list[object]) -> None:
    """Run ``xcal`` with these arguments in this process."""
    import warnings

    from xcal.cli.app import app

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        app([str(argument) for argument in arguments], standalone_mode=False)


def write_patients(folder: Path) -> None:
    """Write a table, and a run of another seed that the new one is to replace."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    age = rng.normal(60, 10, 240).round()
    time, leaves = rng.exponential(np.exp(-(age - 60) / 20)) * 30, rng.uniform(5, 60, 240)
    frame = pd.DataFrame({"age": age, "months": np.minimum(time, leaves), "died": (time <= leaves).astype(int)})
    frame.to_csv(folder / "patients.csv", index=False)
    command(fit(folder, seed=1))


def fit(folder: Path, *, seed: int = 0) -> list[object]:
    small = ("--lambdas", "0,10", "--seeds", 1, "--epochs", 3, "--resamples", 0, "--seed", seed)
    columns = ("--time", "months", "--event", "died")
    return ["fit", folder / "patients.csv", *columns, *small, "--overwrite", "--out", folder / "run"]


def a_whole_run(folder: Path) -> int:
    """Return 1 for the new run, 0 for the earlier one; all files of the folder must be of the same run."""
    from xcal.cli.run_folder import FILES, read_run, read_summary

    model, settings = read_run(folder / "run")
    chosen = read_summary(folder / "run")["chosen"]
    if chosen["lambda"] != model.xcal_lambda or not all((folder / "run" / name).is_file() for name in FILES):
        raise ValueError("files of two runs")
    return 1 - settings.seed


def files_of_run(folder: Path) -> str:
    from xcal.cli.run_folder import FILES

    # The run knows where its file is, and that is another folder each time.
    here = str(folder.resolve()).encode()
    return digest(*((folder / "run" / name).read_bytes().replace(here, b"") for name in FILES))


def evaluation(folder: Path) -> list[object]:
    return ["evaluate", folder / "run", folder / "patients.csv", "--resamples", 0]


def evaluate(folder: Path) -> None:
    """Keep what the command prints."""
    from xcal._files import write_whole

    reading, writing = os.pipe()
    kept = os.dup(1)
    os.dup2(writing, 1)
    command(evaluation(folder))
    sys.stdout.flush()
    os.dup2(kept, 1)
    os.close(writing)
    write_whole(folder / "printed", os.read(reading, 1 << 16))


# --- evaluate FOLDER -------------------------------------------------------------------------------------------------

PIECES = 12


def write_predictions(folder: Path) -> None:
    """Write files of predictions."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    (folder / "predictions").mkdir()
    for number in range(PIECES):
        risk = rng.random(2000)
        time, leaves = rng.exponential(1 / (0.5 + risk)), rng.uniform(0.2, 3, 2000)
        own = np.minimum(time, leaves)
        frame = pd.DataFrame({"time": own, "event": time <= leaves, "risk": risk, "cdf": -np.expm1(-own)})
        frame = frame.assign(S_1=np.exp(-(0.5 + risk)), S_2=np.exp(-2 * (0.5 + risk)))
        frame.to_parquet(folder / "predictions" / f"part-{number}.parquet")


def folder_evaluation(folder: Path) -> list[object]:
    return ["evaluate", folder / "predictions", "--out", folder / "metrics.json"]


def evaluate_folder(folder: Path) -> None:
    """Evaluate a file at a time in three passes, and keep what is finished after each: as for millions of rows."""
    from xcal.outofcore import EvaluationSettings, evaluation
    from xcal.outofcore import evaluate_folder as run

    evaluation.PIECE_ROWS = 1
    settings = EvaluationSettings(exact_rows=1000, ici_bound=True, checkpoint_seconds=0, progress=False)
    run(folder / "predictions", folder / "metrics.json", settings)


def pieces_done(folder: Path) -> int:
    """Count pieces of all passes; the metrics themselves are one more."""
    import numpy as np

    if (folder / "metrics.json").exists():
        json.loads((folder / "metrics.json").read_text())
        return 3 * PIECES + 1
    path = folder / "metrics.json.resume"
    if not path.exists():
        return 0
    with np.load(path, allow_pickle=False) as stored:
        for name in stored.files:
            stored[name]
        return sum(map(len, json.loads(str(stored["header"]))["finished"]))


VICTIMS = (
    Victim("fit_path", nothing, train, epochs_done, lambda f: (f / "result").read_text()),
    Victim(
        "reproduce",
        lambda f: (f / "small.toml").write_text(small_table(job="run")) and None,
        lambda f: command(reproduction(f)),
        records,
        lambda f: without_times(f / "small" / "as-published.paper.jsonl"),
        reproduction,
    ),
    Victim("tune", nothing, search, trials, lambda f: without_times(f / "trials.jsonl")),
    Victim("fit", write_patients, lambda f: command(fit(f)), a_whole_run, files_of_run, fit),
    Victim(
        "evaluate",
        write_patients,
        evaluate,
        a_whole_run,
        lambda f: (f / "printed").read_text() + files_of_run(f),
        evaluation,
    ),
    Victim(
        "evaluate FOLDER",
        write_predictions,
        evaluate_folder,
        pieces_done,
        lambda f: (f / "metrics.json").read_text(),
        folder_evaluation,
    ),
)
