"""A table small enough for a test, and where the real data files are."""

import pytest

SMALL = """
table = "small"
kind = "{kind}"
title = "A small table"
paper = "gamma-censored"
variant = "as-published"
lambdas = [0, 10]
seeds = [0, 1]
calibration_bins = 20
time_bins = 10
job = "{job}"

[data]
name = "gamma"
seed = 0
n = [600, 300, 400]
groups = "mean-quartiles"

[training]
epochs = 2
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


@pytest.fixture
def small(tmp_path):
    """A function that writes a small spec, changed by (old, new) pairs of text, and returns its path."""

    def write(*changes, kind="path", job="model", name="small.toml"):
        text = SMALL.format(kind=kind, job=job)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
