"""Triton kernels of `fused`. Imported only where Triton is installed and the values are on a GPU."""

import triton
import triton.language as tl


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
def forward(
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
def backward(
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
