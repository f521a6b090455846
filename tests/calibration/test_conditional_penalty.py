"""The penalty of conditional calibration: its value by definition, its gradient by autograd, and what it tends to."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests.processes import together
from xcal import XCALLoss, conditional_calibration, xcal_penalty
from xcal.calibration import KernelFeatures
from xcal.calibration.membership import SoftBins, soft_membership
from xcal.calibration.penalties import unchecked_conditional_penalty
from xcal.calibration.penalty import unchecked_penalty

EDGES = torch.arange(11, dtype=torch.float64) / 10
SPECS = [
    SoftBins(),
    SoftBins(estimator="unbiased"),
    SoftBins("product", gamma=500.0, censored="soft"),
    SoftBins("product", gamma=500.0, censored="soft", estimator="unbiased"),
    SoftBins("product", gamma=500.0, censored="exact", estimator="unbiased"),
]


def rows(n=40, m=6, models=(), seed=0):
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(*models, n, generator=generator, dtype=torch.float64) * 0.98 + 0.01
    event = torch.rand(n, generator=generator) < 0.6
    h = torch.randn(n, m, generator=generator, dtype=torch.float64)
    weights = torch.rand(n, generator=generator, dtype=torch.float64) + 0.5
    return u, event, h, weights


def by_definition(u, event, h, weights, spec):
    """Sum over pairs of rows of w w' (h.h')(R.R'), for one model; pairs of a row with itself left out if unbiased."""
    r = soft_membership(u, event, EDGES, spec) - EDGES.diff()
    pairs = (weights[:, None] * weights) * (h @ h.T) * (r @ r.T)
    if spec.estimator == "bound":
        return pairs.sum() / weights.sum() ** 2
    among = (weights[:, None] * weights).fill_diagonal_(0).sum()
    return (pairs - torch.diag(torch.diagonal(pairs))).sum() / among


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_value_and_gradient_are_those_of_the_definition(spec, weighted):
    u, event, h, weights = rows()
    u.requires_grad_()
    value = unchecked_conditional_penalty(u, event, h, EDGES, spec, weights if weighted else None)
    expected = by_definition(u, event, h, weights if weighted else torch.ones_like(weights), spec)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-14)
    (found,) = torch.autograd.grad(value, u)
    (wanted,) = torch.autograd.grad(expected, u)
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("spec", SPECS[:3], ids=str)
def test_second_derivatives(spec):
    u, event, h, _ = rows(n=12)
    torch.autograd.gradgradcheck(
        lambda v: unchecked_conditional_penalty(v, event, h, EDGES, spec), u.requires_grad_(), atol=1e-4, rtol=1e-3
    )


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_constant_feature_gives_the_marginal_penalty(spec):
    u, event, _, weights = rows()
    one = torch.ones(40, 1, dtype=torch.float64)
    torch.testing.assert_close(
        unchecked_conditional_penalty(u, event, one, EDGES, spec, weights),
        unchecked_penalty(u, event, EDGES, spec, weights),
        rtol=1e-10,
        atol=1e-14,
    )


def test_models_side_by_side_are_each_on_their_own():
    u, event, h, weights = rows(models=(2, 3))
    together = unchecked_conditional_penalty(u, event, h, EDGES, SPECS[1], weights)
    assert together.shape == (2, 3)
    for i in range(2):
        for k in range(3):
            alone = unchecked_conditional_penalty(u[i, k], event, h, EDGES, SPECS[1], weights)
            torch.testing.assert_close(together[i, k], alone, rtol=1e-12, atol=1e-15)
    each = h.expand(2, 1, 40, 6)
    torch.testing.assert_close(unchecked_conditional_penalty(u, event, each, EDGES, SPECS[1], weights), together)


