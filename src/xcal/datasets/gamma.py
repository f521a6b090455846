"""The simulated gamma data of the paper (appendix, "Data Details for Simulation Study")."""

from collections.abc import Sequence

import numpy as np

from xcal._checks import fail
from xcal.data import SurvivalData
from xcal.data._arguments import check_count, check_flag, check_seed
from xcal.datasets.rows import Array64, SurvivalDataset

VARIANCE = 1e-3
"""Variance of each row's failure time, whatever its mean (also in survival MNIST)."""

N_FEATURES = 32
FEATURE_VARIANCE = 10.0
WEIGHT_BOUND = 0.1

# A mean of .01 has a gamma shape of .1, whose draws can be too small for float32. They become the smallest normal
# float32, so that a time is positive in either precision.
SMALLEST_TIME = float(np.finfo(np.float32).tiny)


def gamma_times(rng: np.random.Generator, mean: Array64) -> Array64:
    """One draw a row of a gamma with the given mean and variance 1e-3 (shape mean²/v, scale v/mean)."""
    return np.maximum(rng.gamma(shape=mean**2 / VARIANCE, scale=VARIANCE / mean), SMALLEST_TIME)


def load_gamma(
    *, censored: bool, n: Sequence[int] = (100_000, 50_000, 50_000), seed: int, bias: bool = False
) -> SurvivalDataset:
    r"""Simulate gamma failure times whose log-mean is linear in 32 normal features.

    .. math:: x_i \sim N(0, 10 I_{32}), \quad w_d \sim U(-0.1, 0.1), \quad \mu_i = \exp(w^\top x_i), \quad
        t_i \sim \mathrm{Gamma}(\text{mean } \mu_i, \text{variance } 10^{-3})

    Censoring times are drawn likewise with other weights, so failure and censoring are independent given the features;
    about half of the rows are censored.

    Parameters
    ----------
    censored : bool
        False discards the censoring times: every row is an event. Features, weights and failure times are the same as
        with True.
    n : three ints
        Rows of train, validation and test.
    seed : int
        The same seed gives the same data. The three splits share the weights and nothing else: each has its own
        random stream, so that changing the size of one leaves the others as they are.
    bias : bool
        True adds a constant, drawn from U(-0.1, 0.1), to each linear function, as the published code does (its
        failure and its censoring times each have one). The paper's text has none.

    Returns
    -------
    SurvivalDataset
        With the true mean of each row's failure time in ``extra["mean"]``.

    Examples
    --------
    >>> data = load_gamma(censored=True, n=(1000, 500, 500), seed=0)
    >>> bool((data.train.time > 0).all()), bool(0.4 < data.train.event.mean() < 0.6)
    (True, True)
    """
    check_flag("censored", censored)
    check_flag("bias", bias)
    if isinstance(n, str) or not isinstance(n, Sequence) or len(n) != 3:
        fail("n", "three numbers of rows: train, validation, test", repr(n))
    sizes = [check_count(f"n[{i}]", size, 1) for i, size in enumerate(n)]
    weight_seed, *split_seeds = np.random.SeedSequence(check_seed("seed", seed)).spawn(4)

    rng = np.random.default_rng(weight_seed)
    failure_weights, censoring_weights = rng.uniform(-WEIGHT_BOUND, WEIGHT_BOUND, size=(2, N_FEATURES))
    # Drawn last, so that the weights do not depend on the option.
    failure_bias, censoring_bias = rng.uniform(-WEIGHT_BOUND, WEIGHT_BOUND, size=2) if bias else (0.0, 0.0)

    names = tuple(f"x{i}" for i in range(N_FEATURES))
    name = f"gamma, {'censored' if censored else 'uncensored'}{', with bias' if bias else ''}"

    def draw(size: int, split_seed: np.random.SeedSequence) -> SurvivalData:
        features, failures, censorings = (np.random.default_rng(child) for child in split_seed.spawn(3))
        x = features.normal(scale=np.sqrt(FEATURE_VARIANCE), size=(size, N_FEATURES)).astype(np.float32)
        # From the features as stored, so that `mean` is exact for them.
        mean = np.exp(x.astype(np.float64) @ failure_weights + failure_bias)
        time = gamma_times(failures, mean)
        event = np.ones(size, dtype=np.bool_)
        if censored:
            censoring = gamma_times(censorings, np.exp(x.astype(np.float64) @ censoring_weights + censoring_bias))
            event = time <= censoring
            time = np.minimum(time, censoring)
        return SurvivalData(x, time, event, extra={"mean": mean}, feature_names=names, name=name)

    return SurvivalDataset(name, *(draw(size, child) for size, child in zip(sizes, split_seeds, strict=True)))
