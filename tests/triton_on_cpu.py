"""Enough of Triton's language, one program after another on a CPU, to run the kernels of the package.

It is for machines without a GPU, and computes in double precision. Every access to memory is checked to lie within its
tensor, and memory that nobody has written is filled with NaN. It cannot show whether Triton compiles the kernels.
"""

import importlib
import itertools
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest
import torch


class Pointer:
    """Places in the memory of a tensor."""

    def __init__(self, memory, place=0):
        assert memory.is_contiguous()
        self.memory, self.place = memory.view(-1), place
        self.dtype = SimpleNamespace(element_ty=memory.dtype)

    def __add__(self, step):
        return Pointer(self.memory, self.place + step)

    def __sub__(self, step):
        return Pointer(self.memory, self.place - step)

    def within(self, mask):
        place = torch.as_tensor(self.place)
        mask = torch.tensor(True) if mask is None else mask
        place, mask = torch.broadcast_tensors(place, mask)
        assert ((place >= 0) & (place < self.memory.numel()))[mask].all()
        return torch.where(mask, place, 0), mask


class Kernel:
    """A function for programs; others call it, and ``kernel[grid]`` runs it for all programs.

    How many warps and stages a GPU would take is of no interest here.
    """

    def __init__(self, function):
        self.function = function

    def __call__(self, *given, **options):
        return self.function(*given, **options)

    def __getitem__(self, grid):
        def launch(*given, **options):
            given = [Pointer(value) if isinstance(value, torch.Tensor) else value for value in given]
            options = {name: value for name, value in options.items() if name not in ("num_warps", "num_stages")}
            for program in itertools.product(*map(range, grid)):
                language.now = program, grid
                self.function(*given, **options)

        return launch


def _load(pointer, mask=None, other=0.0):
    place, there = pointer.within(mask)
    return torch.where(there, pointer.memory[place], torch.as_tensor(other, dtype=pointer.memory.dtype))


def _store(pointer, value, mask=None):
    place, there = pointer.within(mask)
    pointer.memory[place[there]] = value.expand(place.shape)[there]


def _maximum(a, b, propagate_nan=None):
    return torch.maximum(a, torch.as_tensor(b, dtype=a.dtype))


def _rand4x(seed, places, rounds):
    """Numbers in [0, 1) that depend on seed and place alone."""
    assert places.dtype == torch.int32
    return [torch.frac((seed + 1.0) * 1e3 * torch.sin(places.double() + k)).abs() for k in (0.1, 0.2, 0.3, 0.4)]


def _dot(a, b, total, input_precision):
    assert min(*a.shape, *b.shape) >= 16
    return total + a @ b


language = ModuleType("triton.language")
vars(language).update(
    constexpr=int, float32=torch.float64, int64=torch.int64, int32=torch.int32, uint8=torch.uint8, load=_load,
    store=_store, arange=lambda start, stop: torch.arange(start, stop, dtype=torch.int32), where=torch.where,
    sigmoid=torch.sigmoid, zeros=lambda shape, dtype: torch.zeros(shape, dtype=dtype), maximum=_maximum,
    minimum=lambda a, b: torch.minimum(a, torch.as_tensor(b, dtype=a.dtype)), sum=lambda values, axis: values.sum(axis),
    cast=lambda value, dtype: torch.as_tensor(value).to(dtype), cdiv=lambda a, b: -(-a // b), dot=_dot,
    trans=lambda values: values.T, rand4x=_rand4x, PropagateNan=SimpleNamespace(ALL=None),
    program_id=lambda axis: torch.tensor(language.now[0][axis]), num_programs=lambda axis: language.now[1][axis],
)  # fmt: skip


def emulated(*names):
    """Import modules of kernels with this in place of Triton; nobody else sees them, nor the place of Triton."""
    triton = ModuleType("triton")
    triton.jit, triton.language = Kernel, language
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "triton", triton)
        patch.setitem(sys.modules, "triton.language", language)
        for name in names:
            package, _, own = name.rpartition(".")
            # Set first, so that what was there before, or nothing, comes back.
            patch.setitem(sys.modules, name, None)
            patch.setattr(importlib.import_module(package), own, None, raising=False)
            del sys.modules[name]
        return {name: importlib.import_module(name) for name in names}


@pytest.fixture
def on_cpu(monkeypatch):
    """Kernels of modules run on tensors in the memory of the host: `on_cpu(*names)`."""

    def use(*names):
        for name, module in emulated(*names).items():
            monkeypatch.setitem(sys.modules, name, module)

    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # fills what nobody has written with NaN
    yield use
    torch.use_deterministic_algorithms(deterministic)
