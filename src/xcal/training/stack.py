"""K models of one architecture as one matrix of parameters, a row for each model.

Models are ordered by seed, then by lambda: model ``s * L + l`` has seed s and lambda l. One matrix means that an
optimiser step, a clipped gradient, a frozen model and a checkpoint are each one operation on rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from xcal._checks import fail
from xcal._torch_private import multiplications
from xcal.training.randomness import OwnNumbers, SeedOfRows, WithoutDropout, draws, seeded, shared_numbers

MakeNetwork = Callable[[], nn.Module]
Seeds = Sequence[int | SeedOfRows]  # of the random numbers of a step, one for each start

# Lambdas of one seed that a CPU runs together, at most: enough that starting operations costs little, few enough that
# the activations of a batch stay in its cache. A GPU runs everything together.
CPU_LAMBDAS = 8


@dataclass(frozen=True, eq=False)
class Part:
    """Models of a stack that run together: which rows of the matrix, which starts and lambdas, and their windows.

    Each part has a network of its own to run them through: parts may run at the same time.
    """

    models: slice
    starts: slice
    lambdas: slice
    leaves: dict[str, Tensor]
    template: nn.Module


class Stack:
    """S x L copies of a network; those of one seed start from the same weights, which depend on the seed alone.

    Parameters
    ----------
    make_network
        Makes one network with fresh weights from torch's own random numbers.
    seeds
        One for each of the S starts.
    n_lambdas
        Copies of each start, L.
    device, dtype
        Where the models live, and what floating-point type they have.
    together
        Lambdas of one seed that run together on a CPU.
    """

    def __init__(
        self,
        make_network: MakeNetwork,
        seeds: Sequence[int],
        n_lambdas: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        together: int = CPU_LAMBDAS,
    ) -> None:
        def new(seed: int) -> nn.Module:
            return new_network(make_network, seed).to(device=device, dtype=dtype)

        starts = [new(seed) for seed in seeds]
        self.shape = (len(seeds), n_lambdas)
        self.template = starts[0]
        trained = [_trained(network) for network in starts]
        if not trained[0]:
            fail("make_network", "a network with parameters to train", type(self.template).__name__)
        rows = [torch.cat([p.detach().reshape(-1) for p in parameters.values()]) for parameters in trained]
        self.flat = _copies(rows, n_lambdas)
        # Parts may run at the same time, so that each has a network of its own.
        self.parts = tuple(
            self._part(
                which, lambdas, trained[0], starts[which.start] if lambdas.start == 0 else new(seeds[which.start])
            )
            for which, lambdas in _cut(self.shape, None if device.type != "cpu" else together)
        )
        self.carried = self._carried(starts)
        self.random = False  # whether the network draws random numbers in training
        self.shares_numbers = False  # whether any of them come from torch's own generators
        self.compiled: Callable[[Tensor], Any] | None = None  # stands in for the template of a lone model

    def _carried(self, starts: list[nn.Module]) -> dict[str, Tensor]:
        """Buffers (running means, say) and parameters that the user froze: carried along, without gradient."""
        fixed = [
            {**dict(net.named_buffers()), **{n: p.detach() for n, p in net.named_parameters() if not p.requires_grad}}
            for net in starts
        ]
        if self.n_models == 1:
            # Windows on the network's own, which it changes as it runs.
            return {name: values.unsqueeze(0) for name, values in fixed[0].items()}
        return {name: _copies([each[name] for each in fixed], self.shape[1]) for name in fixed[0]}

    def _part(self, starts: slice, lambdas: slice, parameters: dict[str, nn.Parameter], template: nn.Module) -> "Part":
        """Make the windows of some models, neighbours in the matrix: one start, or all lambdas."""
        columns = self.shape[1]
        models = slice(starts.start * columns + lambdas.start, (starts.stop - 1) * columns + lambdas.stop)
        # Leaves are windows on the matrix: the optimiser writes the matrix, the networks read the windows.
        leaves: dict[str, Tensor] = {}
        column = 0
        for name, parameter in parameters.items():
            window = self.flat[models, column : column + parameter.numel()].view(-1, *parameter.shape).detach()
            column += parameter.numel()
            if self.n_models == 1:
                # A model alone is the network itself, its parameters moved into the matrix: calling it as it is saves
                # the exchange of parameters for windows at every step.
                parameter.data = window[0]
                leaves[name] = parameter
            else:
                leaves[name] = window.requires_grad_()
        return Part(models, starts, lambdas, leaves, template)

    def parts_with(self, models: npt.NDArray[np.bool_]) -> list[int]:
        """Numbers of the parts that hold at least one of some models, (K,)."""
        return [number for number, part in enumerate(self.parts) if models[part.models].any()]

    @property
    def leaves(self) -> dict[str, Tensor]:
        """Windows of the first part; shapes after the first dimension are those of one network."""
        return self.parts[0].leaves

    def look_for_randomness(self, x: Tensor) -> None:
        """Find out on a few rows whether the network draws random numbers in training, dropout for instance."""
        self.template.train()
        # On copies of the buffers: running means must not see these rows.
        buffers = {name: b.clone() for name, b in self.template.named_buffers()}
        with torch.no_grad():
            self.random, self.shares_numbers = draws(lambda: functional_call(self.template, buffers, (x,)))

    def work(self, x: Tensor) -> float:
        """Multiplications of one network's forward pass, per row."""
        self.template.eval()
        with torch.no_grad():
            return multiplications(lambda: self.template(x)) / x.shape[0]

    def row_wise(self, x: Tensor) -> bool:
        """Whether the network treats each row of a batch on its own in training, as batch normalisation does not."""
        self.template.train()
        buffers = {name: b.clone() for name, b in self.template.named_buffers()}
        half = x.shape[0] // 2
        with torch.no_grad(), WithoutDropout():
            try:
                whole, *halves = (functional_call(self.template, buffers, (rows,)) for rows in (x, x[:half], x[half:]))
            except (RuntimeError, ValueError):  # of a network that needs more rows than a half
                return False
        return torch.allclose(whole, torch.cat(halves), rtol=1e-3, atol=1e-5)

    @property
    def n_models(self) -> int:
        """Number of models, S x L."""
        return self.flat.shape[0]

    def forward(self, x: Tensor, *, training: bool, noise: Seeds | None = None, part: "Part | None" = None) -> Tensor:
        """Raw outputs ``(S, L, b, n_outputs)`` of rows ``(S, b, ...)``, a set for each seed shared by its lambdas.

        `noise` seeds the random numbers of the networks of each start. Lambdas share them, as they share batches, and
        starts are run one after another: dropout of a model does not depend on what is trained beside it. Without
        `noise` starts of a network that draws no random numbers run together.

        With a `part`, rows and outputs are those of its starts and lambdas. One model runs as it is, so that a network
        that cannot be stacked can still be trained alone.
        """
        if part is None:
            raws = [
                self.forward(x[p.starts], training=training, noise=None if noise is None else noise[p.starts], part=p)
                for p in self.parts
            ]
            if len(raws) == 1:
                return raws[0]
            return torch.cat([raw.flatten(0, 1) for raw in raws]).view(*self.shape, *raws[0].shape[2:])
        if part.template.training is not training:
            part.template.train(training)
        if self.n_models > 1:
            return self._forward(x, part, noise)
        network = part.template if self.compiled is None else self.compiled
        raw: Tensor = network(x[0]) if noise is None else self._noisy(lambda: network(x[0]), noise[0])
        return raw.unsqueeze(0).unsqueeze(0)

    def _forward(self, x: Tensor, part: "Part", noise: Seeds | None) -> Tensor:
        state = {**part.leaves, **{name: values[part.models] for name, values in self.carried.items()}}
        shape = (part.starts.stop - part.starts.start, part.lambdas.stop - part.lambdas.start)
        grid = {name: values.view(*shape, *values.shape[1:]) for name, values in state.items()}

        def one(state: dict[str, Tensor], x: Tensor) -> Any:
            return functional_call(part.template, state, (x,))

        over_lambdas = vmap(one, in_dims=(0, None), randomness="same")
        raw: Tensor
        if noise is None and not (self.random and part.template.training):
            raw = vmap(over_lambdas, in_dims=(0, 0), randomness="different")(grid, x)
            return raw

        def start(k: int) -> Tensor:
            own: Tensor = over_lambdas({name: values[k] for name, values in grid.items()}, x[k])
            return own

        if noise is None:  # a step that is recorded: each replay draws on from torch's generator of the device
            return torch.stack([start(k) for k in range(shape[0])])
        return torch.stack([self._noisy(partial(start, k), seed) for k, seed in enumerate(noise)])

    def _noisy(self, forward: Callable[[], Tensor], seed: int | SeedOfRows) -> Tensor:
        """Run a network whose random numbers follow from the seed alone."""
        if self.compiled is None and not self.shares_numbers:
            with OwnNumbers(seed):
                return forward()
        with shared_numbers(seed if isinstance(seed, int) else seed.own):
            return forward()

    def gradient(self, ends: Sequence[Tensor], part: "Part", slopes: Sequence[Tensor] | None) -> Tensor:
        """Gradient in the weights of a part, as one matrix with a row for each model, from that in some tensors."""
        pieces = torch.autograd.grad(ends, list(part.leaves.values()), slopes, materialize_grads=True)
        return torch.cat([piece.reshape(part.models.stop - part.models.start, -1) for piece in pieces], dim=1)

    def snapshot(self) -> dict[str, Tensor]:
        """Copy of everything that training changes; `flat` is the matrix, the rest are the carried tensors."""
        return {"flat": self.flat.clone(), **{f"carried.{n}": v.clone() for n, v in self.carried.items()}}

    def load(self, state: dict[str, Tensor], models: Tensor | None = None) -> None:
        """Write back a snapshot, all of it or some models' rows."""
        rows: Any = slice(None) if models is None else models
        with torch.no_grad():
            self.flat[rows] = state["flat"][rows].to(self.flat)
            for name, values in self.carried.items():
                values[rows] = state[f"carried.{name}"][rows].to(values)


