"""The paper's own figures, and the facts about its penalty that its text does not tell."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from xcal import XCALLoss, d_calibration, xcal_penalty
from xcal.calibration import SoftBins
from xcal.calibration.bins import bin_edges
from xcal.calibration.membership import SATURATED, product, soft_censored, soft_membership

EVENTS = torch.ones(1, dtype=torch.bool)


def test_slack_of_the_jensen_table():
    """At calibration the bound exceeds D-calibration by (1 - 1/B) / M: the 0.0019 of the table for M = 500, B = 20."""
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(2000, 500, generator=generator, dtype=torch.float64)
    event = torch.ones(500, dtype=torch.bool)
    # Sharp bins: the slack of the exact histogram.
    bound = xcal_penalty(u, event, temperature=1e-4)
    expected = (1 - 1 / 20) / 500
    assert round(expected, 4) == 0.0019
    assert abs(bound.mean() - expected) < 4 * bound.std() / 2000**0.5
    unbiased = xcal_penalty(u, event, temperature=1e-4, estimator="unbiased")
    assert abs(unbiased.mean()) < 4 * unbiased.std() / 2000**0.5


@pytest.mark.parametrize(("n_bins", "membership"), [(10, 1.00), (20, 0.998), (50, 0.73), (100, 0.56)])
def test_gamma_is_not_scale_free(n_bins, membership):
    edges = torch.from_numpy(bin_edges(n_bins))
    middle = (edges[n_bins // 2] + edges[n_bins // 2 + 1]) / 2
    value = product(middle[None], edges, 1e4)[0, n_bins // 2].item()
    assert value == pytest.approx(membership, abs=0.005)


@pytest.mark.parametrize("n_bins", [10, 20, 50, 100])
def test_a_temperature_in_bin_widths_is(n_bins):
    edges = torch.from_numpy(bin_edges(n_bins))
    middle = (edges[n_bins // 2] + edges[n_bins // 2 + 1]) / 2
    value = soft_membership(middle[None], EVENTS, edges, SoftBins())[0, n_bins // 2].item()
    # sigma(1) - sigma(-1): half a bin width from both edges at a temperature of half a bin width.
    assert value == pytest.approx(2 / (1 + np.exp(-1)) - 1, rel=1e-9)


def test_product_memberships_of_one_point_do_not_sum_to_one():
    edges = torch.from_numpy(bin_edges(20))
    mass = product(torch.linspace(0, 1, 20_001, dtype=torch.float64), edges, 1e4).sum(-1)
    assert mass.min().item() == pytest.approx(0.56, abs=0.01)
    assert mass.max().item() == pytest.approx(1.44, abs=0.01)


def test_the_soft_censored_term_loses_mass():
    edges = torch.from_numpy(bin_edges(20))
    u = torch.tensor([SATURATED], dtype=torch.float64)
    assert soft_censored(u, edges, 1e3).sum().item() == pytest.approx(-2.4, abs=0.1)
    exact = soft_membership(u, ~EVENTS, edges, SoftBins()).sum().item()
    assert exact == pytest.approx(1, abs=1e-12)


def test_the_paper_counts_all_but_certain_censored_rows_as_events():
    edges = torch.from_numpy(bin_edges(20))
    u = torch.tensor([0.99995], dtype=torch.float64)
    spec = XCALLoss.paper().spec
    torch.testing.assert_close(
        soft_membership(u, ~EVENTS, edges, spec), soft_membership(u, EVENTS, edges, spec), rtol=0, atol=0
    )


def test_the_last_bin_can_only_be_left_downwards():
    """The appendix on boundary bins: with the outer edge at 2 no F in the last bin is pushed further up."""
    edges = torch.from_numpy(bin_edges(20))
    u = torch.linspace(0.951, 0.99999, 50, dtype=torch.float64)
    assert (product(u, edges, 1e4, derivative=True)[:, -1] >= 0).all()
    u = torch.linspace(0.0001, 0.049, 50, dtype=torch.float64)
    assert (product(u, edges, 1e4, derivative=True)[:, 0] <= 0).all()


def test_the_printed_gradient_drops_the_cross_terms():
    """The gradient needs the batch mean of the residual; the printed one has each row's own residual in its place."""
    u = torch.rand(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    edges = torch.from_numpy(bin_edges(5))
    event = torch.ones(30, dtype=torch.bool)
    xcal_penalty(u, event, n_bins=5, membership="product", gamma=50.0).backward()
    zeta, slope = (product(u.detach(), edges, 50.0, derivative=d) for d in (False, True))
    residual = zeta - edges.diff()
    right = 2 / 30 * (residual.mean(0) * slope).sum(-1)
    printed = 2 / 30**2 * (residual * slope).sum(-1)
    torch.testing.assert_close(u.grad, right, rtol=1e-12, atol=1e-15)
    assert (printed - right).abs().max() > 0.1 * right.abs().max()


def test_calibration_slope_one_does_not_mean_calibrated():
    """Two curves of observed against predicted whose best line has slope one, seen through by D-calibration."""
    rho = (np.arange(2000) + 0.5) / 2000
    # Orthogonal to 1 and to rho: slope one and intercept zero, whether the line has an intercept or not.
    both = rho + 0.05 * (np.cos(2 * np.pi * rho) - np.cos(4 * np.pi * rho))
    # Orthogonal to rho alone: slope one for the line through the origin.
    origin = rho + 0.1 * (np.sin(2 * np.pi * rho) + 0.5 * np.sin(np.pi * rho))
    slope, intercept = np.polyfit(rho, both, 1)
    assert (slope, intercept) == (pytest.approx(1, abs=1e-5), pytest.approx(0, abs=1e-5))
    for observed in (both, origin):
        assert (np.diff(observed) > 0).all()
        assert observed @ rho / (rho @ rho) == pytest.approx(1, abs=1e-5)
        # F values whose distribution function is the curve: more mass where the curve is steep.
        result = d_calibration(np.interp(rho, observed, rho), np.ones(2000))
        assert result.value > 10 * result.floor
        assert result.p_value < 1e-6


@pytest.mark.ci
def test_the_scripts_behind_the_pictures_run_and_tell_the_truth(tmp_path):
    """The figures script prints what it draws; two of its lines have a value that is known for any number of rows."""
    script = Path(__file__).parents[2] / "examples" / "paper_figures.py"
    command = [sys.executable, str(script), "--quick", "--out", str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "MPLBACKEND": "Agg"})
    exact = next(line for line in out.stdout.splitlines() if "20 bins, exact" in line)
    assert {float(x) for x in exact.split("exact")[1].split()} == {1.0}
    middle = [line for line in out.stdout.splitlines() if "bins   product" in line]
    assert {line.split()[-1] for line in middle} == {"0.462"}
    assert len(list(tmp_path.glob("*.png"))) == 5
