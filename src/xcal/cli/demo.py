"""``xcal demo`` and ``xcal serve``: what xcal does in a minute, and a page in the browser to try it on a file."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from xcal import AuditResult
    from xcal.estimators import SurvivalModel, SurvivalPath

DATASETS = ("simulated", "metabric", "support")
# Weight of the penalty that is shown beside what is chosen.
PENALTY = 100.0
Dataset = Annotated[
    str, typer.Option(help=f"One of {', '.join(DATASETS)}. Real data are read from the folder $XCAL_DATA.")
]
Distribution = Annotated[
    str, typer.Option(help="Distribution of the models: weibull, lognormal, loglogistic, categorical or mtlr.")
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
    distribution: Distribution = "weibull",
    out: Out = Path("runs/demo"),
    seeds: Seeds = 3,
    epochs: Epochs = 100,
    max_drop: MaxDrop = None,
) -> None:
    """Show a model that cannot be trusted, and what corrects it. Takes about a minute, and leaves pages to open.

    The times of the simulated patients are not Weibull. A Weibull model orders
    them well, and its probabilities are wrong. xcal trains it with several
    weights of the calibration penalty, judges it on rows held out, and
    chooses what is needed. All are audited on new patients; of these the
    truth is known, so that you see whether the judge is right.

    For example:
      xcal demo
      xcal demo --dataset metabric
      xcal demo --distribution mtlr --out runs/mtlr
    """
    from rich.console import Console

    from xcal._checks import fail
    from xcal._files import check_writable
    from xcal.cli.training import name_of

    if dataset not in DATASETS:
        fail("--dataset", f"one of {', '.join(DATASETS)}", repr(dataset))
    console = Console()
    # Before the training: nobody wants to wait for a model that cannot be saved.
    check_writable(out)
    x, y, x_new, y_new, truth = _rows(dataset)
    console.print(
        f"[bold]{dataset}[/]: {len(y):,} rows to learn from, {len(y_new):,} new ones to judge by, "
        f"{100 * (1 - y['event'].mean()):.0f} % censored. {distribution} models."
    )
    path = _path(x, y, distribution, seeds, epochs, console)
    chosen = path.select() if max_drop is None else path.select(max_concordance_drop=max_drop)
    models = {
        "the model as trained": path.model(0.0),
        f"the model with lambda {PENALTY:g}": path.model(PENALTY),
        f"the chosen model ({name_of(chosen)})": chosen,
    }
    with console.status("auditing the models on the new rows"):
        audits = _audited(models, x_new, y_new)
    metrics = {name: _metrics(models[name], audit, x_new, truth) for name, audit in audits.items()}
    console.print(_metrics_table(metrics))
    for sentence in _story(audits, metrics, chosen):
        console.print(f"- {sentence}")
    pages = _save(path, models, metrics, (x_new, y_new), out)
    console.print(
        f"\nSaved in {out}: model.safetensors (the chosen model: xcal.load), path.safetensors (all of the path), "
        "frontier.png, frontier.csv and metrics.json"
    )
    console.print("To open in a browser: " + " and ".join(f"[green]{page}[/]" for page in pages))


def _path(x: Any, y: Any, distribution: str, seeds: int, epochs: int, console: Any) -> "SurvivalPath":
    """Fit a path; after an interruption, go on with the best epochs so far if there are any."""
    from xcal import SurvivalPath

    path = SurvivalPath(
        (0.0, 10.0, PENALTY), seeds, path="always", distribution=distribution, epochs=epochs, calibration_bins=10
    )
    try:
        path.fit(x, y)
    except KeyboardInterrupt:
        if not hasattr(path, "frontier_"):
            raise
        console.print("Interrupted: what follows is from the best epochs so far.")
    console.print(_frontier_table(path))
    console.print(f"select(): {path.selection_.reason}")
    return path


def _rows(dataset: str) -> "tuple[Any, npt.NDArray[np.void], Any, npt.NDArray[np.void], Any]":
    """Return covariates and targets of the rows to learn from and of the new rows, and F(t) of the latter if known."""
    import numpy as np

    from xcal import Surv
    from xcal.datasets import load_metabric, load_support

    if dataset == "simulated":
        from scipy.stats import t as student

        rng, learn = np.random.default_rng(0), 4000
        x = rng.normal(size=(7000, 4))
        location, spread = x[:, 0] - 0.5 * x[:, 1], 0.7 * np.exp(0.3 * x[:, 2])
        happens = np.exp(location + spread * rng.standard_t(5, len(x)))
        leaves = rng.exponential(3.0, len(x))
        y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)

        def truth(t: float) -> "npt.NDArray[np.float64]":
            return np.asarray(student.cdf((np.log(t) - location[learn:]) / spread[learn:], 5))

        return x[:learn], y[:learn], x[learn:], y[learn:], truth
    table = load_metabric() if dataset == "metabric" else load_support()
    fold = table.folds(4, seed=0)[0]
    y = Surv(time=table.time, event=table.event)
    return table.x[fold.train], y[fold.train], table.x[fold.test], y[fold.test], None


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


def _audited(models: "Mapping[str, SurvivalModel]", x: Any, y: Any) -> "dict[str, AuditResult]":
    from xcal import audit
    from xcal.cli.training import collected_warnings

    with collected_warnings():
        return {name: audit(one, x, y, name=name, n_bootstrap=0, progress=False) for name, one in models.items()}


def _metrics(
    model: "SurvivalModel", audit: "AuditResult", x: Any, truth: "Callable[[float], Any] | None"
) -> dict[str, Any]:
    """Return what is shown of one model on the new rows; its error against the truth where that is known."""
    import numpy as np

    found = {
        "verdict": audit.verdict.level,
        "concordance": audit.value("harrell").value,
        "integrated Brier score": audit.value("ibs").value,
        "D-cal": audit.value("d_calibration").value,
        "D-cal of a perfect model": audit.value("d_calibration_floor").value,
    }
    if truth is not None:
        risks = 1 - model.predict_survival_function(x, audit.horizons)
        true = np.stack([truth(t) for t in audit.horizons], axis=1)
        found["error of the risks"] = float(np.abs(risks - true).mean())
    return found


def _metrics_table(metrics: Mapping[str, Mapping[str, Any]]) -> Any:
    from rich.table import Table

    known = all("error of the risks" in values for values in metrics.values())
    table = Table(title="On the new rows", title_justify="left")
    for column in ("", "the judge says", *(["true error"] if known else []), "D-cal", "C", "IBS"):
        table.add_column(column, justify="right" if column else "left")
    for name, values in metrics.items():
        error = [f"{100 * values['error of the risks']:.1f} points"] if known else []
        rest = f"{values['D-cal']:.5f}", f"{values['concordance']:.3f}", f"{values['integrated Brier score']:.4f}"
        table.add_row(name, values["verdict"], *error, *rest)
    floor = next(iter(metrics.values()))["D-cal of a perfect model"]
    told = "true error: mean distance of a patient's risk from the true one, at the horizons. " if known else ""
    table.caption = (
        f"{told}D-cal: a perfect model has about {floor:.5f} on these rows. C: concordance, order alone. IBS: Brier "
        "score averaged over time, lower is better."
    )
    table.caption_justify = "left"
    return table


def _story(
    audits: "Mapping[str, AuditResult]", metrics: Mapping[str, Mapping[str, Any]], chosen: "SurvivalModel"
) -> list[str]:
    """Return what the table shows of the first and of the chosen model: every number is computed."""
    told = []
    for name, what in ((next(iter(metrics)), "The model as trained"), (list(metrics)[-1], _corrected_by(chosen))):
        error = metrics[name].get("error of the risks")
        off = "" if error is None else f": its risks are {100 * error:.1f} points from the truth on average"
        order = f"{what} (concordance {metrics[name]['concordance']:.3f}){off}"
        told.append(f"{order}. The judge, who does not know the truth, says: {audits[name].verdict.headline}")
    return told


def _corrected_by(chosen: "SurvivalModel") -> str:
    penalty = f"a calibration penalty of weight {chosen.xcal_lambda:g}"
    if chosen.fitted_.recalibration is None:
        return f"The model trained with {penalty}" if chosen.xcal_lambda else "The same model, left as it is"
    corrected = "corrected by a map of its probabilities"
    return f"The {f'model trained with {penalty}, and' if chosen.xcal_lambda else 'same model,'} {corrected}"


def _save(
    path: "SurvivalPath",
    models: "Mapping[str, SurvivalModel]",
    metrics: Mapping[str, Mapping[str, Any]],
    new: tuple[Any, Any],
    out: Path,
) -> list[Path]:
    """Write everything, and return the pages to open."""
    import json

    from xcal import compare_models
    from xcal._files import write_whole
    from xcal.cli.training import collected_warnings

    first, *_, last = models
    models[last].save(out / "model.safetensors")
    path.save(out / "path.safetensors")
    write_whole(out / "frontier.csv", path.frontier_.to_csv(index=False).encode())
    write_whole(out / "metrics.json", (json.dumps(metrics, indent=2) + "\n").encode())
    _draw(path, out / "frontier.png")
    with collected_warnings():
        compared = compare_models({name: models[name] for name in (first, last)}, *new, n_bootstrap=100, progress=False)
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


# --- A page in the browser.

Host = Annotated[str, typer.Option(help="Address to listen on; others than this machine can reach any but this one.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")]
Most = Annotated[int, typer.Option(min=1, help="Largest file in megabytes.")]
Keep = Annotated[float, typer.Option(min=0.1, help="Minutes after which a file that nobody asks for is deleted.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address.")]
NoNotice = Annotated[bool, typer.Option("--no-notice", help='Leave out "not for clinical use" in the calculator.')]


def serve(
    port: Port = 0,
    host: Host = "127.0.0.1",
    most: Most = 100,
    keep: Keep = 10.0,
    no_browser: NoBrowser = False,
    no_notice: NoNotice = False,
) -> None:
    """Open a page in the browser to drop a table or a model on.

    A table with predictions is validated (xcal audit), a table with data
    alone is trained on (xcal fit), and a saved model becomes a calculator.
    The page shows each command, to be pasted and run again. It runs on this
    machine, sends nothing, and deletes what was dropped on it.

    For example:
      xcal serve
    """
    try:
        # xcal.serve stands above the commands, which it runs.
        app, work = import_module("xcal.serve.app"), import_module("xcal.serve.work")
    except ImportError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise ImportError('xcal serve needs starlette and uvicorn: pip install "xcal[serve]"') from None
    limits = work.Limits(most_bytes=most << 20, keep=60 * keep)
    app.serve(host, port, limits, notice=not no_notice, browser=not no_browser, say=typer.echo)