def new_network(make_network: MakeNetwork, seed: int) -> nn.Module:
    """Make a network whose weights depend on the seed alone; torch's own random state is left as it was."""
    network = seeded(make_network, seed)
    if not isinstance(network, nn.Module):
        fail("make_network", "a function that returns a torch.nn.Module", type(network).__name__)
    return network


def load_row(network: nn.Module, state: dict[str, Tensor], model: int) -> nn.Module:
    """Write one model's row of a snapshot into a network of the same architecture."""
    start = 0
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                values = state["flat"][model, start : start + parameter.numel()]
                start += parameter.numel()
                parameter.copy_(values.view(parameter.shape))
            else:
                parameter.copy_(state[f"carried.{name}"][model])
        for name, buffer in network.named_buffers():
            buffer.copy_(state[f"carried.{name}"][model])
    return network


def _trained(network: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that get a gradient, by name."""
    return {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}


def _cut(shape: tuple[int, int], together: int | None) -> list[tuple[slice, slice]]:
    """Cut a stack into parts, starts and lambdas of each: all of them, or so many lambdas of one start."""
    n_starts, n_lambdas = shape
    if together is None:
        return [(slice(0, n_starts), slice(0, n_lambdas))]
    return [
        (slice(start, start + 1), slice(first, min(first + together, n_lambdas)))
        for start in range(n_starts)
        for first in range(0, n_lambdas, together)
    ]


def _copies(rows: list[Tensor], n_lambdas: int) -> Tensor:
    return torch.stack([row.detach() for row in rows]).repeat_interleave(n_lambdas, dim=0)
