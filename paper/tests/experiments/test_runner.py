"""Running a table: only what is missing, to the same bits whatever happened on the way."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from tests.small_table import small_table

from xcal_paper import RecordFile, compare, load_spec, reproduce
from xcal_paper.records import Job, unfinished_jobs
from xcal_paper.report import as_json, markdown

# Runs a table on the CPU and dies, as by a power cut: before or after the records of a job get their place, or while
# a job is trained.
SCRIPT = """
import os, signal, sys
from xcal_paper import reproduce, runner as progress_bar

path, results, when = sys.argv[1:]
written = 0
replace, epoch = os.replace, progress_bar.ProgressBar.epoch

def die_if(moment):
    if moment == when:
        os.kill(os.getpid(), signal.SIGKILL)

def replace_and_die(*arguments):
    global written
    written += 1
    die_if(f"before {written}")
    replace(*arguments)
    die_if(f"after {written}")

def train_and_die(bar, report):
    die_if(f"during {bar.number}")
    epoch(bar, report)

os.replace, progress_bar.ProgressBar.epoch = replace_and_die, train_and_die
reproduce(path, results=results, device="cpu")
"""


def metrics(path):
    """Metrics of every record of a file, by key."""
    records, corrupt = RecordFile(path).read()
    assert not corrupt
    return {key: (r.metrics, r.validation, r.recalibrated, r.best_epoch) for key, r in records.items()}


def run_and_die(path, results, kill):
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(results), kill], env=environment, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The file of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "small.toml").write_text(small_table())
    summary = reproduce(folder / "small.toml", results=folder, device="cpu")
    assert (summary.trained, summary.kept, summary.missing) == (12, 0, 0)
    return summary.path


@pytest.fixture
def whole(uninterrupted):
    """Metrics of an uninterrupted run."""
    return metrics(uninterrupted)


@pytest.mark.parametrize(
    ("kill", "kept"),
    [
        pytest.param("after 1", 4, marks=pytest.mark.ci),
        pytest.param("before 2", 4, marks=pytest.mark.ci),
        ("during 2", 4),
    ],
)
def test_a_killed_run_loses_the_job_in_flight_and_ends_up_the_same(small, tmp_path, whole, kill, kept):
    path = small()
    run_and_die(path, tmp_path / "cut", kill)
    summary = reproduce(path, results=tmp_path / "cut", device="cpu")
    assert (summary.trained, summary.kept, summary.missing, summary.corrupt) == (12 - kept, kept, 0, ())
    assert metrics(summary.path) == whole


def test_a_second_run_does_nothing(small, uninterrupted):
    before = uninterrupted.read_bytes()
    summary = reproduce(small(), results=uninterrupted.parents[1], device="cpu")
    assert (summary.trained, summary.kept) == (0, 12)
    assert summary.path.read_bytes() == before


def test_a_corrupt_record_is_reported_and_done_again(small, tmp_path, uninterrupted, whole):
    path = small()
    file = tmp_path / "whole" / "small" / uninterrupted.name
    file.parent.mkdir(parents=True)
    lines = uninterrupted.read_text().splitlines()
    lines[5] = lines[5].replace('"seed": ', '"seed": 1')
    file.write_text("\n".join(lines) + "\n")
    summary = reproduce(path, results=tmp_path / "whole", device="cpu")
    assert (summary.trained, summary.kept, summary.trained_beside) == (1, 11, 3)
    assert [corrupt.line for corrupt in summary.corrupt] == [6]
    # It was trained beside the same runs as before, so it is the record that was lost, to the last digit.
    assert metrics(file) == whole
    # The others are the lines that they were: a new date would be another one.
    healed = file.read_text().splitlines()
    old = uninterrupted.read_text().splitlines()
    assert [line for k, line in enumerate(healed) if k != 5] == [line for k, line in enumerate(old) if k != 5]


def test_every_lost_line_comes_back_as_it_was(tmp_path):
    """With epochs enough for the paper's penalty to make something of a last digit."""
    path = tmp_path / "small.toml"
    path.write_text(small_table(epochs=30))
    only = {"models": ["categorical-ni"], "device": "cpu"}
    whole = reproduce(path, results=tmp_path / "whole", **only).path
    lines = whole.read_bytes().splitlines(keepends=True)
    for lost in range(len(lines)):
        file = tmp_path / f"without-{lost}" / "small" / whole.name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"".join(line for k, line in enumerate(lines) if k != lost))
        reproduce(path, results=file.parents[1], **only)
        healed, before = RecordFile(file).read()[0], RecordFile(whole).read()[0]
        assert healed.keys() == before.keys()
        for key, record in healed.items():
            # Rows at another place in memory may round otherwise when they are measured. Trained alone, a run with
            # lambda = 10 is 5e-4 and more off.
            assert record.metrics == pytest.approx(before[key].metrics, rel=1e-5)


