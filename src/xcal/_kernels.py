"""Triton kernels of penalty and likelihood. Imported only with Triton installed and values on a GPU."""

import triton
import triton.language as tl

# --- The kernels of `calibration.penalty` and `calibration.penalties`.


@triton.jit
def cumulative_features(x, happened, edges, columns, bins, scale, SLOPE: tl.constexpr):
    """Mass above each inner edge, or its derivative: `partition_above` and `exact_above` of `membership`, its twins."""
    edge = tl.load(edges + 1 + columns, mask=columns < bins - 1, other=0.5)[None, :]
    above = tl.sigmoid((x - edge) * scale)
    inverse = 1.0 / (1.0 - tl.minimum(x, tl.load(edges + bins - 1)))
    if SLOPE:
        event_part = above * (1 - above) * scale
        later_part = tl.where(edge > x, (1 - edge) * inverse * inverse, 0.0)
    else:
        event_part = above
        later_part = tl.minimum((1 - edge) * inverse, 1.0)
    return tl.where(happened, event_part, later_part)


@triton.jit
def paper_features(x, happened, edges, columns, bins, scale, saturated, SLOPE: tl.constexpr):
    """Mass in each bin, or its derivative: `product` and `soft_censored`."""
    a = tl.load(edges + columns, mask=columns < bins, other=0.0)[None, :]
    b = tl.load(edges + 1 + columns, mask=columns < bins, other=1.0)[None, :]
    low = tl.where((columns == 0)[None, :], -1.0, a)
    high = tl.where((columns == bins - 1)[None, :], 2.0, b)
    certain = x > saturated
    # Rows above the limit count as events, so only the others' F is held at it.
    held = tl.minimum(x, saturated)
    inside = tl.sigmoid(scale * (x - low) * (high - x))
    below = tl.sigmoid(scale * (low - held))
    later = ((b - held) * inside + (b - a) * below) / (1 - held)
    if SLOPE:
        event_part = inside * (1 - inside) * (scale * (low + high - 2 * x))
        d_below = -scale * below * (1 - below)
        later_part = ((b - held) * event_part - inside + (b - a) * d_below + later) / (1 - held)
    else:
        event_part = inside
        later_part = later
    return tl.where(happened | certain, event_part, later_part)


@triton.jit
def features(u, event, edges, columns, bins, scale, saturated, CUMULATIVE: tl.constexpr, SLOPE: tl.constexpr):
    """Tile of features, rows x columns: the formulas of `membership`."""
    x = u[:, None]
    happened = event[:, None] != 0
    if CUMULATIVE:
        tile = cumulative_features(x, happened, edges, columns, bins, scale, SLOPE)
    else:
        tile = paper_features(x, happened, edges, columns, bins, scale, saturated, SLOPE)
    return tile


@triton.jit
def read_scale(scale, IN_MEMORY: tl.constexpr):
    """Slope of the sigmoid: a number, or where it is in memory what stands there now, as single as a number is."""
    found = scale
    if IN_MEMORY:
        found = tl.load(scale).to(tl.float32)
    return found


