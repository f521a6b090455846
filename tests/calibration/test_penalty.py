import itertools
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.calibration import naive
from xcal import XCALLoss, xcal_penalty
from xcal.calibration import SoftBins, unchecked_penalty
from xcal.calibration.bins import bin_edges
from xcal.calibration.membership import soft_membership

MODES = list(itertools.product(("partition", "product"), ("exact", "soft"), ("bound", "unbiased")))
mode_table = pytest.mark.parametrize(("membership", "censored", "estimator"), MODES)
GAMMA = 300.0


def spec_of(membership, censored, estimator="bound", gamma=GAMMA):
    used = gamma if membership == "product" or censored == "soft" else None
    return SoftBins(membership, None, used, censored, estimator)


def options(membership, censored, estimator="bound", gamma=GAMMA):
    spec = spec_of(membership, censored, estimator, gamma)
    return {"membership": membership, "censored": censored, "estimator": estimator, "gamma": spec.gamma}


def batch(n=60, models=(), seed=0, censored=0.4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(*models, n, generator=generator, dtype=dtype) * 0.999
    return u, torch.rand(n, generator=generator) > censored


# ------------------------------------------------------------ against the paper's formula and finite differences


@mode_table
def test_value_and_gradient_equal_autograd_of_the_written_out_formula(membership, censored, estimator):
    u, event = batch(models=(3,))
    edges = torch.from_numpy(bin_edges(10))
    ours, theirs = u.clone().requires_grad_(), u.clone().requires_grad_()
    value = xcal_penalty(ours, event, n_bins=10, **options(membership, censored, estimator))
    zeta = naive.memberships(theirs, event, edges, membership=membership, censored=censored, gamma=GAMMA)
    expected = naive.estimate(zeta, edges, estimator)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-14)
    direction = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    (value @ direction).backward()
    (expected @ direction).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-12)


@mode_table
@pytest.mark.parametrize("grouped", [False, True])
def test_gradcheck(membership, censored, estimator, grouped):
    u, event = batch(n=24, models=(2,), seed=1)
    weights = torch.rand(24, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    groups = torch.arange(24) % 3 if grouped else None

    def value(x):
        return xcal_penalty(
            x, event, n_bins=5, weights=weights, groups=groups, **options(membership, censored, estimator, gamma=50.0)
        )

    assert torch.autograd.gradcheck(value, u.requires_grad_())


def test_uneven_edges_use_their_own_widths():
    u, event = batch()
    edges = torch.tensor([0.0, 0.1, 0.5, 0.8, 1.0], dtype=torch.float64)
    zeta = torch.where(event[:, None], naive.partition(u, edges, 0.5 * 0.25), naive.exact_censored(u, edges))
    expected = naive.estimate(zeta, edges, "bound")
    torch.testing.assert_close(xcal_penalty(u, event, edges=edges), expected, rtol=1e-12, atol=0)


def test_blocks_do_not_change_the_value(monkeypatch):
    u, event = batch(n=1000, models=(2,))
    groups = torch.arange(1000) % 4
    for estimator in ("bound", "unbiased"):
        whole = u.clone().requires_grad_()
        value = xcal_penalty(whole, event, estimator=estimator, groups=groups)
        value.sum().backward()
        monkeypatch.setattr("xcal.calibration.penalty.BLOCK", {"cpu": 2 * 20 * 37})
        parts = u.clone().requires_grad_()
        blocked = xcal_penalty(parts, event, estimator=estimator, groups=groups)
        blocked.sum().backward()
        monkeypatch.undo()
        torch.testing.assert_close(blocked, value, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-12, atol=1e-15)


# ------------------------------------------------------------ laws


@given(st.integers(0, 2**31), st.floats(0.01, 5), st.integers(2, 50))
@settings(max_examples=60, deadline=None)
def test_partition_and_exact_censored_memberships_sum_to_one(seed, temperature, n_bins):
    u, event = batch(n=50, seed=seed, censored=0.5)
    u = torch.cat([u, torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64)])
    event = torch.cat([event, torch.tensor([True, True, False, False])])
    spec = SoftBins(temperature=temperature)
    zeta = soft_membership(u, event, torch.from_numpy(bin_edges(n_bins)), spec)
    assert (zeta >= -1e-15).all()
    torch.testing.assert_close(zeta.sum(-1), torch.ones_like(u), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "sharpening",
    [
        [SoftBins("product", None, gamma, "soft") for gamma in (1e4, 1e5, 1e6)],
        [SoftBins(temperature=temperature) for temperature in (1e-1, 1e-2, 5e-4)],
    ],
    ids=["product", "partition"],
)
def test_soft_becomes_exact_as_it_sharpens(sharpening):
    u, event = batch(n=200)
    edges = torch.from_numpy(bin_edges(10))
    # On an edge the two never agree: a soft indicator is one half there.
    off_edge = (u[:, None] - edges).abs().min(-1).values > 1e-3
    u, event = u[off_edge], event[off_edge]
    inside = ((u[:, None] >= edges[:-1]) & (u[:, None] < edges[1:])).double()
    hard = torch.where(event[:, None], inside, naive.exact_censored(u, edges))
    errors = [(soft_membership(u, event, edges, spec) - hard).abs().max().item() for spec in sharpening]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6


