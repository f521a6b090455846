"""What an experiment is: a TOML file read into frozen dataclasses, in which an unknown key is an error."""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from xcal._checks import as_choice, fail
from xcal.calibration.softbins import SoftBins
from xcal.experiments.spec_checks import check_spec
from xcal.training.config import TrainingConfig

Variant = Literal["as-published", "corrected"]
Penalty = Literal["paper", "ours", "annealed"]
Kind = Literal["path", "gamma-choice", "jensen-slack"]

FIRST_TEMPERATURE = 2.0  # of the annealed penalty, in bin widths

# Part of every hash: raise it when code changes what the same spec computes.
METHOD = 1

_LARGEST = 2**63
_Part = TypeVar("_Part")
_TYPES: dict[Any, tuple[type | tuple[type, ...], str]] = {
    str: (str, "text"),
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
}


@dataclass(frozen=True)
class DataSpec:
    """Which rows: `n` are the first rows of each split; with `per_seed` every seed has its own draw or split."""

    name: Literal["gamma", "mnist", "glioma"]
    groups: Literal["mean-quartiles", "label", "age-halves"]
    seed: int = 0
    censored: bool = True
    per_seed: bool = False
    n: tuple[int, ...] | None = None

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
        return TrainingConfig(**asdict(self), first_temperature=FIRST_TEMPERATURE if penalty == "annealed" else None)


@dataclass(frozen=True)
class VariantSpec:
    """What a variant changes in one table; what it changes everywhere is in `models`.

    `bias` adds a constant to the gamma data, `test_rows` keeps the first test rows only, `intercept` gives the scale of
    the Weibull regression one, and with `first_guess` the last layer starts from the distribution of the training times
    as a whole (`Family.initial`).
    """

    bias: bool = False
    test_rows: int | None = None
    intercept: bool = True
    first_guess: bool = False


@dataclass(frozen=True)
class RowSpec:
    """One model of a table; for `released_dropout` see `PaperCNN`."""

    name: str
    label: str
    model: Literal["lognormal", "weibull", "categorical", "mtlr"]
    network: Literal["mlp", "linear", "cnn", "published-cnn", "aft"]
    objective: Literal["nll", "scrps"] = "nll"
    interpolation: Literal["step", "linear"] | None = None
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0
    released_dropout: bool = False
    gamma: float | None = None

    def __post_init__(self) -> None:
        if (self.interpolation is not None) != self.discrete:
            expected = "step or linear for a discrete model, nothing for a continuous one"
            fail(f"rows.{self.name}.interpolation", expected, self.interpolation)

    @property
    def discrete(self) -> bool:
        """Whether the model has time bins."""
        return self.model in {"categorical", "mtlr"}


