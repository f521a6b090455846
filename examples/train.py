"""
A training loop with the penalty
================================

Train one small model without and with the X-CAL penalty, and measure both on fresh rows.

Event times are exponential given the covariates; the model is log-normal, so no setting of it is right. The penalty
asks it to be wrong in a way that leaves its probabilities right on average.
The gallery trains for fewer epochs than ``python examples/train.py`` does.
"""

import argparse
from itertools import product

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from xcal import DCalibrationResult, XCALLoss, d_calibration


def simulate(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Covariates, observed times and events; about 40 % of the rows are censored."""
    x = torch.randn(n, 5, generator=generator)
    happens = -torch.rand(n, generator=generator).log() * (x[:, 0] - 0.5 * x[:, 1]).exp()
    leaves = -torch.rand(n, generator=generator).log() * 1.5
    return x, torch.minimum(happens, leaves), happens <= leaves


def log_normal(model: nn.Module, x: Tensor, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """F at each row's observed time, and the logarithms of density and survival there."""
    loc, log_scale = model(x).unbind(-1)
    z = (time.log() - loc) / log_scale.exp()
    log_density = -0.5 * z.square() - log_scale - time.log() - 0.9189385
    return torch.special.ndtr(z), log_density, torch.special.log_ndtr(-z)


def train(lam: float, penalty: XCALLoss, rows: tuple[Tensor, Tensor, Tensor], epochs: int) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows[0])).split(500):
            x, time, event = (column[batch] for column in rows)
            cdf, log_density, log_survival = log_normal(model, x, time)
            nll = -torch.where(event, log_density, log_survival).mean()
            loss = nll + lam * penalty(cdf, event)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def draw(seen: dict[str, DCalibrationResult]) -> None:
    """Draw the mass of each bin of F; a calibrated model has all bars at the same height."""
    _, axes = plt.subplots(1, len(seen), figsize=(2.6 * len(seen), 2.8), sharey=True, layout="constrained")
    for axis, (name, result) in zip(axes, seen.items(), strict=True):
        edges = result.edges
        axis.bar(edges[:-1], result.histogram, edges[1:] - edges[:-1], align="edge", color="#2f6db5", edgecolor="white")
        axis.axhline(1 / len(result.histogram), color="black", ls="--", lw=1)
        axis.set(title=f"{name}\nD-cal {result.value:.4f}", xlabel="F at the event")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share of the events")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lam", type=float, nargs="+", default=[0.0, 10.0, 100.0], help="weights of the penalty")
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    rows, (x, time, event) = simulate(10_000, generator), simulate(20_000, generator)
    print(f"{'penalty':>8}{'lam':>6}{'NLL':>9}{'D-cal (km)':>12}{'floor':>10}")
    penalties = {"default": XCALLoss(n_bins=20), "paper": XCALLoss.paper(n_bins=20)}
    results = {}
    for (name, penalty), lam in product(penalties.items(), options.lam):
        model = train(lam, penalty, rows, options.epochs)
        with torch.no_grad():
            cdf, log_density, log_survival = log_normal(model, x, time)
        nll = -torch.where(event, log_density, log_survival).mean().item()
        seen = results[f"{name}, lam {lam:g}"] = d_calibration(cdf, event, method="km")
        print(f"{name:>8}{lam:>6g}{nll:>9.4f}{seen.value:>12.5f}{seen.floor:>10.5f}")
    draw(results)


if __name__ == "__main__":
    main()
