"""Tables in several processes: the records of one process, each once, also after one of the processes was killed."""

import multiprocessing

import pytest
import torch
from tests.faults.victims import without_times

from xcal._devices import one_thread
from xcal_paper import reproduce
from xcal_paper import runner as progress_bar
from xcal_paper.data import load_data
from xcal_paper.jobs import JobRecords
from xcal_paper.records import jobs_of
from xcal_paper.runner import Manner, Request, reproduce_tables
from xcal_paper.spec import load_spec


@pytest.mark.ci
def test_two_processes_make_the_records_of_one(small, tmp_path, monkeypatch):
    paths = [small(('table = "small"', f'table = "{name}"'), name=f"{name}.toml") for name in ("one", "other")]

    def run(folder, processes):
        requests = [Request(path, results=tmp_path / folder) for path in paths]
        # One thread, as each process has: sums of other threads have another order.
        with one_thread():
            return list(reproduce_tables(requests, Manner("cpu", False, processes=processes)))

    whole = run("whole", 1)
    with monkeypatch.context() as struck:
        struck.setattr(
            progress_bar.ProgressBar,
            "finish",
            lambda bar: [child.kill() for child in multiprocessing.active_children()],
        )
        with pytest.raises(ChildProcessError, match=r"died by SIGKILL .* run the same command again to resume"):
            run("parts", 2)
    again = run("parts", 2)
    kept = [summary.kept for summary in again]
    # What one process had finished when both were killed; the other may have come to an end at the same moment.
    assert sum(kept) in (4, 8)
    assert [summary.trained + summary.kept for summary in again] == [12, 12]
    for summary, expected in zip(again, whole, strict=True):
        assert without_times(summary.path) == without_times(expected.path)
        assert not list(summary.path.parent.glob("*.user.lock"))


def test_nothing_missing_starts_no_process(small, tmp_path, monkeypatch):
    only = {"results": tmp_path, "device": "cpu", "models": ["mtlr-i"]}
    reproduce(small(), **only)
    monkeypatch.setattr("xcal_paper.runner.remote", None)
    assert reproduce(small(), **only, processes=3).kept == 4


def test_a_number_of_processes_is_checked_before_anything_is_done(small, tmp_path):
    with pytest.raises(ValueError, match="processes: expected an integer of 1 or more, got 0"):
        reproduce(small(), results=tmp_path / "r", processes=0)
    pytest.importorskip("ray", reason="needs ray, of the extra ray")
    with pytest.raises(ValueError, match="processes: expected 1 with the engine ray"):
        reproduce(small(), results=tmp_path / "r", engine="ray", processes=2)
    assert not (tmp_path / "r").exists()


def test_larger_networks_and_more_epochs_take_longer(small):
    spec = load_spec(small())
    data = load_data(spec, "as-published", 0, torch.device("cpu"), None)
    making = JobRecords(spec, "as-published", "paper", torch.device("cpu"))
    before = torch.random.get_rng_state()
    effort = {model.name: making.effort(jobs_of(spec, model)[0], data) for model in spec.models}
    # Two small networks, one that is larger at its end, and a linear one; times 4 runs of 2 epochs of 600 rows.
    assert effort["lognormal-nll"] > effort["categorical-ni"] > effort["mtlr-i"] > 4 * 2 * 600
    longer = JobRecords(spec.narrowed(epochs=4), "as-published", "paper", torch.device("cpu"))
    assert longer.effort(jobs_of(spec, spec.models[0])[0], data) == 2 * effort["lognormal-nll"]
    assert torch.equal(torch.random.get_rng_state(), before)
