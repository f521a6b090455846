"""Simulated survival data with a known model: exponential times given a rate, exponential censoring."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Data:
    time: np.ndarray
    event: np.ndarray
    rate: np.ndarray

    def survival(self, times, too_fast=1.0):
        return np.exp(-too_fast * np.asarray(times) * self.rate[:, None])

    def probability(self, at, too_fast=1.0):
        return -np.expm1(-too_fast * at * self.rate)


def survival_data(n, *, rng, censoring_scale=2.0, grid=None):
    """Rows with their true hazard rates; `grid` rounds the times up to its multiples, which makes ties."""
    rate = rng.uniform(0.3, 2.0, size=n)
    happens = rng.exponential(1 / rate)
    censors = rng.exponential(censoring_scale, size=n) if np.isfinite(censoring_scale) else np.full(n, np.inf)
    time = np.minimum(happens, censors)
    if grid is not None:
        time = np.ceil(time / grid) * grid
    return Data(time, happens <= censors, rate)
