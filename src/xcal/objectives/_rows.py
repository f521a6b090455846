"""The shape-level checks of the objectives' doors; values are not looked at, so that the objectives compile."""

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
    if not can_broadcast(dist.batch_shape, time.shape):
        fail("time", f"(n,) or (..., n) to go with a distribution of {tuple(dist.batch_shape)}", tuple(time.shape))
    if not can_broadcast(time.shape, event.shape):
        fail("event", f"one value for each time {tuple(time.shape)}", tuple(event.shape))
