"""Training or recalibration on Survival MNIST, and for which digits it makes a model right.

Claim: none in advance. The digit decides the time of an image, and no model sees it: a group that the images show and
the covariates do not name.

- Data: censored Survival MNIST (``XCAL_DATA``), 60,000 images to train on, 5,000 that choose epochs and weights and
  that maps are fitted to, 5,000 to test on.
- Models: the log-normal and the interpolated categorical model of the specs, in the variant "corrected": dense layers
  (`mnist-dense`), or with ``--networks cnn`` the paper's convolutions (`mnist-censored`). Seeds are those of training.
- Penalties, each with the weights of ``--lambdas``: marginal (X-CAL), within digits (indicators of the digits over the
  root of their share, so that the penalty is the mean of the digits' D-calibration), and conditional, 128 features of a
  kernel. Its columns cannot be the 784 pixels; they are the first ten principal components of the pixels ("pixels"), or
  of the last hidden layer of the network trained without a penalty ("layer"; of the log-normal, that of its location).
- The weight of a penalty is the largest whose NLL on the validation rows is at most one standard error above that of
  lambda 0; lines of the others are kept too, with ``"chosen": false``, and ``--all`` shows them.
- Each as it is, recalibrated by one map of F (Kaplan-Meier), and by one map per digit.
- Measured on the test rows: K by the components of the pixels, D-calibration in excess of its floor, the digit with the
  largest excess ("worst"), NLL by density, Brier score integrated to the 90 % quantile of the times, Harrell's
  concordance. K and D-calibration in 1e-3 with 10 bins. Errors are those over seeds.

One line of JSON per model and map; the same command again resumes.

    python -m studies.for_whom_mnist --out for_whom_mnist.jsonl --device cuda
    python -m studies.for_whom_mnist --out for_whom_mnist.jsonl --show --all
"""

import argparse
import time as clock
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from studies._for_whom import (
    TIMES,
    Line,
    Mapped,
    append,
    is_allowed,
    lines_of,
    maps_of,
    measured,
    show,
    values_of,
)
from xcal import fit_path
from xcal.calibration import KernelFeatures
from xcal.data import SurvivalData
from xcal.distributions import SurvivalDistribution, quantile_edges
from xcal.networks import TwoTower
from xcal.training import PathResult, TrainingConfig
from xcal_paper import load_spec, load_survival_mnist
from xcal_paper.models import make_family, make_network, make_objective

SPECS = {"dense": "mnist-dense", "cnn": "mnist-censored"}
MODELS = ("lognormal-nll", "categorical-i")
LAMBDAS = (10.0, 100.0, 1000.0)
DIGITS, PIXELS, LAYER = "within digits", "conditional, pixels", "conditional, layer"
PENALTIES = ("none", "marginal", DIGITS, PIXELS, LAYER)
COMPONENTS = 10
PARTS = ("train", "validation")


@dataclass(frozen=True, eq=False)
class Given:
    """Features that are known already: those of the rows to train and to validate on, in their order."""

    features: tuple[np.ndarray, np.ndarray]

    def of(self, x: Any) -> np.ndarray:  # noqa: D102
        (own,) = (known for known in self.features if len(known) == len(x))
        return own


@dataclass(frozen=True, eq=False)
class Rows:
    """The images of all parts, and the device to train on."""

    train: SurvivalData
    validation: SurvivalData
    test: SurvivalData
    device: torch.device

    def digits(self, part: str) -> np.ndarray:
        """Return the digit of every image of a part."""
        return np.asarray(getattr(self, part).groups)

    def images(self, part: str) -> Tensor:
        """Put the images of a part on the device."""
        return torch.as_tensor(getattr(self, part).x, device=self.device)


