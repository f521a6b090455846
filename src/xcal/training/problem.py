"""What is trained, and how: the settings, the loss of every model on a batch, and its exact value on a set of rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from xcal._checks import BoolArray, as_choice, as_count, as_number, fail
from xcal._devices import MOST_WORKERS, Workers, usable_threads
from xcal._torch_private import gradient
from xcal.calibration.across_processes import LocalRows, penalty_across
from xcal.calibration.membership import (
    FIRST_TEMPERATURE,
    Annealing,
    SoftBins,
    bin_sums,
    conditional_value,
    feature_sums,
    uniform_histogram,
)
from xcal.calibration.penalties import (
    Seen,
    conditional_penalty_and_slope,
    part_penalty,
    residuals,
    unchecked_conditional_penalty,
)
from xcal.calibration.penalty import penalty_and_slope, unchecked_penalty
from xcal.data.survival import SurvivalData
from xcal.distributions.base import Family, SurvivalDistribution
from xcal.objectives import Objective, ObjectiveAndCdf, Terms, with_cdf, with_slopes
from xcal.training.rows import Across, Batch, take
from xcal.training.stack import CPU_LAMBDAS, Part, Stack

# --- How it is trained: settings that say nothing about data or network.

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


# --- The loss of a batch, as a function of raw outputs.


@dataclass(frozen=True, eq=False)
class Loss:
    """Loss of every model, (S, L), and the tensors from which autograd goes on to the networks."""

    value: Tensor  # without gradient
    ends: Sequence[Tensor]  # what the networks' outputs were turned into
    slopes: Sequence[Tensor] | None = None  # of the sum of all losses in each of them; None if they are that sum

    @classmethod
    def from_slopes(cls, value: Tensor, *slopes: tuple[Tensor, Tensor]) -> "Loss":
        """Make a loss of tensors, each with its gradient; one without a graph (an objective of zero) is left out."""
        used = [(end, slope) for end, slope in slopes if end.requires_grad]
        return cls(value, [end for end, _ in used], [slope for _, slope in used])

    def gradient(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the gradient of the sum of all losses in some tensors; zero in one that has no part in it."""
        return gradient(self.ends, inputs, self.slopes)


# Of raw outputs, a batch and lambdas.
LossValues = Callable[[Tensor, Batch, Tensor], Tensor]
LossFunction = Callable[[Tensor, Batch, Tensor], Loss]


def by_autograd(values: LossValues) -> LossFunction:
    """Make a loss of a function that returns its values with their graph."""

    def loss(raw: Tensor, batch: Batch, lambdas: Tensor) -> Loss:
        found = values(raw, batch, lambdas)
        return Loss(found.detach(), [found.sum()])

    return loss


# --- How the work of a training step is cut into pieces for threads (`xcal._devices`).
# A piece is a part of a stack's models, or some rows of a large network's batch. How work is cut follows from its size
# and from torch's number of threads, and not from how busy the machine is: the results are the same bits.

# Multiplications of a forward pass that are worth a thread's attention, some two milliseconds of training: handing
# work over takes a tenth of one. `python -m benchmarks.busy` shows what this does.
_WORTH_A_THREAD = 2e7
# Multiplications from which single operations take so long that threads wait little for each other.
_WORTH_ALL_CORES = 1e9


@dataclass(frozen=True)
class Plan:
    """How the work of a step is cut."""

    workers: int = 1  # pieces that are worked on at a time
    together: int = CPU_LAMBDAS  # lambdas of one seed in a piece
    row_pieces: int = 1  # of the batch of a model that is trained alone
    operations: int = 1  # threads that torch splits each single operation among


