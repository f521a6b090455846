"""`fit_path` on several processes: the result of one process, checkpoints between them, and what can go wrong."""

import os
import re
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from tests.processes import together
from tests.training.simulate import N_INPUTS, simulated_rows, small_mlp
from xcal.calibration import KernelFeatures, SoftBins
from xcal.data import SurvivalData, map_parquet
from xcal.distributions import family
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path, loop

DOUBLE = torch.float64
CONFIG = TrainingConfig(epochs=4, batch_size=64, learning_rate=0.01)


def dropping_mlp():
    return MLP(N_INPUTS, 2, hidden=(16, 8), dropout=0.4)


class Normalised(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(N_INPUTS, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def weighted(rows, seed):
    weights = np.random.default_rng(seed).uniform(0.0, 3.0, rows.n)
    weights[::9] = 0.0
    return SurvivalData(rows.x, rows.time, rows.event, weights)


def rows_to_fit():
    # 203 rows in 4 batches of 50: no process has the same number of rows in every batch.
    return simulated_rows(203, 1, DOUBLE), simulated_rows(101, 2, DOUBLE)


# Keyword arguments of `fit_path`, with "network" and "weighted" besides.
CASES = {
    "stacked": {"lambdas": (0.0, 5.0, 50.0), "seeds": (0, 1)},
    "sequential": {"lambdas": (0.0, 5.0), "mode": "sequential"},
    "one model": {"lambdas": (10.0,)},
    "weights": {"lambdas": (0.0, 5.0), "weighted": True},
    "paper": {"lambdas": (5.0, 50.0), "penalty": SoftBins("product", censored="soft")},
    "unbiased": {"lambdas": (5.0, 50.0), "penalty": SoftBins(estimator="unbiased"), "weighted": True},
    "conditional": {"lambdas": (5.0,), "seeds": (0, 1), "conditional": KernelFeatures(n_features=12)},
    "target": {"target_dcal": 0.01, "seeds": (0, 1)},
    "dropout": {"lambdas": (0.0, 5.0), "seeds": (0, 1), "network": dropping_mlp},
    "dropout, one model": {"lambdas": (5.0,), "network": dropping_mlp},
    "schedules": {
        "lambdas": (5.0, 50.0),
        "penalty": SoftBins(temperature=0.1),
        "config": TrainingConfig(
            epochs=4, batch_size=64, first_temperature=2.0, clip_norm=0.5, schedule="cosine", optimizer="adamw",
            weight_decay=0.1, patience=2, learning_rate=0.02,
        ),
    },
}  # fmt: skip


def fitted(train, validation, network=small_mlp, weighted=False, **options):
    if weighted:
        train, validation = (globals()["weighted"](rows, 3) for rows in (train, validation))
    config = options.pop("config", CONFIG)
    return fit_path(network, family("lognormal"), train, validation, config=config, progress=False, **options)


def summary(path):
    """Everything of a result that a test compares."""
    history = path.history
    weights = [torch.cat([p.detach().reshape(-1) for p in path.network(k).parameters()]) for k in range(path.n_models)]
    return {
        "weights": torch.stack(weights).numpy(),
        "objective": history.objective,
        "dcal": history.dcal,
        "total": history.total,
        "lambdas": path.lambdas,
        "best_epoch": path.best_epoch,
        "mode": path.mode,
    }


def assert_same(found, expected, name=""):
    assert found["mode"] == expected["mode"]
    np.testing.assert_array_equal(found["best_epoch"], expected["best_epoch"], err_msg=name)
    for what in ("weights", "objective", "dcal", "total", "lambdas"):
        # Sums over rows are taken in another order; twenty steps of them in double precision.
        np.testing.assert_allclose(found[what], expected[what], rtol=1e-9, atol=1e-9, err_msg=f"{name}, {what}")


# Two processes train every case, four these.
ON_FOUR = ("stacked", "weights", "unbiased", "dropout")


def fit_all(rank, size):
    names = CASES if size == 2 else ON_FOUR
    return {name: summary(fitted(*rows_to_fit(), **CASES[name], distributed="auto")) for name in names}


@pytest.fixture(scope="module")
def alone():
    return {name: summary(fitted(*rows_to_fit(), **case)) for name, case in CASES.items()}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.ci
def test_every_kind_of_path_is_that_of_one_process(alone, size):
    answers = together(size, fit_all)
    assert len(answers[0]) == (len(CASES) if size == 2 else len(ON_FOUR))
    for name in answers[0]:
        assert_same(answers[0][name], alone[name], name)
        for answer in answers[1:]:
            for what, values in answer[name].items():
                assert np.array_equal(values, answers[0][name][what], equal_nan=what != "mode"), (name, what)


def fit_parts(rank, size, folder):
    """Rows in a file, rows of one's own, and more rows on one process than on the other."""
    found = {}
    train, validation = rows_to_fit()
    np.save(folder / f"x{rank}.npy", train.x.numpy())
    mapped = np.load(folder / f"x{rank}.npy", mmap_mode="r")
    in_file = SurvivalData(mapped, train.time.numpy(), train.event.numpy())
    found["file"] = summary(fitted(in_file, validation, lambdas=(0.0, 5.0), seeds=(0, 1), distributed=True))
    for name, cuts in (("even", (100, 50)), ("ragged", (17, 90))):
        own = slice(0, cuts[0]) if rank == 0 else slice(cuts[0], None)
        held = slice(0, cuts[1]) if rank == 0 else slice(cuts[1], None)
        parts = weighted(train, 3)[own], weighted(validation, 3)[held]
        found[name] = summary(
            fitted(*parts, lambdas=(0.0, 5.0), distributed="shards", checkpoint=folder / "shards", config=CONFIG)
        )
    return found


@pytest.mark.ci
def test_rows_in_a_file_and_rows_of_each_process(alone, tmp_path):
    answers = together(2, fit_parts, tmp_path)
    expected = summary(fitted(*rows_to_fit(), lambdas=(0.0, 5.0), seeds=(0, 1)))
    for answer in answers:
        assert_same(answer["file"], expected)
        assert_same(answer["even"], alone["weights"])
        # The same rows, otherwise divided: the finished run of before is found.
        assert_same(answer["ragged"], answer["even"])


def fit_some_epochs(rank, size, folder, epochs):
    """Train until the progress function of the first process stops the run."""
    seen = []

    def stop(report):
        seen.append(report.epoch)
        if report.epoch == epochs:
            raise RuntimeError("stopped")

    options = {"lambdas": (0.0, 5.0), "seeds": (0, 1), "network": dropping_mlp}
    config = TrainingConfig(epochs=4, batch_size=64, learning_rate=0.01, checkpoint_every=1)
    try:
        path = fit_path(
            options.pop("network"), family("lognormal"), *rows_to_fit(), **options, config=config, progress=stop,
            checkpoint=folder, distributed="auto",
        )  # fmt: skip
    except (RuntimeError, ConnectionError) as error:
        return f"{type(error).__name__}: {error}", seen
    return summary(path), seen


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
@pytest.mark.ci
def test_a_checkpoint_is_resumed_on_another_number_of_processes(alone, tmp_path, before, after):
    def run(size, epochs):
        if size > 1:
            return together(size, fit_some_epochs, tmp_path, epochs)
        return [fit_some_epochs(0, 1, tmp_path, epochs)]

    stopped = run(before, 2)
    assert stopped[0] == ("RuntimeError: stopped", [1, 2])
    assert [path.name for path in tmp_path.iterdir()] == ["path.ckpt"]
    for told, seen in stopped[1:]:
        # The first process left; the others say so instead of waiting.
        assert told.startswith("ConnectionError: process 1 of 2 lost the others")
        assert seen == []
    resumed = run(after, 99)
    for rank, (found, seen) in enumerate(resumed):
        assert_same(found, alone["dropout"], f"{before} to {after}")
        assert seen == ([3, 4] if rank == 0 else [])


def refused(rank, size, folder):
    train, validation = rows_to_fit()
    calls = {
        "lambdas": lambda: fitted(train, validation, lambdas=(1.0 + rank,), distributed=True),
        "rows": lambda: fitted(train[: 200 + rank], validation, distributed=True),
        "norm": lambda: fitted(train, validation, network=Normalised, distributed=True),
        "few": lambda: fitted(train, validation[np.flatnonzero(validation.event.numpy())[:1]], distributed=True),
        "word": lambda: fitted(train, validation, distributed="yes"),
        "features": lambda: fitted(train, validation, conditional=KernelFeatures(), distributed="shards"),
        "empty": lambda: fitted(weighted(train, 0).replaced(weights=torch.full((203,), float(rank))), validation,
                                distributed="shards"),
        "folder": lambda: fitted(train, validation, distributed=True, checkpoint=folder / "file" / "below"),
        "other run": lambda: fitted(train, validation, lambdas=(3.0,), distributed=True, checkpoint=folder / "run"),
    }  # fmt: skip
    fitted(train, validation, lambdas=(2.0,), distributed=True, checkpoint=folder / "run")
    told = {}
    for name, call in calls.items():
        with pytest.raises((ValueError, OSError)) as error:
            call()
        told[name] = str(error.value)
    return told


@pytest.mark.ci
def test_what_cannot_be_trained_together_is_refused_on_every_process(tmp_path):
    (tmp_path / "file").touch()
    first, second = together(2, refused, tmp_path)
    assert first == second
    assert first["lambdas"].endswith("the same arguments on every process, got another seeds or lambdas on some")
    assert first["rows"].endswith("got another number of rows on some")
    assert "make_network: expected a network that treats each row on its own" in first["norm"]
    assert first["few"] == "validation: expected at least one row for each of 2 processes, got 1 rows"
    assert first["word"] == 'distributed: expected None, True, False, "auto" or "shards", got \'yes\''
    assert first["features"].startswith("conditional: expected None")
    assert (
        first["empty"] == "train: expected at least one row of positive weight on every process, got none on process 0"
    )
    assert first["folder"].startswith("checkpoint: expected a folder that can be written")
    assert first["other run"].endswith("made with another lambdas")


def test_alone_auto_is_alone_and_true_is_an_error(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    rows = rows_to_fit()
    assert fitted(*rows, lambdas=(1.0,), distributed="auto").n_models == 1
    with pytest.raises(ValueError, match=re.escape("distributed: expected processes started by torchrun")):
        fitted(*rows, distributed=True)


def killed(rank, size):
    """The last process is killed after its second epoch; what the others say."""
    if rank == size - 1:
        epoch, seen = loop._Run.epoch, []

        def once_more(run):
            epoch(run)
            seen.append(run)
            if len(seen) == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        loop._Run.epoch = once_more
    with pytest.raises(ConnectionError) as error:
        fitted(*rows_to_fit(), lambdas=(1.0,), distributed=True)
    return str(error.value)


@pytest.mark.ci
def test_a_killed_process_ends_the_others_with_one_sentence():
    *told, nothing = together(3, killed, dies=2)
    assert nothing is None
    for rank, sentence in enumerate(told):
        assert sentence == (
            f"process {rank} of 3 lost the others: one of them ended, or did not answer in time. Look for the first "
            "error of the run; with a checkpoint, run the same command again to resume"
        )


def fit_row_groups(rank, size, folder):
    columns = {"time": "time", "event": "event"}
    train, validation = (
        map_parquet(folder / f"{name}.parquet", **columns, into=folder / f"{name}{rank}.npy", part=(rank, size))
        for name in ("train", "validation")
    )
    path = fitted(train, validation, lambdas=(0.0, 5.0), distributed="shards")
    return train.n, validation.n, summary(path)


@pytest.mark.ci
def test_every_process_reads_its_row_groups_of_a_parquet_file(tmp_path):
    whole = []
    for name, rows, size in zip(("train", "validation"), rows_to_fit(), (30, 101 // 3), strict=True):
        features = {f"x{k}": rows.x[:, k].numpy() for k in range(N_INPUTS)}
        table = pa.table({**features, "time": rows.time.numpy(), "event": rows.event.numpy()})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=size)
        into = tmp_path / f"{name}.npy"
        whole.append(map_parquet(tmp_path / f"{name}.parquet", time="time", event="event", into=into))
    expected = summary(fitted(*whole, lambdas=(0.0, 5.0)))
    answers = together(2, fit_row_groups, tmp_path)
    assert [answer[:2] for answer in answers] == [(90, 66), (113, 35)]
    for *_, found in answers:
        for what in ("objective", "dcal", "weights"):
            # Features of a parquet file are single precision.
            np.testing.assert_allclose(found[what], expected[what], rtol=1e-3, atol=1e-4)