@mode_table
def test_batch_bound_is_above_the_full_value_and_the_unbiased_one_averages_it(membership, censored, estimator):
    size, batches = 50, 400
    generator = torch.Generator().manual_seed(3)
    u = torch.rand(size * batches, generator=generator, dtype=torch.float64) ** 1.3 * 0.999
    event = torch.rand(size * batches, generator=generator) > 0.3
    setting = options(membership, censored, estimator, gamma=1e3)
    # Batches drawn with replacement are what the expectation is taken over.
    index = torch.randint(0, u.shape[0], (batches, size), generator=generator)
    values = xcal_penalty(u[index], event[index], **setting)
    full = xcal_penalty(u, event, **{**setting, "estimator": "bound"})
    if estimator == "bound":
        equal = xcal_penalty(u.view(batches, size), event.view(batches, size), **setting)
        assert equal.mean() >= full
    else:
        assert abs(values.mean() - full) < 3 * values.std() / batches**0.5


@mode_table
def test_row_order_does_not_matter(membership, censored, estimator):
    u, event = batch()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    setting = options(membership, censored, estimator)
    torch.testing.assert_close(xcal_penalty(u[order], event[order], **setting), xcal_penalty(u, event, **setting))


@mode_table
def test_leading_dimensions_are_models(membership, censored, estimator):
    u, event = batch(models=(2, 3))
    setting = options(membership, censored, estimator)
    stacked = xcal_penalty(u, event, **setting)
    assert stacked.shape == (2, 3)
    for i, j in itertools.product(range(2), range(3)):
        torch.testing.assert_close(stacked[i, j], xcal_penalty(u[i, j], event, **setting), rtol=1e-12, atol=1e-15)
    own = event.expand(2, 3, 60).clone()
    own[1, 2] = ~own[1, 2]
    torch.testing.assert_close(
        xcal_penalty(u, own, **setting)[1, 2], xcal_penalty(u[1, 2], ~event, **setting), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("estimator", ["bound", "unbiased"])
def test_weights_count_rows(estimator):
    u, event = batch(n=12)
    if estimator == "bound":
        times = torch.tensor([1, 2, 3] * 4)
        repeated = xcal_penalty(u.repeat_interleave(times), event.repeat_interleave(times))
        torch.testing.assert_close(xcal_penalty(u, event, weights=times.double()), repeated)
    kept = torch.tensor([1.0, 0.0, 1.0, 1.0] * 3)
    torch.testing.assert_close(
        xcal_penalty(u, event, weights=5 * kept, estimator=estimator),
        xcal_penalty(u[kept > 0], event[kept > 0], estimator=estimator),
    )


@pytest.mark.parametrize("estimator", ["bound", "unbiased"])
def test_groups_are_penalised_one_by_one_and_summed_with_their_shares(estimator):
    u, event = batch(n=90, models=(2,))
    labels = torch.tensor([7, -2, 7, 1000, 7, -2])[torch.arange(90) % 6]
    weights = torch.rand(90, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = 0.0
    for label in (7, -2, 1000):
        own = labels == label
        share = weights[own].sum() / weights.sum()
        expected = expected + share * xcal_penalty(u[:, own], event[own], weights=weights[own], estimator=estimator)
    value = xcal_penalty(u, event, weights=weights, groups=labels, estimator=estimator)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-15)


def test_an_empty_group_and_a_group_of_one_row_contribute_nothing_wrong():
    u, event = batch(n=10)
    labels = torch.tensor([0] * 9 + [3])
    for estimator in ("bound", "unbiased"):
        x = u.clone().requires_grad_()
        value = xcal_penalty(x, event, groups=labels, n_groups=5, estimator=estimator)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(x.grad).all()
    nine = xcal_penalty(u[:9], event[:9], estimator="unbiased")
    torch.testing.assert_close(value.detach(), 0.9 * nine, rtol=1e-12, atol=0)


def test_marginal_calibration_can_hide_groups_that_are_not():
    even = (torch.arange(500, dtype=torch.float64) + 0.5) / 500
    groups = (even > 0.5).long()
    event = torch.ones(500, dtype=torch.bool)
    assert xcal_penalty(even, event) < 1e-3
    assert xcal_penalty(even, event, groups=groups) > 0.02


# ------------------------------------------------------------ finite everywhere


@mode_table
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("u", "event"),
    [
        ([0.0], [True]),
        ([1.0], [True]),
        ([0.0], [False]),
        ([1.0], [False]),
        ([0.5], [True]),
        ([0.25, 0.5, 0.75], [True, False, True]),
        ([0.2, 0.999999, 1.0], [False, False, False]),
        ([0.99989, 0.9999, 0.99991, 1.0], [False, False, False, True]),
    ],
)
def test_values_and_gradients_are_finite_everywhere(membership, censored, estimator, dtype, u, event):
    x = torch.tensor(u, dtype=dtype, requires_grad=True)
    value = xcal_penalty(x, torch.tensor(event), n_bins=4, **options(membership, censored, estimator, gamma=1e4))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(x.grad).all()
    assert value.dtype == dtype


