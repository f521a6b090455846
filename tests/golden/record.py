"""The golden record: what users see, written down, so that a change of the code's shape cannot change it unseen.

`python -m tests.golden.record` writes it anew; every difference is then a line of the diff, to be explained in the
changelog. `test_golden.py` compares. Numbers are compared with a tolerance, as sums differ between CPUs.

- `names.json`: public names of every public module, with the signatures of functions and of classes and their methods;
- `help/`: ``--help`` of every command;
- `audit.json` and `audit.txt`: an audit as JSON, as text, and the text of its page;
- `models/`: files of fitted models as they were written then, and what they predict (`predictions.json`);
- `checkpoint/`: a training that was stopped then, and how it ends (`training.json`);
- `records.json`: records of a small table of the paper.
"""

import html
import importlib
import inspect
import json
import re
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typer.testing import CliRunner

HERE = Path(__file__).parent
# Modules that cannot be imported here, or that are the command line's.
NOT_PUBLIC = ("xcal.cli", "xcal.__main__")


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True) + "\n")


# --- names -----------------------------------------------------------------------------------------------------------


def public_names() -> dict[str, dict[str, str]]:
    """Return the public names of every module that lists some, with their signatures."""
    import xcal
    import xcal_paper

    found: dict[str, dict[str, str]] = {}
    roots = [Path(package.__file__).parent for package in (xcal, xcal_paper)]
    for path in (path for root in roots for path in sorted(root.rglob("*.py"))):
        (home,) = (root.parent for root in roots if path.is_relative_to(root))
        name = ".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__")
        hidden = any(part.startswith("_") for part in name.split(".")[1:])
        if hidden or name.startswith(NOT_PUBLIC) or "__all__ = [" not in path.read_text():
            continue  # of the others some need a GPU
        module = importlib.import_module(name)
        found[name] = {one: signature(getattr(module, one)) for one in sorted(module.__all__)}
    return found


def signature(value: Any) -> str:
    """Return how something is called; of a class its methods too. Names of modules are left out: they may move."""
    if inspect.isclass(value):
        own = {} if value.__init__ is object.__init__ else {"": _call(value)}
        methods = {name: m for name, m in inspect.getmembers(value) if not name.startswith("_") and callable(m)}
        own |= {name: _call(method) for name, method in methods.items() if _is_ours(method)}
        return "class" + "".join(f"; {name}{call}" for name, call in sorted(own.items()))
    return _call(value) if callable(value) else type(value).__name__


def _is_ours(method: Any) -> bool:
    return str(getattr(method, "__module__", "")).startswith("xcal")


def _call(value: Any) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    return (
        "(" + ", ".join(re.sub(r"\s+at 0x[0-9a-f]+", "", str(p.replace(annotation=p.empty))) for p in parameters) + ")"
    )


# --- commands --------------------------------------------------------------------------------------------------------

COMMANDS = (
    "",
    "demo",
    "fit",
    "predict",
    "evaluate",
    "report",
    "audit",
    "serve",
    "reproduce",
    "compare",
    "results-page",
    "mimic",
)


def help_of(command: str) -> str:
    """Return the help of a command, without the frames and the width of a terminal."""
    from xcal.cli.app import app

    words = command.split()
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"})
    text = re.sub(r"[╭╮╰╯│─]+", " ", result.output)
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip()) + "\n"


# --- an audit --------------------------------------------------------------------------------------------------------


def simulated(n: int = 400, seed: int = 0) -> tuple[np.ndarray, Any]:
    """Rows of a law whose hazards cross, a third of them censored."""
    from xcal import Surv

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    happens = np.exp(x[:, 0] - 0.5 * x[:, 1]) * rng.exponential(size=n) ** np.exp(-0.4 * x[:, 2])
    leaves = rng.exponential(2.5, n)
    return x, Surv(time=np.minimum(happens, leaves), event=happens <= leaves)


def audited() -> Any:
    """Return the audit of a model that is a little off, with groups and covariates."""
    import pandas as pd

    import xcal

    x, y = simulated()
    times = np.linspace(0.05, 6.0, 80)
    power = np.exp(0.4 * x[:, 2:])
    curves = np.exp(-1.2 * (times * np.exp(0.5 * x[:, 1:2] - x[:, :1])) ** power)
    X = pd.DataFrame(x, columns=["age", "dose", "marker"]).assign(sex=np.where(x[:, 1] > 0, "f", "m"))
    return xcal.audit(
        survival=curves, times=times, y=y, X=X, groups="sex", n_bootstrap=50, time_unit="years", name="a model",
        progress=False,
    )  # fmt: skip


def shortened_audit(result: Any) -> Any:
    """Return the JSON of an audit to seven digits, without the number of the version."""
    content = json.loads(result.to_json())
    del content["xcal"]
    return json.loads(json.dumps(content), parse_float=lambda text: float(f"{float(text):.7g}"))


def page_text(result: Any) -> str:
    """Return the words of the report, without its pictures."""
    with tempfile.TemporaryDirectory() as folder:
        text = result.report(Path(folder) / "audit.html").read_text()
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", "\n", text))
    return "\n".join(line for line in (" ".join(line.split()) for line in text.splitlines()) if line) + "\n"