def test_a_cold_membership_is_the_measured_value():
    rng = np.random.default_rng(0)
    u, c = rng.uniform(size=300), rng.uniform(size=300)
    x = rng.normal(size=(300, 3))
    h = rng.normal(size=(300, 5))
    measured = conditional_calibration(np.minimum(u, c), u <= c, x, features=h, n_bins=10, n_draws=0, where=False)
    cold = SoftBins(temperature=1e-6, estimator="unbiased")
    soft = unchecked_conditional_penalty(
        torch.tensor(np.minimum(u, c)), torch.tensor(u <= c), torch.tensor(h), EDGES, cold
    )
    assert soft.item() == pytest.approx(measured.value, rel=1e-6)


def test_one_row_makes_no_pair():
    u, event, h, _ = rows(n=1)
    u.requires_grad_()
    value = unchecked_conditional_penalty(u, event, h, EDGES, SPECS[1])
    value.backward()
    assert value == 0
    assert u.grad == 0


def test_half_precision_is_computed_in_single():
    u, event, h, _ = rows()
    half = unchecked_conditional_penalty(u.bfloat16(), event, h, EDGES, SPECS[0])
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, unchecked_conditional_penalty(u.bfloat16().float(), event, h, EDGES, SPECS[0]))


def test_the_public_functions_take_features():
    u, event, h, weights = rows()
    wanted = unchecked_conditional_penalty(u, event, h, EDGES, SPECS[1], weights)
    assert xcal_penalty(u, event, n_bins=10, estimator="unbiased", weights=weights, features=h) == wanted
    assert XCALLoss(10, estimator="unbiased")(u, event, weights=weights, features=h.numpy()) == wanted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.zeros(40)}, r"features: expected shape \(40, M\)"),
        ({"features": torch.zeros(39, 2)}, r"features: expected shape \(40, M\)"),
        ({"features": torch.full((40, 2), torch.nan)}, r"features: expected finite numbers.* at row 0"),
        ({"features": torch.zeros(40, 2), "groups": torch.zeros(40).long()}, r"groups: expected None"),
    ],
)
def test_bad_features_are_refused(change, message):
    u, event, _, _ = rows()
    with pytest.raises(ValueError, match=message):
        xcal_penalty(u, event, **change)


@pytest.mark.parametrize("spec", SPECS)
def test_no_weights_are_equal_weights(spec):
    u, event, h, _ = rows(models=(3,))
    found = [unchecked_conditional_penalty(u, event, h, EDGES, spec, w) for w in (None, torch.full((40,), 2.5))]
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("spec", SPECS)
def test_models_that_share_features_are_those_that_have_their_own(spec):
    u, event, _, _ = rows(models=(2, 3))
    h = torch.stack([rows(seed=seed)[2] for seed in (0, 1)]).unsqueeze(1)  # (seeds, 1, n, M)
    values, gradients = [], []
    for features in (h, h.expand(2, 3, -1, -1)):
        x = u.clone().requires_grad_()
        value = unchecked_conditional_penalty(x, event, features, EDGES, spec)
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value.sum(), x)[0])
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-14)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("spec", SPECS)
def test_on_a_gpu_it_is_the_same(spec):
    u, event, h, weights = rows(400, 16, models=(2, 3))
    found = []
    for device in ("cpu", "cuda"):
        x = u.to(device).requires_grad_()
        given = (h.to(device), EDGES.to(device), spec, weights.to(device))
        value = unchecked_conditional_penalty(x, event.to(device), *given)
        found.append((value.detach().cpu(), torch.autograd.grad(value.sum(), x)[0].cpu()))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    stage = rng.choice(["I", "II", "III"], n)
    return pd.DataFrame({"age": rng.normal(60, 10, n), "stage": stage, "smokes": rng.random(n) < 0.4})


