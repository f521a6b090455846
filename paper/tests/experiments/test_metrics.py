"""Metrics of a table's runs against the same metrics computed run by run, and laws of the studies."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from xcal import concordance_index, d_calibration, nll
from xcal.distributions import family, quantile_edges
from xcal.recalibration import KaplanMeierRecalibration
from xcal.training import fit_path
from xcal_paper import RecordFile, load_gamma, load_spec, reproduce
from xcal_paper.data import load_data
from xcal_paper.evaluation import test_metrics
from xcal_paper.models import make_family, make_network, make_objective, predicted_time, recalibrated_rows
from xcal_paper.simulated import VARIANCE

test_metrics.__test__ = False
CPU = torch.device("cpu")


@pytest.mark.parametrize("variant", ["as-published", "corrected"])
@pytest.mark.parametrize("name", ["lognormal-nll", "categorical-ni", "mtlr-i"])
def test_stacked_metrics_are_those_of_each_network(small, variant, name):
    spec = load_spec(small())
    model, data = spec.model(name), load_data(spec, variant, 0, CPU, None)
    assert data.test.n == (250 if variant == "as-published" else 400)
    kind = make_family(model, variant, data.edges)
    make = make_network(model, spec.variants[variant], (32,), kind.n_outputs)
    path = fit_path(
        make,
        kind,
        data.train,
        data.validation,
        lambdas=(0.0, 10.0),
        seeds=(0, 1),
        objective=make_objective(model, variant, data.train),
        config=spec.training.config(),
    )
    found, recalibrated = test_metrics(path, data, variant, 20, 0)
    assert set(recalibrated) == {0, 2}
    for k in range(4):
        with torch.no_grad():
            distribution = kind.distribution(path.network(k)(data.test.x))
            time, event = data.test.time.float(), data.test.event
            losses = nll(distribution, time, event, as_published=variant == "as-published")
            density = nll(distribution, time, event, density=True)
            cdf = distribution.cdf(time)
        assert found[k]["nll"] == pytest.approx(float(losses.double().mean()), rel=1e-5)
        assert found[k]["nll_density"] == pytest.approx(float(density.double().mean()), rel=1e-5)
        # Rounding may carry a row over an edge; one of 250 rows moves the value by less than this.
        exact = d_calibration(cdf, event, n_bins=20, p_value=None)
        assert found[k]["dcal"] == pytest.approx(exact.value, abs=2e-3)
        assert found[k]["dcal_floor"] == pytest.approx(exact.floor, rel=1e-2)
        ranked = concordance_index(time=time, event=event, predicted_time=predicted_time(distribution, variant))
        assert found[k]["concordance"] == pytest.approx(ranked.value, abs=1e-3)
        assert found[k]["dcal_within"] <= found[k]["dcal_worst"]


def test_ranking_as_published_and_corrected():
    edges = torch.tensor([0.0, 1.0, 2.0, 4.0])
    bins = family("categorical", edges=edges, interpolation="step").distribution(
        torch.log(torch.tensor([[0.2, 0.5, 0.3]]))
    )
    assert predicted_time(bins, "as-published").item() == pytest.approx(0.2 * 0.5 + 0.5 * 1.5 + 0.3 * 3)
    assert predicted_time(bins, "corrected").item() == 2.0
    published = family("lognormal-published").distribution(torch.tensor([[0.3, 1.0]]))
    scale = np.exp(np.log1p(np.e) - 0.5) + 1e-4
    assert predicted_time(published, "as-published").item() == pytest.approx(np.exp(0.3 - scale**2), rel=1e-5)
    corrected = family("lognormal").distribution(torch.tensor([[0.3, 1.0]]))
    assert predicted_time(corrected, "corrected").item() == pytest.approx(np.exp(0.3), rel=1e-5)


def test_saturated_censored_rows_count_the_same_as_events_in_exact_d_calibration():
    # The published code counts them as events. They lie in the last bin either way, so the measured value is one.
    rng = np.random.default_rng(0)
    cdf = np.concatenate([rng.uniform(size=300), 1 - rng.uniform(0, 1e-4, size=50), np.ones(5)])
    event = rng.uniform(size=355) < 0.5
    as_events = event | (cdf > 1 - 1e-4)
    values = [d_calibration(cdf, e, n_bins=20, p_value=None).value for e in (event, as_events)]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


@pytest.fixture
def recalibration():
    rng = np.random.default_rng(1)
    time, leaves = rng.exponential(size=(2, 3000))
    return KaplanMeierRecalibration.fit(-np.expm1(-1.6 * np.minimum(time, leaves)), time <= leaves)


@pytest.mark.parametrize("kind", ["lognormal", "mtlr"])
def test_recalibrated_densities_integrate_to_the_recalibrated_cdf(recalibration, kind):
    options = {} if kind == "lognormal" else {"edges": [0.0, 0.4, 1.0, 2.0, 5.0], "interpolation": "linear"}
    raw = torch.tensor([[0.2, -0.5]] if kind == "lognormal" else [[0.3, -0.2, 0.5]], dtype=torch.float64)
    distribution = family(kind, **options).distribution(raw)

    def at(t, event):
        rows = recalibrated_rows(
            recalibration, distribution, torch.tensor([t], dtype=torch.float64), torch.tensor([event]), "corrected"
        )
        return float(rows.cdf[0]), float(rows.nll_density[0])

    # The density jumps at every knot of the map and every edge of the bins.
    jumps = [float(distribution.quantile(float(u))) for u in recalibration.knots[1:-1]] + [0.4, 1.0]
    mass, _ = quad(
        lambda t: np.exp(-at(t, True)[1]), 1e-9, 1.7, points=jumps and [j for j in jumps if j < 1.7], limit=400
    )
    assert mass == pytest.approx(at(1.7, True)[0], abs=1e-5)
    cdf, censored = at(1.7, False)
    assert censored == pytest.approx(-np.log1p(-cdf), rel=1e-9)


@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_recalibrated_bins_are_a_distribution(recalibration, interpolation):
    edges = torch.tensor([0.0, 0.4, 1.0, 2.0, 5.0], dtype=torch.float64)
    raw = torch.tensor([[0.3, -0.2, 0.5, 0.1]], dtype=torch.float64).expand(4, 4)
    distribution = family("categorical", edges=edges, interpolation=interpolation).distribution(raw)
    middle, events = (edges[1:] + edges[:-1]) / 2, torch.ones(4, dtype=torch.bool)
    rows = recalibrated_rows(recalibration, distribution, middle, events, "corrected")
    assert np.exp(-rows.nll).sum() == pytest.approx(1)
    # The same rows, censored: what is left after the bin (step), and past the grid the mass of the last bin.
    late = recalibrated_rows(recalibration, distribution, edges[1:] + 1e-9 * (edges[1:] == 5), ~events, "corrected")
    mass = np.exp(-rows.nll)
    np.testing.assert_allclose(np.exp(-late.nll), [*(1 - np.cumsum(mass)[:-1]), mass[-1]], rtol=1e-6)


def test_a_step_density_is_mass_over_width(recalibration):
    edges = torch.tensor([0.0, 0.4, 1.0, 2.0, 5.0], dtype=torch.float64)
    raw = torch.tensor([[0.3, -0.2, 0.5, 0.1]], dtype=torch.float64)
    distribution = family("categorical", edges=edges, interpolation="step").distribution(raw)
    time = torch.tensor([1.5], dtype=torch.float64)
    rows = recalibrated_rows(recalibration, distribution, time, torch.tensor([True]), "corrected")
    assert rows.nll_density[0] == pytest.approx(rows.nll[0] + np.log(1.0))
    first = recalibrated_rows(recalibration, distribution, time - 1.3, torch.tensor([True]), "corrected")
    assert first.nll_density[0] == pytest.approx(first.nll[0] + np.log(0.4))


def test_the_identity_changes_nothing():
    # A model whose F is spread evenly has the identity for a map.
    even = (np.arange(1000) + 0.5) / 1000
    recalibration = KaplanMeierRecalibration.fit(even, np.ones(1000))
    for name in ("lognormal-published", "weibull-published"):
        distribution = family(name).distribution(
            torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
        )
        time, event = torch.linspace(0.1, 3, 50, dtype=torch.float64), torch.arange(50) % 2 == 0
        rows = recalibrated_rows(recalibration, distribution, time, event, "as-published")
        np.testing.assert_allclose(rows.nll, nll(distribution, time, event, as_published=True), atol=1e-9)


@pytest.mark.parametrize(("table", "expected"), [("gamma-censored", 0.759), ("gamma-uncensored", 0.934)])
def test_how_hard_the_gamma_draw_is(table, expected):
    """NLL of the true model through the 50 bins, by the published rule; docs and specs state it."""
    spec = load_spec(table)
    censored = table == "gamma-censored"
    rows = load_gamma(censored=censored, n=(20_000, 10, 10_000), seed=spec.data.seed, bias=True)
    edges = quantile_edges(rows.train.time, rows.train.event, spec.time_bins).numpy()
    time, event, mean = rows.test.time, rows.test.event, rows.test.extra["mean"]
    truth = stats.gamma(mean**2 / VARIANCE, scale=VARIANCE / mean)
    index = np.clip(np.searchsorted(edges, time) - 1, 0, spec.time_bins - 1)
    start = np.where(index == 0, 0.0, truth.cdf(edges[index]))
    end = np.where(index == spec.time_bins - 1, 1.0, truth.cdf(edges[index + 1]))
    counted = event | (index == spec.time_bins - 1)
    binned = -np.log(np.where(counted, end - start, 1 - end + 1e-4)).mean()
    assert binned == pytest.approx(expected, abs=0.001)


def test_the_slack_study(small, tmp_path):
    path = small(("n = [600, 300, 400]", "n = [2000, 300, 400]"), kind="jensen-slack")
    summary = reproduce(path, results=tmp_path, device="cpu", models=["categorical-ni"])
    for record in RecordFile(summary.path).read()[0].values():
        # The mean of squares is at least the square of the mean; batches of 10,000 are all 2,000 rows.
        assert record.metrics["bound_500"] > record.metrics["bound_10000"] > 0
        assert record.recalibrated == {}


def test_the_gamma_study(small, tmp_path):
    path = small(("hidden = [16]\n", "hidden = [16]\ngamma = 1e7\n"), kind="gamma-choice")
    summary = reproduce(path, results=tmp_path, device="cpu", models=["categorical-ni"], lambdas=[10])
    for record in RecordFile(summary.path).read()[0].values():
        # So sharp a membership is a hard one, up to rows on an edge.
        assert record.metrics["soft_dcal"] == pytest.approx(record.metrics["dcal"], rel=0.05)


def test_glioma(real_data, tmp_path):
    root = real_data("tcga_gbmlgg")
    for variant in ("as-published", "corrected"):
        options = {"variant": variant, "results": tmp_path, "data_dir": root, "device": "cpu"}
        summary = reproduce("glioma", models=["weibull", "mtlr-i"], seeds=[0], epochs=5, **options)
        assert summary.trained == 16
        records = RecordFile(summary.path).read()[0].values()
        assert not any(record.failure for record in records)
    # Started from the distribution of the times, a corrected Weibull fits from the first epoch on.
    assert min(r.metrics["nll"] for r in records if r.model == "weibull") < 6


@pytest.mark.parametrize("network", ["cnn", "published-cnn", "mlp"])
def test_mnist(real_data, tmp_path, small, network):
    root = real_data("mnist")
    changes = [
        ('name = "gamma"', 'name = "mnist"'),
        ("n = [600, 300, 400]", "n = [60, 40, 50]"),
        ('groups = "mean-quartiles"', 'groups = "label"'),
        ("bias = true\ntest_rows = 250\n", ""),
        ('network = "linear"', f'network = "{network}"\ndropout = 0.2'),
        ("epochs = 2", "epochs = 1"),
    ]
    path = small(*changes, job="run")
    summary = reproduce(path, models=["mtlr-i"], seeds=[0], results=tmp_path, data_dir=root, device="cpu")
    records = RecordFile(summary.path).read()[0].values()
    assert [record.job_runs for record in records] == [1, 1]


def test_groups_that_the_data_do_not_have(small, tmp_path):
    with pytest.raises(ValueError, match=r"data.groups: expected a grouping defined for this data set, .*got 'label'"):
        reproduce(small(('"mean-quartiles"', '"label"')), results=tmp_path, device="cpu")


def test_a_data_directory_with_a_truncated_file_is_one_error(tmp_path):
    (tmp_path / "tcga_gbmlgg").mkdir()
    (tmp_path / "tcga_gbmlgg" / "gbmlgg_picked_like.csv").write_text("time\n")
    with pytest.raises(ValueError, match=r"gbmlgg_picked_like\.csv"):
        reproduce("glioma", results=tmp_path / "r", data_dir=tmp_path, device="cpu", epochs=1)
