"""How a path is trained: settings that say nothing about data or network."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from xcal._checks import as_choice, as_count, as_number, fail
from xcal.calibration.membership import FIRST_TEMPERATURE, Annealing

Optimizer = Literal["adam", "adamw"]
Schedule = Literal["cosine", "linear"]
PenaltySchedule = Literal["constant", "anneal"]
Keep = Literal["best", "last"]
Mode = Literal["auto", "stacked", "sequential"]
# Temperatures on the way down with `first_temperature` alone, as the committed records have it.
_TEMPERATURES = 10


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of `fit_path`; the defaults are those of the paper's gamma experiment.

    Parameters
    ----------
    epochs : int
        Passes over the training rows.
    batch_size : int
        Rows of a batch, at most. Batches of one epoch are equally large, so that every step has the same shape: n rows
        make ``ceil(n / batch_size)`` batches of ``floor(n / batches)`` rows, and the fewer than ``batches`` rows that
        are left over, other ones each epoch, are not used in it.
    learning_rate : float
    optimizer : {"adam", "adamw"}
        Weight decay is added to the gradient by Adam and taken from the weights by AdamW.
    weight_decay : float
    schedule : {"cosine", "linear"}, optional
        Learning rate by epoch: from `learning_rate` down towards zero along half a cosine or a line, or constant.
    warm_up : int
        Epochs at the start in which the rate rises to `learning_rate`, in equal steps.
    penalty_schedule : {"constant", "anneal"}
        "constant": weight and temperature of the penalty stay the same. "anneal": in the first epochs the weight rises
        from 0 to lambda while the temperature falls to that of the penalty (`xcal.Annealing`). Use it for large
        weights; with many rows in a batch, ``SoftBins(temperature=0.1)`` then reaches a lower D-calibration. A lambda
        of 0 is not affected. The epoch of a model is chosen by its full lambda from the start, and `patience` counts
        from the first epoch that has it. A penalty without a temperature has a rising weight alone, and a target
        (`target_dcal`), which moves the weight itself, a falling temperature alone.
    anneal_epochs : int, optional
        Epochs until weight and temperature have reached their end; by default half of `epochs`, and with `patience` at
        most that many. With ``penalty_schedule="anneal"`` only.
    first_temperature : float, optional
        Temperature of the penalty's membership at the start, in bin widths; 2 with ``penalty_schedule="anneal"``. With
        "constant" it falls over all epochs, in ten steps by equal factors, to that of the penalty (`SoftBins`). A wide
        membership leaves the gradient little noise and a narrow one the result little bias:
        ``first_temperature=2.0`` with ``SoftBins(temperature=0.1)`` has both.
    clip_norm : float, optional
        Largest norm of one model's gradient; each model of a path is clipped on its own.
    patience : int, optional
        A model stops after this many epochs in a row without improvement.
    keep : {"best", "last"}
        Which epoch's weights a model keeps: those with the lowest value on the validation rows, or the last, after
        which alone these rows are then looked at.
    quick_dropout : bool
        On a CPU, draw what dropout leaves out from 16 random bits for each number, four times as fast as torch's
        generator does; probabilities are rounded to multiples of 2^-16. No effect on a GPU, or under `torch.compile`.
    checkpoint_every : int
        Epochs between checkpoints, where `fit_path` is told to write any.
    compile : bool
        Compile objective and penalty with `torch.compile`, or a lone network with convolutions, whose passes over
        memory a compiler saves half of: some seconds before the first step, faster steps after it, and other bits in
        the last places. Where there is no compiler a log line says so.
    cuda_graphs : bool
        On a GPU, record a step once and replay it. A network whose step cannot be recorded (one that looks at its
        values, say) is trained step by step, and a log line says so. No effect on a CPU.
    tf32 : bool
        On a GPU, let matrix products round their factors to 10 bits (TensorFloat-32): faster, and as good as float32
        for most networks. No effect on a CPU.

    Examples
    --------
    >>> TrainingConfig(epochs=5).batch_size
    1000
    """

    epochs: int = 100
    batch_size: int = 1000
    learning_rate: float = 1e-3
    optimizer: Optimizer = "adam"
    weight_decay: float = 0.0
    schedule: Schedule | None = None
    warm_up: int = 0
    penalty_schedule: PenaltySchedule = "constant"
    anneal_epochs: int | None = None
    first_temperature: float | None = None
    clip_norm: float | None = None
    patience: int | None = None
    keep: Keep = "best"
    quick_dropout: bool = False
    checkpoint_every: int = 10
    compile: bool = False
    cuda_graphs: bool = True
    tf32: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "checkpoint_every"):
            self._keep(name, check_count(name, getattr(self, name)))
        if self.patience is not None:
            self._keep("patience", check_count("patience", self.patience))
        self._keep("warm_up", as_count("warm_up", self.warm_up, at_least=0))
        self._keep("learning_rate", check_number("learning_rate", self.learning_rate, above_zero=True))
        self._keep("weight_decay", check_number("weight_decay", self.weight_decay, above_zero=False))
        for name in ("clip_norm", "first_temperature"):
            if getattr(self, name) is not None:
                self._keep(name, check_number(name, getattr(self, name), above_zero=True))
        as_choice("optimizer", self.optimizer, get_args(Optimizer))
        as_choice("keep", self.keep, get_args(Keep))
        for name in ("quick_dropout", "compile", "cuda_graphs", "tf32"):
            if not isinstance(getattr(self, name), bool):
                fail(name, "True or False", repr(getattr(self, name)))
        as_choice("schedule", self.schedule, get_args(Schedule), or_none=True)
        as_choice("penalty_schedule", self.penalty_schedule, get_args(PenaltySchedule))
        if self.anneal_epochs is not None:
            if self.penalty_schedule != "anneal":
                fail("anneal_epochs", "None without penalty_schedule='anneal'", self.anneal_epochs)
            self._keep("anneal_epochs", as_count("anneal_epochs", self.anneal_epochs, at_least=0))

    def _keep(self, name: str, value: float) -> None:
        """Hold a checked number as Python's own: a checkpoint writes the settings as JSON, which has no numpy."""
        object.__setattr__(self, name, value)

    def rate(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 0."""
        if epoch < self.warm_up:
            return self.learning_rate * (epoch + 1) / (self.warm_up + 1)
        done = (epoch - self.warm_up) / max(1, self.epochs - self.warm_up)
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * (1 - done) if self.schedule == "linear" else self.learning_rate

    @property
    def rising_epochs(self) -> int:
        """Epochs at the start in which the weight of the penalty is not yet lambda."""
        if self.penalty_schedule == "constant":
            return 0
        if self.anneal_epochs is not None:
            return self.anneal_epochs
        half = self.epochs // 2
        # Without this a training that stops early would go on for half of all epochs before it may.
        return half if self.patience is None else min(half, self.patience)

    @property
    def moves_temperature(self) -> bool:
        """Whether the temperature of the penalty changes from epoch to epoch."""
        return self.penalty_schedule == "anneal" or self.first_temperature is not None

    def weight(self, epoch: int) -> float:
        """Share of lambda in an epoch, counted from 0."""
        return Annealing(self.rising_epochs).weight(epoch)

    def temperature(self, epoch: int, last: float) -> float:
        """Temperature of the penalty in an epoch, counted from 0, that ends at `last`."""
        if self.penalty_schedule == "anneal":
            first = FIRST_TEMPERATURE if self.first_temperature is None else self.first_temperature
            return Annealing(self.rising_epochs, first, last).temperature(epoch)
        if self.first_temperature is None:
            return last
        steps = min(_TEMPERATURES, self.epochs)
        if steps == 1:
            return last
        share = (epoch * steps // self.epochs) / (steps - 1)
        return float(self.first_temperature * (last / self.first_temperature) ** share)


def check_count(name: str, value: Any) -> int:
    """Check an integer of one or more."""
    return as_count(name, value, at_least=1)


def check_number(name: str, value: Any, *, above_zero: bool) -> float:
    """Check a finite number, above zero or at least zero."""
    return as_number(name, value, above=0) if above_zero else as_number(name, value, at_least=0)
