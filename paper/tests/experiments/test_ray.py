"""A sweep on Ray: the records of a local run, each once, whatever dies on the way."""

import random
import sys

import pytest

pytest.importorskip("ray", reason="needs ray, of the extra ray")

from tests.faults.sweep_kills import Sweep, without_times
from tests.small_table import small_table

from xcal import _workers as _engines
from xcal_paper import RecordFile, reproduce


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_killed_worker_is_replaced(tmp_path):
    spec = tmp_path / "small.toml"
    # Long enough to be struck: a job takes a tenth of a second or more, and its process some seconds for its imports.
    spec.write_text(small_table(job="run", epochs=10))
    sweep = Sweep(spec, tmp_path / "struck", random.Random(1))
    # One kill of a worker. `python -m tests.faults.sweep_kills` has many, and those of the first process.
    sweep.run(1, pause=0.05, drivers=0.0)
    assert (sweep.workers, sweep.drivers) == (1, 0)
    whole = reproduce(spec, results=tmp_path / "whole", device="cpu").path
    struck = tmp_path / "struck" / "small" / whole.name
    records, corrupt = RecordFile(struck).read()
    assert corrupt == []
    assert len(records) == len(struck.read_text().splitlines()) == 12
    expected = RecordFile(whole).read()[0]
    for key, record in expected.items():
        # A worker has one thread; sums of other threads have another order.
        assert records[key].metrics == pytest.approx(record.metrics, rel=1e-3, nan_ok=True)
        assert records[key].data_hash == record.data_hash
    assert not list(struck.parent.glob("*.user.lock"))
    assert without_times(struck).count("lam") == without_times(whole).count("lam")


def test_an_engine_is_checked_before_anything_is_done(tmp_path):
    spec = tmp_path / "small.toml"
    spec.write_text(small_table())
    with pytest.raises(ValueError, match="engine: expected one of 'local', 'ray', got 'dask'"):
        reproduce(spec, results=tmp_path / "r", engine="dask")
    with pytest.raises(ValueError, match="device: expected one of 'cpu', 'cuda' or None"):
        reproduce(spec, results=tmp_path / "r", engine="ray", device="cuda:3")
    assert not (tmp_path / "r").exists()


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "xcal\[ray\]"'):
        _engines.as_engine("ray")
    assert _engines.as_engine("local") == "local"


def test_a_cluster_that_cannot_be_reached_is_one_error(monkeypatch):
    class Ray:
        starts = 0

        def init(self, **options):
            self.starts += 1
            raise Exception("The current node\n timed out")  # what Ray raises

        def shutdown(self):
            pass

        def is_initialized(self):
            return False

    made = Ray()
    monkeypatch.setattr(_engines, "_ray", lambda: made)
    with pytest.raises(
        OSError, match=r"engine: expected Ray to start on this machine, got Exception: The current node"
    ):
        next(_engines.results("ray", max, 1, [2]))
    assert made.starts == _engines.STARTS
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(OSError, match=r"engine: expected Ray at RAY_ADDRESS=10\.0\.0\.1:6379"):
        next(_engines.results("ray", max, 1, [2]))
