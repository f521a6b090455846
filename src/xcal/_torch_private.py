"""Everything that xcal takes from torch's and Triton's insides, each with a public way beside it.

Private names make small models faster or watch what torch does; no result depends on them. A name that a release of
torch does not have is None here, and the public way is taken. `tests/contracts/test_torch_private.py` removes each name
and compares, and looks through the sources for private names outside this module.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

# Is shown an operation, its arguments and its options.
Look = Callable[[Any, Sequence[Any], dict[str, Any]], None]


def _found(module: str, name: str) -> Any:
    """Return a name of a module of torch, or None where this release has not got it."""
    try:
        home = import_module(module)
    except ImportError:
        return None
    return getattr(home, name, None)


_is_wrapped = _found("torch._C._functorch", "is_functorch_wrapped_tensor")
_transforms_active = _found("torch._C", "_are_functorch_transforms_active")
_functional_adam = _found("torch.optim.adam", "adam")
_run_backward = _found("torch.autograd.graph", "_engine_run_backward")
_DispatchMode = _found("torch.utils._python_dispatch", "TorchDispatchMode")
# Formulas of torch's FlopCounterMode, by operation.
_flop_formulas = _found("torch.utils.flop_counter", "flop_registry")
# What torch's own Function.apply ends in. torch's stubs do not know it.
_has_plain_apply = hasattr(super(torch.autograd.Function, torch.autograd.Function), "apply")

# What a torch module keeps besides its settings; weights, buffers and parts are read by the public methods.
MODULE_STATE = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"})

# What the kernels use of Triton besides the core of its language.
_TRITON_NAMES = ("PropagateNan", "cdiv", "constexpr", "rand4x", "sigmoid")
_ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")


def in_transform(values: Tensor) -> bool:
    """Return whether these values stand for others, within ``torch.func.vmap``, ``grad`` and their like."""
    if _is_wrapped is not None:
        return bool(_is_wrapped(values))
    try:
        values.data_ptr()
    except RuntimeError:  # there is no memory behind them
        return True
    return False


def kernels_usable(values: Tensor) -> bool:
    """Return whether Triton kernels take these values: plain float32 on CUDA, outside compilation and transforms."""
    if torch.compiler.is_compiling() or not values.is_cuda or values.dtype != torch.float32:
        return False
    return _triton_works() and not in_transform(values)


@lru_cache(maxsize=1)
def _triton_works() -> bool:
    """Return whether there is a Triton that has what the kernels use; without it the same formulas run op by op."""
    try:
        language = import_module("triton.language")
    except ImportError:
        return False
    return all(hasattr(language, name) for name in _TRITON_NAMES)


def apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """``function.apply(*inputs)``, without the look at its signature that costs 25 microseconds at every call."""
    if torch.compiler.is_compiling() or _transforms_active is None or not _has_plain_apply or _transforms_active():
        return function.apply(*inputs)
    return super(torch.autograd.Function, function).apply(*inputs)  # type: ignore[misc]  # the stub of `apply` has no types


def gradient(ends: Sequence[Tensor], inputs: Sequence[Tensor], slopes: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """Return the gradient in some tensors, zero in one that has no part in it, from that in others.

    That of ``torch.autograd.grad``, which imports torch's compiler and sympy at its first look at `slopes`.
    """
    if _run_backward is None or slopes is None:  # without slopes it does not look
        return torch.autograd.grad(ends, inputs, slopes, materialize_grads=True)
    found = _run_backward(tuple(ends), tuple(slopes), False, False, tuple(inputs), True, accumulate_grad=False)
    pairs = zip(found, inputs, strict=True)
    return tuple(torch.zeros_like(one) if piece is None else piece for piece, one in pairs)


class _LightOptimizer(torch.optim.Optimizer):
    """Methods of torch's Adam as they are written, without what torch wraps them into for its compiler.

    The wrappers import the compiler at the first call, which takes longer than the rest of a short training. They
    change nothing where nothing is compiled. What is not wrapped is taken as it is.
    """

    add_param_group = unwrap(torch.optim.Adam.add_param_group)

    def step(self, closure: Any = None) -> Any:
        """Do a step; in torch, a wrapper turns gradients off."""
        with torch.no_grad():
            return unwrap(torch.optim.Adam.step)(self, closure)


class LightAdam(_LightOptimizer, torch.optim.Adam):
    """torch's Adam without the import of its compiler."""


class LightAdamW(_LightOptimizer, torch.optim.AdamW):
    """torch's AdamW without the import of its compiler."""


def adam_step(optimizer: torch.optim.Optimizer, flat: Tensor) -> None:
    """Do what ``optimizer.step()`` does for one matrix on a CPU, through torch's functional form.

    The method looks after hooks, closures and profiling at every call, which a small model on a CPU feels.
    """
    if _functional_adam is None or adam_state_names() != _ADAM_STATE:
        optimizer.step()
        return
    group, state = optimizer.param_groups[0], optimizer.state[flat]
    if not state:
        state.update(
            step=torch.zeros((), dtype=torch.float32),
            exp_avg=torch.zeros_like(flat, memory_format=torch.preserve_format),
            exp_avg_sq=torch.zeros_like(flat, memory_format=torch.preserve_format),
        )
    assert flat.grad is not None
    with torch.no_grad():
        _functional_adam(
            [flat], [flat.grad], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]],
            fused=True, amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
            decoupled_weight_decay=isinstance(optimizer, torch.optim.AdamW),
        )  # fmt: skip


@lru_cache(maxsize=1)
def adam_state_names() -> tuple[str, ...]:
    """Names of the tensors that torch's Adam keeps for each parameter: the counter of its steps, then the averages."""
    tried = nn.Parameter(torch.zeros(1))
    optimizer = LightAdam([tried])
    tried.grad = torch.zeros(1)
    optimizer.step()
    return tuple(optimizer.state[tried])


def _watch_class(base: Any) -> Any:
    """Make the class of `watch`, or None where torch has no mode to make it of."""
    if base is None:
        return None

    class Watch(base):
        """Shows a function every operation of the calling thread, before it runs, and another one what came out."""

        def __init__(self, look: Look | None, seen: Callable[..., None] | None) -> None:
            super().__init__()
            self.look, self.seen = look, seen

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            options = kwargs or {}
            if self.look is not None:
                self.look(function, args, options)
            result = function(*args, **options)
            if self.seen is not None:
                self.seen(function, args, options, result)
            return result

    # As written: torch wraps it as it does the methods of `_LightOptimizer`, and nothing is compiled while we watch.
    Watch.__torch_dispatch__ = unwrap(Watch.__torch_dispatch__)  # type: ignore[method-assign]
    return Watch


_Watch = _watch_class(_DispatchMode)


def watch(look: Look) -> AbstractContextManager[Any] | None:
    """Return a context in which `look` sees every operation of the calling thread; None where torch has none."""
    return None if _Watch is None else _Watch(look, None)


def multiplications(function: Callable[[], Any]) -> float:
    """Count the multiplications of a function's matrix products and convolutions, as torch's `FlopCounterMode` does.

    That imports torch's compiler too, so torch's table of formulas is read here.
    """
    if _Watch is None or _flop_formulas is None:
        with FlopCounterMode(display=False) as counter:
            function()
        return float(counter.get_total_flops()) / 2
    total = 0

    def count(operation: Any, args: Sequence[Any], options: dict[str, Any], result: Any) -> None:
        nonlocal total
        formula = _flop_formulas.get(operation.overloadpacket)
        if formula is not None:
            total += formula(*args, **options, out_val=result)

    with _Watch(None, count):
        function()
    return total / 2
