"""torch.set_default_dtype is the user's business: no result may depend on it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.distributions.table import CASES, Case
from xcal import XCALLoss, xcal_penalty
from xcal.distributions import FAMILIES, family, quantile_edges
from xcal.metrics import evaluate

METHODS = ("log_prob", "log_density", "log_survival", "survival", "cdf", "hazard", "log_censored")
INTEGRALS = ("squared_cdf_below", "squared_survival_above")


def by_both_defaults(compute: Callable[[], Tensor]) -> None:
    results = []
    for default in (torch.float32, torch.float64):
        before = torch.get_default_dtype()
        torch.set_default_dtype(default)
        try:
            results.append(compute())
        finally:
            torch.set_default_dtype(before)
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("at", [0.7, 0.0, 2, 0], ids=["0.7", "0.0", "whole 2", "whole 0"])
def test_distributions(case: Case, dtype: torch.dtype, at: float) -> None:
    time = torch.full((case.n,), at, dtype=dtype if isinstance(at, float) else torch.int64)
    event = torch.arange(case.n) % 2 == 0
    for method in (*METHODS, *INTEGRALS):
        by_both_defaults(lambda m=method: getattr(case.make(*(p.to(dtype) for p in case.parameters)), m)(time))

    def together() -> Tensor:
        dist = case.make(*(p.to(dtype) for p in case.parameters))
        both = torch.stack(dist.log_likelihood_and_cdf(time, event))
        return torch.cat([both.flatten(), dist.survival_crps(time, event), dist.mean, dist.quantile(0.3)])

    by_both_defaults(together)
    # Whole numbers are times like all others.
    if not isinstance(at, float):
        dist = case.make(*(p.to(dtype) for p in case.parameters))
        for method in (*METHODS, *INTEGRALS):
            torch.testing.assert_close(
                getattr(dist, method)(time), getattr(dist, method)(time.to(dtype)), equal_nan=True
            )


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name: str) -> None:
    rng = np.random.default_rng(0)
    time, event = rng.exponential(size=60), rng.random(60) < 0.6
    edges = {"edges": quantile_edges(time, event, 5)} if name in ("categorical", "mtlr", "logistic-hazard") else {}
    by_both_defaults(lambda: family(name, **edges).initial(time, event))
    by_both_defaults(lambda: family(name, **edges).initial(time.tolist(), event.tolist()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"estimator": "unbiased"},
        {"membership": "product", "censored": "soft"},
        {"edges": [0, 0.3, 1]},
        {"weights": list(range(60))},
        {"groups": [0, 1] * 30},
        {"groups": [0, 1] * 30, "n_groups": 2},
    ],
    ids=str,
)
def test_penalty(dtype: torch.dtype, options: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    values, event = torch.from_numpy(rng.random(60)).to(dtype), (rng.random(60) < 0.6).tolist()

    def value_and_slope() -> Tensor:
        cdf = values.clone().requires_grad_()
        value = xcal_penalty(cdf, event, **options)
        return torch.cat([value.detach().unsqueeze(0), torch.autograd.grad(value, cdf)[0]])

    by_both_defaults(value_and_slope)
    by_both_defaults(lambda: XCALLoss(n_bins=10)(values, event))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_metrics(dtype: type) -> None:
    rng = np.random.default_rng(0)
    time, event, times = rng.exponential(size=60), rng.random(60) < 0.6, np.linspace(0.1, 3, 20)
    survival = np.exp(-times * rng.uniform(0.5, 2, 60)[:, None]).astype(dtype)

    def table() -> Tensor:
        scores = evaluate(time=time, event=event, survival=survival, times=times).scores
        return torch.tensor([score.value for score in scores], dtype=torch.float64)

    by_both_defaults(table)
