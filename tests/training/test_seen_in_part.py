"""Training on rows that entered late, on events between two times, and on events with causes."""

import lifelines
import numpy as np
import pandas as pd
import pytest
import torch

from tests.processes import together
from tests.training.simulate import rows_in_part
from xcal import d_calibration
from xcal.calibration import KernelFeatures, cause_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.membership import SoftBins
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.metrics import aalen_johansen
from xcal.networks import MLP, Linear, start_near
from xcal.objectives import nll, survival_crps
from xcal.training import TrainingConfig, fit_path
from xcal.training.problem import Problem
from xcal.training.rows import Batch, contents, prepared, take, tensor_digest

KINDS = ("entry", "intervals", "causes")


def made_for(kind, name="weibull"):
    edges = [0.0, 0.4, 0.8, 1.3, 2.0, 3.0, 5.0, 40.0] if name in ("categorical", "mtlr") else None
    return family(name, edges=edges, causes=2 if kind == "causes" else 1)


def linear_fit(rows, made, *, epochs=150, off=0.0, **options):
    seen = {name: getattr(rows, name) for name in ("entry", "lower")}
    start = made.initial(rows.time, rows.event if made.n_causes == 1 else rows.cause, **seen)

    def make():
        network = Linear(2, made.n_outputs)
        start_near(network.output, start + off)
        return network

    config = TrainingConfig(epochs=epochs, batch_size=rows.n, learning_rate=0.03, schedule="cosine")
    return fit_path(make, made, rows, rows, config=config, progress=False, **options)


class TestTheTruthComesBack:
    """Parameters by full-batch training are those of lifelines on the same rows, and near the truth."""

    def test_entry(self):
        rows = rows_in_part("entry", 2500, seed=1)
        frame = pd.DataFrame(rows.x.numpy(), columns=["a", "b"]).assign(
            t=rows.time.numpy(), e=rows.event.numpy(), s=rows.entry.numpy()
        )
        fitter = lifelines.WeibullAFTFitter().fit(frame, "t", "e", entry_col="s")
        weights = [p.detach().numpy().ravel() for p in linear_fit(rows, made_for("entry")).network(0).parameters()]
        # The second output, the log of the shape, is free to depend on the covariates here, and does not in truth.
        wanted = fitter.params_["lambda_"][["a", "b"]].to_numpy()
        np.testing.assert_allclose(weights[0][:2], wanted, atol=0.03)
        np.testing.assert_allclose(weights[0][:2], [0.6, -0.4], atol=0.06)
        assert weights[1][0] == pytest.approx(0.3, abs=0.06)
        assert weights[1][1] == pytest.approx(np.log(1.4), abs=0.06)
        ignored = SurvivalData(rows.x, rows.time, rows.event)
        off = [p.detach().numpy().ravel() for p in linear_fit(ignored, made_for("entry")).network(0).parameters()]
        assert off[1][0] > 0.4  # those who died before they would have entered are missing

    def test_intervals(self):
        rows = rows_in_part("intervals", 3000, seed=2)
        lower, upper = rows.lower.numpy(), np.where(rows.event, rows.time, np.inf)
        frame = pd.DataFrame(rows.x.numpy(), columns=["a", "b"]).assign(l=lower, u=upper)
        fitter = lifelines.WeibullAFTFitter().fit_interval_censoring(frame, "l", "u")
        weights = [p.detach().numpy().ravel() for p in linear_fit(rows, made_for("entry")).network(0).parameters()]
        np.testing.assert_allclose(weights[0][:2], fitter.params_["lambda_"][["a", "b"]].to_numpy(), atol=0.03)
        np.testing.assert_allclose([*weights[0][:2], *weights[1]], [0.6, -0.4, 0.3, np.log(1.4)], atol=0.06)

    @pytest.mark.ci
    def test_hazards_of_causes_that_cross(self):
        rows = rows_in_part("causes", 2000, seed=3)
        found = linear_fit(rows, made_for("causes"), epochs=80)
        weights = [p.detach().numpy() for p in found.network(0).parameters()]
        np.testing.assert_allclose(weights[0][[0, 2]], [[0.6, -0.4], [0.0, 0.5]], atol=0.1)
        np.testing.assert_allclose(weights[1], [0.3, np.log(1.4), 0.6, np.log(0.7)], atol=0.1)

    def test_bins_of_causes(self):
        """Over all rows the mean of the incidences is Aalen and Johansen's, though the bins are a law of their own."""
        rows = rows_in_part("causes", 2000, seed=4)
        found, made = linear_fit(rows, made_for("causes", "categorical"), epochs=80), made_for("causes", "categorical")
        points = torch.tensor([[0.4], [0.8], [1.3], [3.0]], dtype=torch.float64)
        with torch.no_grad():
            curves = made.distribution(found.network(0)(rows.x)).cumulative_incidence(points).mean(1).numpy()
        curve = aalen_johansen(time=rows.time.numpy(), cause=rows.cause.numpy())
        wanted = np.column_stack([curve.at(points[:, 0].numpy(), of=k) for k in (1, 2)])
        np.testing.assert_allclose(curves, wanted, atol=0.015)


