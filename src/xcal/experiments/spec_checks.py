"""What must fit together in a spec, beyond the type of each value; every error names the key."""

import re
from typing import TYPE_CHECKING

from xcal._checks import fail
from xcal.calibration.softbins import SoftBins

if TYPE_CHECKING:
    from xcal.experiments.spec import ModelSpec, Spec

# The table's name is a folder of the results: one word, never a path out of it.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}(?<!\.)")
# Subgroups and networks that fit each kind of data: images, or a row of numbers.
_GROUPS = {"gamma": "mean-quartiles", "mnist": "label", "glioma": "age-halves", "mimic": "first-day"}
_NETWORKS = {
    "gamma": ("mlp", "linear", "aft"),
    "glioma": ("mlp", "linear", "aft"),
    "mimic": ("mlp", "linear"),
    "mnist": ("mlp", "cnn", "published-cnn"),
}
_MOST_BINS = 10_000
_MOST_UNITS, _MOST_LAYERS = 100_000, 100


def check_spec(spec: "Spec") -> None:
    """Check a spec as a whole."""
    if not _NAME.fullmatch(spec.table):
        fail("table", "a name of letters, digits, '-', '_' and '.', the folder of its results", repr(spec.table))
    names = [model.name for model in spec.models]
    if len(set(names)) < len(names):
        fail("models", "models of different names", names)
    if not spec.lambdas or min(spec.lambdas) < 0 or len(set(spec.lambdas)) < len(spec.lambdas):
        fail("lambdas", "different numbers, zero or larger", list(spec.lambdas))
    larger = spec.larger_lambdas
    if any(lam <= max(spec.lambdas) for lam in larger) or len(set(larger)) < len(larger):
        fail("larger_lambdas", f"different numbers above {max(spec.lambdas):g}", list(larger))
    for key, bins in (("calibration_bins", spec.calibration_bins), ("time_bins", spec.time_bins)):
        if not 2 <= bins <= _MOST_BINS:
            fail(key, f"from 2 to {_MOST_BINS}", bins)
    try:
        spec.training.config()
    except ValueError as error:
        raise ValueError(f"training.{error}") from error
    _check_trials(spec.trials)
    _check_data(spec)
    for index, model in enumerate(spec.models):
        _check_model(f"models[{index}]", model, spec)
    _check_variants(spec)


def _check_trials(trials: object) -> None:
    if not isinstance(trials, dict):
        fail("trials", "a table of keys and values", repr(trials))
    for name, epochs in trials.items():
        if not _NAME.fullmatch(name) or name.isdecimal():
            fail("trials", "names of letters, digits, '-', '_' and '.', no numbers", repr(name))
        _check_epochs(f"trials.{name}", epochs)


def _check_epochs(where: str, epochs: object) -> None:
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        fail(where, "a whole number of 1 or more epochs", repr(epochs))


def _check_data(spec: "Spec") -> None:
    data = spec.data
    if data.seed < 0:
        fail("data.seed", "a whole number, zero or larger", data.seed)
    if data.groups != _GROUPS[data.name]:
        fail("data.groups", f"groups that these data have, {_GROUPS[data.name]!r}", f"{data.groups!r} for {data.name}")
    if data.name == "glioma" and not data.censored:
        fail("data.censored", "true: the glioma data are censored", "false")
    if data.name == "mimic":
        _check_mimic(spec)
    elif data.death != "event":
        fail("data.death", "nothing: only the mimic data have deaths in the unit", repr(data.death))


def _check_mimic(spec: "Spec") -> None:
    data = spec.data
    if data.censored != (data.death == "censor"):
        fail("data.censored", "true with death = 'censor' and false without", f"{data.censored} with {data.death!r}")
    if data.seed or data.per_seed:
        fail("data.seed, data.per_seed", "neither: the splits are those of the prepared folder", "one of them")


def _check_model(where: str, model: "ModelSpec", spec: "Spec") -> None:
    name = model.name
    if not name or name != name.strip() or not name.isprintable() or "," in name:
        fail(f"{where}.name", "a name without commas, which --models can ask for", repr(name))
    _check_network(where, model, spec.data.name)
    if model.published_epochs is not None:
        _check_epochs(f"{where}.published_epochs", model.published_epochs)
    try:
        SoftBins("product", gamma=model.gamma, censored="soft")
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from error


def _check_network(where: str, model: "ModelSpec", data: str) -> None:
    networks = _NETWORKS[data]
    if model.network not in networks:
        fail(f"{where}.network", f"one for the {data} data ({', '.join(networks)})", repr(model.network))
    if model.network == "aft" and model.discrete:
        expected = "another one: 'aft' is a regression of a continuous time"
        fail(f"{where}.network", expected, f"'aft' for {model.distribution}")
    if len(model.hidden) > _MOST_LAYERS or any(not 1 <= units <= _MOST_UNITS for units in model.hidden):
        expected = f"at most {_MOST_LAYERS} layers of 1 to {_MOST_UNITS} units"
        fail(f"{where}.hidden", expected, list(model.hidden[:_MOST_LAYERS]))
    if not 0 <= model.dropout < 1:
        fail(f"{where}.dropout", "a probability from 0 to below 1", model.dropout)
    if model.network in {"linear", "aft"} and (model.hidden or model.dropout):
        fail(f"{where}.network", "a network that has hidden layers and dropout", f"{model.network!r}, which has none")
    if model.released_dropout and model.network != "cnn":
        fail(f"{where}.released_dropout", "false: only the network 'cnn' has it", "true")


def _check_variants(spec: "Spec") -> None:
    for name, settings in spec.variants.items():
        where = f"variants.{name}"
        if settings.test_rows is not None and settings.test_rows < 1:
            fail(f"{where}.test_rows", "a whole number of 1 or more", settings.test_rows)
        if settings.bias and spec.data.name != "gamma":
            fail(f"{where}.bias", "false: only the gamma data have one", "true")
        if settings.first_guess and not settings.intercept and any(model.network == "aft" for model in spec.models):
            fail(f"{where}.first_guess", "false, or an intercept that can hold the guess", "true without an intercept")
