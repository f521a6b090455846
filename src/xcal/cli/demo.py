"""``xcal demo``: an over-confident model, what the penalty and recalibration do to it, and a page to open."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from xcal.estimators import SurvivalModel, SurvivalPath

DATASETS = ("simulated", "metabric", "support")
# Weight of the penalty in the first half of the story, where nothing is chosen.
PENALTY = 100.0
# Share of the rows to learn from that the first network does not see: a map of its probabilities is fitted to them.
HELD = 0.2
# A calibrated model has this share of new rows in the two outer tenths of what it predicts.
OUTER = 0.2

Dataset = Annotated[
    str, typer.Option(help=f"One of {', '.join(DATASETS)}. Real data are read from the folder $XCAL_DATA.")
]
Distribution = Annotated[
    str, typer.Option(help="Distribution of the models: mtlr, categorical, lognormal, weibull or loglogistic.")
]
Out = Annotated[Path, typer.Option(help="Folder for the pages, the model, the frontier and the metrics.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of models for each lambda of the path.")]
Epochs = Annotated[int, typer.Option(min=1, help="Largest number of passes over the training rows.")]
MaxDrop = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Choose the best calibrated model whose concordance is at most this much below the highest one. By "
        "default a correction is chosen only if the validation rows show that it is needed.",
    ),
]


def demo(
    dataset: Dataset = "simulated",
    distribution: Distribution = "mtlr",
    out: Out = Path("runs/demo"),
    seeds: Seeds = 3,
    epochs: Epochs = 100,
    max_drop: MaxDrop = None,
) -> None:
    """Show an over-confident model, and what corrects it on new rows. Takes about a minute, and leaves pages to open.

    First a network that is trained until it fits its own rows: it orders
    patients well, and is far too sure of itself. Then the same network with
    the calibration penalty, with recalibration, and with both. Then what
    xcal does by default: a path of lambdas, stopped and chosen on rows held
    out. All are judged on new rows.

    For example:
      xcal demo
      xcal demo --dataset metabric
      xcal demo --max-drop 0.005 --out runs/close-to-best
    """
    from rich.console import Console

    from xcal._checks import fail
    from xcal._files import check_writable
    from xcal.cli.workflow.training import name_of

    if dataset not in DATASETS:
        fail("--dataset", f"one of {', '.join(DATASETS)}", repr(dataset))
    console = Console()
    # Before the training: nobody wants to wait for a model that cannot be saved.
    check_writable(out)
    x, y, x_new, y_new = _rows(dataset)
    console.print(
        f"[bold]{dataset}[/]: {len(y):,} rows to learn from, {len(y_new):,} new ones to judge by, "
        f"{100 * (1 - y['event'].mean()):.0f} % censored. {distribution} models."
    )
    console.print(f"\n[bold]1.[/] A network trained until it fits its own rows, and two remedies (lambda {PENALTY:g}).")
    models = _overfitted(x, y, distribution, epochs, console)
    console.print("\n[bold]2.[/] A path of lambdas, each stopped where rows held out say so.")
    path = _path(x, y, distribution, seeds, epochs, console)
    chosen = path.select() if max_drop is None else path.select(max_concordance_drop=max_drop)
    models[f"path: {name_of(chosen)}"] = chosen
    metrics = {name: _metrics(model, x_new, y_new, y) for name, model in models.items()}
    console.print(_metrics_table(metrics))
    for sentence in _story(metrics, round(HELD * len(y))):
        console.print(f"- {sentence}")
    pages = _save(path, models, metrics, (x_new, y_new), out)
    console.print(
        f"\nSaved in {out}: model.safetensors (the chosen model: xcal.load), path.safetensors (all of the path), "
        "frontier.png, frontier.csv and metrics.json"
    )
    console.print("To open in a browser: " + " and ".join(f"[green]{page}[/]" for page in pages))


def _overfitted(x: Any, y: Any, distribution: str, epochs: int, console: Any) -> "dict[str, SurvivalModel]":
    """Train a network on some rows until it fits them, without and with the penalty; recalibrate both on the rest.

    Its epochs are judged on the rows it is trained on, which is what makes it over-confident.
    """
    from xcal import SurvivalData, SurvivalPath

    train, held = SurvivalData(x, time=y["time"], event=y["event"]).split((1 - HELD, HELD), seed=0)
    path = SurvivalPath(
        (0.0, PENALTY),
        seeds=1,
        distribution=distribution,
        dropout=0.0,
        weight_decay=0.0,
        patience=None,
        epochs=epochs,
        calibration_bins=10,
    )
    _fit(path, console, train, None, validation_data=train)
    found = {}
    for lam, name in ((0.0, "over-fitted"), (PENALTY, "penalty")):
        model = path.model(lam)
        found[name] = model
        recalibrated = "recalibrated" if lam == 0 else "penalty, recalibrated"
        found[recalibrated] = path.model(lam).recalibrate(held)
    return {name: found[name] for name in ("over-fitted", "penalty", "recalibrated", "penalty, recalibrated")}


def _path(x: Any, y: Any, distribution: str, seeds: int, epochs: int, console: Any) -> "SurvivalPath":
    from xcal import SurvivalPath

    path = SurvivalPath(distribution=distribution, seeds=seeds, epochs=epochs, calibration_bins=10)
    _fit(path, console, x, y)
    console.print(_frontier_table(path))
    console.print(f"select(): {path.selection_.reason}")
    return path


def _fit(path: "SurvivalPath", console: Any, x: Any, y: Any, **options: Any) -> None:
    """Fit a path; after an interruption, go on with the best epochs so far if there are any."""
    try:
        path.fit(x, y, **options)
    except KeyboardInterrupt:
        if not hasattr(path, "frontier_"):
            raise
        console.print("Interrupted: what follows is from the best epochs so far.")


def _rows(dataset: str) -> "tuple[Any, npt.NDArray[np.void], Any, npt.NDArray[np.void]]":
    """Return covariates and targets of the rows to learn from, and of the new rows."""
    import numpy as np

    from xcal import Surv
    from xcal.datasets import load_metabric, load_support

    if dataset == "simulated":
        rng = np.random.default_rng(0)
        x = rng.normal(size=(8_000, 10))
        location = x[:, 0] - 0.5 * x[:, 1] + 0.5 * np.sin(2 * x[:, 2])
        happens = np.exp(location + 0.5 * np.exp(0.5 * x[:, 3]) * rng.standard_t(5, len(x)))
        leaves = rng.exponential(3.0, len(x))
        y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)
        return x[:2000], y[:2000], x[2000:], y[2000:]
    table = load_metabric() if dataset == "metabric" else load_support()
    fold = table.folds(4, seed=0)[0]
    y = Surv(time=table.time, event=table.event)
    return table.x[fold.train], y[fold.train], table.x[fold.test], y[fold.test]


def _frontier_table(path: "SurvivalPath") -> Any:
    """Candidates of a path on its validation rows."""
    from rich.table import Table

    table = Table(title="On the validation rows", title_justify="left")
    for column in ("lambda", "NLL", "D-cal", "concordance"):
        table.add_column(column, justify="right")
    for line in path.candidates_.to_dict("records"):
        name = f"{line['lambda']:g}" + (", recalibrated" if line["recalibrated"] else "")
        table.add_row(name, f"{line['nll']:.4f}", f"{line['dcal']:.5f}", f"{line['concordance']:.4f}")
    floor = path.candidates_["dcal_floor"].iloc[0]
    table.caption = f"A perfect model would have a mean D-cal of {floor:.5f} on these rows."
    table.caption_justify = "left"
    return table


def _metrics(model: "SurvivalModel", x: Any, y: Any, train: Any) -> dict[str, float]:
    """Return metrics of one model on the new rows."""
    import numpy as np

    from xcal.metrics import integrated_brier_score

    measured = model.d_calibration(x, y)
    times = np.unique(np.quantile(train["time"][train["event"]], np.linspace(0.05, 0.9, 50)))
    survival = model.predict_survival_function(x, times)
    brier = integrated_brier_score(survival, times, time=y["time"], event=y["event"])
    shares = model.d_calibration(x, y, n_bins=10, method="km").histogram
    assert measured.p_value is not None
    return {
        "concordance": model.score(x, y),
        "integrated Brier score": float(brier.value),
        "D-cal": measured.value,
        "D-cal of a perfect model": measured.floor,
        "p-value of D-calibration": measured.p_value,
        "rows in the outer tenths": float(shares[0] + shares[-1]),
    }


def _metrics_table(metrics: Mapping[str, Mapping[str, float]]) -> Any:
    from rich.table import Table

    table = Table(title="On the new rows", title_justify="left")
    for column in ("", "C", "IBS", "D-cal", "floor", "p", "outer tenths"):
        table.add_column(column, justify="right" if column else "left")
    for name, values in metrics.items():
        concordance, brier, dcal, floor, p, outer = values.values()
        table.add_row(
            name, f"{concordance:.3f}", f"{brier:.4f}", f"{dcal:.5f}", f"{floor:.5f}", f"{p:.2g}", f"{outer:.1%}"
        )
    table.caption = (
        "C: concordance. IBS: Brier score averaged over the middle of the event times, lower is better. floor: mean "
        "D-cal of a perfect model. outer "
        f"tenths: rows whose F is below .1 or above .9; {OUTER:.0%} is right."
    )
    table.caption_justify = "left"
    return table


def _story(metrics: Mapping[str, Mapping[str, float]], n_held: int) -> list[str]:
    """Say in words what the table shows: every number and every comparison is computed."""
    first = metrics["over-fitted"]
    outer, floor = first["rows in the outer tenths"], first["D-cal of a perfect model"]
    verdict = "over-confident" if outer > 1.2 * OUTER else "not over-confident here"
    told = [
        f"The network that fits its own rows is {verdict}: {outer:.0%} of the new rows fall into the two outer tenths "
        f"of what it predicted, where {OUTER:.0%} should. Its D-cal is {first['D-cal'] / floor:.0f} times that of a "
        "perfect model."
    ]
    named = {
        "penalty": f"The penalty (lambda {PENALTY:g})",
        "recalibrated": f"Recalibration by {n_held:,} rows that the network has not seen",
    }
    for name, words in named.items():
        told.append(f"{words}: {_change(first, metrics[name])}.")
    last = list(metrics)[-1]
    told.append(f"Stopped and chosen on rows held out ({last}): {_change(first, metrics[last])}.")
    return told


def _change(first: Mapping[str, float], other: Mapping[str, float]) -> str:
    """Say what a remedy does to D-cal, and its price."""
    floor = other["D-cal of a perfect model"]
    price = other["integrated Brier score"] - first["integrated Brier score"]
    # Zero has no sign.
    order = round(other["concordance"] - first["concordance"], 3) + 0.0
    return (
        f"D-cal from {first['D-cal'] / floor:.0f} to {other['D-cal'] / floor:.1f} times that of a perfect model, "
        f"integrated Brier score {price:+.4f} ({'worse' if price > 0 else 'better'}), concordance {order:+.3f}"
    )


def _save(
    path: "SurvivalPath",
    models: "Mapping[str, SurvivalModel]",
    metrics: Mapping[str, Mapping[str, float]],
    new: tuple[Any, Any],
    out: Path,
) -> list[Path]:
    """Write everything, and return the pages to open."""
    import json

    from xcal import compare_models
    from xcal._files import write_whole
    from xcal.cli.workflow.training import collected_warnings

    last = list(models)[-1]
    models[last].save(out / "model.safetensors")
    path.save(out / "path.safetensors")
    write_whole(out / "frontier.csv", path.frontier_.to_csv(index=False).encode())
    write_whole(out / "metrics.json", (json.dumps(metrics, indent=2) + "\n").encode())
    _draw(path, out / "frontier.png")
    both = {name: models[name] for name in ("over-fitted", last)}
    with collected_warnings():
        compared = compare_models(both, *new, n_bootstrap=100, progress=False)
        return [compared.report(out / "comparison.html"), path.report(out / "frontier.html", *new)]


def _draw(path: "SurvivalPath", file: Path) -> None:
    import matplotlib as mpl

    from xcal._files import new_file

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure = path.plot().figure
    with new_file(file) as part:
        figure.savefig(part, dpi=150, bbox_inches="tight", format="png")
    plt.close(figure)
