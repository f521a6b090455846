"""The test of conditional calibration: random signs on blocks of rows give what a right model would show.

Block sums of a right model have mean zero and are independent, so that all signs of them are equally likely. A sum of
products of two blocks is compared with the same sum under random signs.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Parts of the test are compared in units of this quantile of each: near the level at which tests are read, their tails
# then count the same. In units of the standard deviation the part with the longer tail would outweigh the other.
_QUANTILE = 0.95
_DRAWN = 1 << 24  # signs that are drawn at a time


def noise_of(products: Floats) -> float:
    """Return the standard deviation over random signs of the sum of all products of two blocks, (blocks, blocks).

    Signs make every pair of blocks +1 or -1: mean zero, and the variance is twice the sum of squared products.
    """
    return float(np.sqrt(2 * np.square(products).sum()))


def parts_of(products: Floats, average: Floats, along: Floats, length: float) -> list[Floats]:
    """Split the products of two blocks: those of the average over all rows, and those of the features less their means.

    `average` has the sums of residuals by block, (blocks, B), `along` those of residuals times the part of the features
    along their mean, and `length` is the squared length of that mean.
    """
    common = average @ average.T
    crossed = along @ average.T
    beyond = products - crossed - crossed.T + length * common
    for part in (common, beyond):
        np.fill_diagonal(part, 0.0)
    # Where all rows have the same features only rounding is left of what differs.
    return [common, beyond] if noise_of(beyond) > 1e-9 * noise_of(products) else [common]


def p_value_of(parts: list[Floats], n_draws: int, rng: np.random.Generator) -> float:
    """Compare the largest of some sums of products with what random signs give.

    The p-value is (1 + draws at least as large as what was found) / (1 + draws). The unit of each part is the same for
    what was found and for all draws, so that under a right model every one of them is equally likely to be the largest.
    """
    parts = [part / noise for part in parts if (noise := noise_of(part)) > 0]
    if not parts:
        return 1.0
    drawn = np.concatenate(list(_signed(parts, n_draws, rng)), axis=1)
    values = np.append(drawn, [[part.sum()] for part in parts], axis=1)  # (parts, draws + 1)
    units = np.maximum(np.quantile(values, _QUANTILE, axis=1, keepdims=True), 1.0)
    largest = np.max(values / units, axis=0)
    return float(np.count_nonzero(largest >= largest[-1]) / (1 + n_draws))


def _signed(parts: list[Floats], n_draws: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield the sums of the products of two blocks under random signs, (parts, draws), some draws at a time."""
    blocks = parts[0].shape[0]
    some = max(1, _DRAWN // blocks)
    for start in range(0, n_draws, some):
        signs = rng.choice(np.array([-1.0, 1.0]), size=(min(some, n_draws - start), blocks))
        yield np.stack([np.einsum("dg,dg->d", signs @ part, signs) for part in parts])