def test_a_record_names_the_runs_that_were_trained_beside_it(small, tmp_path):
    path = small()
    part = reproduce(path, results=tmp_path, device="cpu", models=["mtlr-i"], lambdas=[10], seeds=[1])
    first = part.path.read_text()
    reproduce(path, results=tmp_path, device="cpu", models=["mtlr-i"])
    records = RecordFile(part.path).read()[0].values()
    jobs = {(r.lam, r.seed): (r.job_lambdas, r.job_seeds) for r in records}
    assert jobs.pop((10.0, 1)) == ((10.0,), (1,))
    assert set(jobs.values()) == {((0.0, 10.0), (0, 1))}
    # The record that was there is the line that was there.
    assert first in part.path.read_text()
    assert compare(path, results=tmp_path).other_jobs == 1
    text = markdown(compare(path, results=tmp_path))
    assert "1 of 4 records were trained beside other runs than those of the table" in text
    assert json.loads(as_json(compare(path, results=tmp_path)))["other_groups"] == 1


def test_nothing_is_said_of_jobs_that_are_the_tables_own_or_not_known(small, tmp_path, uninterrupted):
    found = compare(small(), results=uninterrupted.parents[1])
    assert found.other_jobs == 0
    assert "trained beside other runs" not in markdown(found)
    # Records of before the job was kept.
    file = RecordFile(tmp_path / "small" / uninterrupted.name)
    old = [replace(r, job_lambdas=(), job_seeds=()) for r in RecordFile(uninterrupted).read()[0].values()]
    file.add(old)
    assert compare(small(), results=tmp_path).other_jobs == 0


def test_parts_of_a_table_add_up(small, tmp_path):
    path = small()
    first = reproduce(path, results=tmp_path, device="cpu", models=["mtlr-i"], lambdas=[10], seeds=[1])
    assert (first.trained, first.missing) == (1, 0)
    second = reproduce(path, results=tmp_path, device="cpu", models=["mtlr-i"])
    assert (second.trained, second.kept) == (3, 1)


def test_trials_variants_and_penalties_have_files_of_their_own(small, tmp_path):
    path = small()
    only = {"models": ["mtlr-i"], "seeds": [0], "results": tmp_path, "device": "cpu"}
    reproduce(path, **only)
    reproduce(path, **only, epochs=1)
    reproduce(path, **only, penalty="ours")
    reproduce(path, **only, penalty="annealed")
    reproduce(path, **only, variant="corrected")
    found = {str(file.relative_to(tmp_path / "small")) for file in (tmp_path / "small").rglob("*.jsonl")}
    assert found == {
        "as-published.paper.jsonl",
        "trial/as-published.paper.jsonl",
        "as-published.ours.jsonl",
        "as-published.annealed.jsonl",
        "corrected.ours.jsonl",
    }
    published = RecordFile(tmp_path / "small" / "as-published.paper.jsonl").read()[0].values()
    ours = RecordFile(tmp_path / "small" / "as-published.ours.jsonl").read()[0].values()
    annealed = RecordFile(tmp_path / "small" / "as-published.annealed.jsonl").read()[0].values()
    # Without a penalty its form does not matter; with one it does.
    by_lam = [{r.lam: r.metrics["nll"] for r in records} for records in (published, ours, annealed)]
    assert len({found[0.0] for found in by_lam}) == 1
    assert len({found[10.0] for found in by_lam}) == 3


def test_records_made_on_other_rows_are_replaced(small, tmp_path):
    path = small()
    only = {"models": ["mtlr-i"], "results": tmp_path, "device": "cpu"}
    reproduce(path, **only, seeds=[0])
    file = RecordFile(tmp_path / "small" / "as-published.paper.jsonl")
    records, _ = file.read()
    stale = [type(r)(**{**vars(r), "data_hash": "other"}) for r in records.values()]
    file.add(stale)
    summary = reproduce(path, **only)
    assert (summary.trained, summary.kept, summary.other_data) == (4, 0, 2)


def test_an_interruption_keeps_finished_jobs(small, tmp_path, monkeypatch):
    from xcal_paper import jobs as job_records

    path, train = small(), job_records.fit_path
    calls = []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    monkeypatch.setattr(job_records, "fit_path", interrupted)
    summary = reproduce(path, results=tmp_path, device="cpu")
    assert summary.interrupted
    assert (summary.trained, summary.missing) == (4, 8)
    again = reproduce(path, results=tmp_path, device="cpu")
    assert (again.trained, again.kept, again.interrupted) == (8, 4, False)


