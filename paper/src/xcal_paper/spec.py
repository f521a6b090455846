"""What an experiment is: one table, its models, its grid of lambdas and seeds, its data and its training.

Words: a *model* is one row of the paper's table (a distribution, a network and an objective). A *run* is one model with
one lambda and one seed. A *job* is the runs that are trained together. A *row* is always a row of the data.

First what a spec holds, then what must fit together in it, then how it is read from its TOML file.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from xcal._checks import fail
from xcal._files import LARGEST_INTEGER, check_keys, read, shown
from xcal.calibration.membership import SoftBins
from xcal.training.problem import TrainingConfig

Variant = Literal["as-published", "corrected"]
Penalty = Literal["paper", "ours", "annealed", "ramped"]
Kind = Literal["path", "gamma-choice", "jensen-slack"]

# Of the annealed penalty, in bin widths: its temperature falls in ten steps over all epochs, its weight is constant.
# "ramped" has the schedule "anneal" of `TrainingConfig`, in which the weight rises too.
FIRST_TEMPERATURE = 2.0

# Part of every hash: raise it when code changes what the same spec computes.
METHOD = 1

# Names under which the hash of a spec knows its settings. They are older than the names here and stay: with other names
# every committed record would belong to another spec.
_HASHED_AS = {"distribution": "model"}
# Settings of a model that do not count: its names, and its epochs, which are hashed as those it is trained for.
_NOT_HASHED = {"name", "label", "published_epochs"}

# What the hash knows of a penalty that changes during training.
_SCHEDULES = {"annealed": (FIRST_TEMPERATURE,), "ramped": ("anneal", FIRST_TEMPERATURE)}


@dataclass(frozen=True)
class DataSpec:
    """Which rows: `n` are the first rows of each split; with `per_seed` every seed has its own draw or split.

    `death` says what a death in the unit is in the MIMIC-III data: the end of an ordinary stay, or a censored one.
    """

    name: Literal["gamma", "mnist", "glioma", "mimic"]
    groups: Literal["mean-quartiles", "label", "age-halves", "first-day"]
    seed: int = 0
    censored: bool = True
    per_seed: bool = False
    n: tuple[int, ...] | None = None
    death: Literal["event", "censor"] = "event"

    def __post_init__(self) -> None:
        if self.n is not None and (len(self.n) != 3 or min(self.n) < 1):
            fail("data.n", "three numbers of rows: train, validation, test", self.n)


@dataclass(frozen=True)
class TrainingSpec:
    """Adam at a constant learning rate; the last two settings are for speed (see `TrainingConfig`)."""

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    compile: bool = False
    tf32: bool = False

    def config(self, penalty: Penalty = "paper") -> TrainingConfig:
        """Return the settings of `fit_path`."""
        return TrainingConfig(
            **asdict(self),
            penalty_schedule="anneal" if penalty == "ramped" else "constant",
            first_temperature=FIRST_TEMPERATURE if penalty == "annealed" else None,
        )


@dataclass(frozen=True)
class VariantSpec:
    """What a variant changes in one table; what it changes everywhere is in `models`.

    `bias` adds a constant to the gamma data, `test_rows` keeps the first test rows only, `intercept` gives an intercept
    to the scale of the Weibull regression, and with `first_guess` the last layer starts from the distribution of all
    training times (`Family.initial`).
    """

    bias: bool = False
    test_rows: int | None = None
    intercept: bool = True
    first_guess: bool = False


@dataclass(frozen=True)
class ModelSpec:
    """One model, a row of the paper's table; for `released_dropout` see `PaperCNN`.

    `published_epochs` are those of the variant "as-published", where the released script trained this model for another
    number of epochs than the paper's text says. The hash of a run knows its epochs, not where they are written.
    """

    name: str
    label: str
    distribution: Literal["lognormal", "weibull", "categorical", "mtlr"]
    network: Literal["mlp", "linear", "cnn", "published-cnn", "aft"]
    objective: Literal["nll", "scrps", "censored-crps"] = "nll"
    interpolation: Literal["step", "linear"] | None = None
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0
    released_dropout: bool = False
    gamma: float | None = None
    published_epochs: int | None = None

    def __post_init__(self) -> None:
        if (self.interpolation is not None) != self.discrete:
            expected = "step or linear for a discrete model, nothing for a continuous one"
            fail(f"models.{self.name}.interpolation", expected, self.interpolation)

    @property
    def discrete(self) -> bool:
        """Whether the model has time bins."""
        return self.distribution in {"categorical", "mtlr"}


@dataclass(frozen=True)
class Spec:
    """One table: its models, its grid, its data and how it is trained.

    `job` says which runs are trained together: "model", all lambdas and seeds of a model; or "run", each run alone.
    `larger_lambdas` are weights beyond the paper's, for the other penalties alone: at the same weight these ask for
    less, and two penalties are compared at the same D-calibration. They are a job of their own. `trials` are other
    numbers of epochs for all models, by name, and `score_trials` other objectives for those of the survival CRPS.

    Examples
    --------
    >>> from xcal_paper import load_spec
    >>> spec = load_spec("gamma-censored")
    >>> len(spec.models), spec.lambdas[-1], spec.training.epochs
    (6, 1000.0, 100)
    >>> spec.training_of(spec.model("lognormal-nll"), "as-published").epochs
    500
    >>> spec.narrowed(epochs="appendix").training_of(spec.model("lognormal-nll"), "as-published").epochs
    100
    """

    table: str
    kind: Kind
    title: str
    paper: str
    variant: Variant
    lambdas: tuple[float, ...]
    seeds: tuple[int, ...]
    calibration_bins: int
    time_bins: int
    job: Literal["model", "run"]
    data: DataSpec
    training: TrainingSpec
    variants: dict[str, VariantSpec]
    models: tuple[ModelSpec, ...]
    larger_lambdas: tuple[float, ...] = ()
    trials: dict[str, int] = field(default_factory=dict)
    score_trials: dict[str, Literal["censored-crps"]] = field(default_factory=dict)

    def of_penalty(self, penalty: Penalty) -> "Spec":
        """Return the spec with all lambdas that a penalty is trained with."""
        return self if penalty == "paper" else replace(self, lambdas=(*self.lambdas, *self.larger_lambdas))

    def model(self, name: str) -> ModelSpec:
        """Return the model of that name."""
        return next(model for model in self.models if model.name == name)

    def narrowed(
        self,
        *,
        models: Iterable[str] | None = None,
        lambdas: Iterable[float] | None = None,
        seeds: Iterable[int] | None = None,
        epochs: int | str | None = None,
    ) -> "Spec":
        """Return the spec with some of its models and lambdas, with other seeds, or with other epochs for all models.

        `epochs` is a number, or the name of one of the `trials` or `score_trials`.
        """
        spec = self
        if models is not None:
            names = _known("models", models, [model.name for model in self.models])
            spec = replace(spec, models=tuple(model for model in self.models if model.name in names))
        if lambdas is not None:
            chosen = _known("lambdas", lambdas, list(self.lambdas))
            spec = replace(spec, lambdas=tuple(lam for lam in self.lambdas if lam in chosen))
        if seeds is not None:
            spec = replace(spec, seeds=checked_seeds(seeds))
        if isinstance(epochs, str) and epochs in self.score_trials:
            score = self.score_trials[epochs]
            others = (replace(m, objective=score) if m.objective == "scrps" else m for m in spec.models)
            spec = replace(spec, models=tuple(others))
        elif epochs is not None:
            number = self.epochs_of(epochs)
            equal = tuple(replace(model, published_epochs=None) for model in spec.models)
            spec = replace(spec, training=replace(spec.training, epochs=number), models=equal)
        return spec

    def epochs_of(self, epochs: int | str) -> int:
        """Return a number of epochs: itself, or that of the trial of this name."""
        if isinstance(epochs, str) and epochs in self.trials:
            return self.trials[epochs]
        if isinstance(epochs, str) and not epochs.isdecimal():
            trials = [*self.trials, *self.score_trials]
            names = f", or the name of a trial ({', '.join(trials)})" if trials else ""
            fail("epochs", f"a whole number of 1 or more{names}", repr(epochs))
        return TrainingConfig(epochs=int(epochs) if isinstance(epochs, str) else epochs).epochs

    def training_of(self, model: ModelSpec, variant: Variant) -> TrainingSpec:
        """Return how a model is trained, with its own epochs where it has some."""
        own = self.model(model.name).published_epochs if variant == "as-published" else None
        return self.training if own is None else replace(self.training, epochs=own)

    def chosen_variant(self, variant: str | None, penalty: str | None) -> tuple[Variant, Penalty]:
        """Check a variant and a penalty, and fill in the table's own where one is None."""
        variants: dict[str, Variant] = {name: name for name in get_args(Variant)}
        penalties: dict[str, Penalty] = {name: name for name in get_args(Penalty)}
        if variant is not None and variant not in variants:
            fail("variant", " or ".join(variants), repr(variant))
        if penalty is not None and penalty not in penalties:
            fail("penalty", " or ".join(penalties), repr(penalty))
        chosen = self.variant if variant is None else variants[variant]
        if self.kind != "path":
            # Both studies are about the paper's membership.
            if penalty not in {None, "paper"}:
                fail("penalty", f"paper: {self.table} is a study of the paper's penalty", repr(penalty))
            return chosen, "paper"
        return chosen, default_penalty(chosen) if penalty is None else penalties[penalty]

    def hash(self, model: ModelSpec, variant: Variant, penalty: Penalty) -> str:
        """Hash of everything that decides a run's numbers but lambda and seed; names and comments do not count."""
        soft = soft_bins(penalty, model)
        content = {
            "method": METHOD,
            "kind": self.kind,
            "variant": variant,
            "variant_settings": _not_default(self.variants[variant]),
            "penalty": [
                *(soft.membership, soft.temperature, soft.gamma, soft.censored, soft.estimator),
                *_SCHEDULES.get(penalty, ()),
            ],
            "calibration_bins": self.calibration_bins,
            "time_bins": self.time_bins if model.discrete else None,
            "data": _not_default(self.data),
            "training": _not_default(self.training_of(model, variant)),
            "row": {name: value for name, value in _not_default(model).items() if name not in _NOT_HASHED},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def soft_bins(penalty: Penalty, model: ModelSpec) -> SoftBins:
    """Return the penalty: the paper's, product membership with soft censored rows, or the default of `xcal`.

    The "annealed" one is ours with a temperature that falls from 2 bin widths to the one returned; with "ramped" it
    does so in the first half of the epochs, while the weight rises.
    """
    if penalty == "paper":
        return SoftBins("product", gamma=model.gamma, censored="soft")
    return SoftBins() if penalty == "ours" else SoftBins(temperature=0.1)


def default_penalty(variant: Variant) -> Penalty:
    """Return the penalty that goes with a variant unless another one is asked for."""
    return "paper" if variant == "as-published" else "ours"


def checked_seeds(seeds: Iterable[int]) -> tuple[int, ...]:
    """Check that there are seeds, that they differ, and that each is a whole number of zero or more."""
    values = tuple(seeds)
    if not values or any(isinstance(s, bool) or not isinstance(s, int) or not 0 <= s < LARGEST_INTEGER for s in values):
        fail("seeds", "at least one seed, whole numbers of zero or more", list(values))
    if len(set(values)) < len(values):
        fail("seeds", "different seeds", list(values))
    return values


def _known(name: str, chosen: Iterable[Any], known: list[Any]) -> list[Any]:
    values = list(chosen)
    for value in values:
        if value not in known:
            names = ", ".join(f"{item:g}" if isinstance(item, float) else item for item in known)
            fail(name, f"some of {names}", value)
    if not values:
        fail(name, "at least one", "none")
    return values


def _not_default(part: DataSpec | TrainingSpec | VariantSpec | ModelSpec) -> dict[str, Any]:
    """Return the settings that differ from their defaults: a new one, left at its default, keeps old hashes valid."""
    values = [(f.name, getattr(part, f.name), f.default) for f in fields(part)]
    return {_HASHED_AS.get(name, name): value for name, value, default in values if value != default}


# ----------------------------------------------------------------------------------------------------------------------
# What must fit together in a spec, beyond the type of each value; every error names the key.


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
    _check_names(spec.trials | spec.score_trials)
    for name, epochs in spec.trials.items():
        _check_epochs(f"trials.{name}", epochs)
    _check_data(spec)
    for index, model in enumerate(spec.models):
        _check_model(f"models[{index}]", model, spec)
    _check_variants(spec)


def _check_names(trials: Iterable[str]) -> None:
    for name in trials:
        if not _NAME.fullmatch(name) or name.isdecimal():
            fail("trials", "names of letters, digits, '-', '_' and '.', no numbers", repr(name))


def _check_epochs(where: str, epochs: int) -> None:
    if epochs < 1:
        fail(where, "a whole number of 1 or more epochs", epochs)


def _check_data(spec: "Spec") -> None:
    data = spec.data
    if data.seed < 0:
        fail("data.seed", "a whole number, zero or larger", data.seed)
    if data.groups != _GROUPS[data.name]:
        fail(
            "data.groups",
            f"a grouping defined for this data set, {_GROUPS[data.name]!r}",
            f"{data.groups!r} for {data.name}",
        )
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


# ----------------------------------------------------------------------------------------------------------------------
# Reading a spec from its TOML file, in which an unknown key or a value of the wrong kind is an error.


def table_names() -> list[str]:
    """Names of the tables that come with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def load_spec(table: str | Path) -> Spec:
    """Read the spec of a table: one of `table_names`, or the path of a TOML file of your own."""
    text = str(table)
    if text.endswith(".toml"):
        source = Path(text)
        if not source.is_file():
            raise FileNotFoundError(f"table: expected a spec file, got {text}, which does not exist")
        content = source.read_bytes()
    elif text in table_names():
        content = (_folder() / f"{text}.toml").read_bytes()
    else:
        fail("table", f"one of {', '.join(table_names())}, or the path of a .toml file", repr(text))
    try:
        values = tomllib.loads(content.decode("utf-8"))
    # Text that is not UTF-8 or not TOML; a number of thousands of digits; lists within lists without end.
    except (ValueError, RecursionError) as error:
        fail(text, "a TOML file", f"one that cannot be read: {error}")
    try:
        return _spec(values)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from error


def _folder() -> Any:
    return files("xcal_paper") / "specs"


def _spec(values: dict[str, Any]) -> Spec:
    if not isinstance(values.get("models"), list) or not values["models"]:
        fail("models", "at least one [[models]] table", shown(values.get("models")))
    check_keys("variants", values.get("variants", {}), get_args(Variant), get_args(Variant))
    spec = read(Spec, values)
    checked_seeds(spec.seeds)
    check_spec(spec)
    return spec
