"""What is trained on what: the loss of every model on a batch, and its exact value on a whole set of rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from xcal._checks import BoolArray
from xcal._devices import MOST_WORKERS, Workers, usable_threads
from xcal._torch_private import gradient
from xcal.calibration.across_processes import LocalRows, penalty_across
from xcal.calibration.conditional_penalty import conditional_penalty_and_slope, unchecked_conditional_penalty
from xcal.calibration.membership import SoftBins, bin_sums, conditional_value, feature_sums, uniform_histogram
from xcal.calibration.penalty import penalty_and_slope, unchecked_penalty
from xcal.calibration.seen_in_part import Seen, part_penalty, residuals
from xcal.data.survival import SurvivalData
from xcal.distributions.base import Family, SurvivalDistribution
from xcal.objectives import Objective, ObjectiveAndCdf, Terms, with_cdf, with_slopes
from xcal.training.rows import Across, Batch, take
from xcal.training.stack import CPU_LAMBDAS, Part, Stack


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
