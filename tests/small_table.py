"""A table of the paper's kind that is small enough for a test or for a kill."""

TEXT = """
table = "small"
kind = "{kind}"
title = "A small table"
paper = "gamma-censored"
variant = "as-published"
lambdas = {lambdas}
seeds = {seeds}
calibration_bins = 20
time_bins = 10
job = "{job}"

[data]
name = "gamma"
seed = 0
n = [{n}, 300, 400]
groups = "mean-quartiles"

[training]
epochs = {epochs}
batch_size = 200
learning_rate = 1e-3

[variants.as-published]
bias = true
test_rows = 250

[variants.corrected]

[[models]]
name = "lognormal-nll"
label = "Log-normal"
distribution = "lognormal"
network = "mlp"
hidden = [16]

[[models]]
name = "categorical-ni"
label = "Categorical"
distribution = "categorical"
interpolation = "step"
network = "mlp"
hidden = [16]

[[models]]
name = "mtlr-i"
label = "MTLR"
distribution = "mtlr"
interpolation = "linear"
network = "linear"
"""


def small_table(
    *, kind: str = "path", job: str = "model", lambdas: int = 2, seeds: int = 2, n: int = 600, epochs: int = 2
) -> str:
    """Return the text of a spec with so many values of lambda (0, 10, 20, ...), seeds, training rows and epochs."""
    weights, numbers = [10 * k for k in range(lambdas)], list(range(seeds))
    return TEXT.format(kind=kind, job=job, lambdas=weights, seeds=numbers, n=n, epochs=epochs)
