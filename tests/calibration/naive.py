"""The penalty written straight from the paper's equations, one n x B array at a time: slow, and open to autograd."""

import torch
from torch import Tensor


def product(u: Tensor, edges: Tensor, gamma: float) -> Tensor:
    a, b = edges[:-1].clone(), edges[1:].clone()
    a[0], b[-1] = -1.0, 2.0
    u = u[..., None]
    return torch.sigmoid(gamma * (u - a) * (b - u))


def partition(u: Tensor, edges: Tensor, temperature: float) -> Tensor:
    u = u[..., None]
    inner = torch.sigmoid((u - edges[1:-1]) / temperature)
    above = torch.cat([torch.ones_like(u), inner, torch.zeros_like(u)], dim=-1)
    return above[..., :-1] - above[..., 1:]


def exact_censored(u: Tensor, edges: Tensor) -> Tensor:
    u = u[..., None]
    return (edges[1:] - torch.maximum(edges[:-1], u)).clamp(min=0) / (1 - u)


def soft_censored(u: Tensor, edges: Tensor, gamma: float) -> Tensor:
    a, b = edges[:-1].clone(), edges[1:].clone()
    width, upper = b - a, b.clone()
    a[0], b[-1] = -1.0, 2.0
    u = u[..., None]
    inside, below = torch.sigmoid(gamma * (u - a) * (b - u)), torch.sigmoid(gamma * (a - u))
    return (upper - u) * inside / (1 - u) + width * below / (1 - u)


def memberships(u: Tensor, event: Tensor, edges: Tensor, *, membership: str, censored: str, gamma: float) -> Tensor:
    happened = product(u, edges, gamma) if membership == "product" else partition(u, edges, 0.5 / (len(edges) - 1))
    later = exact_censored(u, edges) if censored == "exact" else soft_censored(u, edges, gamma)
    return torch.where(event[..., None], happened, later)


def estimate(zeta: Tensor, edges: Tensor, estimator: str, weight: Tensor | None = None) -> Tensor:
    weight = zeta.new_ones(zeta.shape[:-1]) if weight is None else weight.expand(zeta.shape[:-1])
    residual = zeta - edges.diff()
    total = (weight[..., None] * residual).sum(-2)
    if estimator == "bound":
        return (total / weight.sum(-1)[..., None]).square().sum(-1)
    own = (weight.square()[..., None] * residual.square()).sum((-1, -2))
    return (total.square().sum(-1) - own) / (weight.sum(-1) ** 2 - weight.square().sum(-1))
