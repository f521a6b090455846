"""Time edges of the discrete distributions."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal._checks import MANY, as_count, as_event, as_numpy, as_time, fail


def as_edges(edges: Any) -> Tensor:
    """Check time edges and give them as a tensor.

    Parameters
    ----------
    edges
        At least two finite numbers, zero or larger, strictly increasing also in single precision (in which most
        networks run; two edges that it cannot tell apart would make a bin of no width).

    Returns
    -------
    Tensor
        Shape ``(K + 1,)``. A floating-point tensor keeps its dtype and device, anything else becomes float64.

    Examples
    --------
    >>> as_edges([0, 1, 2.5])
    tensor([0.0000, 1.0000, 2.5000], dtype=torch.float64)
    """
    values = as_numpy("edges", edges)
    if values.ndim != 1 or values.size < 2:
        fail("edges", "a one-dimensional array of two or more edges", f"shape {values.shape}")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        fail("edges", "finite times, zero or larger", values[row], row)
    step = np.diff(values.astype(np.float32))
    if (step <= 0).any():
        row = int(np.argmax(step <= 0)) + 1
        fail("edges", f"a value larger than the one before, {values[row - 1]}, in float32 too", values[row], row)
    if isinstance(edges, Tensor) and edges.is_floating_point() and edges.element_size() >= 4:
        return edges.detach()
    return torch.from_numpy(values.astype(np.float64))


def quantile_edges(time: Any, event: Any, n_bins: int) -> Tensor:
    """Edges that put equally many of the observed events into each bin.

    They are the percentiles 0, 100 / n_bins, ..., 100 of the uncensored training times, as in the paper. Tied
    percentiles (equal in single precision) are collapsed, with a warning that says how many bins remain.

    Parameters
    ----------
    time, event
        Training times and event indicators (True: the event happened), numpy or torch.
    n_bins
        Number of bins asked for.

    Returns
    -------
    Tensor
        float64, shape ``(K + 1,)`` with K at most `n_bins`.

    Examples
    --------
    >>> quantile_edges([1.0, 2.0, 3.0, 9.0], [True, True, True, False], n_bins=2)
    tensor([1., 2., 3.], dtype=torch.float64)
    """
    times = as_time(time).astype(np.float64)
    events = as_event(event, times.shape[0], reference="time")
    n_bins = as_count("n_bins", n_bins, at_least=1, at_most=MANY)
    if not events.any():
        fail("event", "at least one event, to place the edges", "none: every row is censored")
    values = np.percentile(times[events], np.arange(n_bins + 1) * 100.0 / n_bins)
    _, first = np.unique(values.astype(np.float32), return_index=True)
    values = values[first]
    if values.size < 2:
        fail("time", "at least two distinct event times, to place the edges", f"only {values[0]}")
    if values.size < n_bins + 1:
        warnings.warn(
            f"quantile_edges: {n_bins} bins asked for, {values.size - 1} remain: tied event times share an edge",
            UserWarning,
            stacklevel=2,
        )
    return torch.from_numpy(values)
