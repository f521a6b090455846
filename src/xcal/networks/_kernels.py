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
    """ReLU and dropout of four values, then the largest, not yet rescaled; and which it is, 4 where nothing is left."""
    if DROPOUT:
        r0, r1, r2, r3 = tl.rand4x(tl.load(seed), places.to(tl.int32), _ROUNDS)
        a = tl.where(r0 >= rate, a, 0.0)
        b = tl.where(r1 >= rate, b, 0.0)
        c = tl.where(r2 >= rate, c, 0.0)
        d = tl.where(r3 >= rate, d, 0.0)
    best = _larger(_larger(_larger(a, b), _larger(c, d)), 0.0)
    which = tl.where(a == best, 0, tl.where(b == best, 1, tl.where(c == best, 2, 3)))
    return best, tl.where(best > 0, which, 4)


@triton.jit
def _pixels(block, n_pixels, rows, columns, height, width, PIXELS: tl.constexpr):
    """Pooled pixels of a block, whether they are there, and the upper left of the four pixels that each is made of."""
    pixels = (block * PIXELS + tl.arange(0, PIXELS)).to(tl.int64)
    image, inside = pixels // (rows * columns), pixels % (rows * columns)
    return pixels, pixels < n_pixels, (image * height + inside // columns * 2) * width + inside % columns * 2


@triton.jit
def _kept_channels(scale, pixels, valid, channels, known, rows, columns, n_channels):
    """Return what dropout of whole channels multiplies by, a number for each image and channel, at every pixel."""
    places = pixels[:, None] // (rows * columns) * n_channels + channels[None, :]
    return tl.load(scale + places, mask=valid[:, None] & known[None, :], other=0.0)


@triton.jit
def _three(x, corner, valid):
    """Three neighbours of an image, one for each pooled pixel, to be spread over channels."""
    first = tl.load(x + corner, mask=valid, other=0.0)
    second = tl.load(x + corner + 1, mask=valid, other=0.0)
    third = tl.load(x + corner + 2, mask=valid, other=0.0)
    return first[:, None], second[:, None], third[:, None]


@triton.jit
def image_forward(
    x, weight, bias, seed, scale, out, chosen, n_pixels, rows, columns, height, width, n_channels, rate,
    DROPOUT: tl.constexpr, WHOLE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Convolution of an image of one channel, ReLU, dropout, pooling."""
    pixels, valid, corner = _pixels(tl.program_id(0), n_pixels, rows, columns, height, width, PIXELS)
    channels = tl.arange(0, CHANNELS)
    known = channels < n_channels
    x00, x01, x02 = _three(x, corner, valid)
    x10, x11, x12 = _three(x, corner + width, valid)
    x20, x21, x22 = _three(x, corner + 2 * width, valid)
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
    mask = valid[:, None] & known[None, :]
    best = best / (1.0 - rate)
    if WHOLE:
        best = best * _kept_channels(scale, pixels, valid, channels, known, rows, columns, n_channels)
    tl.store(out + places, best, mask=mask)
    tl.store(chosen + places, which.to(tl.uint8), mask=mask)


@triton.jit
def image_backward(
    x, chosen, grad, scale, partial, n_pixels, rows, columns, height, width, n_channels, rate,
    WHOLE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
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
        pixels, valid, corner = _pixels(block, n_pixels, rows, columns, height, width, PIXELS)
        places = pixels[:, None] * n_channels + channels[None, :]
        mask = valid[:, None] & known[None, :]
        which = tl.load(chosen + places, mask=mask, other=4)
        g = tl.load(grad + places, mask=mask, other=0.0)
        if WHOLE:
            g = g * _kept_channels(scale, pixels, valid, channels, known, rows, columns, n_channels)
        g = tl.where(which < 4, g, 0.0)
        x00, x01, x02 = _three(x, corner, valid)
        x10, x11, x12 = _three(x, corner + width, valid)
        x20, x21, x22 = _three(x, corner + 2 * width, valid)
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
    y, bias, seed, scale, out, chosen, n_pixels, rows, columns, height, width, n_channels, rate,
    DROPOUT: tl.constexpr, WHOLE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Bias of a convolution's map, ReLU, dropout, pooling."""
    pixels, valid, corner = _pixels(tl.program_id(0), n_pixels, rows, columns, height, width, PIXELS)
    channels = tl.arange(0, CHANNELS)
    known = channels < n_channels
    mask = valid[:, None] & known[None, :]
    upper = y + corner[:, None] * n_channels + channels[None, :]
    lower = upper + width * n_channels
    b = tl.load(bias + channels, mask=known, other=0.0)[None, :]
    places = pixels[:, None] * n_channels + channels[None, :]
    best, which = _largest_kept(
        b + tl.load(upper, mask=mask, other=0.0),
        b + tl.load(upper + n_channels, mask=mask, other=0.0),
        b + tl.load(lower, mask=mask, other=0.0),
        b + tl.load(lower + n_channels, mask=mask, other=0.0),
        seed, places, rate, DROPOUT,
    )  # fmt: skip
    best = best / (1.0 - rate)
    if WHOLE:
        best = best * _kept_channels(scale, pixels, valid, channels, known, rows, columns, n_channels)
    tl.store(out + places, best, mask=mask)
    tl.store(chosen + places, which.to(tl.uint8), mask=mask)


@triton.jit
def map_backward(
    chosen, grad, scale, out, partial, n_pixels, rows, columns, height, width, n_channels, rate,
    WHOLE: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Gradient in the map, and in the bias a partial sum for each program."""
    channels = tl.arange(0, CHANNELS)
    known = channels < n_channels
    total = tl.zeros((PIXELS, CHANNELS), tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(n_pixels, PIXELS), tl.num_programs(0)):
        pixels, valid, corner = _pixels(block, n_pixels, rows, columns, height, width, PIXELS)
        places = pixels[:, None] * n_channels + channels[None, :]
        mask = valid[:, None] & known[None, :]
        which = tl.load(chosen + places, mask=mask, other=4)
        g = tl.load(grad + places, mask=mask, other=0.0)
        if WHOLE:
            g = g * _kept_channels(scale, pixels, valid, channels, known, rows, columns, n_channels)
        g = g / (1.0 - rate)
        total += tl.where(which < 4, g, 0.0)
        upper = out + corner[:, None] * n_channels + channels[None, :]
        lower = upper + width * n_channels
        tl.store(upper, tl.where(which == 0, g, 0.0), mask=mask)
        tl.store(upper + n_channels, tl.where(which == 1, g, 0.0), mask=mask)
        tl.store(lower, tl.where(which == 2, g, 0.0), mask=mask)
        tl.store(lower + n_channels, tl.where(which == 3, g, 0.0), mask=mask)
    tl.store(partial + tl.program_id(0) * n_channels + channels, tl.sum(total, 0), mask=known)