def planned(n_seeds: int, n_lambdas: int, work: float, *, row_wise: Callable[[], bool]) -> Plan:
    """Cut the work of a step on a CPU.

    Small work is done by one thread. On a few cores threads take whole pieces. On many, where Python cannot keep all
    threads busy with pieces, operations are split, and half of the cores are left alone unless the work is large: a
    thread that finds its core taken can then move to another.

    Parameters
    ----------
    n_seeds, n_lambdas
        Models that are trained together.
    work
        Multiplications of one model's forward pass over a batch.
    row_wise
        Whether the network treats every row on its own; asked only where it matters.
    """
    threads, models = usable_threads(), n_seeds * n_lambdas
    if threads == 1 or models * work < 2 * _WORTH_A_THREAD:
        return Plan()
    if threads > MOST_WORKERS:
        return Plan(operations=threads if models * work >= _WORTH_ALL_CORES else threads // 2)
    # Two pieces for each thread: one that is held up by another program then has less to do than the others.
    if models == 1:
        if not row_wise():
            return Plan(operations=threads)
        return Plan(threads, row_pieces=int(min(2 * threads, work / _WORTH_A_THREAD)))
    per_seed = -(-2 * threads // n_seeds)
    together = max(-(-n_lambdas // per_seed), int(-(-_WORTH_A_THREAD // work)))
    return Plan(threads, together=min(together, CPU_LAMBDAS))


# Rows times models evaluated at a time: activations stay near the cache of a CPU and well within a GPU's memory.
_CHUNK = {"cpu": 1 << 13, "cuda": 1 << 21}
_FEWER = 8  # so many times fewer where conditional calibration is measured, which has arrays of rows x bins


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that does not change during training. Models are (S, L): seeds, then lambdas."""

    family: Family
    objective: Objective
    penalty: SoftBins
    edges: Tensor  # float64, on the device
    train: SurvivalData
    validation: SurvivalData
    penalised: bool  # whether any lambda is above zero; kept here because reading a device's values waits for it
    target_dcal: float | None = None
    dcal_floor: float = 0.0
    row_features: Tensor | None = None  # of the training rows, (n, M), for the conditional penalty
    validation_features: Tensor | None = None  # of the validation rows
    across: Across | None = None  # where other processes have rows too; those above are this one's
    _objective_and_cdf: ObjectiveAndCdf = field(init=False, repr=False)
    _terms: Terms = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Asked once, and outside of what is compiled.
        object.__setattr__(self, "_objective_and_cdf", with_cdf(self.objective))
        object.__setattr__(self, "_terms", with_slopes(self.objective))

    @property
    def n_rows(self) -> tuple[int, int]:
        """Numbers of rows to train and to validate on, of all processes."""
        if self.across is not None:
            return self.across.n_train, self.across.n_validation
        return self.train.n, self.validation.n

    def _judged(self, dist: SurvivalDistribution, batch: Batch) -> tuple[Tensor, Tensor, Seen | None]:
        """Objective and F of every row, and what the penalty knows of rows that are seen in part."""
        happened = batch.event if batch.cause is None else batch.cause
        known = {name: one for name, one in (("entry", batch.entry), ("lower", batch.lower)) if one is not None}
        if known:
            rows, cdf = self.objective(dist, batch.time, happened, **known), dist.cdf(batch.time)
        else:
            rows, cdf = self._objective_and_cdf(dist, batch.time, happened)
        if self.train.plain:
            return rows, cdf, None
        entry, lower = (None if one is None else dist.cdf(one) for one in (batch.entry, batch.lower))
        steps = None if batch.cause is None else dist.incidence_steps()
        return rows, cdf, Seen(entry, lower, batch.cause, steps)

    def loss(self, raw: Tensor, batch: Batch, lambdas: Tensor) -> Tensor:
        """Mean objective + lambda times soft D-calibration of a batch: (S, L) from raw outputs (S, L, b, n_outputs).

        The network's outputs hold all models, so the objective and the penalty run once for all of them.
        """
        batch = batch.beside_models()
        rows, cdf, seen = self._judged(self.family.distribution(raw), batch)
        weights = None if batch.weights is None else batch.weights.expand(rows.shape)
        weighted = rows if weights is None else rows * weights
        # A part of a batch adds its share to the mean of the whole.
        mean = weighted.mean(-1) if batch.whole is None else weighted.sum(-1) / batch.whole
        if not self.penalised:
            return mean
        features, happened = batch.row_features, batch.event.expand(cdf.shape)
        edges = self.edges if batch.edges is None else batch.edges
        if self.across is not None:
            local = LocalRows(cdf, happened, weights, features=features, seen=seen)
            penalty = penalty_across(local, edges, self.penalty, self.across.processes, averaged=False)
        elif seen is not None:
            penalty = part_penalty(cdf, happened, seen, edges, self.penalty, weights)
        elif features is None:
            penalty = unchecked_penalty(cdf, happened, edges, self.penalty, weights)
        else:
            penalty = unchecked_conditional_penalty(cdf, happened, features, edges, self.penalty, weights)
        return mean + lambdas * penalty

    def loss_and_slopes(self, raw: Tensor, batch: Batch, lambdas: Tensor) -> Loss:
        """Return `loss` with its gradient in the objective and in F by formula: autograd begins at these two, or later.

        On a CPU a small model's step feels every operation, and autograd would do as many again for this part. It is
        for plain rows of one process; `tests/training/test_loss.py` holds it together with `loss`.
        """
        event = batch.event.unsqueeze(1)
        terms = self._terms(self.family.distribution(raw), batch.time.unsqueeze(1), event)
        rows, cdf = terms.objective, terms.cdf
        with torch.no_grad():
            weights = None if batch.weights is None else batch.weights.unsqueeze(1).expand(rows.shape)
            mean = (rows if weights is None else rows * weights).mean(-1)
            share = 1 / rows.shape[-1]
            row_slope = torch.full_like(rows, share) if weights is None else weights * share
            if not self.penalised:
                return Loss.from_slopes(mean, *terms.back(row_slope, None))
            happened = event.expand(cdf.shape)
            edges = self.edges if batch.edges is None else batch.edges
            if batch.row_features is None:
                penalty, slope = penalty_and_slope(cdf, happened, edges, self.penalty, weights)
            else:
                features = batch.row_features.unsqueeze(1)
                penalty, slope = conditional_penalty_and_slope(cdf, happened, features, edges, self.penalty, weights)
            slope = slope * lambdas.to(slope.dtype).unsqueeze(-1)
            return Loss.from_slopes(mean + lambdas * penalty, *terms.back(row_slope, slope))

    @property
    def _cells(self) -> tuple[int, int]:
        """Shape of the sums behind exact D-calibration of a model: three by bin, or the residual of each cell."""
        bins = self.edges.shape[0] - 1
        return (3, bins) if self.train.plain else (self.family.n_causes, bins)

    @property
    def _n_feature_sums(self) -> int:
        """Sums of a model behind its conditional calibration, in one row; none where nobody asks for it."""
        if self.validation_features is None or not self.penalised:
            return 0
        return self.validation_features.shape[1] * (self.edges.shape[0] - 2) + 2

    def validate(
        self, stack: Stack, workers: Workers, alive: BoolArray | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean objective, exact D-calibration and K of every model on all validation rows, (K,) each in float64.

        Conditional calibration K is None where the penalty is not conditional. A part none of whose models is `alive`
        is left out: its values are NaN.
        """
        n = self.validation.n
        if stack.n_models > 1:
            active = range(len(stack.parts)) if alive is None else stack.parts_with(alive)
            total = self.edges.new_full((stack.n_models,), torch.nan)
            sums = self.edges.new_full((stack.n_models, *self._cells), torch.nan)
            given = self.edges.new_full((stack.n_models, self._n_feature_sums), torch.nan)
            # Networks of different parts can run at the same time, one network on different rows cannot.
            pieces = workers.map(lambda k: self._sums(stack, stack.parts[k], slice(0, n)), active)
            for k, piece in zip(active, pieces, strict=True):
                own = stack.parts[k].models
                total[own], sums[own], given[own] = piece
        else:
            step = _CHUNK.get(self.edges.device.type, 1 << 14)
            ranges = [slice(start, min(start + step, n)) for start in range(0, n, step)]
            pieces = workers.map(lambda rows: self._sums(stack, stack.parts[0], rows), ranges)
            total, sums, given = (torch.stack(each).sum(0) for each in zip(*pieces, strict=True))
        if self.across is not None:
            n = self.across.n_validation
            total, sums, given = self.across.summed(total, sums, given)
        off = uniform_histogram(sums, self.edges) - self.edges.diff() if self.train.plain else sums.flatten(1) / n
        return total / n, off.square().sum(-1), self._conditional(given, n)

    def _conditional(self, given: Tensor, n: int) -> Tensor | None:
        """Conditional calibration of every model from the sums over `n` rows; their weights have mean one."""
        if self.validation_features is None or not given.shape[1]:
            return None
        sums = given[:, :-2].unflatten(1, (self.validation_features.shape[1], -1))
        return conditional_value(sums, given[:, -2], n**2 - given[:, -1])

    @torch.no_grad()
    def _sums(self, stack: Stack, part: Part, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Sum the objective, by bin, and by feature and bin, of the models of a part over some validation rows."""
        models, width = part.models.stop - part.models.start, self._n_feature_sums
        fewer = _FEWER if width or not self.train.plain else 1
        step = max(1, _CHUNK.get(self.edges.device.type, 1 << 14) // models // fewer)
        total = self.edges.new_zeros(models)
        sums, given = self.edges.new_zeros(models, *self._cells), self.edges.new_zeros(models, width)
        for start in range(rows.start, rows.stop, step):
            few = take(
                self.validation, slice(start, min(start + step, rows.stop)), row_features=self.validation_features
            )
            x = few.x.unsqueeze(0).expand(part.starts.stop - part.starts.start, *few.x.shape)
            dist = self.family.distribution(stack.forward(x, training=False, part=part))
            objective, cdf, seen = self._judged(dist, few)
            values = objective.double()
            weights = None if few.weights is None else few.weights.double()
            total += (values if weights is None else values * weights).sum(-1).reshape(-1)
            if seen is not None:
                off = residuals(cdf, few.event.expand(cdf.shape), seen, self.edges, self.penalty, exact=True)
                off = off if weights is None else off * weights.unsqueeze(-1)
                sums += off.sum(-2).reshape(sums.shape)
                continue
            cdf = cdf.reshape(models, -1)
            sums += bin_sums(cdf, few.event, self.edges, weights)
            if width and few.row_features is not None:
                by_feature, own = feature_sums(cdf, few.event, few.row_features, self.edges, weights)
                squares = cdf.shape[1] if weights is None else weights.square().sum()
                given += torch.cat([by_feature.flatten(1), own[:, None], (0 * own + squares)[:, None]], dim=1)
        return total, sums, given