def test_one_row_has_no_pairs_to_estimate_from():
    u = torch.tensor([0.3], requires_grad=True)
    value = xcal_penalty(u, torch.tensor([True]), estimator="unbiased")
    value.backward()
    assert value == 0
    assert u.grad == 0


def test_half_precision_and_autocast_are_computed_in_float32():
    u, event = batch(n=400, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = u.clone().requires_grad_()
        inside = xcal_penalty(x, event, estimator="unbiased")
        inside.backward()
    y = u.clone().requires_grad_()
    outside = xcal_penalty(y, event, estimator="unbiased")
    outside.backward()
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, outside, rtol=0, atol=0)
    torch.testing.assert_close(x.grad, y.grad, rtol=0, atol=0)
    half = u.bfloat16().requires_grad_()
    value = xcal_penalty(half, event)
    value.backward()
    assert value.dtype == torch.float32
    assert half.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("options", [{}, {"estimator": "unbiased"}, {"features": True}])
def test_second_derivatives_under_autocast_are_computed_in_float32(options):
    u, event = batch(n=200, dtype=torch.float32)
    if options.get("features"):
        options = {"features": torch.randn(200, 8, generator=torch.Generator().manual_seed(1))}

    def second(*, inside):
        x = u.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            (slope,) = torch.autograd.grad(xcal_penalty(x, event, **options), x, create_graph=True)
            slope.square().sum().backward()
        return x.grad

    torch.testing.assert_close(second(inside=True), second(inside=False), rtol=1e-5, atol=0)


# ------------------------------------------------------------ compile, vmap, graphs, memory


@mode_table
def test_vmap(membership, censored, estimator):
    u, event = batch(models=(4,))

    def value(x):
        return xcal_penalty(x, event, **options(membership, censored, estimator))

    x = u.clone().requires_grad_()
    direct = value(x)
    direct.sum().backward()
    torch.testing.assert_close(torch.func.vmap(value)(u), direct.detach(), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(value))(u), x.grad, rtol=1e-12, atol=1e-15)


