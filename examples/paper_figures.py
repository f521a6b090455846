"""
The figures of the paper
========================

The figures of the X-CAL paper, and the three that explain where this library departs from it.

====================== ================================================================================
``soft_indicator.png`` the paper's soft indicator of I = [.45, .55] at several gammas, beside ours
``slope.png``          two calibration curves with slope 1 that are not calibrated, seen by D-calibration
``slack.png``          by how much the bound on a batch exceeds the value on all data
``gradient_noise.png`` signal and noise of the penalty's gradient for several memberships
``censored_mass.png``  total mass of the paper's softened censored term, which should be one
====================== ================================================================================

Every number that is drawn is also printed. In the gallery the script runs with ``--quick``, on fewer rows. The numbers
on the page about the penalty are those of ``python examples/paper_figures.py``, without it.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from xcal import XCALLoss, d_calibration, xcal_penalty
from xcal.calibration import SoftBins, membership
from xcal.calibration.bins import bin_edges
from xcal.calibration.membership import soft_membership

PAPER = {"membership": "product", "censored": "soft", "gamma": 1e4}
COLOURS = ("#1b9e77", "#d95f02", "#5e4fa2", "#e7298a", "#666666")


def save(figure: plt.Figure, folder: Path, name: str) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / name, dpi=110)
    print(f"saved {folder / name}\n")


def soft_indicator(folder: Path) -> None:
    """Membership of an event at u in the bin [.45, .55], for both memberships."""
    print("Soft indicator of I = [.45, .55]: membership at the middle of the bin, at its edge, and one bin away")
    u = torch.linspace(0.3, 0.7, 801, dtype=torch.float64)
    # The bin of interest between two others, so that its edges are inner edges and nothing is widened.
    edges = torch.tensor([0.0, 0.45, 0.55, 1.0], dtype=torch.float64)
    probe = torch.tensor([0.5, 0.55, 0.6], dtype=torch.float64)

    def product(gamma: float) -> Callable[[Tensor], Tensor]:
        return lambda x: membership.product(x, edges, gamma)[:, 1]

    def partition(temperature: float) -> Callable[[Tensor], Tensor]:
        # In units of the mean width, here a third, for a temperature in units of the bin that is drawn.
        spec = SoftBins(temperature=temperature * 0.1 * 3)
        return lambda x: soft_membership(x, torch.ones_like(x, dtype=torch.bool), edges, spec)[:, 1]

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    panels = (
        (left, product, (100.0, 1e3, 1e4, 1e5), "gamma", "product (the paper)"),
        (right, partition, (1.0, 0.5, 0.25, 0.1), "temperature", "partition (our default at 0.5)"),
    )
    for axis, make, settings, name, title in panels:
        for setting, colour in zip(settings, COLOURS, strict=False):
            zeta = make(setting)
            axis.plot(u, zeta(u), color=colour, label=f"{setting:g}")
            middle, edge, away = zeta(probe).tolist()
            print(f"  {title.split()[0]:<10}{name:>12} {setting:<8g} {middle:7.4f} {edge:7.4f} {away:7.4f}")
        axis.axvspan(0.45, 0.55, color="black", alpha=0.07, lw=0)
        axis.set(title=title, xlabel="u = F at the event time", ylim=(-0.02, 1.05))
        axis.legend(title=name, frameon=False, loc="upper left")
    left.set_ylabel("membership in [.45, .55]")
    save(figure, folder, "soft_indicator.png")

    print("gamma is not scale-free: membership at the middle of an inner bin, gamma = 1e4 and temperature = 0.5")
    for n_bins in (10, 20, 50, 100):
        edge = torch.from_numpy(bin_edges(n_bins))
        centre = (edge[n_bins // 2 : n_bins // 2 + 1] + edge[n_bins // 2 + 1]) / 2
        sharp = membership.product(centre, edge, 1e4).max().item()
        ours = soft_membership(centre, torch.tensor([True]), edge, SoftBins()).max().item()
        print(f"  {n_bins:>4} bins   product {sharp:.3f}   partition {ours:.3f}")
    print()


def slope(folder: Path) -> None:
    """Calibration curves P(F(T) <= rho) = rho + g(rho) with g chosen to leave the fitted slope at one."""
    print("Calibration slope: two curves that are not calibrated (1,000 rows, 10 bins)")
    pi = np.pi
    rho = np.linspace(0, 1, 2001)
    curves = {
        # Orthogonal to 1 and to rho, so that the line with an intercept is exactly the diagonal.
        "line with intercept": rho + 0.05 * (np.cos(4 * pi * rho) - np.cos(2 * pi * rho)),
        # Orthogonal to rho alone, so that the line through the origin is exactly the diagonal.
        "line through the origin": rho + 0.14 * (np.sin(2 * pi * rho) + 0.5 * np.sin(pi * rho)),
    }
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.1), sharey=True, layout="constrained")
    for axis, (name, curve) in zip(axes, curves.items(), strict=True):
        assert (np.diff(curve) > 0).all()
        fitted, intercept = np.polyfit(rho, curve, 1)
        origin = rho @ curve / (rho @ rho)
        # Rows at the quantiles of that curve: a data set without sampling noise.
        cdf = np.interp((np.arange(1000) + 0.5) / 1000, curve, rho)
        seen = d_calibration(cdf, np.ones(cdf.size))
        print(
            f"  {name:<24} slope {fitted:6.3f}, intercept {intercept:6.3f}, slope through the origin {origin:6.3f}; "
            f"D-cal {seen.value:.4f} (floor {seen.floor:.4f}), p = {seen.p_value:.1e}"
        )
        line = fitted * rho + intercept if "intercept" in name else origin * rho
        axis.plot(rho, curve, color=COLOURS[0], lw=2, label="calibration curve")
        axis.plot(rho, line, color="black", ls="--", lw=1, label="best line: slope 1.00")
        text = f"{name}\nD-cal {seen.value:.4f}, a perfect model {seen.floor:.4f}"
        axis.set_title(text, fontsize=11)
        axis.set(xlabel="predicted probability", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axis.legend(frameon=False, loc="lower right")
    axes[0].set_ylabel("observed share of events")
    save(figure, folder, "slope.png")


def slack(folder: Path, rows: int) -> None:
    """Penalty of a perfect model on batches of several sizes, by both estimators."""
    print(f"Jensen slack: mean penalty of a perfect model (uniform F, no censoring, 20 bins), {rows:,} rows per size")
    sizes, n_bins = (100, 500, 1000, 10_000), 20
    kinds = {"hard": PAPER | {"gamma": 1e7}, "paper": PAPER, "default": {}}
    generator = torch.Generator().manual_seed(0)
    means = {(kind, e): [] for e in ("bound", "unbiased") for kind in kinds}
    print(f"  {'batch':>7}{'(1-1/B)/M':>11}" + "".join(f"{k + ', ' + e:>22}" for k, e in means))
    for size in sizes:
        cdf = torch.rand(rows // size, size, generator=generator, dtype=torch.float64)
        happened = torch.ones(size, dtype=torch.bool)
        cells = ""
        for (kind, estimator), series in means.items():
            values = xcal_penalty(cdf, happened, n_bins=n_bins, estimator=estimator, **kinds[kind])
            series.append(values.mean().item())
            cells += f"{series[-1]:>12.6f} ±{(values.std() / len(values) ** 0.5).item():.6f}"
        print(f"  {size:>7}{(1 - 1 / n_bins) / size:>11.6f}{cells}")
    even = ((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000, torch.ones(200_000, dtype=torch.bool))
    paper, default = XCALLoss.paper(n_bins)(*even).item(), XCALLoss(n_bins)(*even).item()
    print(f"  on endless data the soft value of a perfect model is {paper:.6f} (paper) and {default:.6f} (default)")
    print("  hard: product membership at gamma = 1e7. The paper's table has .0019 at batch 500 and .0001 at 10000,")
    print("  for a model (lambda = 1000) whose exact D-calibration is .00006")

    figure, axis = plt.subplots(figsize=(7.2, 3.9), layout="constrained")
    axis.plot(sizes, [(1 - 1 / n_bins) / m for m in sizes], color="black", ls="--", lw=1, label="(1 - 1/B) / M")
    for kind, colour in zip(("paper", "default"), COLOURS, strict=False):
        axis.plot(sizes, means[kind, "bound"], marker="o", color=colour, label=f"{kind}, bound")
        axis.plot(sizes, means[kind, "unbiased"], marker="s", ls=":", color=colour, label=f"{kind}, unbiased")
    table = ([500, 10_000], [0.0019, 0.0001])
    axis.plot(*table, marker="*", ms=12, ls="", color="#e7298a", label="the paper's table")
    axis.set(xscale="log", xlabel="batch size M", ylabel="mean penalty of a perfect model")
    axis.set_yscale("symlog", linthresh=1e-4)
    axis.axhline(0, color="black", lw=0.6)
    axis.set_title("20 bins; the value on all data is near zero", fontsize=11)
    axis.set_ylim(-1e-4, 2e-2)
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, folder, "slack.png")


def gradient_noise(folder: Path, batches: int) -> None:
    """Differentiate the penalty of F = 1 - (1 - u)^theta in theta, on many batches of 1,000."""
    theta, size = 1.2, 1000
    print(
        f"Gradient noise: d penalty / d theta for F = 1 - (1 - u)^theta at theta = {theta}, {batches} batches of {size}"
    )
    generator = torch.Generator().manual_seed(1)
    happens, leaves = torch.rand(2, batches, size, generator=generator, dtype=torch.float64)
    settings: dict[str, dict[str, object]] = {
        "product 1e5": PAPER | {"gamma": 1e5},
        "product 1e4 (paper)": PAPER,
        "product 1e3": PAPER | {"gamma": 1e3},
        "partition 0.1": {"temperature": 0.1},
        "partition 0.25": {"temperature": 0.25},
        "partition 0.5 (default)": {"temperature": 0.5},
        "partition 1": {"temperature": 1.0},
        "partition 2": {"temperature": 2.0},
    }

    def exact(x: float) -> float:
        mass = -np.diff((1 - bin_edges(20)) ** (1 / x))
        return float(np.square(mass - 1 / 20).sum())

    print(f"  exact D-calibration on endless data, no censoring: {(exact(1.2001) - exact(1.1999)) / 2e-4:.5f}")
    print("  'at truth': the soft value of a perfect model on endless data without censoring, zero for exact bins")
    even = (torch.arange(50_000, dtype=torch.float64) + 0.5) / 50_000
    cases = {"no censoring": torch.ones_like(leaves), "half censored": leaves}
    ratios: dict[str, list[float]] = {}
    for case, ends in cases.items():
        print(f"  {case:<26}{'mean':>10}{'sd':>10}{'|mean|/sd':>11}{'at truth':>11}")
        ratios[case] = []
        u, event = torch.minimum(happens, ends), happens <= ends
        for name, setting in settings.items():
            # One theta per batch: leading dimensions are models, so every batch gives its own derivative.
            own = torch.full((batches, 1), theta, dtype=torch.float64, requires_grad=True)
            values = xcal_penalty(1 - (1 - u) ** own, event, **setting)
            (gradient,) = torch.autograd.grad(values.sum(), own)
            mean, sd = gradient.mean().item(), gradient.std().item()
            ratios[case].append(abs(mean) / sd)
            perfect = xcal_penalty(even, torch.ones_like(even), **setting).item()
            print(f"    {name:<24}{mean:>10.5f}{sd:>10.5f}{ratios[case][-1]:>11.2f}{perfect:>11.1e}")
    figure, axis = plt.subplots(figsize=(7.2, 3.9), layout="constrained")
    y = np.arange(len(settings))
    for shift, colour, (case, values) in zip((-0.19, 0.19), COLOURS, ratios.items(), strict=False):
        axis.barh(y + shift, values, height=0.36, color=colour, label=case)
    axis.set_yticks(y, list(settings))
    axis.invert_yaxis()
    axis.set_xlabel("signal to noise of the gradient, |mean| / sd over batches")
    axis.legend(frameon=False, loc="upper right")
    axis.set_title("A smoother membership gives a less noisy gradient", fontsize=11)
    save(figure, folder, "gradient_noise.png")


def gradient_equation() -> None:
    """Compare the paper's printed gradient of the bound with the full one and with automatic differentiation."""
    print("Gradient of the bound in F, 1,000 rows of a model 1.2x too fast, paper's membership, 20 bins")
    u = 1 - (1 - torch.rand(1000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)) ** 1.2
    edges, size = torch.from_numpy(bin_edges(20)), u.numel()
    free = u.clone().requires_grad_()
    naive = (membership.product(free, edges, 1e4).mean(0) - edges.diff()).square().sum()
    (autograd,) = torch.autograd.grad(naive, free)
    residual = membership.product(u, edges, 1e4) - edges.diff()
    slopes = membership.product(u, edges, 1e4, derivative=True)
    printed = (2 / size**2) * (residual * slopes).sum(-1)
    full = (2 / size) * (residual.mean(0) * slopes).sum(-1)
    free = u.clone().requires_grad_()
    (ours,) = torch.autograd.grad(XCALLoss.paper(20)(free, torch.ones_like(u)), free)
    largest = autograd.abs().max().item()
    for name, gradient in {"as printed": printed, "with the cross terms": full, "this library": ours}.items():
        difference = (gradient - autograd).abs().max().item() / largest
        print(f"  {name:<22} largest difference from autograd {difference:.1e} of its largest entry")
    print()


