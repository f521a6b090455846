"""Simulated survival data with a known model: exponential times given a covariate, exponential censoring."""

import numpy as np


def survival_data(n, censoring_scale=np.inf, *, too_fast=1.0, horizon=np.inf, rng):
    """F at the observed time of a model whose hazards are `too_fast` times the true ones, with event and time."""
    effect = np.exp(0.5 * rng.normal(size=n))
    happens = rng.exponential(size=n) * effect
    censors = np.minimum(rng.exponential(size=n) * censoring_scale if np.isfinite(censoring_scale) else np.inf, horizon)
    time, event = np.minimum(happens, censors), happens <= censors
    return -np.expm1(-too_fast * time / effect), event, time


def true_d_calibration(edges, too_fast):
    """D-calibration of that model without censoring: F is distributed as 1 - (1 - U)^too_fast."""
    mass = -np.diff((1 - edges) ** (1 / too_fast))
    return float(np.square(mass - np.diff(edges)).sum())