@pytest.mark.ci
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("loss", [XCALLoss(10), XCALLoss.paper(10), XCALLoss(10, estimator="unbiased")], ids=str)
def test_compile_without_a_graph_break(loss, backend):
    if backend == "inductor" and shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile's default backend needs a C++ compiler")
    torch._dynamo.reset()
    u, event = batch(models=(2,), n=50)
    groups = torch.arange(50) % 2
    x, y = u.clone().requires_grad_(), u.clone().requires_grad_()
    with warnings.catch_warnings():
        # Third-party deprecations inside the compiler are not ours to fail on.
        warnings.simplefilter("ignore")
        compiled = torch.compile(lambda v: loss(v, event, None, groups, 2), fullgraph=True, backend=backend)
        value = compiled(x)
        value.sum().backward()
    expected = loss(y, event, None, groups, 2)
    expected.sum().backward()
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("loss", [XCALLoss(), XCALLoss.paper(), XCALLoss(estimator="unbiased")], ids=str)
def test_cuda_graph(loss):
    loss = loss.cuda()
    u, event = batch(n=1000, models=(3,), dtype=torch.float32)
    static, event = u.cuda().requires_grad_(), event.cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(loss(static, event).sum(), static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(static, event)
        (gradient,) = torch.autograd.grad(value.sum(), static)
    fresh = torch.rand_like(u)
    with torch.no_grad():
        static.copy_(fresh)
    graph.replay()
    x = fresh.clone().requires_grad_()
    expected = loss.cpu()(x, event.cpu())
    expected.sum().backward()
    torch.testing.assert_close(value.cpu(), expected.detach(), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(gradient.cpu(), x.grad, rtol=1e-3, atol=1e-6)


class _LargestTensor(TorchDispatchMode):
    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out


@mode_table
def test_memory_does_not_grow_with_the_number_of_bins(membership, censored, estimator, monkeypatch):
    n = 4096
    monkeypatch.setattr("xcal.calibration.penalty.BLOCK", {"cpu": n})
    u, event = batch(n=n)
    saved = []
    for n_bins in (5, 80):
        x = u.clone().requires_grad_()
        kept = 0

        def keep(tensor):
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with _LargestTensor() as seen, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            xcal_penalty(x, event, n_bins=n_bins, **options(membership, censored, estimator)).backward()
        assert seen.largest <= n
        saved.append(kept)
    # Saved for the backward pass: F, event, weight and gradient of each row, and a few numbers a bin.
    assert saved[1] - saved[0] <= 10 * 80
    assert saved[1] <= 4 * n + 10 * 80


# ------------------------------------------------------------ module


def test_the_module_is_the_function():
    u, event = batch()
    torch.testing.assert_close(XCALLoss(15)(u, event), xcal_penalty(u, event, n_bins=15), rtol=1e-12, atol=0)
    paper = xcal_penalty(u, event, membership="product", gamma=1e4, censored="soft", estimator="bound")
    torch.testing.assert_close(XCALLoss.paper()(u, event), paper, rtol=1e-12, atol=0)
    edges = [0.0, 0.3, 1.0]
    torch.testing.assert_close(XCALLoss(edges=edges)(u, event), xcal_penalty(u, event, edges=edges))


@mode_table
def test_second_derivatives(membership, censored, estimator):
    """Through create_graph, with all cross terms: for gradient penalties and curvature."""
    u, event = batch(n=12, seed=4)
    setting = options(membership, censored, estimator, gamma=50.0)
    hessian = torch.autograd.functional.hessian(lambda x: xcal_penalty(x, event, n_bins=4, **setting), u)

    def gradient(x):
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(xcal_penalty(x, event, n_bins=4, **setting), x)
        return slope

    step = 1e-6
    rows = [(gradient(u + step * e) - gradient(u - step * e)) / (2 * step) for e in torch.eye(12, dtype=u.dtype)]
    torch.testing.assert_close(hessian, torch.stack(rows), rtol=1e-5, atol=1e-7)


def test_pandas_columns_are_read_by_position():
    u, event = batch(n=5)
    column = pd.Series(event.numpy(), index=[9, 8, 7, 6, 5])
    torch.testing.assert_close(xcal_penalty(u, column), xcal_penalty(u, event))


def test_half_precision_models_do_not_round_the_edges():
    u, event = batch()
    expected = XCALLoss()(u, event)
    torch.testing.assert_close(XCALLoss().bfloat16()(u, event), expected, rtol=1e-12, atol=0)
    assert XCALLoss().half().edges.dtype == torch.float64


def test_uneven_edges_show_in_the_repr():
    assert repr(XCALLoss(edges=[0, 0.25, 1])).startswith("XCALLoss(edges=[0.0, 0.25, 1.0], membership=")


def test_the_inner_function_does_not_look_at_values():
    edges = torch.from_numpy(bin_edges(20))
    value = unchecked_penalty(torch.tensor([float("nan"), 0.5]), torch.tensor([True, True]), edges, SoftBins())
    assert torch.isnan(value)


def test_training_with_the_penalty_calibrates():
    """A model that starts 1.5 times too fast finds its way to D-calibration."""
    generator = torch.Generator().manual_seed(0)
    time = torch.distributions.Exponential(1.0).icdf(torch.rand(5000, generator=generator) * 0.9999)
    event = torch.ones(5000, dtype=torch.bool)
    log_rate = torch.tensor(1.5).log().requires_grad_()
    optimiser = torch.optim.Adam([log_rate], lr=0.05)
    penalty = XCALLoss()
    for _ in range(100):
        optimiser.zero_grad()
        penalty(1 - torch.exp(-log_rate.exp() * time), event).backward()
        optimiser.step()
    assert abs(log_rate.exp().item() - 1) < 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(50,), (3, 50), (2, 3, 50)])
