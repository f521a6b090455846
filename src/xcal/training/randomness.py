"""Random numbers of a fit: initial weights and dropout, drawn from generators of its own.

torch's layers draw from one generator that the whole process shares. A fit that seeds it changes the random numbers of
everybody else, and two fits in two threads change each other's. `OwnNumbers` gives every draw of the calling thread a
generator of the fit instead; the numbers are those that torch's own generator would give for the same seed.

What cannot be redirected (a GPU's random numbers, and the few operations of torch that take no generator) comes from
torch's generators, seeded under a lock and put back afterwards (`shared_numbers`).
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock, local
from types import FunctionType
from typing import Any, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from xcal._torch_private import watch

Result = TypeVar("Result")

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
    """Seed of the random numbers of some rows of a batch, whose other rows are with other processes.

    Attributes
    ----------
    seed : int
        Of the whole batch: dropout draws for all of its rows, so that a row is treated the same wherever it is.
    own : int
        Of this process, for everything else that is drawn.
    whole : int
        Rows of the batch.
    places : Tensor
        Where the rows stand in it.
    """

    seed: int
    own: int
    whole: int
    places: Tensor


class OwnNumbers(TorchFunctionMode):
    """While it is entered, random numbers that this thread draws on the CPU come from one seeded generator.

    Parameters
    ----------
    seed
        Of the generator, or of some rows of a batch.

    Examples
    --------
    >>> with OwnNumbers(3):
    ...     own = torch.rand(2)
    >>> torch.equal(own, torch.rand(2, generator=torch.Generator().manual_seed(3)))
    True
    """

    def __init__(self, seed: "int | SeedOfRows") -> None:
        super().__init__()
        self.rows = seed if isinstance(seed, SeedOfRows) else None
        self.generator = torch.Generator().manual_seed(seed if isinstance(seed, int) else seed.seed)
        # Of draws that are not known to be one for each row.
        self.others = self.generator if self.rows is None else torch.Generator().manual_seed(self.rows.own)
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
            return _DROPOUTS[function](self, *args, **options)
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
            return drawn.bernoulli_(1 - p, generator=self.generator).div_(1 - p).index_select(0, self.rows.places)
        return empty.bernoulli_(1 - p, generator=self.generator).div_(1 - p)

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if p in (0.0, 1.0) or not training or input.device.type != "cpu" or input.numel() == 0:
            return functional.dropout(input, p, training, inplace)
        noise = self._noise(torch.empty_like(input), p)
        return input.mul_(noise) if inplace else input * noise

    def _channels(
        self, function: Any, single: int, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """Drop whole channels; an input of `single` dimensions is one row without its first dimension."""
        if p in (0.0, 1.0) or not training or input.device.type != "cpu" or input.numel() == 0:
            result: Tensor = function(input, p, training, inplace)
            return result
        rows = input.unsqueeze(0) if input.ndim == single else input
        noise = self._noise(rows.new_empty(*rows.shape[:2], *[1] * (rows.ndim - 2)), p)
        noise = noise.squeeze(0) if input.ndim == single else noise
        return input.mul_(noise) if inplace else input * noise

    def _dropout1d(self, *args: Any, **options: Any) -> Tensor:
        return self._channels(functional.dropout1d, 2, *args, **options)

    def _dropout2d(self, *args: Any, **options: Any) -> Tensor:
        # Three dimensions are rows, channels and one length here, as in torch.
        return self._channels(functional.dropout2d, 0, *args, **options)

    def _dropout3d(self, *args: Any, **options: Any) -> Tensor:
        return self._channels(functional.dropout3d, 4, *args, **options)


_DROPOUTS: dict[Any, Callable[..., Tensor]] = {
    functional.dropout: OwnNumbers._dropout,
    functional.dropout1d: OwnNumbers._dropout1d,
    functional.dropout2d: OwnNumbers._dropout2d,
    functional.dropout3d: OwnNumbers._dropout3d,
}


def _redirected(function: Any, args: Sequence[Any], options: dict[str, Any]) -> bool:
    """Whether a function draws on the CPU and has been given no generator by its caller."""
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
    """Whether a function written in Python, such as those that initialise weights, hands a generator on."""
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
