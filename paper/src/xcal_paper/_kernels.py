"""Triton kernels of `networks`. Maps are channels-last in memory: (images, rows, columns, channels)."""

import triton
import triton.language as tl

# Philox with 7 rounds passes the usual batteries of tests; 10 are for cryptographers.
_ROUNDS = tl.constexpr(7)


@triton.jit
def _larger(a, b):
    """Maximum, or NaN where one of them is: a network that breaks must show it."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _largest_kept(a, b, c, d, seed, places, rate, DROPOUT: tl.constexpr):
    """ReLU and dropout of four values, then the largest, rescaled; and which it is, 4 where nothing is left."""
    if DROPOUT:
        r0, r1, r2, r3 = tl.rand4x(tl.load(seed), places.to(tl.int32), _ROUNDS)
        a = tl.where(r0 >= rate, a, 0.0)
        b = tl.where(r1 >= rate, b, 0.0)
        c = tl.where(r2 >= rate, c, 0.0)
        d = tl.where(r3 >= rate, d, 0.0)
    best = _larger(_larger(_larger(a, b), _larger(c, d)), 0.0)
    which = tl.where(a == best, 0, tl.where(b == best, 1, tl.where(c == best, 2, 3)))
    which = tl.where(best > 0, which, 4)
    if DROPOUT:
        best = best / (1.0 - rate)
    return best, which


@triton.jit
def _pixels(block, n_pixels, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIXELS: tl.constexpr):
    """Pixels of a block of maps of some rows and columns, whether they are there, their images, rows and columns.

    Divisions of long integers are slow: they are done once for a block, and within it those of short ones.
    """
    first = tl.cast(block, tl.int64) * PIXELS
    before = first // (ROWS * COLUMNS)
    inside = tl.cast(first - before * (ROWS * COLUMNS), tl.int32) + tl.arange(0, PIXELS)
    image, inside = before + inside // (ROWS * COLUMNS), inside % (ROWS * COLUMNS)
    pixels = first + tl.arange(0, PIXELS)
    return pixels, pixels < n_pixels, image, inside // COLUMNS, inside % COLUMNS


@triton.jit
def _corner(image, row, column, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Upper left of the pixels that a pooled one is made of."""
    return (image * HEIGHT + row * 2) * WIDTH + column * 2


@triton.jit
def _keep_channels(best, which, mask, factor, image, channels, valid, known, n_channels):
    """Dropout of whole channels: `mask` has 1 or 0 for each image and channel, and what is kept grows by `factor`."""
    places = image[:, None] * n_channels + channels[None, :]
    kept = tl.load(mask + places, mask=valid[:, None] & known[None, :], other=0.0)
    return best * (kept * factor), tl.where(kept > 0, which, 4)


@triton.jit
def _three(x, corner, valid):
    """Three neighbours of an image, one for each pooled pixel, to be spread over channels."""
    first = tl.load(x + corner, mask=valid, other=0.0)
    second = tl.load(x + corner + 1, mask=valid, other=0.0)
    third = tl.load(x + corner + 2, mask=valid, other=0.0)
    return first[:, None], second[:, None], third[:, None]


