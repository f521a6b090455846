import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from xcal.distributions import (
    FAMILIES,
    MTLR,
    Categorical,
    Family,
    LogLogistic,
    LogNormal,
    Weibull,
    family,
    quantile_edges,
)
from xcal_paper.published import Shifted

EDGES = [0.0, 1.0, 2.0, 4.0]
CONTINUOUS = ("lognormal", "lognormal-published", "weibull", "weibull-published", "loglogistic")
DISCRETE = ("categorical", "mtlr", "logistic-hazard")


def make(name: str) -> Family:
    return family(name, edges=EDGES) if name in DISCRETE else family(name)


def test_the_registry_is_complete() -> None:
    assert set(FAMILIES) == {*CONTINUOUS, *DISCRETE}


@pytest.mark.parametrize("name", FAMILIES)
def test_raw_outputs_of_any_shape_make_a_distribution(name: str) -> None:
    made = make(name)
    raw = torch.randn(4, 5, made.n_outputs, generator=torch.Generator().manual_seed(0))
    assert made.distribution(raw).batch_shape == (4, 5)
    assert made.distribution(raw.bfloat16()).median.dtype == torch.float32
    with pytest.raises(ValueError, match=rf"raw: expected shape \(..., n, {made.n_outputs}\), got \(4, 7\)"):
        made.distribution(torch.zeros(4, 7))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("raw", [-1e4, -50.0, 0.0, 50.0, 1e4])
def test_extreme_raw_outputs_stay_finite(name: str, raw: float) -> None:
    """Nothing overflows on the way from raw outputs to F and S, whatever an untrained network gives."""
    made = make(name)
    outputs = torch.full((1, made.n_outputs), raw, requires_grad=True)
    dist = made.distribution(outputs)
    time = torch.tensor([[0.5], [3.0]])
    assert dist.cdf(time).isfinite().all()
    assert dist.survival(time).isfinite().all()


def test_corrected_parameters() -> None:
    raw = torch.tensor([[0.4, -3.5]], dtype=torch.float64)
    lognormal = family("lognormal").distribution(raw)
    assert isinstance(lognormal, LogNormal)
    assert (lognormal.loc.item(), lognormal.scale.item()) == pytest.approx((0.4, math.exp(-3.5)))
    for name, kind in (("weibull", Weibull), ("loglogistic", LogLogistic)):
        dist = family(name).distribution(raw)
        assert isinstance(dist, kind)
        assert (dist.scale.item(), dist.concentration.item()) == pytest.approx((math.exp(0.4), math.exp(-3.5)))


@pytest.mark.parametrize("raw", [-30.0, -1.0, 0.0, 2.0, 40.0])
def test_published_log_normal(raw: float) -> None:
    dist = family("lognormal-published").distribution(torch.tensor([[0.4, raw]], dtype=torch.float64))
    scale = np.exp(np.minimum(np.logaddexp(0.0, raw) - 0.5, 10.0)) + 1e-4
    assert scale >= 0.606
    time = torch.tensor([0.7], dtype=torch.float64)
    twin = stats.lognorm(s=scale, scale=np.exp(0.4))
    assert dist.cdf(time).item() == pytest.approx(twin.cdf(0.7 + 1e-4), rel=1e-10)
    assert dist.log_prob(time).item() == pytest.approx(twin.logpdf(0.7 + 1e-4), rel=1e-10)


def test_published_weibull() -> None:
    dist = family("weibull-published").distribution(torch.tensor([[0.4, -1.3]], dtype=torch.float64))
    twin = stats.weibull_min(c=1 + special.expit(-1.3), scale=1 + np.exp(0.4))
    time = torch.tensor([0.7], dtype=torch.float64)
    assert isinstance(dist, Shifted)
    assert dist.cdf(time).item() == pytest.approx(twin.cdf(0.7 + 1e-4), rel=1e-10)
    assert dist.log_prob(time).item() == pytest.approx(twin.logpdf(0.7 + 1e-4), rel=1e-10)


@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_discrete_families_pass_edges_and_interpolation_on(interpolation: str) -> None:
    raw = torch.tensor([[0.1, 0.7, -0.4]], dtype=torch.float64)
    time = torch.tensor([1.3], dtype=torch.float64)
    made = family("categorical", edges=EDGES, interpolation=interpolation)
    assert torch.equal(made.distribution(raw).cdf(time), Categorical(raw, EDGES, interpolation).cdf(time))
    made = family("mtlr", edges=EDGES, interpolation=interpolation)
    assert torch.equal(made.distribution(raw[:, :2]).cdf(time), MTLR(raw[:, :2], EDGES, interpolation).cdf(time))