@dataclass(frozen=True)
class Spec:
    """One table: its rows, its grid, its data and how it is trained.

    Examples
    --------
    >>> spec = load_spec("gamma-censored")
    >>> len(spec.rows), spec.lambdas[-1], spec.training.epochs
    (6, 1000.0, 100)
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
    group: Literal["row", "run"]
    data: DataSpec
    training: TrainingSpec
    variants: dict[str, VariantSpec]
    rows: tuple[RowSpec, ...]

    def row(self, name: str) -> RowSpec:
        """Return the row of that name."""
        return next(row for row in self.rows if row.name == name)

    def narrowed(
        self,
        *,
        rows: Iterable[str] | None = None,
        lambdas: Iterable[float] | None = None,
        seeds: Iterable[int] | None = None,
        epochs: int | None = None,
    ) -> "Spec":
        """Return the spec with some of its rows and lambdas, with other seeds, or with other epochs."""
        spec = self
        if rows is not None:
            names = _known("rows", rows, [row.name for row in self.rows])
            spec = replace(spec, rows=tuple(row for row in self.rows if row.name in names))
        if lambdas is not None:
            chosen = _known("lambdas", lambdas, list(self.lambdas))
            spec = replace(spec, lambdas=tuple(lam for lam in self.lambdas if lam in chosen))
        if seeds is not None:
            spec = replace(spec, seeds=_checked_seeds(seeds))
        if epochs is not None:
            TrainingConfig(epochs=epochs)
            spec = replace(spec, training=replace(spec.training, epochs=epochs))
        return spec

    def hash(self, row: RowSpec, variant: Variant, penalty: Penalty) -> str:
        """Hash of everything that decides a run's numbers but lambda and seed; names and comments do not count."""
        soft = soft_bins(penalty, row)
        content = {
            "method": METHOD,
            "kind": self.kind,
            "variant": variant,
            "variant_settings": _chosen(self.variants[variant]),
            "penalty": [soft.membership, soft.temperature, soft.gamma, soft.censored, soft.estimator]
            + ([FIRST_TEMPERATURE] if penalty == "annealed" else []),
            "calibration_bins": self.calibration_bins,
            "time_bins": self.time_bins if row.discrete else None,
            "data": _chosen(self.data),
            "training": _chosen(self.training),
            "row": {name: value for name, value in _chosen(row).items() if name not in {"name", "label"}},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def soft_bins(penalty: Penalty, row: RowSpec) -> SoftBins:
    """Return the penalty: the paper's, product membership with soft censored rows, or the default of `xcal`.

    The "annealed" one is ours with a temperature that falls from 2 bin widths to the one returned.
    """
    if penalty == "paper":
        return SoftBins("product", gamma=row.gamma, censored="soft")
    return SoftBins(temperature=0.1) if penalty == "annealed" else SoftBins()


def default_penalty(variant: Variant) -> Penalty:
    """Return the penalty that goes with a variant unless another one is asked for."""
    return "paper" if variant == "as-published" else "ours"


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


def _chosen(part: DataSpec | TrainingSpec | VariantSpec | RowSpec) -> dict[str, Any]:
    """Return the settings that differ from their defaults: a new one, left at its default, keeps old hashes valid."""
    return {f.name: getattr(part, f.name) for f in fields(part) if getattr(part, f.name) != f.default}


def _folder() -> Any:
    return files("xcal.experiments") / "specs"


def _spec(values: dict[str, Any]) -> Spec:
    if not isinstance(values.get("rows"), list) or not values["rows"]:
        fail("rows", "at least one [[rows]] table", repr(values.get("rows")))
    variants = values.get("variants", {})
    _check_keys("variants", variants, get_args(Variant), required=get_args(Variant))
    parts = {
        "data": _part(DataSpec, "data", values.get("data", {})),
        "training": _part(TrainingSpec, "training", values.get("training", {})),
        "variants": {name: _part(VariantSpec, f"variants.{name}", v) for name, v in variants.items()},
        "rows": tuple(_part(RowSpec, f"rows[{i}]", row) for i, row in enumerate(values["rows"])),
    }
    spec = _part(Spec, "", values | parts)
    _checked_seeds(spec.seeds)
    check_spec(spec)
    return spec


def _part(kind: type[_Part], where: str, values: Any) -> _Part:
    """Read one TOML table into a dataclass, checking keys and the type of every value."""
    # The type variable stands for dataclasses only, which mypy has no way to be told.
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    required = [name for name, field in known.items() if field.default is MISSING]
    _check_keys(where or "keys", values, known, required=required)
    hints = get_type_hints(kind)
    dot = "." if where else ""
    return kind(**{name: _checked(f"{where}{dot}{name}", value, hints[name]) for name, value in values.items()})


def _check_keys(where: str, values: Any, known: Iterable[str], *, required: Iterable[str]) -> None:
    if not isinstance(values, dict):
        fail(where, "a table of keys and values", repr(values))
    for name in values:
        if name not in known:
            fail(where, f"one of the keys {', '.join(known)}", repr(name))
    for name in required:
        if name not in values:
            fail(where, f"a value for {name!r}", "none")


def _checked(where: str, value: Any, hint: Any) -> Any:
    """Check a value against the type of its field; TOML has no None, so an optional field is simply left out."""
    options = [option for option in get_args(hint) if option is not type(None)]
    if type(None) in get_args(hint):
        hint = options[0]
    if hint in _TYPES:
        kind, name = _TYPES[hint]
        if not isinstance(value, kind) or (isinstance(value, bool) and hint is not bool):
            fail(where, name, repr(value))
        number: Any = value
        if hint is int and abs(number) >= _LARGEST:
            fail(where, "a whole number of 64 bits", repr(value))
        if hint is float and (abs(number) >= _LARGEST if isinstance(number, int) else not math.isfinite(number)):
            fail(where, "a finite number", repr(value))
        return float(number) if hint is float else number
    if getattr(hint, "__origin__", None) is Literal:
        return as_choice(where, value, get_args(hint))
    if getattr(hint, "__origin__", None) is tuple and not isinstance(value, tuple):
        if not isinstance(value, list):
            fail(where, "a list", repr(value))
        return tuple(_checked(f"{where}[{i}]", item, get_args(hint)[0]) for i, item in enumerate(value))
    return value


def _known(name: str, chosen: Iterable[Any], known: list[Any]) -> list[Any]:
    values = list(chosen)
    for value in values:
        if value not in known:
            names = ", ".join(f"{item:g}" if isinstance(item, float) else item for item in known)
            fail(name, f"some of {names}", value)
    if not values:
        fail(name, "at least one", "none")
    return values


def _checked_seeds(seeds: Iterable[int]) -> tuple[int, ...]:
    values = tuple(seeds)
    if not values or any(isinstance(s, bool) or not isinstance(s, int) or not 0 <= s < _LARGEST for s in values):
        fail("seeds", "at least one seed, whole numbers of zero or more", list(values))
    if len(set(values)) < len(values):
        fail("seeds", "different seeds", list(values))
    return values
