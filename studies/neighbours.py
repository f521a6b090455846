"""A model's numbers depend on the models trained beside it only where the penalty is very sharp.

The same model (one seed, lambda 10) is trained alone and in a path of three lambdas, with everything else equal. A
matrix product for three models rounds its last digits otherwise than one for a single model. With a smooth penalty the
difference stays there. The paper's penalty (gamma = 1e4) has slopes of thousands in F and makes it larger from epoch to
epoch, in double precision too, only later: the cause is the sharpness, and no precision cures it.
"""

import argparse

import numpy as np
import torch

from xcal.calibration import SoftBins
from xcal.data import SurvivalData
from xcal.distributions import family, quantile_edges
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path
from xcal_paper import load_gamma

PENALTIES = {
    "paper, gamma 1e4": SoftBins("product", gamma=1e4, censored="soft"),
    "paper, gamma 1e2": SoftBins("product", gamma=1e2, censored="soft"),
    "paper, gamma 10": SoftBins("product", gamma=10.0, censored="soft"),
    "ours": SoftBins(),
}


def differences(penalty: SoftBins, dtype: torch.dtype, *, n: int, epochs: int) -> np.ndarray:
    """Difference of the validation objective between the model alone and the one of the path, by epoch."""
    data = load_gamma(censored=True, n=(n, n // 2, 10), seed=10)
    kind = family("categorical", edges=quantile_edges(data.train.time, data.train.event, 20), interpolation="step")

    def rows(split: SurvivalData) -> SurvivalData:
        return SurvivalData(torch.from_numpy(split.x).to(dtype), split.time.astype(np.float32), split.event)

    columns = []
    for lambdas in ((10.0,), (0.0, 10.0, 100.0)):
        path = fit_path(
            lambda: MLP(data.train.x.shape[1], kind.n_outputs, hidden=(64, 32)),
            kind,
            rows(data.train),
            rows(data.validation),
            lambdas=lambdas,
            penalty=penalty,
            config=TrainingConfig(epochs=epochs, batch_size=500),
            progress=False,
        )
        columns.append(path.history.objective[:, lambdas.index(10.0)])
    return np.abs(columns[0] - columns[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    shown = [epoch for epoch in (1, 3, 5, 10, 15, 20, 50, 100) if epoch <= arguments.epochs]
    print("validation NLL, alone against in a path, after epoch " + ", ".join(map(str, shown)))
    for name, penalty in PENALTIES.items():
        for dtype in (torch.float32, torch.float64):
            found = differences(penalty, dtype, n=arguments.n, epochs=arguments.epochs)
            values = "  ".join(f"{found[epoch - 1]:.0e}" for epoch in shown)
            print(f"{name:17} {str(dtype).removeprefix('torch.')}  {values}", flush=True)


if __name__ == "__main__":
    main()
