"""K models of one architecture as one matrix of parameters, and the random numbers that they start from."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Lock, local
from types import FunctionType
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from xcal._checks import BoolArray, fail
from xcal._torch_private import gradient, multiplications, watch

# --- Random numbers of a fit: initial weights and dropout, drawn from generators of its own.
# torch's layers draw from one generator that the whole process shares. A fit that seeds it changes the random numbers
# of everybody else, and two fits in two threads change each other's. `OwnNumbers` gives every draw of the calling
# thread a generator of the fit instead; the numbers are those that torch's own generator would give for the same seed.
#
# What cannot be redirected (a GPU's random numbers, and the few operations of torch that take no generator) comes from
# torch's generators, seeded under a lock and put back afterwards (`shared_numbers`).

Result = TypeVar("Result")
_STEPS = 1 << 16  # of a probability that is drawn from 16 bits
# Operations on a tensor, and makers of tensors, that take a generator.
_IN_PLACE: set[Any] = {
    getattr(Tensor, name)
    for name in (
        "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
        "bernoulli", "multinomial",
    )
}  # fmt: skip
_FROM_TENSOR: set[Any] = {torch.bernoulli, torch.multinomial, torch.poisson, torch.normal}
_FROM_SHAPE: set[Any] = {torch.rand, torch.randn, torch.randint, torch.randperm}
_LIKE: dict[Any, Callable[..., Tensor]] = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}


@dataclass(frozen=True, eq=False)
class SeedOfRows:
    """Seed of the random numbers of some rows of a batch, whose other rows are with other processes."""

    # Of the whole batch: dropout draws for all of its rows, so that a row is treated the same wherever it is.
    seed: int
    own: int  # of this process, for everything else that is drawn
    whole: int  # rows of the batch
    places: Tensor  # where the rows stand in it


class OwnNumbers(TorchFunctionMode):
    """While it is entered, random numbers that this thread draws on the CPU come from one seeded generator.

    Parameters
    ----------
    seed
        Of the generator, or of some rows of a batch.
    quick
        Whether dropout draws 16 bits for each number from a generator of numpy's; see `TrainingConfig.quick_dropout`.

    Examples
    --------
    >>> with OwnNumbers(3):
    ...     own = torch.rand(2)
    >>> torch.equal(own, torch.rand(2, generator=torch.Generator().manual_seed(3)))
    True
    """

    def __init__(self, seed: "int | SeedOfRows", *, quick: bool = False) -> None:
        super().__init__()
        self.rows = seed if isinstance(seed, SeedOfRows) else None
        self.generator = torch.Generator().manual_seed(seed if isinstance(seed, int) else seed.seed)
        # Of draws that are not known to be one for each row.
        self.others = self.generator if self.rows is None else torch.Generator().manual_seed(self.rows.own)
        whole = seed if isinstance(seed, int) else seed.seed
        self.bits = np.random.Generator(np.random.SFC64(whole)) if quick else None
        self.drawn = False  # whether anybody asked for a number

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Pass our generator to `function` if it draws random numbers on the CPU; run it as it is if not."""
        options = kwargs or {}
        if function in _DROPOUTS:
            return self._dropout(function, *args, **options)
        if function in _LIKE and _on_cpu(args[0], options):
            like = {"dtype": args[0].dtype, "device": args[0].device} | options
            return self._draw(_LIKE[function], (args[0].shape,), like)
        if _redirected(function, args, options):
            return self._draw(function, args, options)
        return function(*args, **options)

    def _draw(self, function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
        self.drawn = True
        return function(*args, **{**options, "generator": self.others})

    def _noise(self, empty: Tensor, p: float) -> Tensor:
        """Fill a tensor with what torch's dropout multiplies by: 1 / (1 - p), or 0 with probability p."""
        self.drawn = True
        if self.rows is not None and empty.shape[0] == self.rows.places.shape[0]:
            # Numbers of all rows of the batch, of which these are some.
            drawn = torch.empty(self.rows.whole, *empty.shape[1:], dtype=empty.dtype)
            return self._fill(drawn, p).index_select(0, self.rows.places)
        return self._fill(empty, p)

    def _fill(self, empty: Tensor, p: float) -> Tensor:
        if self.bits is None:
            return empty.bernoulli_(1 - p, generator=self.generator).div_(1 - p)
        kept = round((1 - p) * _STEPS)
        numbers = np.frombuffer(self.bits.bytes(2 * empty.numel()), dtype=np.uint16)
        noise = torch.from_numpy(numbers < kept).to(empty.dtype).mul_(_STEPS / max(kept, 1))
        return noise.view(empty.shape)

    def _dropout(
        self, function: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """Do what one of torch's dropouts does: drop single numbers, or whole channels."""
        if p in (0.0, 1.0) or not training or input.device.type != "cpu" or input.numel() == 0:
            result: Tensor = function(input, p, training, inplace)
            return result
        if function is functional.dropout:
            noise = self._noise(torch.empty_like(input), p)
        else:
            one_row = input.ndim == _DROPOUTS[function]
            rows = input.unsqueeze(0) if one_row else input
            noise = self._noise(rows.new_empty(*rows.shape[:2], *[1] * (rows.ndim - 2)), p)
            noise = noise.squeeze(0) if one_row else noise
        return input.mul_(noise) if inplace else input * noise


# Torch's dropouts, with the number of dimensions of an input that is one row without its first dimension. Three
# dimensions of `dropout2d` are rows, channels and one length here, as in torch.
_DROPOUTS: dict[Any, int | None] = {
    functional.dropout: None,
    functional.dropout1d: 2,
    functional.dropout2d: None,
    functional.dropout3d: 4,
}


def _redirected(function: Any, args: Sequence[Any], options: dict[str, Any]) -> bool:
    """Return whether a function draws on the CPU and has been given no generator by its caller."""
    if options.get("generator") is not None:
        return False
    if function in _FROM_SHAPE:
        return torch.device(options.get("device") or torch.get_default_device()).type == "cpu"
    if function in _IN_PLACE or function in _FROM_TENSOR or _takes_generator(function):
        tensors = [value for value in (*args, *options.values()) if isinstance(value, Tensor)]
        return _on_cpu(tensors[0] if tensors else None, options)
    return False


def _on_cpu(first: Any, options: dict[str, Any]) -> bool:
    where = options.get("device") or getattr(first, "device", None)
    return where is None or torch.device(where).type == "cpu"


@lru_cache(maxsize=1024)
def _takes_generator(function: Any) -> bool:
    """Return whether a function written in Python, such as those that initialise weights, hands a generator on."""
    return isinstance(function, FunctionType) and "generator" in inspect.signature(function).parameters


class WithoutDropout(TorchFunctionMode):
    """While it is entered, dropout leaves this thread's values as they are."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function, or return the input of a dropout."""
        if function in _DROPOUTS:
            return args[0]
        return function(*args, **(kwargs or {}))


class _Unredirected(Exception):
    """An operation is about to draw from torch's own generators."""


def _stop_unredirected(function: Any, args: Sequence[Any], options: dict[str, Any]) -> None:
    """Stop the calling thread before it draws from torch's own generators."""
    given = any(isinstance(value, torch.Generator) for value in (*args, *options.values()))
    if torch.Tag.nondeterministic_seeded in function.tags and not given:
        raise _Unredirected


def seeded(function: Callable[[], Result], seed: int) -> Result:
    """Call a function whose random numbers follow from the seed alone."""
    watched = watch(_stop_unredirected)
    if watched is not None:
        try:
            with OwnNumbers(seed), watched:
                return function()
        except _Unredirected:
            pass
    # Also where torch cannot be watched: the same numbers, while other threads wait.
    with shared_numbers(seed), OwnNumbers(seed):
        return function()


def draws(function: Callable[[], Any]) -> tuple[bool, bool]:
    """Return whether a function draws random numbers, and whether any of them come from torch's own generators.

    Where torch cannot be watched the answer is yes. Looking whether its generators have moved would not do: there are
    layers that draw for some inputs only.
    """
    own, watched = OwnNumbers(0), watch(_stop_unredirected)
    if watched is None:
        return True, True
    try:
        with own, watched:
            function()
    except _Unredirected:
        return True, True
    return own.drawn, False


class _Held(local):
    """Whether the calling thread has torch's generators to itself."""

    now = False


_shared, _held = Lock(), _Held()


@contextmanager
def shared_numbers(seed: int | None = None) -> Iterator[None]:
    """Use torch's own generators, seeded, and leave them as they were; one thread at a time, which may ask again."""
    if _held.now:
        if seed is not None:
            torch.manual_seed(seed)
        yield
        return
    # Asking a GPU for its state would start it; one that nobody uses has none to keep.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else range(0)
    with _shared, torch.random.fork_rng(devices=list(devices)):
        _held.now = True
        try:
            if seed is not None:
                torch.manual_seed(seed)
            yield
        finally:
            _held.now = False


# --- K models of one architecture as one matrix of parameters, a row for each model.
# Models are ordered by seed, then by lambda: model ``s * L + l`` has seed s and lambda l. One matrix means that an
# optimiser step, a clipped gradient, a frozen model and a checkpoint are each one operation on rows.

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
        self.quick_dropout = False
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

    def parts_with(self, models: BoolArray) -> list[int]:
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
        """Return whether the network treats each row of a batch alone in training, as batch normalisation does not."""
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
            with OwnNumbers(seed, quick=self.quick_dropout):
                return forward()
        with shared_numbers(seed if isinstance(seed, int) else seed.own):
            return forward()

    def gradient(self, ends: Sequence[Tensor], part: "Part", slopes: Sequence[Tensor] | None) -> Tensor:
        """Gradient in the weights of a part, as one matrix with a row for each model, from that in some tensors."""
        pieces = gradient(ends, list(part.leaves.values()), slopes)
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
