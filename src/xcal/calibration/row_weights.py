"""Weights of rows: their unit, and their parts by group and by kind of row."""

import torch
from torch import Tensor


def group_weights(weight: Tensor, labels: Tensor | None, n_groups: int) -> Tensor:
    """Row weights split by group: (..., n) to (..., G, n). Without groups G is one."""
    if labels is None:
        return weight.unsqueeze(-2)
    one = torch.arange(n_groups, device=labels.device).unsqueeze(-1) == labels.unsqueeze(-2)
    return weight.unsqueeze(-2) * one


def ones(u: Tensor, event: Tensor) -> Tensor:
    """Weights of rows that were given none."""
    return torch.ones_like(event, dtype=u.dtype)


def by_kind(weight: Tensor, happened: Tensor) -> tuple[Tensor, Tensor]:
    """Row weights of events and of censored rows.

    Weights of zero do what a choice between two arrays of rows x bins would do, in two vectors.
    """
    seen = weight * happened
    return seen, weight - seen


def in_units_of_the_largest(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Row weights in the type of F, the largest of each model between 1 and 2.

    The penalty does not depend on their unit, but sums of squares of them may leave the range of the type. The factor
    is a power of two, which rounds nothing, in two halves, each of which the type can hold.
    """
    if not weights.is_floating_point() or weights.element_size() < 4:
        weights = weights.to(dtype)
    power = power_of_the_largest(weights)
    half = torch.floor(power / 2)
    return (weights * torch.exp2(-half) * torch.exp2(half - power)).to(dtype)


def power_of_the_largest(weights: Tensor) -> Tensor:
    """Largest power of two below the largest weight of each model, as its logarithm, (..., 1)."""
    largest = weights.amax(-1, keepdim=True)
    return torch.floor(torch.log2(torch.where(largest > 0, largest, 1.0)))
