"""Triton kernels of `_pooled`. Maps are channels-last in memory: (images, rows, columns, channels)."""

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
