"""Which devices there are to train on."""

from typing import Any

import torch

from xcal._checks import fail


def devices() -> list[str]:
    """Names of the devices of this machine that models can be trained on.

    Sums over bins are taken in float64, which Apple's GPUs do not have.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type == "mps":
        return ["cpu"]
    return ["cpu", *(f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count()))]


def best_device() -> torch.device:
    """Return the GPU if there is one that torch can use, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def as_device(value: Any, *, also: tuple[str, ...] = (), name: str = "device") -> torch.device:
    """Check that a device is one of this machine's; `also` are words that the caller understands besides.

    Examples
    --------
    >>> as_device("cpu")
    device(type='cpu')
    """
    known = devices()
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        device = None
    # A name without a number is the first device of its kind, or the one that torch was told to use. CPUs have none.
    kinds = {one.split(":")[0] for one in known}
    there = device is not None and (
        str(device) in known or (device.type in kinds and (device.index is None or device.type == "cpu"))
    )
    if device is None or not there:
        fail(name, f"a device of this machine ({', '.join([*known, *also])})", repr(value))
    return device
