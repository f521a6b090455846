"""The settings that both estimators share, their defaults, and the checks of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from xcal._checks import as_choice, as_count, as_number, fail
from xcal._devices import as_device, best_device
from xcal.calibration.bins import FINE_BINS
from xcal.calibration.subgroups import KernelFeatures
from xcal.data.survival import SurvivalData
from xcal.distributions._bins import READINGS
from xcal.distributions.families import CONTINUOUS, DISCRETE
from xcal.networks import check_dropout, check_sizes
from xcal.objectives import CensoredCRPS, Objective, nll, survival_crps
from xcal.training.problem import TrainingConfig, check_count, check_number
from xcal.training.result import Progress

# The features of the penalty and of K are the default ones. The seed is fixed, so that all models are trained and
# measured with the same ones.
FEATURES = KernelFeatures(seed=0)

# Each is made for the rows to train on.
OBJECTIVES: dict[str, Callable[[SurvivalData], Objective]] = {
    "nll": lambda rows: nll,
    "scrps": lambda rows: survival_crps,
    "censored-crps": lambda rows: CensoredCRPS.of(rows.time, rows.event, weights=rows.weights),
}
# What the penalty asks for: calibration on average, or given the covariates.
CALIBRATIONS = ("marginal", "conditional")
# Kinds of column that encode="auto" tells apart.
KINDS = ("number", "category", "date")
# Whether a path predicts with the mixture of all seeds of a weight.
AVERAGE = True
# Which weights `fit` trains: the smallest, and the others only if it is off; or all.
PATHS = ("when_needed", "always")
LAMBDAS = (0.0, 1.0, 10.0, 100.0, 500.0, 1000.0)
# Time bins, if their number is not given: the square root of the number of events, but no more than this.
MOST_TIME_BINS = 50


@dataclass(frozen=True)
class Settings:
    """Checked settings of a fit. The defaults of both estimators stand here and nowhere else."""

    distribution: str = "mtlr"
    hidden: tuple[int, ...] = (64, 64)
    dropout: float = 0.3
    objective: str = "nll"
    interpolation: str = "linear"
    n_time_bins: int | None = None
    calibration: str = "marginal"
    calibration_bins: int = FINE_BINS
    epochs: int = 500
    batch_size: int = 512
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    patience: int | None = 20
    penalty_schedule: str = "constant"
    penalty_temperature: float | None = None
    validation_fraction: float = 0.2
    encode: str | None = None
    random_state: Any = 0
    device: str = "cpu"
    distributed: bool | str | None = None
    progress: Progress = None

    def __post_init__(self) -> None:
        as_choice("distribution", self.distribution, (*DISCRETE, *CONTINUOUS))
        as_choice("objective", self.objective, tuple(OBJECTIVES))
        as_choice("interpolation", self.interpolation, tuple(READINGS))
        as_choice("encode", self.encode, ("auto",), or_none=True)
        as_choice("calibration", self.calibration, CALIBRATIONS)
        if not isinstance(self.distributed, bool):
            as_choice("distributed", self.distributed, ("auto",), or_none=True)
        check_sizes("hidden", self.hidden)
        check_dropout(self.dropout)
        if self.n_time_bins is not None:
            check_count("n_time_bins", self.n_time_bins)
        as_count("calibration_bins", self.calibration_bins, at_least=2)
        if self.penalty_temperature is not None:
            as_number("penalty_temperature", self.penalty_temperature, above=0)
        as_number("validation_fraction", self.validation_fraction, above=0, below=1)
        if 1 - self.validation_fraction == 1:
            fail("validation_fraction", "a share that leaves less than all rows to train on", self.validation_fraction)
        self.training_config()
        self.where()

    @classmethod
    def of(cls, estimator: Any) -> "Settings":
        """Read the settings of an estimator; numbers that numpy made (a grid search has them) become Python's."""
        return cls(**{field.name: _plain(getattr(estimator, field.name)) for field in fields(cls)})

    @property
    def discrete(self) -> bool:
        """Whether the distribution has time bins."""
        return self.distribution in DISCRETE

    @property
    def conditional(self) -> bool:
        """Whether calibration given the covariates is asked for, in place of calibration over all rows."""
        return self.calibration == "conditional"

    def training_config(self) -> TrainingConfig:
        """Return the part that is about the optimiser."""
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            optimizer="adamw",
            weight_decay=self.weight_decay,
            patience=self.patience,
            penalty_schedule=self.penalty_schedule,  # type: ignore[arg-type]  # checked there
            quick_dropout=True,
        )

    def where(self) -> torch.device:
        """Return the device to train on; "auto" is a GPU if there is one."""
        # A value of another type may not even be comparable with a word.
        if isinstance(self.device, str) and self.device == "auto":
            return best_device()
        return as_device(self.device, also=("auto",))

    def seed(self) -> int:
        """Return the first seed: `random_state` itself if it is an integer, else a number drawn from it."""
        if isinstance(self.random_state, int) and not isinstance(self.random_state, bool):
            return as_count("random_state", self.random_state, at_least=0)
        try:
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        except (ValueError, TypeError) as error:
            # scikit-learn's words, on one line and with the argument's name.
            raise ValueError(f"random_state: {' '.join(str(error).split())[:300]}") from error


def store_shared(estimator: Any, given: Mapping[str, Any]) -> None:
    """Keep the shared settings as they were given, under their names, as scikit-learn wants it of ``__init__``."""
    for name in SHARED:
        setattr(estimator, name, given[name])


def checked_lambda(value: Any) -> float:
    """One weight of the penalty: a finite number, zero or larger."""
    value = _plain(value)
    check_number("xcal_lambda", value, above_zero=False)
    return float(value)


def checked_seeds(value: Any, first: int) -> list[int]:
    """Seeds of a path: `value` of them counted from the first, or those given."""
    value = _plain(value)
    if isinstance(value, tuple):
        if not value or not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in value):
            fail("seeds", "a number of seeds, or a sequence of integers, zero or larger", repr(value))
        if len(set(value)) < len(value):
            fail("seeds", "different seeds", repr(value))
        return list(value)
    check_count("seeds", value)
    return [first + i for i in range(value)]


def checked_target(value: Any) -> float:
    """D-calibration to reach: above zero, below the largest there is."""
    return as_number("target_dcal", _plain(value), above=0, below=1)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(_plain(item) for item in value)
    return value


DEFAULTS = Settings()
SHARED = tuple(field.name for field in fields(Settings))