def test_calling_the_registry_makes_a_family_too() -> None:
    assert FAMILIES["categorical"](edges=EDGES, interpolation="step").n_outputs == 3
    assert FAMILIES["mtlr"](edges=EDGES).n_outputs == 2
    assert FAMILIES["weibull"]().n_outputs == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gaussian", {}, "name: expected one of 'mtlr', .*'weibull', .*, got 'gaussian'"),
        ("categorical", {}, "edges: expected time edges, which the categorical family needs"),
        ("categorical", {"edges": EDGES, "interpolation": "cubic"}, "expected one of 'step', 'linear', got 'cubic'"),
        ("categorical", {"edges": [2.0, 1.0]}, "edges: expected a value larger than the one before"),
        ("mtlr", {"edges": [1.0, 2.0]}, "edges: expected three or more edges"),
        ("weibull", {"edges": EDGES}, "edges: expected no edges"),
        ("weibull", {"interpolation": "step"}, "the weibull family is continuous"),
    ],
)
def test_bad_options(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        family(name, **options)


# --- first guesses ---


def censored_sample(draws: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    limit = np.random.default_rng(seed).exponential(2 * np.median(draws), size=draws.size)
    return np.minimum(draws, limit), draws <= limit


@pytest.mark.parametrize(
    ("name", "law", "expected"),
    [
        ("lognormal", stats.lognorm(s=0.5, scale=math.exp(1.0)), (1.0, math.log(0.5))),
        ("weibull", stats.weibull_min(c=1.5, scale=3.0), (math.log(3.0), math.log(1.5))),
        ("loglogistic", stats.fisk(c=2.5, scale=3.0), (math.log(3.0), math.log(2.5))),
    ],
)
@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_first_guess_finds_the_parameters_of_censored_data(
    name: str, law: object, expected: tuple[float, float], convert: object
) -> None:
    time, event = censored_sample(law.rvs(5000, random_state=1), seed=2)
    assert 0.15 < 1 - event.mean() < 0.6
    guess = family(name).initial(convert(time), convert(event))
    assert guess.tolist() == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("kind", ["entry", "intervals"])
@pytest.mark.parametrize("name", ["weibull", "lognormal", "mtlr", "logistic-hazard"])
def test_first_guess_of_rows_that_are_seen_in_part(name: str, kind: str) -> None:
    """Rows that entered late, and events found at visits, start from the law of all times, not from another."""
    law = stats.lognorm(s=0.5, scale=2.0) if name == "lognormal" else stats.weibull_min(c=1.5, scale=3.0)
    rng = np.random.default_rng(5)
    draws = law.rvs(6000, random_state=6)
    if kind == "entry":
        entry = np.where(rng.random(6000) < 0.3, 0.0, 4 * rng.random(6000))
        kept = draws > entry
        time, event = censored_sample(draws[kept], seed=7)
        late = time > entry[kept]
        time, event, known = time[late], event[late], {"entry": entry[kept][late]}
    else:
        visits = 1.5 * rng.random(6000)[:, None] + 1.5 * np.arange(4)
        passed = (visits < draws[:, None]).sum(1)
        ends = np.column_stack([np.zeros(6000), visits])
        lower = ends[np.arange(6000), passed]
        event = passed < 4
        time = np.where(event, ends[np.arange(6000), np.minimum(passed + 1, 4)], lower)
        known = {"lower": lower}
    made = family(name, edges=np.linspace(0, 12, 13)) if name in DISCRETE else family(name)
    off = []
    for given in (known, {}):
        dist = made.distribution(made.initial(time, event, **given).unsqueeze(0))
        points = torch.arange(1.0, 6.0, dtype=torch.float64).unsqueeze(-1)
        off.append(np.abs(dist.cdf(points).flatten().numpy() - law.cdf(points.flatten().numpy())).max())
    assert off[0] < 0.05
    assert off[1] > 0.08


@pytest.mark.parametrize("name", DISCRETE)
def test_first_guess_of_a_discrete_family_is_the_kaplan_meier_curve(name: str) -> None:
    from lifelines import KaplanMeierFitter

    time, event = censored_sample(stats.gamma(2.0).rvs(4000, random_state=3), seed=4)
    edges = quantile_edges(time, event, 10)
    made = family(name, edges=edges, interpolation="step")
    dist = made.distribution(made.initial(time, event).unsqueeze(0))
    curve = KaplanMeierFitter().fit(time, event).predict(edges[1:-1].numpy()).to_numpy()
    # Half a row is added to each bin: 5 rows in 4000.
    np.testing.assert_allclose(dist.survival(edges[1:-1].unsqueeze(-1)).flatten().numpy(), curve, atol=2e-3)


def test_an_empty_bin_starts_small_and_finite() -> None:
    made = family("categorical", edges=[0.0, 1.0, 2.0, 3.0])
    guess = made.initial([0.5, 0.6, 2.5], [True, True, True])
    assert guess.exp().tolist() == pytest.approx([2.5 / 4.5, 0.5 / 4.5, 1.5 / 4.5])


@pytest.mark.parametrize("name", ["lognormal-published", "weibull-published"])
def test_published_families_start_at_zero(name: str) -> None:
    assert family(name).initial([1.0, 2.0], [True, True]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["lognormal", "weibull", "loglogistic"])
def test_one_distinct_event_time_gives_a_unit_scale(name: str) -> None:
    guess = family(name).initial([2.0, 2.0, 3.0], [True, True, False])
    assert guess[1].item() == 0.0
    assert guess.isfinite().all()


@pytest.mark.parametrize("name", ["lognormal", "weibull", "loglogistic", "categorical", "mtlr"])
@pytest.mark.parametrize(
    ("time", "event", "message"),
    [
        ([1.0, 2.0], [False, False], "event: expected at least one event"),
        ([1.0, math.nan], [True, True], "time: expected finite times, zero or larger, got nan at row 1"),
        ([1.0, -2.0], [True, True], "time: expected finite times, zero or larger, got -2.0 at row 1"),
        ([1.0, 2.0], [True], "event: expected 2 rows"),
        ([], [], "time: expected at least one row"),
    ],
)
def test_bad_training_times(name: str, time: list[float], event: list[bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(name).initial(np.array(time), np.array(event))


@pytest.mark.parametrize("name", ["lognormal", "weibull", "loglogistic"])
def test_an_event_at_time_zero_is_refused_with_advice(name: str) -> None:
    with pytest.raises(ValueError, match=r"time: expected event times larger than zero .* discrete family.* at row 1"):
        make(name).initial([1.0, 0.0, 2.0], [True, True, True])
    assert make(name).initial([1.0, 0.0, 2.0], [True, False, True]).isfinite().all()


@pytest.mark.parametrize("name", DISCRETE)
def test_an_event_at_time_zero_is_legal_in_bins(name: str) -> None:
    assert make(name).initial([0.0, 1.0, 3.0], [True, True, True]).isfinite().all()


@pytest.mark.parametrize("name", ["lognormal", "weibull", "loglogistic", *DISCRETE])
@pytest.mark.parametrize("factor", [365.25, 0.1])
def test_a_scaled_distribution_is_that_of_a_multiple_of_the_time(name: str, factor: float) -> None:
    """P(factor T <= factor t) = P(T <= t), and quantiles are as many times as large."""
    made = make(name)
    raw = torch.randn(6, made.n_outputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    dist, scaled = made.distribution(raw), made.scaled(raw, factor)
    time = torch.linspace(0.1, 5.0, 6, dtype=torch.float64)
    torch.testing.assert_close(scaled.cdf(time * factor), dist.cdf(time))
    torch.testing.assert_close(scaled.quantile(0.3), dist.quantile(0.3) * factor)


@pytest.mark.parametrize("name", ["lognormal-published", "weibull-published"])
def test_published_families_keep_their_unit_of_time(name: str) -> None:
    with pytest.raises(
        ValueError, match="family: expected one that can be read in another unit of time, got Published"
    ):
        make(name).scaled(torch.zeros(3, 2), 2.0)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_moves_with_all_its_tensors(name: str) -> None:
    """The meta device has no values, so that what is left behind would be seen."""
    made = make(name).to("meta")
    assert type(made) is type(make(name))
    held = [value for value in vars(made).values() if isinstance(value, torch.Tensor)]
    assert len(held) == (name in DISCRETE)
    assert all(value.device.type == "meta" for value in held)