def censored_mass(folder: Path) -> None:
    """Sum over the bins of the softened and of the exact censored term."""
    print("Total mass of a row censored at F; it should be 1")
    u = torch.cat([torch.linspace(0, 0.99, 40_001), 1 - torch.logspace(-2, -4, 2000)]).double()
    probe = torch.tensor([0.5, 0.9, 0.97, 0.99, 0.999, 0.9999], dtype=torch.float64)

    def mass(x: Tensor, n_bins: int, gamma: float | None) -> Tensor:
        edges = torch.from_numpy(bin_edges(n_bins))
        if gamma is None:
            return soft_membership(x, torch.zeros_like(x, dtype=torch.bool), edges, SoftBins()).sum(-1)
        return membership.soft_censored(x, edges, gamma).sum(-1)

    drawn = {(20, 1e3): "#1b9e77", (20, 1e4): "#d95f02", (100, 1e4): "#5e4fa2", (20, None): "black"}
    print(f"  {'F':<28}" + "".join(f"{f:>10g}" for f in probe.tolist()) + f"{'least':>12}{'most':>9}")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.7), layout="constrained")
    for n_bins, gamma in ((20, 100.0), *drawn):
        name = f"{n_bins} bins, " + ("exact" if gamma is None else f"soft, gamma = {gamma:g}")
        whole = mass(u, n_bins, gamma)
        cells = "".join(f"{m:>10.4f}" for m in mass(probe, n_bins, gamma).tolist())
        print(f"  {name:<28}{cells}{whole.min().item():>12.4f}{whole.max().item():>9.4f}")
        if (n_bins, gamma) in drawn:
            style = {"color": drawn[n_bins, gamma], "label": name, "lw": 1.8 if gamma is None else 1.0}
            left.plot(u, whole, **style)
            right.plot(1 - u, whole, **style)
    left.set(xlabel="F at the censoring time", ylabel="total mass over all bins", xlim=(0, 0.99), ylim=(0.6, 1.4))
    right.set(xscale="log", xlabel="1 - F (certainty on the right)", xlim=(1, 1e-4), ylim=(-4, 2))
    right.legend(frameon=False, loc="lower left", fontsize=9)
    events = membership.product(torch.linspace(0, 1, 200_001).double(), torch.from_numpy(bin_edges(20)), 1e4).sum(-1)
    print(f"  an event, product, 20 bins, gamma = 1e4: between {events.min().item():.4f} and {events.max().item():.4f}")
    save(figure, folder, "censored_mass.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/paper"), help="folder for the pictures")
    parser.add_argument("--quick", action="store_true", help="fewer rows and batches: seconds, and noisier numbers")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    soft_indicator(options.out)
    slope(options.out)
    slack(options.out, rows=50_000 if options.quick else 1_000_000)
    gradient_noise(options.out, batches=100 if options.quick else 1000)
    censored_mass(options.out)
    gradient_equation()


if __name__ == "__main__":
    main()
