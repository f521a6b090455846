"""Full disks, folders in the way, two processes on one folder, Ctrl-C and kills: one error, and earlier state intact.

The table of faults in docs/large-data.md names these tests. `python -m tests.faults.kills` is the large form.
"""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from tests.small_table import small_table
from xcal import Surv, SurvivalModel, TrainingConfig, audit, fit_path, load
from xcal._files import BusyError, sole_user
from xcal.cli.app import app
from xcal.cli.run_folder import FILES, new_run, read_run, settle
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.networks import Linear
from xcal_paper import RecordFile, reproduce

ROOT = Path(__file__).parents[1]


def rows(n=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, Surv(time=rng.exponential(np.exp(X[:, 0])), event=np.ones(n, dtype=bool))


@pytest.fixture(scope="module")
def model():
    return SurvivalModel(epochs=1, hidden=(4,)).fit(*rows())


@pytest.fixture(scope="module")
def audited():
    _, y = rows(60)
    curves = np.exp(-np.array([0.5, 1.0]) * np.linspace(0.5, 2, 60)[:, None])
    return audit(y=y, survival=curves, times=[0.5, 1.0], horizons=[1.0], n_bootstrap=0, progress=False)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 kB; where nothing can be mounted the test is skipped, and the limit of a file's size is tested."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("needs the right to mount a disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place):
    """Use up a disk, but for the names of files."""
    with (place / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_leaves_the_old_model_and_the_old_report(model, audited, small_disk):
    model.save(small_disk / "model")
    before = (small_disk / "model").read_bytes()
    fill(small_disk)
    for write in (model.save, audited.report, audited.to_json):
        with pytest.raises(OSError, match=r"model: expected a file that can be written, got: No space left on device"):
            write(small_disk / "model")
        assert (small_disk / "model").read_bytes() == before
    assert names(small_disk) == ["filling", "model"]
    assert np.array_equal(load(small_disk / "model").predict(rows()[0]), model.predict(rows()[0]))


def test_a_read_only_disk_is_said_before_any_training(small_disk, small):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError, match=r"results: expected a folder that can be written, got .*: Read-only file system"):
        reproduce(small, results=small_disk, device="cpu")
    with pytest.raises(OSError, match=r"checkpoint: expected a folder that can be written, got .*: Read-only"):
        train(small_disk)
    done = CliRunner().invoke(
        app, ["audit", "x.csv", "--time", "t", "--event", "e", "--cdf", "c", "--out", f"{small_disk}/a.html"]
    )
    assert isinstance(done.exception, OSError)
    assert "Read-only file system" in str(done.exception)


LIMITED = """
import resource, signal, sys
from pathlib import Path
from xcal_paper import Record, RecordFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # what Python does by itself
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
file = RecordFile(Path(sys.argv[1]) / "records.jsonl")
record = lambda seed: Record("t", "v", "p", "m", 0.0, seed, "h", "d", 1, 0, {"nll": 1.0}, {})
written = 0
try:
    for seed in range(100):
        file.add([record(seed)])
        written += 1
except OSError as error:
    print(error)
found, corrupt = file.read()
print(written, len(found), len(corrupt))
"""


def test_a_file_that_may_not_grow_keeps_all_records_that_were_written(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    message, counts = done.stdout.splitlines()
    assert re.fullmatch(
        r"results: expected a folder that can be written, .*: File too large \(earlier records are .*\)", message
    )
    written, found, corrupt = map(int, counts.split())
    assert written == found > 0
    assert corrupt == 0


@pytest.mark.parametrize("write", ["model", "report", "json"])
def test_a_folder_in_the_place_of_an_output(model, audited, tmp_path, write):
    call = {"model": model.save, "report": audited.report, "json": audited.to_json}[write]
    with pytest.raises(IsADirectoryError, match="expected the name of a file to write, got a folder"):
        call(tmp_path)
    assert names(tmp_path) == []


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(small_table())
    return path


def train(folder):
    x = torch.linspace(-1, 1, 40).unsqueeze(1)
    data = SurvivalData(x, time=torch.exp(x[:, 0]), event=torch.ones(40))
    config = TrainingConfig(epochs=2, batch_size=20)
    return fit_path(lambda: Linear(1, 2), family("lognormal"), data, data, config=config, checkpoint=folder)


def test_two_trainings_in_one_folder(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with sole_user("checkpoint", folder):
        with pytest.raises(
            BusyError, match=f"checkpoint: expected .*checkpoints to be free, got one that process {os.getpid()}"
        ):
            train(folder)
        assert names(folder) == [".user.lock"]
    assert train(folder).history.epochs == 2
    assert names(folder) == ["path.ckpt"]


def test_two_sweeps_share_the_jobs_of_a_table(tmp_path, small, monkeypatch):
    from xcal_paper import jobs as job_records
    from xcal_paper import records as claims

    options = {"results": tmp_path / "results", "device": "cpu", "seeds": [0]}
    fit, left = job_records.fit_path, []

    def meanwhile(*given, **rest):
        """While a job is trained here another process comes along, and does all the others."""
        if not left:
            left.append(None)
            left.append(reproduce(small, **options))
        return fit(*given, **rest)

    monkeypatch.setattr(job_records, "fit_path", meanwhile)
    first = reproduce(small, **options)
    second = left[1]
    assert (second.trained, second.missing, len(second.elsewhere)) == (4, 2, 1)
    assert re.match(rf"job of lognormal-nll: expected .* got one that process {os.getpid()} on", second.elsewhere[0])
    assert (first.trained, first.kept, first.missing, first.elsewhere) == (2, 4, 0, ())
    assert len(RecordFile(first.path).read()[0]) == len(first.path.read_text().splitlines()) == 6
    assert not list(first.path.parent.glob("*.user.lock"))
    assert claims.Claims({"lognormal-nll": RecordFile(first.path)}, lambda record: True).finished()


def test_a_run_folder_belongs_to_one_fit(tmp_path):
    (tmp_path / "run").mkdir()
    frame = pd.DataFrame({"age": np.arange(60.0), "t": np.arange(60) + 1.0, "e": 1})
    frame.to_csv(tmp_path / "patients.csv", index=False)
    arguments = ["fit", str(tmp_path / "patients.csv"), "--time", "t", "--event", "e", "--out", str(tmp_path / "run")]
    with sole_user("--out", tmp_path / "run"):
        done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, BusyError)
    assert "--out: expected" in str(done.exception)
    assert names(tmp_path / "run") == []


def fake_run(folder, text):
    for name in FILES:
        (folder / name).write_text(text)


@pytest.mark.parametrize("moved", range(len(FILES) + 1))
def test_a_run_that_was_killed_on_its_way_into_the_folder_arrives_whole(tmp_path, moved, monkeypatch):
    fake_run(tmp_path, "old")
    done, replace = [], os.replace

    def replace_until_killed(source, target):
        if len(done) > moved:
            raise SystemError("killed")
        done.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_until_killed)
    try:
        with new_run(tmp_path) as part:
            fake_run(part, "new")
    except SystemError:
        pass
    monkeypatch.undo()
    settle(tmp_path)
    assert {(tmp_path / name).read_text() for name in FILES} == {"new"}
    assert names(tmp_path) == sorted(FILES)


def test_what_a_killed_fit_left_is_cleared_away_by_the_next(tmp_path):
    fake_run(tmp_path, "old")
    (tmp_path / ".part-left").mkdir()
    fake_run(tmp_path / ".part-left", "half")

    def interrupted():
        with new_run(tmp_path) as part:
            fake_run(part, "half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert {(tmp_path / name).read_text() for name in FILES} == {"old"}
    assert names(tmp_path) == sorted(FILES)
    with pytest.raises(FileNotFoundError, match="expected the folder of a run"):
        read_run(tmp_path / "nothing")


@pytest.mark.parametrize("moment", ["xcal.cli.table_file.read_table_file", "xcal.show.page.render_page", "os.fsync"])
def test_ctrl_c_during_an_audit_leaves_nothing(tmp_path, monkeypatch, moment):
    _, y = rows(60)
    frame = pd.DataFrame({"t": y["time"], "e": 1, "c": np.linspace(0.1, 0.9, 60)})
    frame.to_csv(tmp_path / "p.csv", index=False)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupt)
    out = ["--out", str(tmp_path / "a.html"), "--resamples", "0"]
    done = CliRunner().invoke(
        app, ["audit", str(tmp_path / "p.csv"), "--time", "t", "--event", "e", "--cdf", "c", *out]
    )
    assert done.exit_code != 0
    assert names(tmp_path) == ["p.csv"]


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="needs fork and /proc")
def test_kills_at_random_moments():
    command = [sys.executable, "-m", "tests.faults.kills", "--kills", "2", "--only", "fit_path,reproduce"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [line[0] for line in table] == ["fit_path", "reproduce"]
    for _, kills, ends, unreadable, lost, different in table:
        assert int(kills) == 2
        assert int(ends) >= 1
        assert (unreadable, lost, different) == ("0", "0", "0")
