"""Triton kernels of `_weighted`: softmax, likelihood, F and their gradient, each pass in one kernel.

A row of bins fits the registers of a block, so masses never go through memory. Rows are (models, n); what depends on
the data alone (share after, own bin, kind of row) is shared by the models of one start, L at a time.
"""

import triton
import triton.language as tl


@triton.jit
def _row(logits, after, rows, columns, source, n_rows, n_bins):
    """Return logits, masses, shares after the time, S, log of the sum of exp, and the tail's maximum and sum."""
    inside = (rows < n_rows)[:, None] & (columns < n_bins)[None, :]
    l = tl.load(logits + rows[:, None] * n_bins + columns[None, :], mask=inside, other=float("-inf"))
    a = tl.load(after + source[:, None] * n_bins + columns[None, :], mask=inside, other=0.0)
    highest = tl.max(l, 1)
    e = tl.exp(l - highest[:, None])
    total = tl.sum(e, 1)
    p = e / total[:, None]
    survival = tl.sum(p * a, 1)
    tail_highest = tl.max(tl.where(a > 0, l, float("-inf")), 1)
    tail_highest = tl.where(tail_highest > float("-inf"), tail_highest, highest)
    t = tl.where(a > 0, tl.exp(l - tail_highest[:, None]) * a, 0.0)
    return l, p, a, survival, highest + tl.log(total), tail_highest, t


@triton.jit
def forward(
    logits, after, own, pointed, log_likelihood, cdf, n_rows, n, per_start, n_bins, floor,
    FLOORED: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    valid = rows < n_rows
    source = (rows // per_start) * n + rows % n
    l, p, a, survival, log_total, tail_highest, t = _row(logits, after, rows, columns, source, n_rows, n_bins)
    mine = tl.load(own + source, mask=valid, other=0)
    seen = tl.load(pointed + source, mask=valid, other=0) != 0
    at_bin = tl.sum(tl.where(columns[None, :] == mine[:, None], l, 0.0), 1) - log_total
    if FLOORED:
        value = tl.where(seen, at_bin, tl.log(survival + floor))
    else:
        tail = tl.sum(t, 1)
        tail = tl.log(tl.where(tail > 0, tail, 1.0)) + tail_highest - log_total
        value = tl.minimum(tl.where(seen, at_bin, tail), 0.0)
    tl.store(log_likelihood + rows, value, mask=valid)
    tl.store(cdf + rows, tl.maximum(1.0 - survival, 0.0), mask=valid)


@triton.jit
def backward(
    logits, after, own, pointed, grad, grad_cdf, out, n_rows, n, per_start, n_bins, floor,
    FLOORED: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    valid = rows < n_rows
    source = (rows // per_start) * n + rows % n
    l, p, a, survival, log_total, tail_highest, t = _row(logits, after, rows, columns, source, n_rows, n_bins)
    mine = tl.load(own + source, mask=valid, other=0)
    seen = tl.load(pointed + source, mask=valid, other=0) != 0
    g = tl.load(grad + rows, mask=valid, other=0.0)
    g_cdf = tl.load(grad_cdf + rows, mask=valid, other=0.0)
    event = tl.where(columns[None, :] == mine[:, None], 1.0, 0.0) - p
    if FLOORED:
        later = p * (a - survival[:, None]) / (survival + floor)[:, None]
    else:
        tail = tl.sum(t, 1)
        later = t / tl.where(tail > 0, tail, 1.0)[:, None] - p
    result = g[:, None] * tl.where(seen[:, None], event, later) + g_cdf[:, None] * p * (survival[:, None] - a)
    inside = valid[:, None] & (columns < n_bins)[None, :]
    tl.store(out + rows[:, None] * n_bins + columns[None, :], result, mask=inside)