def test_fitted_features_are_the_same_in_every_batch():
    X = table()
    whole = KernelFeatures(16).of(X)
    fitted = KernelFeatures(16).fit(X)
    np.testing.assert_array_equal(fitted.of(X), whole)
    for rows in (slice(0, 1), slice(7, 20), slice(20, 60)):  # the first has one label of each column
        np.testing.assert_allclose(fitted.of(X[rows]), whole[rows], rtol=1e-12)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (
            table().assign(stage=["I"] * 8 + ["IV"] * 52),
            "labels that the fitted rows have in column 'stage', got 'IV' at row 8",
        ),
        (table().assign(age="old"), "numbers in column 'age', got categories"),
        (table().assign(smokes=1.0), "categories in column 'smokes', got numbers"),
        (table()[["age", "stage"]], "3 columns, as the fitted rows have, got 2"),
        (table()[["age", "smokes", "stage"]], "column 'stage' in its place, as the fitted rows have, got 'smokes'"),
    ],
)
def test_other_columns_than_the_fitted_ones_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        KernelFeatures(16).fit(table()).of(X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_conditional_loss_is_the_penalty_with_features(dtype):
    u, event, _, weights = rows(n=40, models=(2,))
    u = u.to(dtype)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    fitted = KernelFeatures(16).fit(x)
    loss = XCALLoss(10, conditional=fitted)
    h = fitted.of(x)
    expected = xcal_penalty(u, event, n_bins=10, features=h, estimator="unbiased", weights=weights)
    torch.testing.assert_close(loss(u, event, weights, X=x), expected)
    assert loss(u, event, X=x.reshape(40, 3, 1)).dtype == dtype  # images are flattened
    one = u[0].clone().requires_grad_()
    both = loss.with_mean(one, one, event, X=x)
    torch.testing.assert_close(both.penalty, xcal_penalty(one, event, n_bins=10, features=h, estimator="unbiased"))
    (wanted,) = torch.autograd.grad(both.penalty, one)
    torch.testing.assert_close(loss.slopes(one, event, X=x).slopes, wanted)


def test_a_conditional_loss_says_what_it_is():
    loss = XCALLoss(conditional=KernelFeatures(16).fit(np.zeros((5, 3))))
    assert "estimator='unbiased', conditional=<16 features of 3 columns>" in repr(loss)
    assert XCALLoss(conditional=KernelFeatures(16).fit(np.zeros((5, 3))), estimator="bound").spec.estimator == "bound"
    assert XCALLoss().spec.estimator == "bound"


def test_a_conditional_loss_needs_covariates_and_others_take_none():
    u, event, h, _ = rows()
    loss = XCALLoss(conditional=KernelFeatures(8).fit(h))
    with pytest.raises(ValueError, match="X: expected the covariates"):
        loss(u, event)
    with pytest.raises(ValueError, match="features: expected None, as conditional="):
        loss(u, event, features=h, X=h)
    with pytest.raises(ValueError, match="X: expected None, as this penalty was made without conditional="):
        XCALLoss()(u, event, X=h)
    with pytest.raises(ValueError, match="conditional: expected None or a maker of features"):
        XCALLoss(conditional=h)
    with pytest.raises(ValueError, match=r"that were fitted to all rows.*, got KernelFeatures"):
        XCALLoss(conditional=KernelFeatures(8))
    with pytest.raises(ValueError, match="one row per row of cdf"):
        loss(u, event, X=h[:-1])


def _share_of_conditional_loss(rank, size, sizes):
    """The loss of this process's rows, its gradient over the number of processes, and both of all rows at once."""
    u, event, h, _ = rows()
    fitted, places = KernelFeatures(8).fit(h), torch.arange(u.shape[-1]).split(sizes)
    found = []
    for own, group in ((places[rank], "world"), (torch.arange(u.shape[-1]), None)):
        leaf = u[..., own].clone().requires_grad_()
        value = XCALLoss(conditional=fitted, process_group=group)(leaf, event[..., own], X=h[own])
        value.sum().backward()
        found += [value.detach(), leaf.grad / (size if group else 1)]
    return *found, places[rank]


@pytest.mark.ci
def test_a_conditional_loss_across_processes_is_that_of_all_rows():
    n = rows()[0].shape[-1]
    for value, slopes, wanted, all_slopes, own in together(3, _share_of_conditional_loss, [n // 3, 0, n - n // 3]):
        torch.testing.assert_close(value, wanted)
        torch.testing.assert_close(slopes, all_slopes[..., own])