@pytest.mark.parametrize("kind", KINDS)
class TestOneStep:
    def problem(self, kind, name):
        rows = prepared("train", rows_in_part(kind, 40, seed=4), torch.device("cpu"))
        rows = rows.replaced(weights=torch.linspace(0.5, 2.0, rows.n, dtype=torch.float64))
        edges = torch.from_numpy(bin_edges(5))
        return Problem(made_for(kind, name), nll, SoftBins(), edges, rows, rows, penalised=True)

    @pytest.mark.parametrize("name", ["weibull", "mtlr"])
    def test_gradient_is_that_of_differences(self, kind, name):
        problem = self.problem(kind, name)
        batch = take(problem.train, torch.arange(16).view(2, 8))
        generator = torch.Generator().manual_seed(5)
        raw = torch.randn(2, 3, 8, problem.family.n_outputs, generator=generator, dtype=torch.float64) / 2
        # The points between which a continuous law divides F among the causes stay where they are, for the gradient.
        most = 0.0 if (kind, name) == ("causes", "weibull") else 100.0
        lambdas = torch.tensor([[0.0, most / 9, most]] * 2, dtype=torch.float64)

        def loss(raw):
            return problem.loss(raw, batch, lambdas)

        assert torch.autograd.gradcheck(loss, raw.requires_grad_(), atol=1e-5)
        assert loss(raw).shape == (2, 3)

    def test_parts_of_a_batch_know_the_same(self, kind):
        problem = self.problem(kind, "weibull")
        whole = take(problem.train, torch.arange(24).view(2, 12))
        half, direct = whole.starts(slice(1, 2)), take(problem.train, torch.arange(12, 24).view(1, 12))
        for name in Batch.__dataclass_fields__:
            one, other = getattr(half, name), getattr(direct, name)
            assert one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_are_chosen_by_the_exact_value(kind):
    train, validation = rows_in_part(kind, 300, seed=6, dtype=torch.float32), rows_in_part(kind, 200, seed=7)
    made, config = made_for(kind, "mtlr"), TrainingConfig(epochs=3, batch_size=100, learning_rate=0.01)
    validation = validation.replaced(x=validation.x.float())
    path = fit_path(
        lambda: MLP(2, made.n_outputs, hidden=(8,)), made, train, validation, lambdas=(0.0, 50.0), config=config,
        progress=False, calibration_bins=10,
    )  # fmt: skip
    for index in range(2):
        with torch.no_grad():
            dist = made.distribution(path.network(index)(validation.x))
        known = validation.outcome

        def at(time, dist=dist):
            return None if time is None else dist.cdf(torch.from_numpy(time).float()).numpy()

        if kind == "causes":
            edges = made.base.edges.float()
            curves = dist.cumulative_incidence(edges[1:].unsqueeze(-1)).permute(1, 2, 0)
            given = {"time": validation.time, "cause": validation.cause, "draws": 99}
            wanted = cause_calibration(curves, edges[1:], n_bins=10, **given).value
        else:
            parts = {"cdf_entry": at(known.entry), "cdf_lower": at(known.lower)}
            wanted = d_calibration(at(known.time), known.event, n_bins=10, p_value=None, **parts).value
        assert path.best().dcal[0, index] == pytest.approx(wanted, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_penalty_alone_leads_back_to_calibration(kind):
    """From a start that is far off, for rows whose covariates say nothing."""
    rows = rows_in_part(kind, 800, seed=8)
    rows = rows.replaced(x=torch.zeros_like(rows.x))
    made = made_for(kind, "mtlr" if kind == "causes" else "lognormal")
    off = torch.linspace(-1.0, 0.5, made.n_outputs, dtype=torch.float64)
    nothing = lambda dist, time, event, **_: torch.zeros_like(time)  # noqa: E731
    path = linear_fit(rows, made, lambdas=(1.0,), epochs=60, objective=nothing, off=off)
    first, last = path.history.dcal[[0, -1], 0]
    assert last < min(first / 5, 0.003)


def test_one_cause_is_todays_case():
    rows = rows_in_part("plain", 200, seed=9)
    one = rows.replaced(cause=rows.event.long(), causes=("death",))
    found = [linear_fit(part, made_for("plain"), epochs=5, lambdas=(0.0, 10.0)) for part in (rows, one)]
    for index in range(2):
        same = zip(*(path.network(index).parameters() for path in found), strict=True)
        assert all(torch.equal(a, b) for a, b in same)


def test_short_names_of_rows():
    """Plain rows keep the name that their checkpoints have; what is known beside has a part in the others."""
    rows = prepared("train", rows_in_part("entry", 50, seed=1), torch.device("cpu"))
    plain = rows.replaced(entry=None)
    assert len(list(contents(plain))) == 3
    later = rows.replaced(entry=rows.entry / 2)
    names = {tensor_digest(contents(part)) for part in (rows, plain, later, plain.replaced(weights=rows.entry))}
    assert len(names) == 4


def on_processes(rank, size, kind, way):
    """Weights and history of a path whose rows the processes share; with "shards" each brings its own."""
    made = made_for(kind, "mtlr")
    train, validation = rows_in_part(kind, 90, seed=1), rows_in_part(kind, 60, seed=2)
    if way == "shards":
        order = torch.arange(90) if train.entry is None else torch.argsort(train.entry, stable=True)
        train = train[order]
        mine = slice(0, 25) if rank == 0 else slice(25, 90)
        mine, held = (slice(0, 90), slice(0, 60)) if size == 1 else (mine, slice(30 * rank, 30 * rank + 30))
        train, validation = train[mine], validation[held]
        if train.entry is not None and not train.entry.any():
            train = train.replaced(entry=None)
    config = TrainingConfig(epochs=3, batch_size=30, learning_rate=0.01)
    path = fit_path(
        lambda: MLP(2, made.n_outputs, hidden=(6,)), made, train, validation, lambdas=(0.0, 20.0), config=config,
        progress=False, distributed="auto" if size == 1 or way == "auto" else "shards",
    )  # fmt: skip
    weights = torch.cat([p.detach().reshape(-1) for k in range(2) for p in path.network(k).parameters()])
    return weights, path.history.dcal, path.history.objective


def all_on_processes(rank, size):
    return {(kind, way): on_processes(rank, size, kind, way) for kind in KINDS for way in ("auto", "shards")}


@pytest.mark.ci
def test_on_several_processes():
    (alone,) = together(1, all_on_processes)
    for found in together(2, all_on_processes):
        for case, values in found.items():
            for one, other in zip(values, alone[case], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9, err_msg=str(case))


class TestRefused:
    def fit(self, kind="entry", made=None, **options):
        rows = rows_in_part(kind, 60, seed=1)
        made = made or made_for(kind)
        return fit_path(lambda: Linear(2, made.n_outputs), made, rows, rows, progress=False, **options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"objective": survival_crps}, "objective: expected one that takes entry by name, .*, got survival_crps"),
            ({"conditional": KernelFeatures()}, "conditional: expected None for rows that are seen in part"),
            (
                {"penalty": SoftBins("product", censored="soft"), "lambdas": (1.0,)},
                "membership, censored: expected membership='partition'",
            ),
            ({"made": family("weibull", causes=2)}, "train: expected rows with causes, as the family has 2, got"),
            (
                {"kind": "causes", "made": family("weibull")},
                "family: expected one with causes=2, as train has '1', '2'",
            ),
        ],
    )
    def test_one_sentence(self, options, message):
        with pytest.raises(ValueError, match=message):
            self.fit(**options)

    def test_the_survival_crps_of_causes_is_trained(self):
        path = self.fit("causes", made_for("causes", "mtlr"), objective=survival_crps, config=TrainingConfig(epochs=2))
        assert np.isfinite(path.history.objective).all()
