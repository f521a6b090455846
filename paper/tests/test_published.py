"""The room of the published code: what it counts and ranks by, and who imports it."""

import subprocess
import sys

import pytest
import torch
from scipy import stats

from xcal.distributions import Categorical, LogNormal, Weibull, family
from xcal.objectives import nll, survival_crps
from xcal_paper.published import Shifted, counted_as_event, published_nll, published_survival_crps, ranking_time

# Bins (1, 2], (2, 4], (4, 8].
EDGES = [1.0, 2.0, 4.0, 8.0]
MASS = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
TIME, EVENT = torch.tensor([0.5, 3.0, 9.0], dtype=torch.float64), torch.tensor([True, False, False])


def test_a_censored_row_in_the_last_bin_counts_as_an_event_in_steps_only():
    time, censored = torch.tensor([[1.5], [4.0], [4.1], [9.0]]).double(), torch.zeros(4, 1, dtype=torch.bool)
    step, linear = (Categorical(MASS.log(), EDGES, interpolation) for interpolation in ("step", "linear"))
    assert counted_as_event(step, time, censored).flatten().tolist() == [False, False, True, True]
    assert not counted_as_event(linear, time, censored).any()
    # Read 0.2 later, 3.9 falls into the last bin too.
    shifted = Shifted(step, 0.2)
    assert counted_as_event(shifted, torch.tensor([[3.7], [3.9]]).double(), censored[:2]).flatten().tolist() == [
        False,
        True,
    ]


def test_rows_are_ranked_by_mid_points_mode_and_median():
    for interpolation in ("step", "linear"):
        ranked = ranking_time(Categorical(MASS.log(), EDGES, interpolation))
        assert ranked.item() == pytest.approx(0.2 * 1.5 + 0.5 * 3 + 0.3 * 6)
    location, scale = torch.tensor([0.3]).double(), torch.tensor([0.7]).double()
    lognormal = LogNormal(location, scale.log())
    for dist in (lognormal, Shifted(lognormal, 1e-4)):
        mode = ranking_time(dist)
        law = stats.lognorm(s=0.7, scale=torch.exp(location).item())
        assert law.pdf(mode.item()) > max(law.pdf(mode.item() * 0.99), law.pdf(mode.item() * 1.01))
    weibull = Shifted(Weibull(torch.tensor([2.0]).double(), torch.tensor([1.5]).double()), 1e-4)
    assert ranking_time(weibull).item() == pytest.approx(stats.weibull_min(1.5, scale=2.0).median() - 1e-4)


@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_the_public_options_and_the_objectives_are_the_same(interpolation):
    dist = Categorical(MASS.log().expand(3, 3), EDGES, interpolation)
    assert torch.equal(nll(dist, TIME, EVENT, as_published=True), published_nll(dist, TIME, EVENT))
    lognormal = family("lognormal-published").distribution(torch.zeros(3, 2, dtype=torch.float64))
    ours = published_survival_crps(lognormal, TIME, EVENT)
    assert torch.equal(survival_crps(lognormal, TIME, EVENT, as_published=True), ours)


def test_objectives_check_their_rows():
    for objective in (published_nll, published_survival_crps):
        with pytest.raises(ValueError, match="event: expected a boolean tensor"):
            objective(LogNormal(torch.zeros(3), torch.zeros(3)), TIME.float(), EVENT.float())


@pytest.mark.ci
def test_nobody_imports_the_room_who_does_not_ask_for_it():
    code = (
        "import sys, xcal.estimators, xcal.training, xcal.metrics, xcal.recalibration\n"
        "assert 'xcal_paper.published' not in sys.modules\n"
        "from xcal.distributions import family\n"
        "family('weibull'); assert 'xcal_paper.published' not in sys.modules\n"
        "family('weibull-published'); assert 'xcal_paper.published' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