def load(n: int | None, device: str) -> Rows:
    """Load the images; of fewer than all rows to train on, a tenth of them to validate and a tenth to test on."""
    data = load_survival_mnist(censored=True, seed=0)
    sizes = (None, None, None) if n is None else (n, max(n // 10, 500), max(n // 10, 500))
    parts = [part[:size] for part, size in zip((data.train, data.validation, data.test), sizes, strict=True)]
    return Rows(*parts, torch.device(device))


def components(train: Tensor, other: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """First principal components of rows to train on, and of others by the same directions."""
    flat = [rows.flatten(1).double() for rows in (train, other)]
    mean = flat[0].mean(0)
    centred = flat[0] - mean
    _, directions = torch.linalg.eigh(centred.T @ centred)  # in increasing order
    best = directions[:, -COMPONENTS:]
    return (centred @ best).cpu().numpy(), ((flat[1] - mean) @ best).cpu().numpy()


@torch.no_grad()
def hidden_layer(network: nn.Module, x: Tensor) -> Tensor:
    """Last hidden layer of a network: what goes into its output layer."""
    tower: Any = network.first if isinstance(network, TwoTower) else network
    seen: list[Tensor] = []
    handle = tower.output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for piece in x.split(5000):
        tower(piece)
    handle.remove()
    return torch.cat(seen)


def features_of(penalty: str, rows: Rows, plain: PathResult) -> Given | None:
    """Features of the rows to train and to validate on for a penalty; `plain` was trained without one."""
    if penalty == "marginal":
        return None
    if penalty == DIGITS:
        share = np.bincount(rows.digits("train"), minlength=10) / rows.train.n
        return Given(tuple(np.eye(10)[rows.digits(part)] / np.sqrt(share) for part in PARTS))
    columns = [rows.images(part) for part in PARTS]
    if penalty != PIXELS:
        columns = [hidden_layer(plain.network(0), images) for images in columns]
    return Given(tuple(KernelFeatures().of(each) for each in components(*columns)))


def fitted(
    network: str, name: str, seed: int, rows: Rows, epochs: int | None, lambdas: tuple[float, ...], maker: Given | None
) -> PathResult:
    """Train one model of a spec, as the spec says."""
    spec = load_spec(SPECS[network])
    model, settings = spec.model(name), spec.variants["corrected"]
    kind = make_family(model, "corrected", quantile_edges(rows.train.time, rows.train.event, spec.time_bins))
    training = spec.training
    config = TrainingConfig(
        epochs=epochs or training.epochs,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        tf32=training.tf32,
    )
    return fit_path(
        make_network(model, settings, tuple(rows.train.x.shape[1:]), kind.n_outputs),
        kind,
        rows.train,
        rows.validation,
        lambdas=lambdas,
        seeds=(seed,),
        objective=make_objective(model, "corrected"),
        calibration_bins=spec.calibration_bins,
        config=config,
        conditional=maker,
        device=rows.device,
        progress=False,
    )


def outputs_of(path: PathResult, model: int, rows: SurvivalData) -> Tensor:
    """Raw outputs of one model, in double precision on the host."""
    network = path.network(model)
    device = next(network.parameters()).device
    with torch.no_grad():
        pieces = [network(torch.as_tensor(rows.x[k : k + 5000], device=device)) for k in range(0, rows.n, 5000)]
    return torch.cat(pieces).double().cpu()


def measure(path: PathResult, model: int, rows: Rows, columns: np.ndarray) -> tuple[list[Line], np.ndarray]:
    """Values with each map, and the NLL of the validation rows."""
    family = path.family.to(torch.device("cpu"))
    raw = {part: outputs_of(path, model, getattr(rows, part)) for part in ("validation", "test")}

    def distributions(part: str, some: np.ndarray) -> SurvivalDistribution:
        return family.distribution(raw[part][torch.from_numpy(some)])

    digits = {part: rows.digits(part) for part in raw}
    own = Mapped(lambda some: distributions("validation", some), (None,))
    seen = values_of(own, rows.validation, digits["validation"], np.empty(0))
    grid = np.linspace(0.0, float(np.quantile(rows.test.time, 0.9)), TIMES)
    sides = [digits["test"] == digit for digit in range(10)]
    lines = []
    for treatment, maps in maps_of(seen["cdf"], rows.validation.event, digits["validation"]).items():
        mapped = Mapped(lambda some: distributions("test", some), maps)
        values = values_of(mapped, rows.test, digits["test"], grid)
        found = measured(values, rows.validation, rows.test, columns, sides, grid)
        lines.append({"lam": float(path.lambdas[model]), "map": treatment} | found)
    return lines, seen["loss"]


def run(network: str, name: str, seed: int, rows: Rows, options: argparse.Namespace) -> None:
    """Train and measure what is missing of one model and seed; each penalty is written when it is done."""
    key = {"data": f"mnist, {network}", "family": name, "fold": 0, "seed": seed, "rows": rows.train.n}
    done = {line["penalty"] for line in lines_of(options.out) if key.items() <= line.items()}
    missing = [penalty for penalty in options.penalties if penalty not in done]
    if not missing:
        return
    start = clock.perf_counter()
    columns = components(rows.images("train"), rows.images("test"))[1]
    plain = fitted(network, name, seed, rows, options.epochs, (0.0,), None)
    first, without = measure(plain, 0, rows, columns)
    if "none" not in done:
        append(options.out, [key | {"penalty": "none", "chosen": True} | line for line in first])
    for penalty in [penalty for penalty in missing if penalty != "none"]:
        maker = features_of(penalty, rows, plain)
        path = fitted(network, name, seed, rows, options.epochs, tuple(options.lambdas), maker)
        found = [measure(path, model, rows, columns) for model in range(path.n_models)]
        allowed = [k for k, (_, loss) in enumerate(found) if is_allowed(loss, without)]
        chosen = allowed[-1] if allowed else -1
        lines = [line | {"chosen": k == chosen} for k, (of_model, _) in enumerate(found) for line in of_model]
        if not allowed:
            lines += [line | {"chosen": True} for line in first]
        append(options.out, [key | {"penalty": penalty} | line for line in lines])
        took = clock.perf_counter() - start
        print(f"{network}, {name}, seed {seed}, {penalty}: after {took:.0f} s", flush=True)


def show_all(path: Path) -> None:
    """Show every weight as if it had been chosen."""
    for lam in sorted({line["lam"] for line in lines_of(path) if line["lam"]}):
        print(f"\nlambda {lam:g}")
        show(path, PENALTIES, only=lam)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("for_whom_mnist.jsonl"))
    parser.add_argument("--networks", nargs="*", default=["dense"], choices=list(SPECS))
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--penalties", nargs="*", default=list(PENALTIES), choices=list(PENALTIES))
    parser.add_argument("--lambdas", type=float, nargs="*", default=list(LAMBDAS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, help="by default those of the spec")
    parser.add_argument("--rows", type=int, help="rows to train on; by default all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--all", action="store_true", help="show every weight, not the chosen ones alone")
    options, _ = parser.parse_known_args()
    if not options.show:
        rows = load(options.rows, options.device)
        for seed in range(options.seeds):
            for network in options.networks:
                for name in options.models:
                    run(network, name, seed, rows, options)
    show(options.out, PENALTIES)
    if options.all:
        show_all(options.out)


if __name__ == "__main__":
    main()
