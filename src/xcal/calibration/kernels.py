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


@triton.jit
def beyond_perfect(x, happened, edges, columns, bins, scale):
    """Mass above each inner edge less that of a perfect model; zero beyond the last edge."""
    edge = tl.load(edges + 1 + columns, mask=columns < bins - 1, other=0.5)[None, :]
    above = cumulative_features(x, happened, edges, columns, bins, scale, False)
    return tl.where((columns < bins - 1)[None, :], above - (1 - edge), 0.0)


@triton.jit
def slope_beyond(x, happened, edges, columns, bins, scale):
    """Give the derivative of `beyond_perfect`."""
    slope = cumulative_features(x, happened, edges, columns, bins, scale, True)
    return tl.where((columns < bins - 1)[None, :], slope, 0.0)


@triton.jit
def over_bins(here, after, other_here, other_after, columns):
    """Inner product over bins of two residuals, differences of the masses above edges: those of the first, then all."""
    first = tl.sum(tl.where((columns == 0)[None, :], here * other_here, 0.0), axis=1)
    return first + tl.sum((here - after) * (other_here - other_after), axis=1)


@triton.jit
def conditional_forward(
    u, event, share, length, edges, out, own, n, event_step, share_step, per_matrix, bins, scale, equal,
    WEIGHTED: tl.constexpr, IN_MEMORY: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    model, program = tl.program_id(1).to(tl.int64), tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    rows = program * ROWS + tl.arange(0, ROWS)
    there = rows < n
    x = tl.load(u + model * n + rows, mask=there, other=0.5)[:, None]
    happened = tl.load(event + model * event_step + rows, mask=there, other=0)[:, None] != 0
    steepness = read_scale(scale, IN_MEMORY)
    here = beyond_perfect(x, happened, edges, columns, bins, steepness)
    after = beyond_perfect(x, happened, edges, columns + 1, bins, steepness)
    size = equal * tl.load(length + (model // per_matrix) * n + rows, mask=there, other=0.0)
    tile = here
    if WEIGHTED:
        w = tl.load(share + model * share_step + rows, mask=there, other=0.0)
        size = size * w
        tile = here * w[:, None]
    place = (model * (bins - 1) + columns[None, :]) * n + rows[:, None]
    tl.store(out + place, tile, mask=there[:, None] & (columns < bins - 1)[None, :])
    square = over_bins(here, after, here, after, columns)
    tl.store(own + model * tl.num_programs(0) + program, tl.sum(size * size * square, axis=0))


@triton.jit
def conditional_middle(
    sums, out, value, features, used, equal, COLUMNS: tl.constexpr, FEATURES: tl.constexpr
):  # fmt: skip
    model, program = tl.program_id(1).to(tl.int64), tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    which = program * FEATURES + tl.arange(0, FEATURES)
    inside = (columns < used)[:, None] & (which < features)[None, :]
    place = (model * used + columns[:, None]) * features + which[None, :]
    here = tl.load(sums + place, mask=inside, other=0.0)
    before = tl.load(sums + place - features, mask=inside & (columns > 0)[:, None], other=0.0)
    after = tl.load(sums + place + features, mask=inside & (columns < used - 1)[:, None], other=0.0)
    change = 2 * here - before - after
    tl.store(out + place, 2 * equal * change, mask=inside)
    part = tl.sum(tl.sum(here * change, axis=1), axis=0)
    tl.store(value + model * tl.num_programs(0) + program, part * equal * equal)


@triton.jit
def conditional_backward(
    u, event, share, length, inner, edges, out, n, event_step, share_step, per_matrix, bins, scale, equal, inverse,
    UNBIASED: tl.constexpr, WEIGHTED: tl.constexpr, IN_MEMORY: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = rows < n
    x = tl.load(u + model * n + rows, mask=there, other=0.5)[:, None]
    happened = tl.load(event + model * event_step + rows, mask=there, other=0)[:, None] != 0
    steepness = read_scale(scale, IN_MEMORY)
    slope = slope_beyond(x, happened, edges, columns, bins, steepness)
    place = (model * (bins - 1) + columns[None, :]) * n + rows[:, None]
    pull = tl.load(inner + place, mask=there[:, None] & (columns < bins - 1)[None, :], other=0.0)
    gradient = tl.sum(pull * slope, axis=1)
    if UNBIASED:
        here = beyond_perfect(x, happened, edges, columns, bins, steepness)
        after = beyond_perfect(x, happened, edges, columns + 1, bins, steepness)
        slope_after = slope_beyond(x, happened, edges, columns + 1, bins, steepness)
        size = tl.load(length + (model // per_matrix) * n + rows, mask=there, other=0.0)
        weight = equal
        if WEIGHTED:
            weight = equal * tl.load(share + model * share_step + rows, mask=there, other=0.0)
        own = over_bins(here, after, slope, slope_after, columns)
        gradient = gradient - 2 * weight * size * size * own
    if WEIGHTED:
        gradient = gradient * tl.load(share + model * share_step + rows, mask=there, other=0.0)
    tl.store(out + model * n + rows, gradient * equal * inverse, mask=there)