# --- models ----------------------------------------------------------------------------------------------------------


def fitted_models() -> dict[str, Any]:
    """Fit one model of every kind that can be saved."""
    import pandas as pd

    from xcal import Recalibrated, SurvivalModel, SurvivalPath

    x, y = simulated(200)
    quick: dict[str, Any] = {"epochs": 3, "hidden": (4,), "random_state": 0, "progress": False}
    frame = pd.DataFrame({"a": x[:, 0], "b": np.where(x[:, 1] > 0, "yes", "no")})
    models: dict[str, Any] = {
        name: SurvivalModel(distribution=name, **quick).fit(x, y) for name in ("weibull", "lognormal", "mtlr")
    }
    models["encoded"] = SurvivalModel(encode="auto", **quick).fit(frame, y)
    models["recalibrated"] = SurvivalModel(**quick).fit(x[:150], y[:150]).recalibrate(x[150:], y[150:])
    models["path"] = SurvivalPath(lambdas=(0, 10), seeds=1, **quick).fit(x, y)
    other = SurvivalModel(distribution="loglogistic", **quick).fit(x[:100], y[:100])
    for method in ("km", "csd"):
        models[f"recalibrated-{method}"] = Recalibrated(other, method=method).fit(x[100:], y[100:])
    return models


def predictions(folder: Path) -> dict[str, Any]:
    """Return what the models in the files predict for new rows."""
    import warnings

    import pandas as pd

    import xcal

    x, _ = simulated(6, seed=1)
    frame = pd.DataFrame({"a": x[:, 0], "b": np.where(x[:, 1] > 0, "yes", "no")})
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        model = xcal.load(path)
        rows = frame if path.stem == "encoded" else x
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            curves, medians = model.predict_survival_function(rows, [0.3, 1.0, 2.5]), model.predict_median(rows)
        medians = np.where(np.isfinite(medians), medians, -1.0)
        found[path.stem] = {"class": type(model).__name__, "survival": np.asarray(curves).tolist()}
        found[path.stem]["median"] = medians.tolist()
    return found


# --- training --------------------------------------------------------------------------------------------------------


class Stop(Exception):
    """Raised by the progress function: the training ends here, and its checkpoint stays."""


def trained(checkpoint: Path, stop_after: int | None = None) -> dict[str, Any]:
    """Train a small path with a checkpoint, or go on with it."""
    from xcal import SurvivalData, fit_path
    from xcal.distributions import family
    from xcal.networks import MLP
    from xcal.training import TrainingConfig

    x, y = simulated(120)
    rows = SurvivalData(torch.as_tensor(x, dtype=torch.float32), time=y["time"], event=y["event"])

    def progress(report: Any) -> None:
        if stop_after is not None and report.epoch >= stop_after:
            raise Stop

    result = fit_path(
        partial(MLP, 3, 2, hidden=(4,)),  # no function of ours: its code would be part of what the checkpoint compares
        family("weibull"),
        rows[:80],
        rows[80:],
        lambdas=(0.0, 10.0),
        config=TrainingConfig(epochs=4, checkpoint_every=1),
        progress=progress,
        checkpoint=checkpoint,
    )
    best = result.best()
    return {"objective": best.objective[0].tolist(), "dcal": best.dcal[0].tolist()}


# --- records ---------------------------------------------------------------------------------------------------------


def records() -> list[dict[str, Any]]:
    """Run a small table of the paper, and return its records without times and versions."""
    from tests.small_table import small_table
    from xcal_paper import reproduce

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small.toml").write_text(small_table(kind="path", job="model"))
        reproduce(folder / "small.toml", results=folder / "results", device="cpu")
        lines = [line for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]
    return [shortened(json.loads(line)) for line in sorted(lines)]


# What depends on the machine, the day or the commit.
CHANGING = (
    "sha",
    "seconds",
    "time",
    "date",
    "version",
    "versions",
    "commit",
    "machine",
    "device",
    "host",
    "check",
    "written",
)


def shortened(value: Any) -> Any:
    """Return a record without what changes from run to run, and numbers to seven digits."""
    if isinstance(value, dict):
        return {key: shortened(own) for key, own in value.items() if not any(word in key for word in CHANGING)}
    if isinstance(value, list):
        return [shortened(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def main() -> None:
    write(HERE / "names.json", public_names())
    for command in COMMANDS:
        write(HERE / "help" / f"{command or 'xcal'}.txt", help_of(command))
    result = audited()
    write(HERE / "audit.json", json.dumps(shortened_audit(result)) + "\n")
    write(HERE / "audit.txt", f"{result}\n{page_text(result)}")
    models = HERE / "models"
    models.mkdir(exist_ok=True)
    for name, model in fitted_models().items():
        model.save(models / f"{name}.safetensors")
    write(HERE / "predictions.json", predictions(models))
    shutil.rmtree(HERE / "checkpoint", ignore_errors=True)
    with suppress(Stop):
        trained(HERE / "checkpoint", stop_after=2)
    with tempfile.TemporaryDirectory() as folder:
        write(HERE / "training.json", trained(Path(folder) / "whole"))
    write(HERE / "records.json", records())


if __name__ == "__main__":
    main()