@triton.jit
def image_forward(
    x, weight, bias, seed, mask, out, chosen, n_pixels, n_channels, rate, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    DROPOUT: tl.constexpr, WHOLE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Convolution of an image of one channel, ReLU, dropout, pooling."""
    pixels, valid, image, row, column = _pixels(tl.program_id(0), n_pixels, ROWS, COLUMNS, PIXELS)
    corner = _corner(image, row, column, HEIGHT, WIDTH)
    channels = tl.arange(0, CHANNELS)
    known = channels < n_channels
    x00, x01, x02 = _three(x, corner, valid)
    x10, x11, x12 = _three(x, corner + WIDTH, valid)
    x20, x21, x22 = _three(x, corner + 2 * WIDTH, valid)
    w0 = tl.load(weight + channels * 4, mask=known, other=0.0)[None, :]
    w1 = tl.load(weight + channels * 4 + 1, mask=known, other=0.0)[None, :]
    w2 = tl.load(weight + channels * 4 + 2, mask=known, other=0.0)[None, :]
    w3 = tl.load(weight + channels * 4 + 3, mask=known, other=0.0)[None, :]
    w = tl.load(bias + channels, mask=known, other=0.0)[None, :]
    places = pixels[:, None] * n_channels + channels[None, :]
    best, which = _largest_kept(
        w + w0 * x00 + w1 * x01 + w2 * x10 + w3 * x11,
        w + w0 * x01 + w1 * x02 + w2 * x11 + w3 * x12,
        w + w0 * x10 + w1 * x11 + w2 * x20 + w3 * x21,
        w + w0 * x11 + w1 * x12 + w2 * x21 + w3 * x22,
        seed, places, rate, DROPOUT,
    )  # fmt: skip
    if WHOLE:
        best, which = _keep_channels(best, which, mask, factor, image, channels, valid, known, n_channels)
    there = valid[:, None] & known[None, :]
    tl.store(out + places, best, mask=there)
    tl.store(chosen + places, which.to(tl.uint8), mask=there)


@triton.jit
def image_backward(
    x, chosen, grad, partial, n_pixels, n_channels, rate, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Gradient in weights and bias, a partial sum for each program."""
    channels = tl.arange(0, CHANNELS)
    known = channels < n_channels
    g0 = tl.zeros((PIXELS, CHANNELS), tl.float32)
    g1 = tl.zeros((PIXELS, CHANNELS), tl.float32)
    g2 = tl.zeros((PIXELS, CHANNELS), tl.float32)
    g3 = tl.zeros((PIXELS, CHANNELS), tl.float32)
    total = tl.zeros((PIXELS, CHANNELS), tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(n_pixels, PIXELS), tl.num_programs(0)):
        pixels, valid, image, row, column = _pixels(block, n_pixels, ROWS, COLUMNS, PIXELS)
        corner = _corner(image, row, column, HEIGHT, WIDTH)
        places = pixels[:, None] * n_channels + channels[None, :]
        mask = valid[:, None] & known[None, :]
        which = tl.load(chosen + places, mask=mask, other=4)
        g = tl.load(grad + places, mask=mask, other=0.0)
        g = tl.where(which < 4, g * factor, 0.0)
        x00, x01, x02 = _three(x, corner, valid)
        x10, x11, x12 = _three(x, corner + WIDTH, valid)
        x20, x21, x22 = _three(x, corner + 2 * WIDTH, valid)
        upper, left = which < 2, (which & 1) == 0
        total += g
        g0 += g * tl.where(upper, tl.where(left, x00, x01), tl.where(left, x10, x11))
        g1 += g * tl.where(upper, tl.where(left, x01, x02), tl.where(left, x11, x12))
        g2 += g * tl.where(upper, tl.where(left, x10, x11), tl.where(left, x20, x21))
        g3 += g * tl.where(upper, tl.where(left, x11, x12), tl.where(left, x21, x22))
    mine = partial + tl.program_id(0) * 5 * n_channels + channels
    tl.store(mine, tl.sum(g0, 0) / (1.0 - rate), mask=known)
    tl.store(mine + n_channels, tl.sum(g1, 0) / (1.0 - rate), mask=known)
    tl.store(mine + 2 * n_channels, tl.sum(g2, 0) / (1.0 - rate), mask=known)
    tl.store(mine + 3 * n_channels, tl.sum(g3, 0) / (1.0 - rate), mask=known)
    tl.store(mine + 4 * n_channels, tl.sum(total, 0) / (1.0 - rate), mask=known)


@triton.jit
def map_forward(
    y, bias, seed, mask, out, chosen, n_pixels, n_channels, rate, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    DROPOUT: tl.constexpr, WHOLE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Bias of a convolution's map, ReLU, dropout, pooling."""
    pixels, valid, image, row, column = _pixels(tl.program_id(0), n_pixels, ROWS, COLUMNS, PIXELS)
    corner = _corner(image, row, column, HEIGHT, WIDTH)
    channels = tl.arange(0, CHANNELS)
    known = channels < n_channels
    there = valid[:, None] & known[None, :]
    upper = y + corner[:, None] * n_channels + channels[None, :]
    lower = upper + WIDTH * n_channels
    b = tl.load(bias + channels, mask=known, other=0.0)[None, :]
    places = pixels[:, None] * n_channels + channels[None, :]
    best, which = _largest_kept(
        b + tl.load(upper, mask=there, other=0.0),
        b + tl.load(upper + n_channels, mask=there, other=0.0),
        b + tl.load(lower, mask=there, other=0.0),
        b + tl.load(lower + n_channels, mask=there, other=0.0),
        seed, places, rate, DROPOUT,
    )  # fmt: skip
    if WHOLE:
        best, which = _keep_channels(best, which, mask, factor, image, channels, valid, known, n_channels)
    tl.store(out + places, best, mask=there)
    tl.store(chosen + places, which.to(tl.uint8), mask=there)


@triton.jit
def map_backward(
    chosen, grad, out, partial, n_pixels, n_channels, rate, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Gradient in the map, and in the bias a partial sum for each program."""
    channels = tl.arange(0, CHANNELS)
    known = channels < n_channels
    total = tl.zeros((PIXELS, CHANNELS), tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(n_pixels, PIXELS), tl.num_programs(0)):
        pixels, valid, image, row, column = _pixels(block, n_pixels, ROWS, COLUMNS, PIXELS)
        corner = _corner(image, row, column, HEIGHT, WIDTH)
        places = pixels[:, None] * n_channels + channels[None, :]
        mask = valid[:, None] & known[None, :]
        which = tl.load(chosen + places, mask=mask, other=4)
        g = tl.load(grad + places, mask=mask, other=0.0)
        g = g * factor / (1.0 - rate)
        total += tl.where(which < 4, g, 0.0)
        upper = out + corner[:, None] * n_channels + channels[None, :]
        lower = upper + WIDTH * n_channels
        tl.store(upper, tl.where(which == 0, g, 0.0), mask=mask)
        tl.store(upper + n_channels, tl.where(which == 1, g, 0.0), mask=mask)
        tl.store(lower, tl.where(which == 2, g, 0.0), mask=mask)
        tl.store(lower + n_channels, tl.where(which == 3, g, 0.0), mask=mask)
    tl.store(partial + tl.program_id(0) * n_channels + channels, tl.sum(total, 0), mask=known)


# ----------------------------------------------------------------------------------------------------------------------
# Triton kernels of `_pooled` for maps of many channels: convolution, ReLU, dropout and pooling in one pass.
#
# Maps are channels-last in memory, weights too: (after, tap, before). The kernel of the convolution has 2 x 2 taps, and
# four positions are pooled. So a pooled value is made of a 3 x 3 window of pixels, and the unpooled map is never
# written. Taps and positions are numbered alike: upper left, upper right, lower left, lower right.


@triton.jit
def convolution_forward(
    x, weight, bias, seed, mask, out, chosen, n_pixels, rate, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, DROPOUT: tl.constexpr, WHOLE: tl.constexpr,
    PRECISION: tl.constexpr, PIXELS: tl.constexpr, PART_BEFORE: tl.constexpr, PART_AFTER: tl.constexpr,
):  # fmt: skip
    """Pooled values of some pixels and channels: a matrix product for each position and tap."""
    pixels, valid, image, row, column = _pixels(tl.program_id(0), n_pixels, ROWS, COLUMNS, PIXELS)
    corner = _corner(image, row, column, HEIGHT, WIDTH)
    channels = tl.program_id(1) * PART_AFTER + tl.arange(0, PART_AFTER)
    inner = tl.arange(0, PART_BEFORE)
    start, there = x + corner[:, None] * BEFORE + inner[None, :], valid[:, None]
    a = tl.zeros((PIXELS, PART_AFTER), tl.float32)
    b = tl.zeros((PIXELS, PART_AFTER), tl.float32)
    c = tl.zeros((PIXELS, PART_AFTER), tl.float32)
    d = tl.zeros((PIXELS, PART_AFTER), tl.float32)
    for step in range(4 * BEFORE // PART_BEFORE):
        tap, part = step // (BEFORE // PART_BEFORE), step % (BEFORE // PART_BEFORE) * PART_BEFORE
        w = tl.load(weight + channels[None, :] * 4 * BEFORE + tap * BEFORE + part + inner[:, None])
        upper = start + (tap // 2 * WIDTH + tap % 2) * BEFORE + part
        lower = upper + WIDTH * BEFORE
        a = tl.dot(tl.load(upper, mask=there, other=0.0), w, a, input_precision=PRECISION)
        b = tl.dot(tl.load(upper + BEFORE, mask=there, other=0.0), w, b, input_precision=PRECISION)
        c = tl.dot(tl.load(lower, mask=there, other=0.0), w, c, input_precision=PRECISION)
        d = tl.dot(tl.load(lower + BEFORE, mask=there, other=0.0), w, d, input_precision=PRECISION)
    e = tl.load(bias + channels)[None, :]
    places = pixels[:, None] * AFTER + channels[None, :]
    best, which = _largest_kept(e + a, e + b, e + c, e + d, seed, places, rate, DROPOUT)
    if WHOLE:
        best, which = _keep_channels(best, which, mask, factor, image, channels, valid, channels < AFTER, AFTER)
    tl.store(out + places, best, mask=there)
    tl.store(chosen + places, which.to(tl.uint8), mask=there)


@triton.jit
def _windows(
    grad, chosen, image, row, column, channels, valid,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """Gradient in pooled values and the position that each came from; where there is no window, none."""
    there = (valid & (row >= 0) & (row < ROWS) & (column >= 0) & (column < COLUMNS))[:, None]
    places = ((image * ROWS + row) * COLUMNS + column)[:, None] * AFTER + channels[None, :]
    return tl.load(grad + places, mask=there, other=0.0), tl.load(chosen + places, mask=there, other=4)


@triton.jit
def _times(total, g, which, position: tl.constexpr, w, PRECISION: tl.constexpr):
    """Add what comes from one position, through the weights of a tap."""
    return tl.dot(tl.where(which == position, g, 0.0), w, total, input_precision=PRECISION)


@triton.jit
def convolution_backward(
    chosen, grad, weight, out, n_cells, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    BEFORE: tl.constexpr, AFTER: tl.constexpr,
    PRECISION: tl.constexpr, PIXELS: tl.constexpr, PART_BEFORE: tl.constexpr, PART_AFTER: tl.constexpr,
):  # fmt: skip
    """Gradient in the map, for cells of 2 x 2 pixels. Each has pixels of four windows: its own, left, above, both."""
    down: tl.constexpr = (HEIGHT + 1) // 2
    across: tl.constexpr = (WIDTH + 1) // 2
    _, valid, image, row, column = _pixels(tl.program_id(0), n_cells, down, across, PIXELS)
    corner = _corner(image, row, column, HEIGHT, WIDTH)
    channels = tl.program_id(1) * PART_BEFORE + tl.arange(0, PART_BEFORE)
    a = tl.zeros((PIXELS, PART_BEFORE), tl.float32)
    b = tl.zeros((PIXELS, PART_BEFORE), tl.float32)
    c = tl.zeros((PIXELS, PART_BEFORE), tl.float32)
    d = tl.zeros((PIXELS, PART_BEFORE), tl.float32)
    for part in range(0, AFTER, PART_AFTER):
        inner = part + tl.arange(0, PART_AFTER)
        tap = weight + channels[None, :] * AFTER + inner[:, None]
        w0, w1 = tl.load(tap), tl.load(tap + BEFORE * AFTER)
        w2, w3 = tl.load(tap + 2 * BEFORE * AFTER), tl.load(tap + 3 * BEFORE * AFTER)
        g, which = _windows(grad, chosen, image, row, column, inner, valid, ROWS, COLUMNS, AFTER)
        a = _times(a, g, which, 0, w0, PRECISION)
        b = _times(_times(b, g, which, 0, w1, PRECISION), g, which, 1, w0, PRECISION)
        c = _times(_times(c, g, which, 0, w2, PRECISION), g, which, 2, w0, PRECISION)
        d = _times(_times(d, g, which, 0, w3, PRECISION), g, which, 1, w2, PRECISION)
        d = _times(_times(d, g, which, 2, w1, PRECISION), g, which, 3, w0, PRECISION)
        g, which = _windows(grad, chosen, image, row, column - 1, inner, valid, ROWS, COLUMNS, AFTER)
        a = _times(a, g, which, 1, w1, PRECISION)
        c = _times(_times(c, g, which, 1, w3, PRECISION), g, which, 3, w1, PRECISION)
        g, which = _windows(grad, chosen, image, row - 1, column, inner, valid, ROWS, COLUMNS, AFTER)
        a = _times(a, g, which, 2, w2, PRECISION)
        b = _times(_times(b, g, which, 2, w3, PRECISION), g, which, 3, w2, PRECISION)
        g, which = _windows(grad, chosen, image, row - 1, column - 1, inner, valid, ROWS, COLUMNS, AFTER)
        a = _times(a, g, which, 3, w3, PRECISION)
    upper = out + corner[:, None] * BEFORE + channels[None, :]
    lower = upper + WIDTH * BEFORE
    right, below = valid & (2 * column + 1 < WIDTH), valid & (2 * row + 1 < HEIGHT)
    tl.store(upper, a * factor, mask=valid[:, None])
    tl.store(upper + BEFORE, b * factor, mask=right[:, None])
    tl.store(lower, c * factor, mask=below[:, None])
    tl.store(lower + BEFORE, d * factor, mask=(right & below)[:, None])


@triton.jit
def _taps(w0, w1, w2, w3, g, which, position: tl.constexpr, x0, x1, x2, x3, PRECISION: tl.constexpr):
    """Add the products of a position's gradients and the pixels that the four taps saw there."""
    here = tl.trans(tl.where(which == position, g, 0.0))
    w0 = tl.dot(here, x0, w0, input_precision=PRECISION)
    w1 = tl.dot(here, x1, w1, input_precision=PRECISION)
    w2 = tl.dot(here, x2, w2, input_precision=PRECISION)
    return w0, w1, w2, tl.dot(here, x3, w3, input_precision=PRECISION)


@triton.jit
def convolution_weights(
    x, chosen, grad, partial, partial_bias, n_pixels, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    BEFORE: tl.constexpr, AFTER: tl.constexpr,
    PRECISION: tl.constexpr, PIXELS: tl.constexpr, PART_BEFORE: tl.constexpr, PART_AFTER: tl.constexpr,
):  # fmt: skip
    """Gradient in weights and bias, a partial sum for each program."""
    channels = tl.program_id(1) * PART_AFTER + tl.arange(0, PART_AFTER)
    inner = tl.program_id(2) * PART_BEFORE + tl.arange(0, PART_BEFORE)
    w0 = tl.zeros((PART_AFTER, PART_BEFORE), tl.float32)
    w1 = tl.zeros((PART_AFTER, PART_BEFORE), tl.float32)
    w2 = tl.zeros((PART_AFTER, PART_BEFORE), tl.float32)
    w3 = tl.zeros((PART_AFTER, PART_BEFORE), tl.float32)
    total = tl.zeros((PIXELS, PART_AFTER), tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(n_pixels, PIXELS), tl.num_programs(0)):
        pixels, valid, image, row, column = _pixels(block, n_pixels, ROWS, COLUMNS, PIXELS)
        there = valid[:, None]
        corner = _corner(image, row, column, HEIGHT, WIDTH)
        places = pixels[:, None] * AFTER + channels[None, :]
        which = tl.load(chosen + places, mask=there, other=4)
        g = tl.load(grad + places, mask=there, other=0.0)
        total += tl.where(which < 4, g * factor, 0.0)
        upper = x + corner[:, None] * BEFORE + inner[None, :]
        middle, lower = upper + WIDTH * BEFORE, upper + 2 * WIDTH * BEFORE
        x00, x01, x02 = _three_pixels(upper, there, BEFORE)
        x10, x11, x12 = _three_pixels(middle, there, BEFORE)
        x20, x21, x22 = _three_pixels(lower, there, BEFORE)
        w0, w1, w2, w3 = _taps(w0, w1, w2, w3, g, which, 0, x00, x01, x10, x11, PRECISION)
        w0, w1, w2, w3 = _taps(w0, w1, w2, w3, g, which, 1, x01, x02, x11, x12, PRECISION)
        w0, w1, w2, w3 = _taps(w0, w1, w2, w3, g, which, 2, x10, x11, x20, x21, PRECISION)
        w0, w1, w2, w3 = _taps(w0, w1, w2, w3, g, which, 3, x11, x12, x21, x22, PRECISION)
    program = tl.program_id(0).to(tl.int64)
    mine = partial + ((program * AFTER + channels[:, None]) * 4) * BEFORE + inner[None, :]
    tl.store(mine, w0 * factor)
    tl.store(mine + BEFORE, w1 * factor)
    tl.store(mine + 2 * BEFORE, w2 * factor)
    tl.store(mine + 3 * BEFORE, w3 * factor)
    if tl.program_id(2) == 0:
        tl.store(partial_bias + program * AFTER + channels, tl.sum(total, 0))


@triton.jit
def _three_pixels(start, there, BEFORE: tl.constexpr):
    first = tl.load(start, mask=there, other=0.0)
    second = tl.load(start + BEFORE, mask=there, other=0.0)
    return first, second, tl.load(start + 2 * BEFORE, mask=there, other=0.0)
