"""Enough of Triton's language, one program after another on a CPU, to run the kernels of `xcal.calibration`.

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

from xcal.calibration import conditional_fused


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
    """A function for programs; others call it, and ``kernel[grid]`` runs it for all programs."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *given, **options):
        return self.function(*given, **options)

    def __getitem__(self, grid):
        def launch(*given, **options):
            given = [Pointer(value) if isinstance(value, torch.Tensor) else value for value in given]
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


language = ModuleType("triton.language")
vars(language).update(
    constexpr=int, float32=torch.float64, int64=torch.int64, load=_load, store=_store, arange=torch.arange,
    where=torch.where, sigmoid=torch.sigmoid, zeros=torch.zeros, sum=lambda values, axis: values.sum(axis),
    minimum=lambda a, b: torch.minimum(a, torch.as_tensor(b, dtype=a.dtype)),
    program_id=lambda axis: torch.tensor(language.now[0][axis]), num_programs=lambda axis: language.now[1][axis],
)  # fmt: skip


def emulated_kernels():
    """Import the kernels with this in place of Triton; nobody else sees them, nor the place of Triton."""
    triton = ModuleType("triton")
    triton.jit, triton.language = Kernel, language
    name, package = "xcal.calibration.kernels", sys.modules["xcal.calibration"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "triton", triton)
        patch.setitem(sys.modules, "triton.language", language)
        # Set first, so that what was there before, or nothing, comes back.
        patch.setitem(sys.modules, name, None)
        patch.setattr(package, "kernels", None, raising=False)
        del sys.modules[name]
        return importlib.import_module(name)


@pytest.fixture
def kernels_on_cpu(monkeypatch):
    """The kernels run on tensors in the memory of the host."""
    monkeypatch.setitem(sys.modules, "xcal.calibration.kernels", emulated_kernels())
    monkeypatch.setattr(conditional_fused, "kernels_usable", lambda u: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # fills what nobody has written with NaN
    yield
    torch.use_deterministic_algorithms(deterministic)
