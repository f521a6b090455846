"""The shape-level checks of the objectives; values are not looked at, so that the objectives compile."""

import torch
from torch import Tensor

from xcal._checks import fail
from xcal.distributions.base import SurvivalDistribution, can_broadcast


def check_rows(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> None:
    """Check that times and events are tensors with one entry for each row of the distribution."""
    if not isinstance(dist, SurvivalDistribution):
        fail("dist", "a SurvivalDistribution", type(dist).__name__)
    if not isinstance(time, Tensor) or not time.is_floating_point():
        fail("time", "a floating-point tensor", time.dtype if isinstance(time, Tensor) else type(time).__name__)
    if not isinstance(event, Tensor) or event.dtype != torch.bool:
        got = event.dtype if isinstance(event, Tensor) else type(event).__name__
        fail("event", "a boolean tensor, True meaning that the event happened", got)
    if time.device != event.device:
        fail("event", f"the device of time, {time.device}", event.device)
    wanted = tuple(dist.batch_shape)
    for name, values in (("time", time), ("event", event)):
        shape = tuple(values.shape)
        # A column of times against a row of distributions would make an n x n table without a word.
        fits = can_broadcast(dist.batch_shape, values.shape) and len(shape) <= len(wanted)
        if not fits or shape[-1:] != wanted[-1:]:
            hint = ": squeeze(-1)?" if shape[-1:] == (1,) and shape[:-1] == wanted else ""
            expected = f"{wanted[-1:]}" + (f" or {wanted}" if len(wanted) > 1 else "")
            fail(name, f"shape {expected}, one value for each row of the distribution{hint}", shape)
