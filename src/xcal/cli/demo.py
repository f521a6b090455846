"""``xcal demo``: train a path of models, show the frontier, choose a model and save it, in about a minute."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from xcal.estimators import SurvivalModel, SurvivalPath

DATASETS = ("simulated", "metabric", "support")


Dataset = Annotated[
    str, typer.Option(help=f"One of {', '.join(DATASETS)}. Real data are read from the folder $XCAL_DATA.")
]
Distribution = Annotated[
    str, typer.Option(help="Distribution of the model: mtlr, categorical, lognormal, weibull or loglogistic.")
]
Out = Annotated[Path, typer.Option(help="Folder for the model, the frontier and the metrics.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of models for each lambda.")]
Epochs = Annotated[int, typer.Option(min=1, help="Largest number of passes over the training rows.")]
MaxDrop = Annotated[
    float,
    typer.Option(
        min=0, help="Choose the best calibrated model whose concordance is at most this much below the highest one."
    ),
]


def demo(
    dataset: Dataset = "simulated",
    distribution: Distribution = "lognormal",
    out: Out = Path("runs/demo"),
    seeds: Seeds = 3,
    epochs: Epochs = 200,
    max_drop: MaxDrop = 0.02,
) -> None:
    """Train models with more and more calibration, show the trade-off, choose one and save it. Takes about a minute.

    The simulated log-times have heavy tails, and a log-normal model has
    none: trained by likelihood alone, its probabilities are wrong. A larger
    lambda gives better calibration. The table and the picture show what it
    costs in concordance.

    For example:
      xcal demo
      xcal demo --dataset metabric --distribution mtlr
      xcal demo --max-drop 0.005 --out runs/close-to-best
    """
    from rich.console import Console

    from xcal._checks import fail
    from xcal.estimators import SurvivalPath

    if dataset not in DATASETS:
        fail("--dataset", f"one of {', '.join(DATASETS)}", repr(dataset))
    console = Console()
    # Before the training: nobody wants to wait for a model that cannot be saved.
    out.mkdir(parents=True, exist_ok=True)
    x, y, x_test, y_test = _rows(dataset)
    console.print(
        f"[bold]{dataset}[/]: {len(y)} rows to train and validate on, {len(y_test)} to test, "
        f"{100 * (1 - y['event'].mean()):.0f} % censored. A {distribution} model."
    )
    path = SurvivalPath(distribution=distribution, seeds=seeds, epochs=epochs, calibration_bins=10)
    _fit(path, x, y, console)
    chosen = path.select(max_concordance_drop=max_drop)
    console.print(_frontier_table(path, chosen))
    plain = path.model(0)
    metrics = {
        _name(model): _metrics(model, x_test, y_test, y)
        for model in ([plain] if _name(chosen) == _name(plain) else [plain, chosen])
    }
    console.print(_metrics_table(metrics))
    _save(path, chosen, metrics, out)
    console.print(
        f"Saved in {out}: model.safetensors (the chosen model: xcal.load), path.safetensors (all of them), "
        "frontier.png, frontier.csv and metrics.json"
    )


def _fit(path: "SurvivalPath", x: Any, y: Any, console: Any) -> None:
    """Fit a path; after an interruption, go on with the best epochs so far if there are any."""
    try:
        path.fit(x, y)
    except KeyboardInterrupt:
        if not hasattr(path, "frontier_"):
            raise
        console.print("Interrupted: what follows is from the best epochs so far.")


def _rows(dataset: str) -> "tuple[Any, npt.NDArray[np.void], Any, npt.NDArray[np.void]]":
    """Return covariates and targets of the rows to train on, and of the rows to test on."""
    import numpy as np

    from xcal import Surv
    from xcal.datasets import load_metabric, load_support

    if dataset == "simulated":
        rng = np.random.default_rng(0)
        x = rng.normal(size=(12_000, 8))
        location = x[:, 0] - 0.5 * x[:, 1] + 0.5 * np.sin(2 * x[:, 2])
        happens = np.exp(location + 0.5 * np.exp(0.5 * x[:, 3]) * rng.standard_t(3, len(x)))
        leaves = rng.exponential(3.0, len(x))
        y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)
        return x[:6000], y[:6000], x[6000:], y[6000:]
    table = load_metabric() if dataset == "metabric" else load_support()
    fold = table.folds(4, seed=0)[0]
    y = Surv(time=table.time, event=table.event)
    return table.x[fold.train], y[fold.train], table.x[fold.test], y[fold.test]


def _name(model: "SurvivalModel") -> str:
    return f"lambda {model.xcal_lambda:g}" + (", recalibrated" if model.fitted_.recalibration is not None else "")


def _frontier_table(path: "SurvivalPath", chosen: "SurvivalModel") -> Any:
    from rich.table import Table

    frontier = path.frontier_
    table = Table(title="On the validation rows, mean ± standard deviation over seeds", title_justify="left")
    for column in ("lambda", "NLL", "D-cal", "concordance", ""):
        table.add_column(column, justify="right")
    for lam, models in frontier.groupby("lambda"):
        nll, dcal, concordance = models["nll"].mean(), models["dcal"].mean(), models["concordance"].mean()
        spread = models.iloc[0]
        table.add_row(
            f"{lam:g}",
            f"{nll:.4f}" + _plus_minus(spread["nll_sd"], 4),
            f"{dcal:.5f}" + _plus_minus(spread["dcal_sd"], 5),
            f"{concordance:.4f}" + _plus_minus(spread["concordance_sd"], 4),
            f"[green]chosen{_name(chosen).removeprefix(f'lambda {lam:g}')}[/]" if lam == chosen.xcal_lambda else "",
        )
    table.caption = f"A perfect model would have a mean D-cal of {frontier['dcal_floor'].iloc[0]:.5f} on these rows."
    table.caption_justify = "left"
    return table


def _plus_minus(spread: float, digits: int) -> str:
    """Write a spread; one seed has none."""
    return "" if math.isnan(spread) else f" ± {spread:.{digits}f}"


def _metrics(model: "SurvivalModel", x: Any, y: Any, train: Any) -> dict[str, float]:
    """Return metrics of one model on the test rows."""
    import numpy as np

    from xcal.metrics import integrated_brier_score

    measured = model.d_calibration(x, y)
    times = np.unique(np.quantile(train["time"][train["event"]], np.linspace(0.05, 0.9, 50)))
    survival = model.predict_survival_function(x, times)
    brier = integrated_brier_score(survival, times, time=y["time"], event=y["event"])
    assert measured.p_value is not None
    return {
        "concordance": model.score(x, y),
        "integrated Brier score": float(brier.value),
        "D-cal": measured.value,
        "D-cal of a perfect model": measured.floor,
        "p-value of D-calibration": measured.p_value,
    }


def _metrics_table(metrics: dict[str, dict[str, float]]) -> Any:
    from rich.table import Table

    table = Table(title="On the test rows", title_justify="left")
    table.add_column("")
    for name in metrics:
        table.add_column(name, justify="right")
    for metric in next(iter(metrics.values())):
        table.add_row(metric, *[f"{values[metric]:.4g}" for values in metrics.values()])
    return table


def _save(path: "SurvivalPath", chosen: "SurvivalModel", metrics: dict[str, dict[str, float]], out: Path) -> None:
    import json

    import matplotlib as mpl

    mpl.use("Agg")

    chosen.save(out / "model.safetensors")
    path.save(out / "path.safetensors")
    path.frontier_.to_csv(out / "frontier.csv", index=False)
    (out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    figure = path.plot().figure
    figure.savefig(out / "frontier.png", dpi=150, bbox_inches="tight")