@triton.jit
def penalty_forward(
    u, event, weight, edges, out, n, event_step, weight_step, bins, scale, saturated,
    CUMULATIVE: tl.constexpr, IN_MEMORY: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    model, program = tl.program_id(1).to(tl.int64), tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    sums = tl.zeros([ROWS, COLUMNS], dtype=u.dtype.element_ty)
    steepness = read_scale(scale, IN_MEMORY)
    for start in range(program * ROWS, n, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        there = rows < n
        x = tl.load(u + model * n + rows, mask=there, other=0.5)
        happened = tl.load(event + model * event_step + rows, mask=there, other=0)
        w = tl.load(weight + model * weight_step + rows, mask=there, other=0.0)
        sums += w[:, None] * features(x, happened, edges, columns, bins, steepness, saturated, CUMULATIVE, False)
    place = (model * tl.num_programs(0) + program) * COLUMNS + columns
    tl.store(out + place, tl.sum(sums, axis=0))


@triton.jit
def penalty_backward(
    u, event, weight, edges, slope, out, n, event_step, weight_step, bins, used, scale, saturated,
    CUMULATIVE: tl.constexpr, IN_MEMORY: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    factor = tl.load(slope + model * used + columns, mask=columns < used, other=0.0)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = rows < n
    x = tl.load(u + model * n + rows, mask=there, other=0.5)
    happened = tl.load(event + model * event_step + rows, mask=there, other=0)
    w = tl.load(weight + model * weight_step + rows, mask=there, other=0.0)
    steepness = read_scale(scale, IN_MEMORY)
    tile = features(x, happened, edges, columns, bins, steepness, saturated, CUMULATIVE, True)
    tl.store(out + model * n + rows, w * tl.sum(tile * factor[None, :], axis=1), mask=there)


@triton.jit
def edge_residuals(x, happened, edges, columns, bins, scale, SLOPE: tl.constexpr):
    """Mass above each inner edge less that of a perfect model, or its derivative; zero beyond the last edge."""
    inner = columns < bins - 1
    found = cumulative_features(x, happened, edges, columns, bins, scale, SLOPE)
    if not SLOPE:
        found = found - (1 - tl.load(edges + 1 + columns, mask=inner, other=0.5)[None, :])
    return tl.where(inner[None, :], found, 0.0)


@triton.jit
def over_bins(here, after, other_here, other_after, columns):
    """Inner product over bins of two residuals, which are differences at neighbouring edges; zero stands before all."""
    first = tl.sum(tl.where((columns == 0)[None, :], here * other_here, 0.0), axis=1)
    return first + tl.sum((here - after) * (other_here - other_after), axis=1)


@triton.jit
def conditional_forward(
    u, event, length, edges, out, own, n, event_step, per_matrix, bins, scale,
    IN_MEMORY: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Mass of every row above every edge, and the sum over some rows of the product of each with itself."""
    model, program = tl.program_id(1).to(tl.int64), tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    rows = program * ROWS + tl.arange(0, ROWS)
    there = rows < n
    x = tl.load(u + model * n + rows, mask=there, other=0.5)[:, None]
    happened = tl.load(event + model * event_step + rows, mask=there, other=0)[:, None] != 0
    steepness = read_scale(scale, IN_MEMORY)
    here = edge_residuals(x, happened, edges, columns, bins, steepness, False)
    after = edge_residuals(x, happened, edges, columns + 1, bins, steepness, False)
    place = (model * (bins - 1) + columns[None, :]) * n + rows[:, None]
    tl.store(out + place, here, mask=there[:, None] & (columns < bins - 1)[None, :])
    size = tl.load(length + (model // per_matrix) * n + rows, mask=there, other=0.0)
    itself = tl.sum(size * size * over_bins(here, after, here, after, columns), axis=0)
    tl.store(own + model * tl.num_programs(0) + program, itself)


@triton.jit
def conditional_middle(
    sums, own, slopes, value, features, used, programs, per_pair,
    COLUMNS: tl.constexpr, FEATURES: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Penalty of a model, and its slope in every sum over rows."""
    model = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)[:, None]
    squares = tl.zeros([COLUMNS, FEATURES], dtype=tl.float32)
    for start in range(0, features, FEATURES):
        which = start + tl.arange(0, FEATURES)[None, :]
        inside = (columns < used) & (which < features)
        place = (model * used + columns) * features + which
        here = tl.load(sums + place, mask=inside, other=0.0)
        before = tl.load(sums + place - features, mask=inside & (columns > 0), other=0.0)
        after = tl.load(sums + place + features, mask=inside & (columns < used - 1), other=0.0)
        change = 2 * here - before - after
        tl.store(slopes + place, 2 * per_pair * change, mask=inside)
        squares += here * change
    itself = tl.zeros([PROGRAMS], dtype=tl.float32)
    for start in range(0, programs, PROGRAMS):
        part = start + tl.arange(0, PROGRAMS)
        itself += tl.load(own + model * programs + part, mask=part < programs, other=0.0)
    tl.store(value + model, per_pair * (tl.sum(tl.sum(squares, axis=1), axis=0) - tl.sum(itself, axis=0)))


@triton.jit
def conditional_backward(
    u, event, length, edges, pull, out, n, event_step, per_matrix, bins, scale, per_pair,
    IN_MEMORY: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gradient in F, from the slopes of the penalty in every row's mass above every edge."""
    model = tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = rows < n
    x = tl.load(u + model * n + rows, mask=there, other=0.5)[:, None]
    happened = tl.load(event + model * event_step + rows, mask=there, other=0)[:, None] != 0
    steepness = read_scale(scale, IN_MEMORY)
    here = edge_residuals(x, happened, edges, columns, bins, steepness, False)
    after = edge_residuals(x, happened, edges, columns + 1, bins, steepness, False)
    slope = edge_residuals(x, happened, edges, columns, bins, steepness, True)
    slope_after = edge_residuals(x, happened, edges, columns + 1, bins, steepness, True)
    place = (model * (bins - 1) + columns[None, :]) * n + rows[:, None]
    pulled = tl.load(pull + place, mask=there[:, None] & (columns < bins - 1)[None, :], other=0.0)
    size = tl.load(length + (model // per_matrix) * n + rows, mask=there, other=0.0)
    itself = 2 * per_pair * size * size * over_bins(here, after, slope, slope_after, columns)
    tl.store(out + model * n + rows, tl.sum(pulled * slope, axis=1) - itself, mask=there)


# --- The kernels of `distributions._bins`: softmax, likelihood, F and their gradient, each pass in one kernel.
# A row of bins fits the registers of a block, so masses never go through memory. Rows are (models, n); what depends on
# the data alone (share after, own bin, kind of row) is shared by the models of one start, L at a time.


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
def weighted_forward(
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
def weighted_backward(
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