def test_a_path_that_was_cut_short_is_no_record(small, tmp_path, monkeypatch):
    from xcal_paper import jobs as job_records

    train = job_records.fit_path
    monkeypatch.setattr(job_records, "fit_path", lambda *a, **k: replace(train(*a, **k), interrupted=True))
    summary = reproduce(small(), results=tmp_path, device="cpu")
    assert (summary.interrupted, summary.trained, summary.missing) == (True, 0, 12)


def test_jobs_with_something_missing_are_trained_whole(small):
    spec = load_spec(small())
    model, other = spec.models[0], spec.models[2]
    whole = Job(model, (0.0, 10.0), (0, 1))
    for missing in ([(model, 0.0, 0)], [(model, 10.0, 1), (model, 0.0, 0)]):
        assert unfinished_jobs(spec, missing) == [whole]
    assert unfinished_jobs(spec, [(other, 10.0, 1), (model, 0.0, 0)]) == [whole, Job(other, (0.0, 10.0), (0, 1))]
    assert unfinished_jobs(spec, []) == []
    alone = load_spec(small(job="run"))
    model = alone.models[0]
    assert unfinished_jobs(alone, [(model, 0.0, 0), (model, 0.0, 1)]) == [
        Job(model, (0.0,), (0,)),
        Job(model, (0.0,), (1,)),
    ]
    # Seeds that have rows of their own cannot be trained together.
    each = load_spec(small(("seed = 0", "seed = 0\nper_seed = true")))
    model = each.models[0]
    assert unfinished_jobs(each, [(model, 0.0, 1)]) == [Job(model, (0.0, 10.0), (1,))]
    assert [job.seeds for job in unfinished_jobs(each, [(model, 0.0, 0), (model, 10.0, 1)])] == [(0,), (1,)]


def test_seeds_with_their_own_rows(small, tmp_path):
    path = small(("seed = 0", "seed = 5\nper_seed = true"))
    summary = reproduce(path, results=tmp_path, device="cpu", models=["mtlr-i"])
    records = RecordFile(summary.path).read()[0].values()
    hashes = {r.seed: r.data_hash for r in records}
    assert hashes[0] != hashes[1]


def test_infinite_metrics_have_no_spread(small, tmp_path, uninterrupted):
    file = RecordFile(tmp_path / "small" / uninterrupted.name)
    records = RecordFile(uninterrupted).read()[0].values()
    file.add(replace(r, metrics=r.metrics | {"nll": math.inf}) for r in records)
    cell = compare(small(), results=tmp_path).cell("mtlr-i", 10.0, "nll")
    assert (cell.ours, cell.mark) == (math.inf, "worse")
    assert math.isnan(cell.spread)


def test_a_record_says_where_it_comes_from(small, tmp_path):
    summary = reproduce(small(), results=tmp_path, device="cpu", models=["categorical-ni"], seeds=[0])
    record = json.loads(summary.path.read_text().splitlines()[0])
    assert record["versions"]["torch"] == torch.__version__
    assert record["device"] == "cpu"
    assert record["group_models"] == 2
    assert record["group_seconds"] > 0
    assert record["written"].endswith("+00:00")
    assert record["epochs"] == 2
    assert 0 <= record["best_epoch"] < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "correct"}, "variant: expected as-published or corrected, got 'correct'"),
        ({"penalty": "mine"}, "penalty: expected paper or ours or annealed or ramped, got 'mine'"),
        ({"device": "tpu9"}, "device: expected a device of this machine"),
        ({"models": ["nothing"]}, "models: expected some of"),
        ({"epochs": 0}, "epochs: expected an integer of 1 or more"),
    ],
)
def test_bad_options(small, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        reproduce(small(), results=tmp_path / "r", **options)
    assert not (tmp_path / "r").exists()


def test_a_study_is_of_the_papers_penalty(small, tmp_path):
    with pytest.raises(ValueError, match="penalty: expected paper: small is a study"):
        reproduce(small(kind="jensen-slack"), results=tmp_path, penalty="ours")


def test_results_that_cannot_be_written_are_said_before_training(small, tmp_path):
    (tmp_path / "results").write_text("in the way")
    with pytest.raises(OSError, match="results: expected a folder that can be written"):
        reproduce(small(), results=tmp_path / "results", device="cpu")