@pytest.mark.parametrize("own_event", [False, True])
def test_the_short_way_and_the_general_way_agree(dtype, shape, own_event, monkeypatch):
    """Small batches of the default penalty have a way of their own; rows on edges, at 0 and at 1 included."""
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(shape, generator=generator, dtype=torch.float64)
    u[..., :22] = torch.cat([torch.arange(21) / 20.0, torch.ones(1)]).double()
    event = torch.rand(shape if own_event else shape[-1:], generator=generator) < 0.5
    weights = torch.rand(event.shape, generator=generator)
    for weight in (None, weights):
        results = []
        for size in (1 << 19, 1):
            monkeypatch.setattr("xcal.calibration.penalty.BLOCK", {"cpu": size})
            x = u.to(dtype).requires_grad_()
            value = xcal_penalty(x, event, weights=weight)
            (gradient,) = torch.autograd.grad((value * (1 + torch.arange(value.numel()).view(value.shape))).sum(), x)
            results.append((value, gradient))
        tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", [{}, {"estimator": "unbiased"}, {"membership": "product", "censored": "soft"}])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [5e-324, 1e-300, 1e-40, 1e-30, 1e30, 1e38, 1e300])
def test_the_unit_of_the_weights_does_not_matter(options, grouped, dtype, factor):
    """Weights of any size, beyond what the type of F can hold or square too."""
    u = torch.tensor([0.1, 0.4, 0.6, 0.9, 0.3], dtype=dtype, requires_grad=True)
    event, weights = [1, 1, 0, 1, 0], np.array([1.0, 2.0, 1.0, 3.0, 0.0])
    groups = {"groups": [0, 1, 0, 1, 1]} if grouped else {}
    expected = xcal_penalty(u, event, weights=weights, n_bins=4, **options, **groups)
    value = xcal_penalty(u, event, weights=weights * factor, n_bins=4, **options, **groups)
    torch.testing.assert_close(value, expected)
    (slope,), (expected_slope,) = (torch.autograd.grad(x, u) for x in (value, expected))
    torch.testing.assert_close(slope, expected_slope)


def test_weights_of_usual_size_are_used_to_the_last_bit():
    """The unit is changed by powers of two, which rounds nothing."""
    u, event, weights = torch.rand(50), torch.rand(50) < 0.5, torch.rand(50)
    for power in (-3.0, 7.0, 20.0):
        assert torch.equal(xcal_penalty(u, event, weights=weights), xcal_penalty(u, event, weights=weights * 2**power))


@pytest.mark.parametrize("call", [XCALLoss(), xcal_penalty], ids=["module", "function"])
def test_a_column_is_not_many_models_of_one_row(call):
    cdf, event = torch.rand(50, 1), torch.ones(50, 1)
    with pytest.raises(ValueError, match=r"cdf: expected rows in the last dimension: .*squeeze.*50 models of one row"):
        call(cdf, event)
    # One row for each of several models, of which all see the same event, is what it says.
    assert call(cdf, torch.ones(1)).shape == (50,)
    assert call(cdf.squeeze(-1), event.squeeze(-1)).shape == ()
