"""The torchmetrics of two processes equal the metrics of all rows."""

import pickle

import numpy as np
import pytest
import torch

from tests.metrics.simulate import survival_data
from tests.processes import together
from xcal import DCalibration, d_calibration
from xcal.metrics import (
    brier_score,
    concordance_index,
    cox_ici,
    kaplan_meier,
    mean_nll,
    observed_expected,
    one_calibration,
    streaming,
)

tm = pytest.importorskip("xcal.interop.torchmetrics")

TIMES = np.array([0.5, 1.0])
GRID = np.arange(1, 401) / 16
RISKS = np.arange(30, 201) / 100


def rows():
    data = survival_data(600, rng=np.random.default_rng(0), grid=1 / 16)
    return data.time, data.event, np.round(data.rate, 2)


def made():
    time, event, _ = rows()
    curve = kaplan_meier(time=time, event=event, of="censoring")
    steps = RISKS / 4  # exact, as p is a quarter of the risk: expm1 differs between libraries in its last digit
    meters = {
        "concordance": streaming.StreamingConcordance(grids=(GRID, RISKS)),
        "brier": streaming.StreamingBrier(TIMES, curve),
        "nll": streaming.StreamingMeanNLL(),
        "oe": streaming.StreamingObservedExpected(TIMES, grid=GRID),
        "km": streaming.StreamingKaplanMeier(grid=GRID[:40]),
        "dcal": DCalibration(),
        "one": streaming.StreamingOneCalibration(at=1.0, cuts=[0.4, 0.6, 0.7], grid=GRID),
        "ici": streaming.StreamingCoxICI(at=1.0, grids=(GRID, steps)),
    }
    return {name: tm.StreamingMetric(meter) for name, meter in meters.items()}


def update(metrics, part):
    time, event, risk = (torch.from_numpy(values[part]) for values in rows())
    survival = torch.exp(-risk[:, None] * torch.from_numpy(TIMES))
    cdf = 1 - torch.exp(-risk * time)
    metrics["concordance"].update(time=time, event=event, risk=risk)
    metrics["brier"].update(survival, time=time, event=event)
    metrics["nll"].update(risk)
    metrics["oe"].update(1 - survival, time=time, event=event)
    metrics["km"].update(time=time, event=event)
    metrics["dcal"].update(cdf, event)
    metrics["one"].update(1 - survival[:, 1], time=time, event=event)
    metrics["ici"].update(risk / 4, time=time, event=event)


def values(metrics):
    return {name: metric.compute().numpy() for name, metric in metrics.items()}


def expected():
    time, event, risk = rows()
    outcome = {"time": time, "event": event}
    survival = np.exp(-risk[:, None] * TIMES)
    p = 1 - survival
    return {
        "concordance": concordance_index(**outcome, risk=risk).value,
        "brier": brier_score(survival, TIMES, **outcome).values,
        "nll": mean_nll(risk).value,
        "oe": [observed_expected(p[:, k], at=t, **outcome).value for k, t in enumerate(TIMES)],
        "km": kaplan_meier(**outcome).at(GRID[:40]),
        "dcal": d_calibration(1 - np.exp(-risk * time), event).value,
        "ici": cox_ici(risk / 4, at=1.0, **outcome).value,
    }


def close(found):
    for name, value in expected().items():
        # The fit behind ICI stops at a small decrement, not at the last digit.
        np.testing.assert_allclose(found[name], value, rtol=1e-9 if name == "ici" else 1e-12, err_msg=name)


def test_one_process():
    metrics = made()
    for part in np.array_split(np.arange(600), 7):
        update(metrics, part)
    close(values(metrics))
    assert metrics["concordance"].result().error_bound == pytest.approx(0, abs=1e-12)
    assert metrics["dcal"].result().n == 600
    again = pickle.loads(pickle.dumps(metrics["brier"]))
    assert torch.equal(again.compute(), metrics["brier"].compute())
    metrics["nll"].reset()
    metrics["nll"].update([5.0])
    assert metrics["nll"].compute() == 5


def test_one_calibration_with_quantiles_of_the_rows():
    time, event, risk = rows()
    p = -np.expm1(-risk)
    cuts = np.sort(p)[np.arange(1, 4) * 600 // 4]
    metric = tm.StreamingMetric(streaming.StreamingOneCalibration(at=1.0, cuts=np.unique(cuts), grid=GRID))
    metric.update(p, time=time, event=event)
    found = one_calibration(p, at=1.0, time=time, event=event, n_risk_groups=4)
    assert metric.compute().item() == pytest.approx(found.p_value, rel=1e-10)


@pytest.mark.parametrize(
    ("meter", "expected"),
    [
        (streaming.StreamingOneCalibration(at=1.0, cuts=[0.5]), "with a fixed grid"),
        (streaming.StreamingKaplanMeier(), "with a fixed grid"),
        (DCalibration(method="km"), "with a fixed grid"),
        (streaming.StreamingMeanNLL().update([1.0]), "without rows"),
        (streaming.StreamingQuantiles(), "one of StreamingKaplanMeier, "),
    ],
)
def test_accumulators_that_cannot_be_added_up(meter, expected):
    with pytest.raises(ValueError, match=f"accumulator: expected one .*{expected}|accumulator: expected {expected}"):
        tm.StreamingMetric(meter)


def test_what_torchmetrics_asks_of_a_metric():
    metrics = made()
    assert metrics["concordance"].higher_is_better
    assert metrics["brier"].higher_is_better is False
    assert metrics["km"].higher_is_better is None
    with pytest.raises(ValueError, match="weights: expected None"):
        metrics["dcal"].update([0.5], [1], weights=[2.0])


def one_of_two(rank, _):
    metrics = made()
    # Ragged: the first process has twice as many rows, in three updates.
    for part in np.array_split(np.arange(400), 3) if rank == 0 else [np.arange(400, 600)]:
        update(metrics, part)
    found = values(metrics)
    found["rows of all"] = metrics["dcal"].result().n
    found["rows here"] = int(metrics["nll"].n)
    return found


@pytest.mark.ci
def test_two_processes_equal_one():
    metrics = made()
    update(metrics, np.arange(600))
    alone = values(metrics)
    for rank, found in enumerate(together(2, one_of_two)):
        close(found)
        assert found["rows of all"] == 600
        assert found["rows here"] == (400, 200)[rank]
        for name in alone.keys() - {"dcal"}:  # whole numbers were added: the same to the last bit
            np.testing.assert_array_equal(found[name], alone[name], err_msg=name)
